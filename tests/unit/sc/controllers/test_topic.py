"""The topic controller: validation and placing as (view, key, now) → exact actions."""

from __future__ import annotations

from typing import Any

import pytest

from sc.controllers.actions import Action, WakeAt
from sc.controllers.topic import partition_uid, reconcile
from sc.store.view import View
from schemas.objects.partition import taking_over
from schemas.objects.spu import Spu, SpuResolution
from schemas.objects.spu_group import SpuGroupResolution
from schemas.objects.topic import TopicResolution
from tests.unit.sc.builders import group_of, member_of, partition_of, session_of, spu_of, view_of
from tests.unit.sc.controllers.topics import (
    BOTH,
    DONE,
    INVALID,
    KEY,
    NOW,
    ONE_IS_THERE,
    PENDING,
    PLACED,
    PLACED_ROWS,
    WAITING,
    becomes,
    cluster,
    creates,
    fresh,
    made,
    unwritable,
)

GRACE = 5_000
SHORT = TopicResolution.INSUFFICIENT_RESOURCES


def draining(spu_id: int) -> Spu:
    spu = spu_of(spu_id)
    return spu.model_copy(update={"spec": spu.spec.model_copy(update={"drain": True})})


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


@pytest.mark.parametrize(("view", "actions"), [*VALIDATION, *PLACING])
def test_topic(view: View, actions: tuple[Action, ...]) -> None:
    assert reconcile(view, KEY, NOW) == actions


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
