"""``get --sort-by``: the order of values, and what cannot be sorted by."""

from __future__ import annotations

import pytest

import runnel
from runnel.cli.objects.order import sorted_by
from schemas.errors import InvalidRequestError
from schemas.objects.metadata import Object

OBJECTS: list[Object] = [
    runnel.Topic("b", partitions=12),
    runnel.Topic("c", partitions=3).with_metadata(labels={"team": "z"}),
    runnel.Topic("a", partitions=3).with_metadata(labels={"team": "y"}),
]

ORDERS = {
    "given-texts": (".metadata.name", "abc"),
    "given-numbers-then-by-size-and-stable": (".spec.partitions", "cab"),
    "given-a-field-that-one-lacks-then-it-is-last": ("{.metadata.labels.team}", "acb"),
    "given-a-mapping-then-as-json-and-those-without-it-last": ("metadata.labels", "acb"),
}


@pytest.mark.parametrize(("path", "names"), ORDERS.values(), ids=ORDERS)
def test_sorted_by(path: str, names: str) -> None:
    assert "".join(obj.name for obj in sorted_by(OBJECTS, path)) == names


@pytest.mark.parametrize(
    ("path", "said"),
    [(".spec.partition", "none of the topics has that field"), (".spec[", "column 7")],
)
def test_refused(path: str, said: str) -> None:
    with pytest.raises(InvalidRequestError, match="--sort-by") as refused:
        sorted_by(OBJECTS, path)
    assert said in str(refused.value)


def test_given_nothing_then_nothing() -> None:
    assert sorted_by([], ".spec.typo") == []
