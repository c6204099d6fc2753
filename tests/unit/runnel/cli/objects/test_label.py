"""``label``: words on the line, and what becomes of an object's labels."""

from __future__ import annotations

import pytest

from runnel.admin.blocking import BlockingAdmin
from runnel.cli.objects.label import split_words
from schemas.errors import ConflictError, InvalidRequestError
from tests.unit.runnel.cli.conftest import CommandLine

WORDS = {
    "given-one-of-both": (["a", "x=1"], (["a"], {"x": "1"})),
    "given-several": (["a", "b", "x=1", "y-"], (["a", "b"], {"x": "1", "y": None})),
    "given-an-empty-value": (["a", "x="], (["a"], {"x": ""})),
    "given-a-value-with-signs": (["a", "x=1=2-"], (["a"], {"x": "1=2-"})),
    "given-a-name-with-a-dash": (["edge-7", "x=1"], (["edge-7"], {"x": "1"})),
}


@pytest.mark.parametrize(("words", "expected"), WORDS.values(), ids=WORDS)
def test_split_words(words: list[str], expected: tuple[list[str], dict[str, str | None]]) -> None:
    assert split_words(words) == expected


REFUSED = {
    "given-no-name": (["x=1"], "which objects?"),
    "given-no-label": (["a"], "which labels?"),
    "given-an-empty-label": (["a", "=1"], "'=1': write LABEL=VALUE"),
    "given-a-dash-alone": (["a", "-"], "'-': write LABEL=VALUE"),
    "given-one-twice": (["a", "x=1", "x-"], "label 'x' is given twice"),
}


@pytest.mark.parametrize(("words", "said"), REFUSED.values(), ids=REFUSED)
def test_refused_words(words: list[str], said: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        split_words(words)
    assert said in str(refused.value)


@pytest.fixture
def orders(command: CommandLine) -> CommandLine:
    for name in ("orders", "views"):
        command.sc.add_topic(name)
    return command


def labels(command: CommandLine, name: str = "orders") -> dict[str, str]:
    return command.sc.objects["topics", name].metadata.labels


def test_labels_are_set_and_removed(orders: CommandLine) -> None:
    done = orders("label", "t", "orders", "views", "team=a", "tier=gold")
    assert (done.code, done.out) == (0, "topic/orders labeled\ntopic/views labeled\n")
    assert labels(orders) == labels(orders, "views") == {"team": "a", "tier": "gold"}
    assert orders("label", "topic", "orders", "team-", "other-").out == "topic/orders labeled\n"
    assert labels(orders) == {"tier": "gold"}
    same = orders("label", "topic", "orders", "tier=gold", "team-")
    assert (same.code, same.out) == (0, "topic/orders unchanged\n")


def test_given_another_value_then_only_with_overwrite(orders: CommandLine) -> None:
    assert orders("label", "topic", "orders", "team=a").code == 0
    refused = orders("label", "topic", "orders", "team=b", "x=1")
    assert (refused.code, "label team is 'a' already" in refused.err) == (4, True)
    assert labels(orders) == {"team": "a"}
    assert orders("label", "topic", "orders", "team=b", "--overwrite").code == 0
    assert labels(orders) == {"team": "b"}


def test_given_no_such_object_then_not_found(orders: CommandLine) -> None:
    done = orders("label", "topic", "ordres", "team=a")
    assert (done.code, "did you mean 'orders'?" in done.err) == (3, True)


@pytest.mark.parametrize(("losses", "code"), [(1, 0), (4, 0), (5, 4)])
def test_given_others_change_it_meanwhile_then_it_is_read_again(
    orders: CommandLine, monkeypatch: pytest.MonkeyPatch, losses: int, code: int
) -> None:
    patch, left = BlockingAdmin.patch, [losses]

    def lose(self: BlockingAdmin, *arguments: object, **options: object) -> object:
        if left[0]:
            left[0] -= 1
            raise ConflictError("it is at another revision")
        return patch(self, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(BlockingAdmin, "patch", lose)
    assert orders("label", "topic", "orders", "team=a").code == code
    assert labels(orders) == ({"team": "a"} if code == 0 else {})


def test_the_revision_that_was_read_is_compared(
    orders: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[object] = []

    def keep(_self: BlockingAdmin, *arguments: object, **_options: object) -> None:
        sent.extend(arguments)

    monkeypatch.setattr(BlockingAdmin, "patch", keep)
    revision = orders.sc.objects["topics", "orders"].metadata.resource_version
    orders("label", "topic", "orders", "team=a")
    metadata = {"labels": {"team": "a"}, "resourceVersion": revision}
    assert sent == ["topics", "orders", {"metadata": metadata}]
