"""The topic controller: every branch as (view, key, now) → exact actions."""

from __future__ import annotations

from typing import Any

import pytest

from sc.controllers import topic_size
from sc.controllers.actions import (
    Action,
    CreatePartitions,
    Key,
    MarkDeleting,
    RemoveObject,
    RestoreTopic,
    WakeAt,
    WritePartitionSpec,
    WriteStatus,
)
from sc.controllers.recovery import RESTORED
from sc.controllers.topic import partition_uid, reconcile
from sc.controllers.topic_size import CREATE_BYTES, CREATE_CHUNK
from sc.kv.interface import MAX_TXN_BYTES, MAX_TXN_OPS
from sc.store.codec import encode_object
from sc.store.view import View
from schemas.columns.topic_schema import Column
from schemas.objects.archive import ArchiveSettings
from schemas.objects.metadata import Metadata
from schemas.objects.partition import DesiredState, Partition, taking_over
from schemas.objects.spu import Spu, SpuResolution
from schemas.objects.spu_group import SpuGroupResolution
from schemas.objects.topic import Topic, TopicResolution, TopicSpec, TopicStatus
from tests.unit.sc.builders import (
    group_of,
    member_of,
    partition_of,
    session_of,
    spu_of,
    topic_of,
    view_of,
)

KEY = Key("Topic", "t")
NOW = 1_000
GRACE = 5_000
PENDING = TopicResolution.PENDING
INVALID = TopicResolution.INVALID_CONFIG
SHORT = TopicResolution.INSUFFICIENT_RESOURCES
DONE = TopicResolution.PROVISIONED
DELETING_REASON = "waiting for its partitions to be removed"


def creates(
    topic: Topic, partitions: tuple[Partition, ...], *spus: Spu, first: bool = True
) -> CreatePartitions:
    """Partitions on ``spus``, or else on those that any test has. The first ones of a topic come
    with its status."""
    ids = sorted({i for p in partitions for i in p.spec.replicas})
    status = becomes(topic, PENDING, "placing partitions").status if first else None
    return CreatePartitions(topic, partitions, spus or tuple(spu_of(i) for i in ids), status)


def becomes(
    topic: Topic,
    resolution: TopicResolution,
    reason: str | None = None,
    replica_map: tuple[tuple[int, ...], ...] = (),
) -> WriteStatus:
    status = TopicStatus(
        resolution=resolution,
        reason=reason,
        replica_map=replica_map,
        observed_generation=topic.generation,
    )
    return WriteStatus(topic, status)


def unwritable(topic: Topic, reason: str) -> WriteStatus:
    update = {"reason": reason, "writable": False}
    return WriteStatus(topic, topic.status.model_copy(update=update))


def fresh(topic: Topic, index: int, replicas: tuple[int, ...]) -> Partition:
    """The object that a topic creates: nothing of it is set by a server but the uid."""
    made = partition_of(topic, index, replicas, observed=0)
    return made.model_copy(
        update={
            "metadata": Metadata(
                name=made.name,
                labels={"topic": topic.name},
                uid=partition_uid(topic.uid, index),
            )
        }
    )


def cluster(*objects: Any, online: tuple[int, ...] = (1, 2, 3), **more: Any) -> View:
    """Three registered SPUs; some of them have a session."""
    spus = (spu_of(i) for i in (1, 2, 3))
    return view_of(*objects, *spus, sessions=[session_of(i) for i in online], **more)


def draining(spu_id: int) -> Spu:
    spu = spu_of(spu_id)
    return spu.model_copy(update={"spec": spu.spec.model_copy(update={"drain": True})})


def made(resolution: TopicResolution = TopicResolution.INIT, **fields: Any) -> Topic:
    return topic_of("t", resolution, **fields)


def invalid_rows(rows: Any, reason: str, name: str) -> Any:
    topic = made(rows=rows)
    return pytest.param(
        cluster(topic), (becomes(topic, INVALID, reason),), id=f"given-{name}-then-invalid-config"
    )


VALIDATION = [
    pytest.param(view_of(), (), id="given-no-object-then-nothing"),
    pytest.param(
        cluster(made(partitions=3)),
        (becomes(made(partitions=3), PENDING, "placing partitions"),),
        id="given-init-then-pending",
    ),
    pytest.param(
        cluster(made(rows={0: (1, 2), 1: (2, 3)})),
        (becomes(made(rows={0: (1, 2), 1: (2, 3)}), PENDING, "placing partitions"),),
        id="given-good-manual-rows-then-pending",
    ),
    invalid_rows(
        [(0, (1,)), (2, (1,))],
        "assignment row 1 is missing: rows are numbered from 0 without gaps",
        "gap-in-row-ids",
    ),
    invalid_rows(
        [(0, (1,)), (0, (2,))],
        "assignment row 0 is there more than once",
        "row-id-twice",
    ),
    invalid_rows(
        {0: (1, 2), 1: (1,)},
        "assignment row 1 has 1 replica, row 0 has 2",
        "rows-of-different-size",
    ),
    invalid_rows({0: (1, 1)}, "assignment row 0 names SPU 1 twice", "spu-twice-in-a-row"),
    invalid_rows({0: (1,), 1: (9,)}, "assignment row 1: SPU 9 is not registered", "unknown-spu"),
    pytest.param(
        cluster(made(INVALID, rows={0: (9,)}, reason="assignment row 0: SPU 9 is not registered")),
        (),
        id="given-invalid-config-unchanged-then-nothing",
    ),
    pytest.param(
        cluster(made(INVALID, rows={0: (3,)}, reason="assignment row 0: SPU 3 is not registered")),
        (
            becomes(
                made(INVALID, rows={0: (3,)}, reason="assignment row 0: SPU 3 is not registered"),
                PENDING,
                "placing partitions",
            ),
        ),
        id="given-missing-spu-registered-then-pending",
    ),
    pytest.param(
        cluster(made(SHORT, rows=[(0, (1,)), (5, (1,))])),
        (
            becomes(
                made(SHORT, rows=[(0, (1,)), (5, (1,))]),
                INVALID,
                "assignment row 1 is missing: rows are numbered from 0 without gaps",
            ),
        ),
        id="given-waiting-topic-replaced-by-bad-rows-then-invalid-config",
    ),
    pytest.param(
        cluster(
            made(DONE, rows={0: (1,), 1: (9,)}, replica_map=((1,),)),
            partition_of(made(rows={0: (1,), 1: (9,)}), 0, (1,)),
        ),
        (
            becomes(
                made(DONE, rows={0: (1,), 1: (9,)}, replica_map=((1,),)),
                INVALID,
                "assignment row 1: SPU 9 is not registered",
                ((1,),),
            ),
        ),
        id="given-placed-topic-grown-by-a-bad-row-then-invalid-config-and-map-kept",
    ),
]

WAITING = made(PENDING, partitions=2, factor=2, reason="placing partitions")
ONE_IS_THERE = partition_of(WAITING, 0, (1, 2))
BOTH = (ONE_IS_THERE, partition_of(WAITING, 1, (3, 1)))
PLACED_ROWS = ((1, 2), (3, 1))
PLACED = made(DONE, partitions=2, factor=2, replica_map=PLACED_ROWS)
MANUAL = made(PENDING, rows={0: (1, 9), 1: (2, 1)})
GROWN = made(DONE, partitions=3, factor=2, replica_map=((1, 2), (3, 1)), generation=2, observed=1)
NEED_TWO = "replicationFactor 2 needs 2 online SPUs"
GROUP = group_of(replicas=1, min_id=2)
#: In the range of the group, and outside of it.
STAYS, LEAVES = member_of(GROUP, 2), member_of(GROUP, 3)

NO_ROOM = "replicationFactor 2 needs 2 SPUs with 1Mi of free storage each; 1 of {} online has that"
PLACING = [
    pytest.param(
        cluster(WAITING),
        (creates(WAITING, (fresh(WAITING, 0, (1, 2)), fresh(WAITING, 1, (3, 1)))),),
        id="given-pending-and-enough-spus-then-partitions-created",
    ),
    pytest.param(
        cluster(WAITING, online=(1, 3)),
        (creates(WAITING, (fresh(WAITING, 0, (1, 3)), fresh(WAITING, 1, (3, 1)))),),
        id="given-offline-spu-then-only-online-ones-are-used",
    ),
    pytest.param(
        view_of(
            WAITING,
            *(spu_of(i) for i in (1, 2, 3)),
            sessions=[session_of(i, free_bytes=free) for i, free in ((1, 9), (2, 1 << 40), (3, 0))],
        ),
        (becomes(WAITING, SHORT, NO_ROOM.format(3)),),
        id="given-full-disks-then-insufficient-resources",
    ),
    pytest.param(
        view_of(
            WAITING,
            *(spu_of(i) for i in (1, 2, 3)),
            sessions=[session_of(i, free_bytes=free) for i, free in ((1, 9), (2, 1 << 40))],
        ),
        (becomes(WAITING, SHORT, NO_ROOM.format(2)),),
        id="given-full-and-missing-spus-then-insufficient-resources",
    ),
    pytest.param(
        cluster(WAITING, online=(3,)),
        (becomes(WAITING, SHORT, f"{NEED_TWO}; 1 of 3 registered are online"),),
        id="given-too-few-online-spus-then-insufficient-resources",
    ),
    pytest.param(
        cluster(WAITING, draining(4), online=(3, 4)),
        (becomes(WAITING, SHORT, f"{NEED_TWO}; 1 of 4 registered are online and not draining"),),
        id="given-online-spus-that-drain-then-insufficient-resources",
    ),
    pytest.param(
        view_of(WAITING),
        (becomes(WAITING, SHORT, f"{NEED_TWO}; 0 of 0 registered are online"),),
        id="given-no-spus-at-all-then-insufficient-resources",
    ),
    pytest.param(
        cluster(
            made(SHORT, partitions=2, factor=2, reason=f"{NEED_TWO}; 1 of 3 registered are online"),
            online=(3,),
        ),
        (),
        id="given-insufficient-resources-unchanged-then-nothing",
    ),
    pytest.param(
        cluster(made(SHORT, partitions=1, factor=2), online=(2, 3)),
        (
            creates(
                made(SHORT, partitions=1, factor=2),
                (fresh(made(partitions=1, factor=2), 0, (2, 3)),),
            ),
        ),
        id="given-insufficient-resources-and-spu-arrived-then-partitions-created",
    ),
    pytest.param(
        cluster(WAITING, online=(3,), grace_until_ms=GRACE),
        (
            WakeAt(KEY, GRACE),
            becomes(WAITING, PENDING, "waiting for spu-1, spu-2 to connect again"),
        ),
        id="given-spus-unknown-in-grace-then-pending-and-looked-at-again",
    ),
    pytest.param(
        cluster(WAITING, online=(1, 2), grace_until_ms=GRACE),
        (
            WakeAt(KEY, GRACE),
            becomes(WAITING, PENDING, "waiting for spu-3 to connect again"),
        ),
        id="given-enough-spus-although-one-is-unknown-then-it-is-waited-for",
    ),
    pytest.param(
        cluster(WAITING, ONE_IS_THERE),
        (creates(WAITING, (fresh(WAITING, 1, (3, 1)),), first=False),),
        id="given-some-partitions-exist-then-only-missing-ones-are-placed",
    ),
    pytest.param(
        cluster(WAITING, *BOTH),
        (becomes(WAITING, DONE, None, ((1, 2), (3, 1))),),
        id="given-all-partitions-exist-then-provisioned-with-their-map",
    ),
    pytest.param(cluster(PLACED, *BOTH), (), id="given-provisioned-then-nothing"),
    pytest.param(
        cluster(PLACED, BOTH[0], partition_of(WAITING, 1, (3, 1), writable=False)),
        (unwritable(PLACED, "1 of 2 partitions commits nothing: t-1"),),
        id="given-a-partition-that-commits-nothing-then-the-status-says-so",
    ),
    pytest.param(
        cluster(
            PLACED,
            partition_of(WAITING, 0, (1, 2), leader=1, reason="its leader, SPU 1, is offline"),
            partition_of(WAITING, 1, (3, 1), leader=3, reason=taking_over(3)),
        ),
        (unwritable(PLACED, "1 of 2 partitions has no leader: t-0"),),
        id="given-a-partition-that-lost-its-leader-then-the-status-says-so",
    ),
    pytest.param(
        cluster(
            PLACED,
            partition_of(WAITING, 0, (1, 2), leader=1),
            partition_of(WAITING, 1, (3, 1), writable=False),
        ),
        (
            unwritable(
                PLACED,
                "1 of 2 partitions has no leader: t-0; 1 of 2 partitions commits nothing: t-1",
            ),
        ),
        id="given-both-then-both-are-said",
    ),
    pytest.param(
        cluster(PLACED.with_status(unwritable(PLACED, "x").status), *BOTH),
        (becomes(PLACED.with_status(unwritable(PLACED, "x").status), DONE, None, PLACED_ROWS),),
        id="given-all-partitions-commit-again-then-it-says-no-more",
    ),
    pytest.param(
        cluster(PLACED, *BOTH, online=()), (), id="given-provisioned-and-spus-gone-then-nothing"
    ),
    pytest.param(
        cluster(GROWN, *BOTH),
        (creates(GROWN, (fresh(GROWN, 2, (2, 3)),), first=False),),
        id="given-provisioned-and-grown-then-new-partition-goes-to-the-least-loaded",
    ),
    pytest.param(
        cluster(GROWN, *BOTH, online=(2,)),
        (becomes(GROWN, SHORT, f"{NEED_TWO}; 1 of 3 registered are online", ((1, 2), (3, 1))),),
        id="given-grown-without-spus-then-insufficient-and-map-kept",
    ),
    pytest.param(
        view_of(
            WAITING, spu_of(1), GROUP, STAYS, LEAVES, sessions=[session_of(i) for i in (1, 2, 3)]
        ),
        (
            creates(
                WAITING,
                (fresh(WAITING, 0, (1, 2)), fresh(WAITING, 1, (2, 1))),
                spu_of(1),
                STAYS,
            ),
        ),
        id="given-spu-that-leaves-its-group-then-nothing-is-placed-on-it",
    ),
    pytest.param(
        view_of(WAITING, GROUP, STAYS, LEAVES, sessions=[session_of(i) for i in (2, 3)]),
        (becomes(WAITING, SHORT, f"{NEED_TWO}; 1 of 2 registered are online and not draining"),),
        id="given-only-an-spu-that-leaves-is-left-then-insufficient-resources",
    ),
    pytest.param(
        view_of(
            WAITING,
            group_of(deleting=True, min_id=2),
            STAYS,
            LEAVES,
            sessions=[session_of(i) for i in (2, 3)],
        ),
        (becomes(WAITING, SHORT, f"{NEED_TWO}; 0 of 2 registered are online and not draining"),),
        id="given-group-on-its-way-out-then-nothing-is-placed-on-its-spus",
    ),
    pytest.param(
        view_of(
            WAITING,
            group_of(resolution=SpuGroupResolution.INVALID, replicas=1, min_id=2),
            STAYS,
            LEAVES,
            sessions=[session_of(i) for i in (2, 3)],
        ),
        (
            creates(
                WAITING,
                (fresh(WAITING, 0, (2, 3)), fresh(WAITING, 1, (3, 2))),
                STAYS,
                LEAVES,
            ),
        ),
        id="given-invalid-group-then-its-spus-are-used-as-before",
    ),
    pytest.param(
        cluster(MANUAL, spu_of(9), online=()),
        (creates(MANUAL, (fresh(MANUAL, 0, (1, 9)), fresh(MANUAL, 1, (2, 1)))),),
        id="given-manual-rows-then-created-as-they-stand-even-when-spus-are-offline",
    ),
    pytest.param(
        cluster(
            WAITING,
            partition_of(made(), 0, (1, 2))
            .with_metadata(uid="other")
            .model_copy(
                update={
                    "spec": ONE_IS_THERE.spec.model_copy(
                        update={
                            "owner": ONE_IS_THERE.spec.owner.model_copy(update={"uid": "older"})
                        }
                    )
                }
            ),
            online=(1, 2),
        ),
        (creates(WAITING, (fresh(WAITING, 0, (2, 1)), fresh(WAITING, 1, (1, 2)))),),
        id="given-partition-of-an-older-topic-of-that-name-then-not-taken-for-its-own",
    ),
]

BIGGER_RECORDS = made(DONE, partitions=1, replica_map=((1,),), max_record_size=1 << 21)
OLD_SETTINGS = partition_of(made(partitions=1), 0, (1,))
NEW_SETTINGS = OLD_SETTINGS.spec.model_copy(update={"log": BIGGER_RECORDS.spec.log_settings})
GOING = made(TopicResolution.DELETING, deleting=True, partitions=2, reason=DELETING_REASON)

TYPED_ROWS: dict[str, Any] = {
    "columns": (
        Column(name="id", type="int64"),
        Column(name="at", type="timestamp(us)", nullable=False),
    ),
    "key_column": "id",
    "timestamp_column": "at",
}


def typed(topic: Topic) -> Topic:
    """The topic with columns."""
    return topic.model_copy(update={"spec": topic.spec.model_copy(update=TYPED_ROWS)})


TYPED = typed(made(DONE, partitions=1, replica_map=((1,),)))
GROWN = TYPED.model_copy(
    update={
        "spec": TYPED.spec.model_copy(
            update={"columns": (*TYPED_ROWS["columns"], Column(name="note", type="string"))}
        )
    }
)
TYPED_PARTITION = partition_of(TYPED, 0, (1,))
GROWN_SETTINGS = TYPED_PARTITION.spec.model_copy(update={"log": GROWN.spec.log_settings})


def archived(partition: Partition, before: int | None) -> Partition:
    """The partition, archived below an offset."""
    spec = partition.spec.model_copy(update={"archived_before": before})
    return partition.model_copy(update={"spec": spec})


ARCHIVE = ArchiveSettings(path="/mnt/archive")
PLAIN = made(DONE, partitions=1, replica_map=((1,),))
COLD = PLAIN.model_copy(update={"spec": PLAIN.spec.model_copy(update={"archive": ARCHIVE})})
PLAIN_PARTITION = partition_of(PLAIN, 0, (1,))
RESTORED_PLAIN = PLAIN.with_metadata(annotations={RESTORED: "from its partitions"})


def sealing(partition: Partition, end: int | None = None, **status: Any) -> Partition:
    """It is to be sealed, and is once it has an ``end``."""
    spec = partition.spec.model_copy(update={"desired": DesiredState.SEALED})
    more = {"sealed_offset": end, **status}
    return partition.model_copy(
        update={"spec": spec, "status": partition.status.model_copy(update=more)}
    )


SEALED = PLACED.model_copy(update={"spec": PLACED.spec.model_copy(update={"sealed": True})})
BEING_SEALED = "it is being sealed: not all of its partitions are sealed yet"
SEALING = [
    pytest.param(
        cluster(SEALED, sealing(BOTH[0], 5), sealing(BOTH[1])),
        (becomes(SEALED, DONE, BEING_SEALED, PLACED_ROWS),),
        id="given-a-partition-that-is-not-sealed-yet-then-said",
    ),
    pytest.param(
        cluster(SEALED, sealing(BOTH[0], 5), sealing(BOTH[1], writable=False)),
        (unwritable(SEALED, f"{BEING_SEALED}; 1 of 2 partitions commits nothing: t-1"),),
        id="given-one-that-cannot-be-sealed-then-both-are-said",
    ),
    pytest.param(
        cluster(SEALED, sealing(BOTH[0], 5), sealing(BOTH[1], 7, writable=False)),
        (),
        id="given-a-sealed-partition-whose-followers-are-gone-then-it-has-nothing-to-commit",
    ),
]

ARCHIVES = [
    pytest.param(
        cluster(COLD, PLAIN_PARTITION),
        (WritePartitionSpec(PLAIN_PARTITION, archived(PLAIN_PARTITION, 0).spec),),
        id="given-an-archive-then-nothing-is-archived-yet",
    ),
    pytest.param(
        cluster(COLD, archived(PLAIN_PARTITION, 7)), (), id="given-records-archived-then-it-stays"
    ),
    pytest.param(
        cluster(PLAIN, archived(PLAIN_PARTITION, 7)),
        (WritePartitionSpec(archived(PLAIN_PARTITION, 7), PLAIN_PARTITION.spec),),
        id="given-no-archive-any-more-then-retention-is-free",
    ),
    pytest.param(
        cluster(RESTORED_PLAIN, archived(PLAIN_PARTITION, 7)),
        (),
        id="given-a-topic-that-lost-its-archive-then-what-is-not-in-it-is-kept",
    ),
]

SETTINGS_AND_DELETION = [
    pytest.param(
        cluster(TYPED, TYPED_PARTITION), (), id="given-columns-that-partitions-know-then-nothing"
    ),
    pytest.param(
        cluster(GROWN, TYPED_PARTITION),
        (WritePartitionSpec(TYPED_PARTITION, GROWN_SETTINGS),),
        id="given-a-column-added-then-partitions-are-told",
    ),
    pytest.param(
        cluster(BIGGER_RECORDS, OLD_SETTINGS),
        (WritePartitionSpec(OLD_SETTINGS, NEW_SETTINGS),),
        id="given-log-settings-changed-then-partitions-follow",
    ),
    pytest.param(
        cluster(BIGGER_RECORDS, OLD_SETTINGS.with_metadata(deletion_timestamp="now")),
        (),
        id="given-log-settings-changed-and-partition-going-then-left-alone",
    ),
    pytest.param(
        cluster(made(DONE, partitions=1, deleting=True, replica_map=((1,),)), OLD_SETTINGS),
        (
            becomes(
                made(DONE, partitions=1, deleting=True, replica_map=((1,),)),
                TopicResolution.DELETING,
                DELETING_REASON,
                ((1,),),
            ),
            MarkDeleting(OLD_SETTINGS),
        ),
        id="given-deletion-then-deleting-and-partitions-marked",
    ),
    pytest.param(
        cluster(GOING, partition_of(GOING, 0, (1,), deleting=True), partition_of(GOING, 1, (2,))),
        (MarkDeleting(partition_of(GOING, 1, (2,))),),
        id="given-deleting-then-only-unmarked-partitions-are-marked",
    ),
    pytest.param(
        cluster(GOING, partition_of(GOING, 0, (1,), deleting=True)),
        (),
        id="given-deleting-and-all-marked-then-it-waits",
    ),
    pytest.param(
        cluster(GOING), (RemoveObject(GOING),), id="given-no-partitions-left-then-removed"
    ),
    pytest.param(
        cluster(made(deleting=True)),
        (RemoveObject(made(deleting=True)),),
        id="given-deleted-before-it-was-placed-then-removed",
    ),
    pytest.param(
        cluster(made(INVALID, rows={0: (9,)}, deleting=True)),
        (RemoveObject(made(INVALID, rows={0: (9,)}, deleting=True)),),
        id="given-invalid-topic-deleted-then-removed",
    ),
]


@pytest.mark.parametrize(
    ("view", "actions"), [*VALIDATION, *PLACING, *SEALING, *ARCHIVES, *SETTINGS_AND_DELETION]
)
def test_topic(view: View, actions: tuple[Action, ...]) -> None:
    assert reconcile(view, KEY, NOW) == actions


def restored(partition: Partition, **spec: Any) -> RestoreTopic:
    note = {RESTORED: "from its partitions; compression, archive and labels are lost"}
    return RestoreTopic(
        Topic(
            metadata=Metadata(name="t", uid=topic_of("t").uid, generation=1, annotations=note),
            spec=TopicSpec(min_in_sync_replicas=1, **spec),
            status=TopicStatus(resolution=PENDING, reason="restored from its partitions"),
        ),
        partition,
    )


@pytest.mark.parametrize(
    ("view", "actions"),
    [
        pytest.param(
            cluster(partition_of("t", 0, (1, 2)), partition_of("t", 3, (2, 3))),
            (restored(partition_of("t", 0, (1, 2)), partitions=4, replication_factor=2),),
            id="given-topic-removed-by-hand-then-restored-from-its-partitions",
        ),
        pytest.param(
            cluster(partition_of(typed(topic_of("t")), 0, (1, 2))),
            (
                restored(
                    partition_of(typed(topic_of("t")), 0, (1, 2)),
                    partitions=1,
                    replication_factor=2,
                    **TYPED_ROWS,
                ),
            ),
            id="given-typed-topic-removed-by-hand-then-its-columns-come-back",
        ),
        pytest.param(
            cluster(partition_of("t", 0, (1,), deleting=True), partition_of("t", 1)),
            (MarkDeleting(partition_of("t", 1)),),
            id="given-no-topic-and-some-of-its-partitions-going-then-the-others-go-too",
        ),
        pytest.param(
            cluster(partition_of("t", 0, (1,), deleting=True)),
            (),
            id="given-no-topic-and-partitions-going-then-nothing",
        ),
        pytest.param(
            cluster(made(DONE, partitions=2, replica_map=((1,), (3,))), partition_of("t", 0)),
            (
                creates(
                    made(DONE, partitions=2, replica_map=((1,), (3,))),
                    (
                        fresh(made(DONE, partitions=2), 1, (3,)).with_metadata(
                            annotations={RESTORED: "all its replicas are asked who leads"}
                        ),
                    ),
                    first=False,
                ),
            ),
            id="given-partition-removed-by-hand-then-it-comes-back-where-it-was",
        ),
    ],
)
def test_repair(view: View, actions: tuple[Action, ...]) -> None:
    assert reconcile(view, KEY, NOW) == actions


def chunks_of(topic: Topic, *there: Partition) -> list[list[int | None]]:
    """The indexes that each action of one look creates."""
    actions = reconcile(cluster(topic, *there), KEY, NOW)
    assert all(isinstance(a, CreatePartitions) for a in actions)
    return [
        [p.spec.index for p in a.partitions] for a in actions if isinstance(a, CreatePartitions)
    ]


def test_the_bounds_of_a_transaction_are_those_of_the_kv() -> None:
    assert (topic_size.MAX_TXN_OPS, topic_size.MAX_TXN_BYTES) == (MAX_TXN_OPS, MAX_TXN_BYTES)


def test_given_many_partitions_then_created_in_bounded_chunks_in_order() -> None:
    topic = made(PENDING, partitions=2 * CREATE_CHUNK + 1)
    # The first write changes the topic: what follows is decided anew.
    assert chunks_of(topic) == [list(range(CREATE_CHUNK))]
    there = [fresh(topic, i, (1,)) for i in range(5)]
    assert chunks_of(topic, *there) == [
        list(range(5, CREATE_CHUNK + 5)),
        list(range(CREATE_CHUNK + 5, 2 * CREATE_CHUNK + 1)),
    ]


def test_given_large_settings_then_chunks_are_bounded_by_bytes() -> None:
    columns = tuple(Column(name=f"column_{i:03}_{'x' * 40}", type="string") for i in range(400))
    topic = made(PENDING, partitions=100)
    topic = topic.model_copy(update={"spec": topic.spec.model_copy(update={"columns": columns})})
    first = fresh(topic, 0, (1,))
    there, sizes = [first], []
    for action in reconcile(cluster(topic, first), KEY, NOW):
        assert isinstance(action, CreatePartitions)
        sizes.append(sum(len(encode_object(p, "cause")) for p in action.partitions))
        there += action.partitions
    assert [p.spec.index for p in there] == list(range(100))
    assert max(sizes) <= CREATE_BYTES
    assert max(sizes) > CREATE_BYTES // 2
    (alone,) = reconcile(cluster(topic), KEY, NOW)
    assert isinstance(alone, CreatePartitions)
    together = sum(len(encode_object(p, "cause")) for p in (topic, *alone.partitions))
    assert CREATE_BYTES // 2 < together <= CREATE_BYTES


def test_given_many_spus_then_a_chunk_compares_as_many_as_a_transaction_may() -> None:
    """A chunk of placements on 200 SPUs would compare more keys than one transaction takes."""
    rows = {i: (2 * i + 1, 2 * i + 2) for i in range(100)}
    topic = made(PENDING, rows=rows)
    view = view_of(topic, *(spu_of(i) for i in range(1, 201)))
    (first,) = reconcile(view, KEY, NOW)
    assert isinstance(first, CreatePartitions)
    actions = reconcile(
        view_of(topic, *(spu_of(i) for i in range(1, 201)), *first.partitions), KEY, NOW
    )
    for action in (first, *actions):
        assert isinstance(action, CreatePartitions)
        assert 2 + len(action.spus) + len(action.partitions) <= MAX_TXN_OPS
    assert len(first.partitions) == 42


@pytest.mark.parametrize(
    ("topic", "placed", "reason"),
    [
        pytest.param(
            made(PENDING, partitions=1),
            {0: (1,), 1: (2,)},
            "spec has 1 partitions, but 2 were placed: set it back",
            id="given-more-partitions-than-the-spec-has-then-said",
        ),
    ],
)
def test_given_a_spec_that_contradicts_what_was_placed_then_the_status_says_so(
    topic: Topic, placed: dict[int, tuple[int, ...]], reason: str
) -> None:
    partitions = [
        p.model_copy(update={"spec": p.spec.model_copy(update={"log": topic.spec.log_settings})})
        for p in (partition_of(topic, i, row) for i, row in placed.items())
    ]
    expected = becomes(topic, DONE, reason, tuple(placed.values()))
    assert reconcile(cluster(topic, *partitions), KEY, NOW) == (expected,)


def test_given_a_replica_map_that_no_write_can_hold_then_nothing_is_placed_and_it_says_so() -> None:
    rows = dict.fromkeys(range(40_000), (1_000_000_001, 1_000_000_002, 1_000_000_003))
    topic = made(PENDING, rows=rows)
    (action,) = reconcile(view_of(topic, *map(spu_of, rows[0])), KEY, NOW)
    assert isinstance(action, WriteStatus)
    assert action.status.reason is not None
    assert "the topic is too large for the KV store" in action.status.reason


def test_given_very_many_partitions_then_one_look_creates_some_and_the_next_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sc.controllers.topic.CREATE_AT_ONCE", 3)
    topic = made(PENDING, partitions=7, factor=1)
    there: list[Partition] = []
    for expected in ([0, 1, 2], [3, 4, 5], [6]):
        (action,) = reconcile(cluster(topic, *there), Key("Topic", topic.name), 0)
        assert isinstance(action, CreatePartitions)
        assert [p.spec.index for p in action.partitions] == expected
        there += [p.with_metadata(resource_version="9") for p in action.partitions]
    # Beside those that are there: as even as all at once.
    leaders = sorted(p.spec.preferred_leader for p in there)
    assert leaders == [1, 1, 1, 2, 2, 3, 3]


def test_given_racks_then_replicas_lie_apart_unless_ignored() -> None:
    spus = [spu_of(1, rack="a"), spu_of(2, rack="a"), spu_of(3, rack="b")]
    sessions = [session_of(i) for i in (1, 2, 3)]
    apart = made(PENDING, factor=2)
    ignored = made(PENDING, factor=2, ignore_racks=True)
    assert reconcile(view_of(apart, *spus, sessions=sessions), KEY, NOW) == (
        creates(apart, (fresh(apart, 0, (1, 3)),), spus[0], spus[2]),
    )
    assert reconcile(view_of(ignored, *spus, sessions=sessions), KEY, NOW) == (
        creates(ignored, (fresh(ignored, 0, (1, 2)),), spus[0], spus[1]),
    )


def test_given_same_topic_and_index_then_same_partition_uid_and_no_other() -> None:
    uids = {partition_uid(topic, i) for topic in ("u1", "u2", "u") for i in range(12)}
    assert len(uids) == 36
    assert partition_uid("u1", 3) == partition_uid("u1", 3)


def test_given_offline_status_but_live_session_then_the_session_decides() -> None:
    topic = made(PENDING)
    spu = spu_of(1, SpuResolution.OFFLINE)
    actions = reconcile(view_of(topic, spu, sessions=[session_of(1)]), KEY, NOW)
    assert actions == (creates(topic, (fresh(topic, 0, (1,)),), spu),)
