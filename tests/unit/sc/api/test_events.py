"""The ring of events is bounded by number and by bytes."""

from __future__ import annotations

import json

import pytest

from sc.api.events import EventQuery, EventRing
from sc.kv.interface import DeleteEvent, KeyValue, PutEvent
from schemas.objects.keys import ClusterKeys

KEYS = ClusterKeys("test")


def put(ring: EventRing, revision: int, value: bytes | None = None) -> None:
    key = KEYS.object("topics", "orders")
    if value is None:
        value = json.dumps({"metadata": {}, "by": "ann", "cause": "api-1"}).encode()
    ring._append(KEYS, PutEvent(KeyValue(key, value, 1, revision, 1, 0), None), revision, None)


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        pytest.param({"max_events": 2}, ["4", "5"], id="given-a-number"),
        pytest.param({"max_bytes": 150}, ["3", "4", "5"], id="given-bytes"),
    ],
)
async def test_given_more_than_fits_then_the_oldest_are_forgotten(
    bounds: dict[str, int], expected: list[str]
) -> None:
    ring = EventRing(**bounds)
    for revision in range(1, 6):
        put(ring, revision)
    found = await ring.read(EventQuery())
    assert [item.revision for item in found.items] == expected
    assert (found.first_revision, found.complete) == (expected[0], True)


@pytest.mark.parametrize(("after", "expected"), [(0, ["1", "2", "2", "3"]), (2, ["3"]), (3, [])])
async def test_given_a_revision_then_later_ones(after: int, expected: list[str]) -> None:
    ring = EventRing()
    for revision in (1, 2, 2, 3):
        put(ring, revision)
    found = await ring.read(EventQuery(after=after))
    assert ([item.revision for item in found.items], found.complete) == (expected, True)


async def test_given_a_value_that_does_not_parse_then_left_out() -> None:
    ring = EventRing()
    put(ring, 1, b"{")
    put(ring, 2)
    assert [item.revision for item in (await ring.read(EventQuery())).items] == ["2"]


async def test_given_a_deletion_without_its_last_version_then_an_event() -> None:
    ring = EventRing()
    ring._append(KEYS, DeleteEvent(KEYS.object("topics", "x"), 3, None), 3, "2026-01-31T12:00:00Z")
    ring._append(KEYS, DeleteEvent(KEYS.spu_id(1), 4, None), 4, None)
    (item,) = (await ring.read(EventQuery())).items
    assert (item.change, item.name, item.cause, item.by) == ("deleted", "x", "-", None)
