"""The grammar of selectors, and what they select."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sc.api.selectors import Operator, Selection, Term, parse_labels
from schemas.errors import InvalidRequestError

LABELS = {"team": "x", "env": "prod", "empty": "", "a.b/c-d_e": "1"}


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ("", True),
        ("  ", True),
        ("team=x", True),
        ("team==x", True),
        (" team = x ", True),
        ("team=y", False),
        ("absent=x", False),
        ("team!=x", False),
        ("team!=y", True),
        ("absent!=x", True),
        ("team in (x)", True),
        ("team in (y, x)", True),
        ("team in ( y,z )", False),
        ("absent in (x)", False),
        ("team notin (x,y)", False),
        ("team notin(y)", True),
        ("absent notin (x)", True),
        ("team", True),
        ("absent", False),
        ("!team", False),
        ("!absent", True),
        ("! absent", True),
        ("empty=", True),
        ("team=", False),
        ("empty in (,x)", True),
        ("team=x,env=prod", True),
        ("team=x,env!=prod", False),
        ("team in (a,x),env notin (dev,test),!absent", True),
        ("a.b/c-d_e=1", True),
        ("in=1", False),
        ("notin", False),
    ],
)
def test_given_selector_then_selected_or_not(selector: str, selected: bool) -> None:
    assert Selection.parse(selector, "").matches("t", LABELS) is selected


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("a=b=c", "'a=b=c' is not a term"),
        ("=x", "'=x' is not a term"),
        ("a b", "'a b' is not a term"),
        ("a in b", "'a in b' is not a term"),
        ("a in (b", "'a in (b' is not a term"),
        ("a in b)", "'a in b)' is not a term"),
        ("a in ((b))", "is not a term"),
        ("a in ()", "'a in ()': values are written as"),
        ("a in (b c)", "'a in (b c)': values are written as"),
        ("a in (b=c)", "'a in (b=c)': values are written as"),
        ("a > 3", "'a > 3' is not a term"),
        ("!a=b", "'!a=b' is not a term"),
        ("!", "'!' is not a term"),
        (",", "a term is empty"),
        ("a,", "a term is empty"),
        ("a=b,,c=d", "a term is empty"),
    ],
)
def test_given_what_is_no_selector_then_the_term_is_named(selector: str, message: str) -> None:
    with pytest.raises(InvalidRequestError) as raised:
        parse_labels(selector)
    assert raised.value.message.startswith("labelSelector: ")
    assert message in raised.value.message


def test_given_terms_then_parsed_as_written() -> None:
    assert parse_labels("a=b,c notin (d,e),f,!g") == (
        Term("a", Operator.IN, frozenset("b")),
        Term("c", Operator.NOT_IN, frozenset("de")),
        Term("f", Operator.EXISTS),
        Term("g", Operator.ABSENT),
    )


@given(st.text(max_size=40))
def test_any_text_is_a_selector_or_refused(selector: str) -> None:
    try:
        terms = parse_labels(selector)
    except InvalidRequestError:
        return
    for term in terms:
        # Whatever holds for an object without labels does not depend on values.
        assert term.matches({}) is (term.operator in (Operator.NOT_IN, Operator.ABSENT))


WORD = st.text(st.characters(exclude_characters=",()=!", exclude_categories=("Z", "C")), min_size=1)


@given(key=WORD, value=WORD, other=WORD)
def test_equal_and_unequal_and_sets_agree(key: str, value: str, other: str) -> None:
    labels = {key: value}
    for wanted in (value, other):
        equal = Selection.parse(f"{key}={wanted}", "").matches("t", labels)
        assert equal is (wanted == value)
        assert Selection.parse(f"{key}!={wanted}", "").matches("t", labels) is not equal
        assert Selection.parse(f"{key} in ({wanted})", "").matches("t", labels) is equal
        assert Selection.parse(f"{key} notin ({wanted})", "").matches("t", labels) is not equal


@pytest.mark.parametrize("fields", ["metadata.name=t", "metadata.name==t", " metadata.name = t "])
def test_given_name_then_that_object_only(fields: str) -> None:
    selection = Selection.parse("", fields)
    assert selection.matches("t", {})
    assert not selection.matches("t2", {})
    assert not Selection.parse("team=y", fields).matches("t", LABELS)


@pytest.mark.parametrize(
    "fields",
    ["metadata.name", "metadata.name=", "metadata.name!=t", "metadata.name=a,b=c", "spec.x=1"],
)
def test_given_another_field_selector_then_refused(fields: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"write metadata\.name=NAME"):
        Selection.parse("", fields)
