"""JSONPath templates: what kubectl prints for them, and what is wrong with others."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.cli.jsonpath import parse_path, parse_template
from schemas.errors import InvalidRequestError

TOPICS: dict[str, Any] = {
    "items": [
        {
            "metadata": {"name": "orders", "labels": {"team.name": "a", "tier": "gold"}},
            "spec": {"partitions": 3, "system": False, "map": [[0, 1], [1, 2]]},
        },
        {
            "metadata": {"name": "views", "labels": {}},
            "spec": {"partitions": 12, "system": True, "retention": {"time": "7d"}},
        },
        {"metadata": {"name": "clicks"}, "spec": {"partitions": 1, "reason": None}},
    ]
}

RENDERED = {
    "given-a-path": ("{.items[0].metadata.name}", "orders"),
    "given-a-path-without-braces": (".items[0].metadata.name", "orders"),
    "given-a-root": ("{$.items[0].metadata.name}", "orders"),
    "given-no-root": ("{@.items[0].metadata.name}", "orders"),
    "given-spaces": ("{ .items[0].metadata.name }", "orders"),
    "given-text-around": ("name: {.items[0].metadata.name}!", "name: orders!"),
    "given-text-only": ("name", "name"),
    "given-all-then-joined-by-spaces": ("{.items[*].metadata.name}", "orders views clicks"),
    "given-a-range": (
        r'{range .items[*]}{.metadata.name}{"\t"}{.spec.partitions}{"\n"}{end}',
        "orders\t3\nviews\t12\nclicks\t1\n",
    ),
    "given-a-range-within-a-range": (
        "{range .items[0]}{range .spec.map[*]}<{[0]}>{end}{.metadata.name}{end}", "<0><1>orders",
    ),
    "given-the-root-within-a-range": ("{range .items[:2]}{$.items[2].metadata.name},{end}",
                                      "clicks,clicks,"),
    "given-quotes": ("{'a b'}{\"c\"}", "a bc"),
    "given-an-escaped-quote": (r'{"a\"b\\"}', 'a"b\\'),
    "given-the-last": ("{.items[-1].metadata.name}", "clicks"),
    "given-a-slice": ("{.items[0:2].metadata.name}", "orders views"),
    "given-a-slice-without-begin": ("{.items[:1].metadata.name}", "orders"),
    "given-a-slice-with-a-step": ("{.items[0:3:2].metadata.name}", "orders clicks"),
    "given-a-union": ("{.items[0,2].metadata.name}", "orders clicks"),
    "given-names-in-brackets": ("{.items[1]['metadata']['name', \"x\"]}", "views"),
    "given-an-escaped-dot": (r"{.items[0].metadata.labels.team\.name}", "a"),
    "given-a-dot-in-brackets": ("{.items[0].metadata.labels['team.name']}", "a"),
    "given-a-star": ("{.items[0].metadata.labels.*}", "a gold"),
    "given-recursion": ("{..name}", "orders views clicks"),
    "given-recursion-into-brackets": ("{..['time']}", "7d"),
    "given-a-filter": ("{.items[?(@.spec.partitions>2)].metadata.name}", "orders views"),
    "given-a-filter-by-text": ('{.items[?(@.metadata.name == "views")].spec.partitions}', "12"),
    "given-a-filter-by-truth": ("{.items[?(@.spec.system==true)].metadata.name}", "views"),
    "given-a-filter-by-number-then-truth-is-none": (
        "{.items[?(@.spec.system==1)].metadata.name}", "",
    ),
    "given-a-filter-by-presence": ("{.items[?(@.spec.retention)].metadata.name}", "views"),
    "given-a-filter-by-another-path": (
        "{.items[?(@.spec.partitions >= $.items[0].spec.partitions)].metadata.name}",
        "orders views",
    ),
    "given-a-filter-that-compares-other-types-then-nothing": (
        "{.items[?(@.metadata.name < 3)].metadata.name}", "",
    ),
    "given-an-unequal": ("{.items[?(@.spec.partitions!=3.0)].metadata.name}", "views clicks"),
    "given-a-mapping-then-json": ("{.items[1].spec.retention}", '{"time":"7d"}'),
    "given-a-list-then-json": ("{.items[0].spec.map}", "[[0,1],[1,2]]"),
    "given-truth-then-json": ("{.items[1].spec.system}", "true"),
    "given-nothing-of-that-name": ("{.items[0].metadata.nome}", ""),
    "given-no-such-index": ("{.items[9].metadata.name}{.items[-9]}", ""),
    "given-a-field-of-a-text": ("{.items[0].metadata.name.x[0][*]}", ""),
    "given-the-whole": ("{.items[2].metadata}", '{"name":"clicks"}'),
}  # fmt: skip


@pytest.mark.parametrize(("template", "text"), RENDERED.values(), ids=RENDERED)
def test_rendered(template: str, text: str) -> None:
    assert parse_template(template).render(TOPICS) == text


REFUSED = {
    "given-no-closing-brace": ("{.items", 8, "a closing brace is expected, not the end"),
    "given-an-empty-expression": ("{}", 2, "a path is expected"),
    "given-an-end-alone": ("a{end}", 6, "end without range"),
    "given-a-range-without-end": ("{range .items[*]}{.x}", 22, "no {end}"),
    "given-a-range-of-nothing": ("{range}x{end}", 7, "a path is expected"),
    "given-no-closing-bracket": ("{.items[0}", 10, "a closing bracket"),
    "given-an-empty-bracket": ("{.items[]}", 9, "an index, a quoted name"),
    "given-a-name-without-quotes-in-brackets": ("{.items[name]}", 9, "a quoted name"),
    "given-no-closing-quote": ('{"x}', 5, 'no closing "'),
    "given-a-function": ("{.items.length()}", 15, "a closing brace is expected, not '('"),
    "given-a-bad-comparison": ("{.items[?(@.x=1)]}", 14, "a comparison"),
    "given-a-bad-operand": ("{.items[?(@.x==y)]}", 16, "a quoted text, a number"),
    "given-a-script": ("{.items[(@.length-1)]}", 9, "an index"),
    "given-two-dots-at-the-end": ("{.items..}", 10, "the name of a field"),
    "given-a-step-of-nothing": ("{.items[0:2:0]}", 14, "1 or more"),
    "given-too-many-ranges": ("{range .a}" * 9, 87, "more than 8 ranges"),
    "given-more-behind-a-bare-path": (".items x", 8, "'x' is not understood"),
}


@pytest.mark.parametrize(("template", "column", "said"), REFUSED.values(), ids=REFUSED)
def test_refused(template: str, column: int, said: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        parse_template(template)
    assert f"column {column}: " in str(refused.value)
    assert said in str(refused.value)


@pytest.mark.parametrize("text", [".spec.partitions", "spec.partitions", "{.spec.partitions}"])
def test_a_path_alone_is_taken_in_any_form(text: str) -> None:
    item = TOPICS["items"][0]
    assert parse_path(text).find(item, item) == [3]


@given(st.text(alphabet="{}.$@[]?()*'\"\\:,=<>! rangeend0-x", max_size=40))
def test_given_any_text_then_it_is_rendered_or_refused(text: str) -> None:
    try:
        template = parse_template(text)
    except InvalidRequestError:
        return
    assert isinstance(template.render(TOPICS), str)
