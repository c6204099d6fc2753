"""Which keys a change wakes: by table. That none is missing is a law of the controllers."""

from __future__ import annotations

import pytest

from sc.controllers.actions import Key
from sc.dispatch.affected import affected_keys, keys_of, keys_of_session
from sc.store.local_store import Change, LocalStore, ObjectChanged, TombstoneChanged
from schemas.objects.metadata import Object, OwnerReference
from schemas.objects.partition import (
    LiveReplica,
    Partition,
    PartitionResolution,
    PartitionStatus,
    taking_over,
)
from schemas.objects.spu import Spu, SpuResolution
from schemas.objects.spu_group import SpuGroup, SpuGroupResolution
from schemas.objects.stream import StreamStatus
from schemas.objects.topic import TopicResolution
from tests.unit.sc.builders import (
    DELETED_AT,
    group_of,
    live,
    member_of,
    partition_of,
    spu_of,
    tombstone_of,
    topic_of,
)
from tests.unit.sc.streams.world import stream_of

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
ONLINE = PartitionStatus(resolution=PartitionResolution.ONLINE)
ELECTED = PartitionStatus(leader=1, reason=taking_over(1))
LOST = PartitionStatus(leader=1, reason="its leader, SPU 1, is offline")
UNWRITABLE = ONLINE.model_copy(update={"writable": False})
P1_DELETING = partition_of(PLACED, 0, (1,), deleting=True)
STREAM = OwnerReference(kind="Stream", name="s", uid="u")
OF_A_STREAM = P1.model_copy(update={"spec": P1.spec.model_copy(update={"owner": STREAM})})
TRUNCATED = OF_A_STREAM.model_copy(
    update={"spec": OF_A_STREAM.spec.model_copy(update={"truncate_before": 5})}
)
STORE: list[Object] = [SPU_1, SPU_2, PLACED, *WAITING, P1, P12, P2]

#: A group whose SPU 5 has to go, and its SPUs; two groups that are kept from what they want.
GROUP = group_of(replicas=1, min_id=4)
STAYS, LEAVES = member_of(GROUP, 4), member_of(GROUP, 5)
INVALID = [group_of(name, SpuGroupResolution.INVALID, min_id=4) for name in ("h", "i")]
ON_4, ON_45, ON_5 = (partition_of(PLACED, i, r) for i, r in enumerate([(4,), (4, 5), (5,)], 3))
GROUPED: list[Object] = [GROUP, STAYS, LEAVES, *INVALID, group_of("fine", min_id=9)]

GROUP_KEY = Key("SpuGroup", "g")
INVALID_KEYS = {Key("SpuGroup", "h"), Key("SpuGroup", "i")}

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
            ObjectChanged(P1, P1.with_status(ONLINE)),
            {Key("Partition", "placed-0")},
            id="given-partition-changed-its-status-then-itself-alone",
        ),
        pytest.param(
            ObjectChanged(P1.with_status(ONLINE), P1.with_status(UNWRITABLE)),
            {Key("Partition", "placed-0"), Key("Topic", "placed")},
            id="given-partition-stopped-committing-then-itself-and-its-owner",
        ),
        pytest.param(
            ObjectChanged(P1, P1_DELETING),
            {Key("Partition", "placed-0"), Key("Topic", "placed")},
            id="given-partition-marked-for-deletion-then-itself-and-its-owner",
        ),
        pytest.param(
            ObjectChanged(partition_of(PLACED, 0, (2,)), P1),
            {Key("Partition", "placed-0"), Key("Topic", "placed")},
            id="given-partition-changed-its-spec-then-itself-and-its-owner",
        ),
        pytest.param(
            ObjectChanged(P1.with_metadata(uid="another"), P1),
            {Key("Partition", "placed-0"), Key("Topic", "placed")},
            id="given-another-partition-of-that-name-then-itself-and-its-owner",
        ),
        pytest.param(
            ObjectChanged(None, P1),
            {Key("Partition", "placed-0"), Key("Topic", "placed")},
            id="given-new-partition-then-itself-and-its-owner",
        ),
        pytest.param(
            ObjectChanged(P1.with_status(ONLINE), P1.with_status(ELECTED)),
            {Key("Partition", "placed-0")},
            id="given-partition-with-another-leader-then-itself",
        ),
        pytest.param(
            ObjectChanged(P1.with_status(ONLINE), P1.with_status(LOST)),
            {Key("Partition", "placed-0"), Key("Topic", "placed")},
            id="given-partition-that-lost-its-leader-then-itself-and-its-owner",
        ),
        pytest.param(
            ObjectChanged(P1.with_status(LOST), P1.with_status(ELECTED)),
            {Key("Partition", "placed-0"), Key("Topic", "placed")},
            id="given-partition-that-gets-one-again-then-itself-and-its-owner",
        ),
        pytest.param(
            ObjectChanged(OF_A_STREAM.with_status(UNWRITABLE), OF_A_STREAM.with_status(LOST)),
            {Key("Partition", "placed-0"), Key("Stream", "s")},
            id="given-partition-of-a-stream-that-lost-its-leader-then-itself-and-its-owner",
        ),
        pytest.param(
            ObjectChanged(OF_A_STREAM, OF_A_STREAM.with_status(UNWRITABLE)),
            {Key("Partition", "placed-0")},
            id="given-partition-of-a-stream-changed-its-status-then-itself",
        ),
        pytest.param(
            ObjectChanged(OF_A_STREAM, OF_A_STREAM.with_status(ONLINE)),
            {Key("Partition", "placed-0"), Key("Stream", "s")},
            id="given-partition-of-a-stream-writable-then-itself-and-its-owner",
        ),
        pytest.param(
            ObjectChanged(TRUNCATED, TRUNCATED.with_status(PartitionStatus(start_offset=5))),
            {Key("Partition", "placed-0"), Key("Stream", "s")},
            id="given-partition-of-a-stream-truncated-then-itself-and-its-owner",
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


UNDISTURBED = stream_of()
TOLD = StreamStatus(moves="its replicas are being moved: 0 % done")
MOVED = UNDISTURBED.with_status(TOLD)
OWNED = OwnerReference(kind="Stream", name=MOVED.name, uid=MOVED.uid)
BEFORE = P12.model_copy(
    update={"spec": P12.spec.model_copy(update={"owner": OWNED, "joining": (2,)})}
)
BEFORE = BEFORE.with_status(ONLINE.model_copy(update={"lrs": (live(1),)}))
JOINED = BEFORE.with_status(ONLINE.model_copy(update={"lrs": (live(1), live(2))}))
ENDED = BEFORE.model_copy(update={"spec": BEFORE.spec.model_copy(update={"joining": None})})
REPLICAS = Key("StreamReplicas", MOVED.name)
ITSELF, SEGMENT = Key("Stream", MOVED.name), Key("Partition", BEFORE.name)


@pytest.mark.parametrize(
    ("change", "keys"),
    [
        pytest.param(
            ObjectChanged(UNDISTURBED, stream_of(replication_factor=3)),
            {ITSELF, REPLICAS},
            id="given-another-number-of-replicas-then-they-move",
        ),
        pytest.param(
            ObjectChanged(UNDISTURBED, stream_of(segments=2)),
            {ITSELF},
            id="given-another-change-then-they-do-not",
        ),
        pytest.param(
            ObjectChanged(UNDISTURBED, MOVED), {ITSELF, REPLICAS}, id="given-told-first-then-moved"
        ),
        pytest.param(
            ObjectChanged(MOVED, UNDISTURBED), {ITSELF}, id="given-the-end-told-then-itself"
        ),
        pytest.param(ObjectChanged(None, MOVED), {ITSELF}, id="given-listed-then-itself"),
        pytest.param(ObjectChanged(BEFORE, JOINED), {SEGMENT, REPLICAS}, id="given-one-joined"),
        pytest.param(
            ObjectChanged(BEFORE, BEFORE.with_status(PartitionStatus())),
            {SEGMENT, ITSELF, REPLICAS},
            id="given-the-leader-lost-or-back",
        ),
        pytest.param(
            ObjectChanged(JOINED, ENDED), {SEGMENT, ITSELF, REPLICAS}, id="given-the-end-of-a-move"
        ),
    ],
)
def test_affected_replicas_of_streams(change: Change, keys: set[Key]) -> None:
    assert set(affected_keys(change, store_of(SPU_1, SPU_2, MOVED))) == keys


def test_given_a_segment_that_begins_to_move_then_its_stream_tells_it_once() -> None:
    begun = ObjectChanged(ENDED, BEFORE)
    assert REPLICAS in set(affected_keys(begun, store_of(SPU_1, SPU_2, UNDISTURBED)))
    assert REPLICAS not in set(affected_keys(begun, store_of(SPU_1, SPU_2, MOVED)))


@pytest.mark.parametrize("gone", [True, False], ids=["gone", "marked"])
def test_given_a_segment_that_is_removed_then_its_stream_tells_what_is_left(gone: bool) -> None:
    """It may have waited for its move."""
    marked = ENDED.with_metadata(deletion_timestamp=DELETED_AT)
    change = ObjectChanged(ENDED, None if gone else marked)
    assert REPLICAS in set(affected_keys(change, store_of(SPU_1, SPU_2, MOVED)))
    assert REPLICAS not in set(affected_keys(change, store_of(SPU_1, SPU_2, UNDISTURBED)))


def test_given_an_spu_then_streams_whose_replicas_move_are_looked_at() -> None:
    assert REPLICAS in keys_of_session(1, store_of(SPU_1, MOVED))
    assert REPLICAS not in keys_of_session(1, store_of(SPU_1, UNDISTURBED))
    assert set(keys_of("Stream", MOVED.name)) == {ITSELF, REPLICAS}
    assert set(keys_of("Spu", "spu-1")) == {SPU_KEY}


def partition_keys(index: int) -> set[Key]:
    return {Key("Partition", f"placed-{index}"), Key("Topic", "placed")}


@pytest.mark.parametrize(
    ("change", "keys"),
    [
        pytest.param(
            ObjectChanged(GROUP, GROUP),
            {GROUP_KEY, Key("Spu", "g-4"), Key("Spu", "g-5"), *INVALID_KEYS},
            id="given-group-changed-then-its-spus-and-groups-kept-from-ids",
        ),
        pytest.param(
            ObjectChanged(GROUP, None),
            {GROUP_KEY, Key("Spu", "g-4"), Key("Spu", "g-5"), *INVALID_KEYS},
            id="given-group-gone-then-its-spus-and-groups-kept-from-ids",
        ),
        pytest.param(
            ObjectChanged(INVALID[0], INVALID[0]),
            INVALID_KEYS,
            id="given-invalid-group-changed-then-itself-once",
        ),
        pytest.param(
            ObjectChanged(None, STAYS),
            {Key("Spu", "g-4"), GROUP_KEY, *INVALID_KEYS},
            id="given-managed-spu-made-then-its-group-and-groups-kept-from-ids",
        ),
        pytest.param(
            ObjectChanged(member_of(GROUP, 4, SpuResolution.INIT), STAYS),
            {Key("Spu", "g-4"), GROUP_KEY},
            id="given-managed-spu-changed-then-its-group",
        ),
        pytest.param(
            ObjectChanged(LEAVES, None),
            {Key("Spu", "g-5"), GROUP_KEY, *INVALID_KEYS},
            id="given-managed-spu-gone-then-its-group-and-groups-kept-from-ids",
        ),
        pytest.param(
            ObjectChanged(member_of(INVALID[0], 4), None),
            {Key("Spu", "h-4"), *INVALID_KEYS},
            id="given-spu-of-an-invalid-group-gone-then-that-group-once",
        ),
        pytest.param(
            ObjectChanged(spu_of(6), None),
            {Key("Spu", "spu-6"), *INVALID_KEYS},
            id="given-custom-spu-gone-then-groups-kept-from-ids",
        ),
        pytest.param(
            ObjectChanged(None, spu_of(6)),
            {Key("Spu", "spu-6"), *INVALID_KEYS},
            id="given-custom-spu-registered-then-groups-kept-from-ids",
        ),
        pytest.param(
            TombstoneChanged(tombstone_of(ON_5, 5), present=True),
            {Key("Spu", "g-5"), GROUP_KEY},
            id="given-tombstone-then-the-group-of-its-spu",
        ),
        pytest.param(
            TombstoneChanged(tombstone_of(ON_5, 5), present=False),
            {Key("Spu", "g-5"), GROUP_KEY},
            id="given-tombstone-removed-then-the-group-of-its-spu",
        ),
        pytest.param(
            ObjectChanged(ON_5, None),
            {*partition_keys(5), Key("Spu", "g-5"), GROUP_KEY},
            id="given-partition-gone-from-an-spu-that-leaves-then-its-group",
        ),
        pytest.param(
            ObjectChanged(None, ON_45),
            {*partition_keys(4), Key("Spu", "g-5"), GROUP_KEY},
            id="given-partition-made-on-an-spu-that-leaves-then-its-group",
        ),
        pytest.param(
            ObjectChanged(ON_45, partition_of(PLACED, 4, (4,))),
            {*partition_keys(4), Key("Spu", "g-5"), GROUP_KEY},
            id="given-replica-moved-away-from-an-spu-that-leaves-then-its-group",
        ),
        pytest.param(
            ObjectChanged(ON_45, ON_45),
            {Key("Partition", "placed-4")},
            id="given-partition-changed-but-not-its-replicas-then-no-group",
        ),
        pytest.param(
            ObjectChanged(ON_4, None),
            partition_keys(3),
            id="given-partition-gone-from-an-spu-that-stays-then-no-group",
        ),
    ],
)
def test_affected_with_groups(change: Change, keys: set[Key]) -> None:
    found = list(affected_keys(change, store_of(*GROUPED)))
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


@pytest.mark.parametrize(
    ("spu_id", "keys"),
    [
        pytest.param(5, {Key("Spu", "g-5"), GROUP_KEY}, id="given-spu-that-leaves-then-its-group"),
        pytest.param(4, {Key("Spu", "g-4")}, id="given-spu-that-stays-then-no-group"),
    ],
)
def test_keys_of_session_with_groups(spu_id: int, keys: set[Key]) -> None:
    found = list(keys_of_session(spu_id, store_of(*GROUPED)))
    assert set(found) == keys
    assert len(found) == len(keys)


#: A group that waits for something, with three replicas of a partition on its SPUs.
SAYS_WHY = group_of(replicas=3, reason="the changed template is not in force yet for g-2, g-3: …")
SPUS_OF_IT = [member_of(SAYS_WHY, i) for i in (1, 2, 3)]


def shared(*live: int, joining: tuple[int, ...] | None = None) -> Partition:
    lrs = tuple(LiveReplica(spu_id=i, storage_id=f"s{i}") for i in live)
    return partition_of(PLACED, 0, (1, 2, 3), leader=1, lrs=lrs, joining=joining)


@pytest.mark.parametrize(
    ("change", "group", "wakes"),
    [
        pytest.param(
            ObjectChanged(shared(1, 3), shared(1, 2, 3)),
            SAYS_WHY,
            True,
            id="given-all-replicas-live-again-then-the-group-that-waits",
        ),
        pytest.param(
            ObjectChanged(shared(1, 3), None),
            SAYS_WHY,
            True,
            id="given-a-partition-gone-that-was-short-then-the-group-that-waits",
        ),
        pytest.param(
            ObjectChanged(shared(1, joining=(2, 3)), shared(1, 2, joining=(2, 3))),
            SAYS_WHY,
            True,
            id="given-a-newcomer-that-is-live-then-the-group-that-waits",
        ),
        pytest.param(
            ObjectChanged(shared(1), shared(1, 3)),
            SAYS_WHY,
            True,
            id="given-one-of-two-is-still-missing-then-the-group-that-waits",
        ),
        pytest.param(
            ObjectChanged(shared(1, 2, 3), shared(1, 2, 3)),
            SAYS_WHY,
            False,
            id="given-nothing-was-missing-then-no-group",
        ),
        pytest.param(
            ObjectChanged(shared(1, 3), shared(1, 2, 3)),
            group_of(replicas=3),
            False,
            id="given-a-group-that-waits-for-nothing-then-no-group",
        ),
    ],
)
def test_affected_by_live_replicas(change: Change, group: SpuGroup, wakes: bool) -> None:
    found = set(affected_keys(change, store_of(group, *SPUS_OF_IT, PLACED)))
    assert (GROUP_KEY in found) is wakes


@pytest.mark.parametrize(
    ("old", "new", "wakes"),
    [
        pytest.param(spu_of(9), None, True, id="given-it-is-gone-then-looked-at"),
        pytest.param(
            member_of(group_of("h"), 9),
            spu_of(9, name="h-9"),
            True,
            id="given-another-spec-then-too",
        ),
        pytest.param(spu_of(9), spu_of(9), False, id="given-the-same-spec-then-not"),
    ],
)
def test_given_an_spu_of_nobody_then_a_group_that_waits_for_it_is_looked_at(
    old: Spu, new: Spu | None, wakes: bool
) -> None:
    found = set(affected_keys(ObjectChanged(old, new), store_of(SAYS_WHY, *SPUS_OF_IT)))
    assert (GROUP_KEY in found) is wakes


@pytest.mark.parametrize("group", [SAYS_WHY, group_of(replicas=3)], ids=["waits", "does not"])
@pytest.mark.parametrize("spu_id", [1, 9], ids=["its SPU", "another"])
def test_given_a_session_then_the_group_that_waits_is_looked_at(
    group: SpuGroup, spu_id: int
) -> None:
    """It may wait for an SPU of another group."""
    found = list(keys_of_session(spu_id, store_of(group, *SPUS_OF_IT)))
    assert found.count(GROUP_KEY) == (group is SAYS_WHY)


@pytest.mark.parametrize(
    ("joining", "before", "after", "wakes"),
    [
        pytest.param((2, 3), (1,), (1, 2), True, id="given-a-newcomer-that-joined-then-its-topic"),
        pytest.param((3,), (1, 2), (1,), False, id="given-one-less-then-no-topic"),
        pytest.param(None, (1,), (1, 2), False, id="given-no-move-then-no-topic"),
    ],
)
def test_affected_by_newcomers(
    joining: tuple[int, ...] | None, before: tuple[int, ...], after: tuple[int, ...], wakes: bool
) -> None:
    """A minimum that is to rise waits for them."""
    old, new = (
        one.model_copy(update={"spec": one.spec.model_copy(update={"joining": joining})})
        for one in (shared(*before), shared(*after))
    )
    found = set(affected_keys(ObjectChanged(old, new), store_of(*SPUS_OF_IT, PLACED)))
    assert (Key("Topic", PLACED.name) in found) is wakes


@pytest.mark.parametrize(
    ("joining", "draining", "after", "wakes"),
    [
        pytest.param((3,), True, (1,), True, id="given-it-is-live-no-more-then-it-is-looked-at"),
        pytest.param((3,), True, (1, 2, 3), False, id="given-it-is-live-still-then-not"),
        pytest.param((3,), False, (1,), False, id="given-it-does-not-drain-then-not"),
        pytest.param(None, True, (1,), False, id="given-no-move-then-not"),
    ],
)
def test_given_a_move_and_an_spu_that_drains(
    joining: tuple[int, ...] | None, draining: bool, after: tuple[int, ...], wakes: bool
) -> None:
    """Its drain may change a move that it holds up."""
    spu = spu_of(2)
    drains = spu.model_copy(update={"spec": spu.spec.model_copy(update={"drain": True})})
    change = ObjectChanged(shared(1, 2, joining=joining), shared(*after, joining=joining))
    store = store_of(PLACED, drains if draining else spu)
    assert (Key("Spu", spu.name) in set(affected_keys(change, store))) is wakes


@pytest.mark.parametrize("draining", [True, False])
def test_given_a_partition_that_is_to_be_deleted_then_who_drains_looks_again(
    draining: bool,
) -> None:
    """It may have been in the way, because it has no leader, for example."""
    spu, partition = spu_of(2), shared(1, 2)
    drains = spu.model_copy(update={"spec": spu.spec.model_copy(update={"drain": True})})
    marked = partition.with_metadata(deletion_timestamp=DELETED_AT)
    found = set(
        affected_keys(ObjectChanged(partition, marked), store_of(drains if draining else spu))
    )
    assert (Key("Spu", spu.name) in found) is draining
