"""Which keys a change wakes: by table. That none is missing is a law of the controllers."""

from __future__ import annotations

import pytest

from sc.controllers.actions import Key
from sc.dispatch.affected import affected_keys, keys_of_session
from sc.store.local_store import Change, LocalStore, ObjectChanged, TombstoneChanged
from schemas.metadata import Object
from schemas.spu import SpuResolution
from schemas.topic import TopicResolution
from tests.unit.sc.builders import partition_of, spu_of, tombstone_of, topic_of

SPU_1, SPU_2 = spu_of(1), spu_of(2)
PLACED = topic_of("placed", TopicResolution.PROVISIONED)
WAITING = [
    topic_of("invalid", TopicResolution.INVALID_CONFIG),
    topic_of("pending", TopicResolution.PENDING),
    topic_of("short", TopicResolution.INSUFFICIENT_RESOURCES),
]
P1, P12, P2 = (
    partition_of(PLACED, 0, (1,)),
    partition_of(PLACED, 1, (1, 2)),
    partition_of(PLACED, 2, (2,)),
)
STORE: list[Object] = [SPU_1, SPU_2, PLACED, *WAITING, P1, P12, P2]

WAITING_KEYS = {Key("Topic", t.name) for t in WAITING}
ON_1 = {Key("Partition", "placed-0"), Key("Partition", "placed-1")}
SPU_KEY = Key("Spu", "spu-1")


def store_of(*objects: Object) -> LocalStore:
    store = LocalStore()
    for obj in objects:
        store.put(obj)
    return store


@pytest.mark.parametrize(
    ("change", "keys"),
    [
        pytest.param(
            ObjectChanged(spu_of(1, SpuResolution.OFFLINE), SPU_1),
            {SPU_KEY} | WAITING_KEYS | ON_1,
            id="given-spu-online-then-waiting-topics-and-its-partitions",
        ),
        pytest.param(
            ObjectChanged(SPU_1, spu_of(1, SpuResolution.OFFLINE)),
            {SPU_KEY} | WAITING_KEYS | ON_1,
            id="given-spu-offline-then-waiting-topics-and-its-partitions",
        ),
        pytest.param(
            ObjectChanged(None, spu_of(1, SpuResolution.INIT)),
            {SPU_KEY} | WAITING_KEYS | ON_1,
            id="given-spu-registered-then-waiting-topics-and-its-partitions",
        ),
        pytest.param(
            ObjectChanged(SPU_1, None),
            {SPU_KEY} | WAITING_KEYS | ON_1,
            id="given-spu-deleted-then-waiting-topics-and-its-partitions",
        ),
        pytest.param(
            ObjectChanged(spu_of(1, rack="a"), SPU_1),
            {SPU_KEY},
            id="given-spu-changed-without-its-resolution-then-itself-alone",
        ),
        pytest.param(
            ObjectChanged(None, topic_of("pending")),
            {Key("Topic", "pending")},
            id="given-new-topic-then-itself-alone",
        ),
        pytest.param(
            ObjectChanged(PLACED, PLACED),
            {Key("Topic", "placed")},
            id="given-placed-topic-changed-then-itself-alone",
        ),
        pytest.param(
            ObjectChanged(PLACED, None),
            {Key("Topic", "placed"), *ON_1, Key("Partition", "placed-2")},
            id="given-topic-gone-then-what-is-left-of-its-partitions",
        ),
        pytest.param(
            ObjectChanged(P1, P1),
            {Key("Partition", "placed-0"), Key("Topic", "placed")},
            id="given-partition-changed-then-itself-and-its-owner",
        ),
        pytest.param(
            ObjectChanged(P1, None),
            {Key("Partition", "placed-0"), Key("Topic", "placed")},
            id="given-partition-gone-then-itself-and-its-owner",
        ),
        pytest.param(
            TombstoneChanged(tombstone_of(P1, 1), present=True),
            {SPU_KEY},
            id="given-tombstone-then-its-spu",
        ),
        pytest.param(
            TombstoneChanged(tombstone_of(P1, 1), present=False),
            {SPU_KEY},
            id="given-tombstone-removed-then-its-spu",
        ),
        pytest.param(
            TombstoneChanged(tombstone_of(P1, 9), present=True),
            set(),
            id="given-tombstone-of-an-unknown-spu-then-nothing",
        ),
    ],
)
def test_affected(change: Change, keys: set[Key]) -> None:
    found = list(affected_keys(change, store_of(*STORE)))
    assert set(found) == keys
    assert len(found) == len(keys)


@pytest.mark.parametrize(
    ("spu_id", "keys"),
    [
        pytest.param(1, {SPU_KEY} | ON_1 | WAITING_KEYS, id="given-spu-then-all-it-concerns"),
        pytest.param(9, WAITING_KEYS, id="given-unknown-spu-then-waiting-topics-only"),
    ],
)
def test_keys_of_session(spu_id: int, keys: set[Key]) -> None:
    assert set(keys_of_session(spu_id, store_of(*STORE))) == keys
