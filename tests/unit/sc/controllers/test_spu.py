"""The SPU controller: every branch as (view, key, now) → exact actions."""

from __future__ import annotations

import pytest

from sc.controllers.actions import (
    Action,
    Key,
    RegisterSpu,
    RemoveTombstone,
    ReplaceTombstone,
    SendComplete,
    SendDelete,
    UnregisterSpu,
    WakeAt,
    WriteStatus,
)
from sc.controllers.partition import assignment_of
from sc.controllers.spu import reconcile
from sc.store.view import View
from schemas.control.messages import Tombstone
from schemas.ids import StorageId
from schemas.objects.partition import Partition
from schemas.objects.spu import SpuResolution
from tests.unit.sc.builders import (
    partition_of,
    report_of,
    session_of,
    spu_of,
    tombstone_of,
    unreachable_of,
    view_of,
)
from tests.unit.sc.controllers.spus import (
    GONE,
    GRACE,
    INIT_REASON,
    LED,
    LEFT,
    NOW,
    OFFLINE_REASON,
    UNKNOWN_REASON,
    becomes,
)

KEY = Key("Spu", "spu-1")
REFUSED = "its last attempt to connect was refused: it has no proof"

ONLINE = spu_of(1)
INIT = spu_of(1, SpuResolution.INIT, reason=INIT_REASON)
OFFLINE = spu_of(1, SpuResolution.OFFLINE, reason=OFFLINE_REASON)
UNKNOWN = spu_of(1, SpuResolution.UNKNOWN, reason=UNKNOWN_REASON)
#: It advertises its own loopback address to other SPUs.
ALONE = spu_of(1, SpuResolution.INIT, ingress="edge-1.example", private="localhost", observed=0)
CONTRADICTION = ALONE.spec.contradiction
UNREACHABLE = "; ".join(
    f"SPU 1 cannot reach SPU {i} at edge-{i}:9006: connection refused" for i in (2, 3, 4)
)
MINE = partition_of("a", 0, (1, 2))
GOING = partition_of("b", 0, (1,), deleting=True)
FOREIGN = partition_of("c", 0, (2,))
GONE_TOO = partition_of("gone", 1, (1,))
UNDELETED = "cannot delete a replica that it is not to hold any more: meta.json: busy"
STRANGERS = (
    f"keeps 2 replicas that belong to no partition: {', '.join(sorted((GONE.uid, GONE_TOO.uid)))}"
)


@pytest.mark.parametrize(
    ("view", "actions"),
    [
        pytest.param(view_of(), (), id="given-no-object-then-nothing"),
        pytest.param(
            view_of(registered={"spu-1": 1}),
            (UnregisterSpu("spu-1", 1),),
            id="given-object-gone-then-unregistered",
        ),
        pytest.param(
            view_of(INIT, registered={}),
            (RegisterSpu(INIT),),
            id="given-new-object-then-registered",
        ),
        pytest.param(
            view_of(INIT, registered={"spu-1": 7}),
            (UnregisterSpu("spu-1", 7), RegisterSpu(INIT)),
            id="given-name-taken-over-by-another-id-then-registered-anew",
        ),
        pytest.param(view_of(INIT), (), id="given-init-and-never-connected-then-nothing"),
        pytest.param(
            view_of(spu_of(1, SpuResolution.INIT, observed=0)),
            (becomes(spu_of(1, SpuResolution.INIT, observed=0), SpuResolution.INIT, INIT_REASON),),
            id="given-fresh-init-then-reason-says-what-it-waits-for",
        ),
        pytest.param(
            view_of(ALONE),
            (becomes(ALONE, SpuResolution.INIT, f"{INIT_REASON}; {CONTRADICTION}"),),
            id="given-others-are-sent-to-their-own-machine-then-the-reason-says-so-at-once",
        ),
        pytest.param(
            view_of(ALONE, sessions=[session_of(1)]),
            (becomes(ALONE, SpuResolution.ONLINE, CONTRADICTION),),
            id="given-others-are-sent-to-their-own-machine-then-it-says-so-while-online",
        ),
        pytest.param(
            view_of(ONLINE, sessions=[session_of(1, unreachable=[unreachable_of(2)])]),
            (),
            id="given-it-cannot-reach-one-that-is-away-then-nothing",
        ),
        pytest.param(
            view_of(
                ONLINE,
                sessions=[
                    session_of(1, unreachable=[unreachable_of(i) for i in range(2, 9)]),
                    *(session_of(i) for i in range(2, 9)),
                ],
            ),
            (becomes(ONLINE, SpuResolution.ONLINE, UNREACHABLE),),
            id="given-it-cannot-reach-others-then-the-reason-names-a-few",
        ),
        pytest.param(
            view_of(ONLINE, sessions=[session_of(1, report_of(GONE), report_of(GONE_TOO))]),
            (becomes(ONLINE, SpuResolution.ONLINE, STRANGERS),),
            id="given-replicas-of-no-partition-then-the-reason-names-them",
        ),
        pytest.param(
            view_of(ONLINE, sessions=[session_of(1, undeleted={GONE.uid: "meta.json: busy"})]),
            (becomes(ONLINE, SpuResolution.ONLINE, UNDELETED),),
            id="given-a-replica-that-it-cannot-delete-then-said-why",
        ),
        pytest.param(
            view_of(ONLINE, LED, sessions=[session_of(1, report_of(LED))]),
            (becomes(ONLINE, SpuResolution.ONLINE, LEFT),),
            id="given-a-replica-of-a-partition-that-others-hold-then-the-reason-names-it",
        ),
        pytest.param(
            view_of(ONLINE, LED, sessions=[session_of(1, report_of(LED))], recovering=1),
            (),
            id="given-a-recovery-in-which-it-is-asked-for-a-replica-then-nothing",
        ),
        pytest.param(
            view_of(
                ONLINE,
                LED,
                sessions=[session_of(1, report_of(LED))],
                tombstones=[tombstone_of(LED, 1)],
            ),
            (SendDelete(1, (tombstone_of(LED, 1),)),),
            id="given-a-replica-that-it-is-to-delete-then-the-reason-does-not-name-it",
        ),
        pytest.param(
            view_of(INIT, grace_until_ms=GRACE),
            (WakeAt(KEY, GRACE),),
            id="given-init-in-grace-then-stays-init",
        ),
        pytest.param(
            view_of(INIT, sessions=[session_of(1)]),
            (becomes(INIT, SpuResolution.ONLINE, None),),
            id="given-init-and-session-then-online",
        ),
        pytest.param(
            view_of(ONLINE, sessions=[session_of(1)]),
            (),
            id="given-online-and-session-then-nothing",
        ),
        pytest.param(
            view_of(ONLINE, sessions=[session_of(2)]),
            (becomes(ONLINE, SpuResolution.OFFLINE, OFFLINE_REASON),),
            id="given-online-without-session-then-offline",
        ),
        pytest.param(view_of(OFFLINE), (), id="given-offline-without-session-then-nothing"),
        pytest.param(
            view_of(OFFLINE, sessions=[session_of(1)], grace_until_ms=GRACE),
            (becomes(OFFLINE, SpuResolution.ONLINE, None),),
            id="given-offline-and-session-then-online",
        ),
        pytest.param(
            view_of(OFFLINE, refusals={1: "it has no proof", 2: "not this one"}),
            (becomes(OFFLINE, SpuResolution.OFFLINE, f"{OFFLINE_REASON}; {REFUSED}"),),
            id="given-offline-and-turned-away-then-the-reason-says-why",
        ),
        pytest.param(
            view_of(INIT, refusals={1: "it has no proof"}),
            (becomes(INIT, SpuResolution.INIT, f"{INIT_REASON}; {REFUSED}"),),
            id="given-init-and-turned-away-then-the-reason-says-why",
        ),
        pytest.param(
            view_of(ONLINE, sessions=[session_of(1)], refusals={1: "it has no proof"}),
            (),
            id="given-session-and-an-old-refusal-then-nothing",
        ),
        pytest.param(
            view_of(ONLINE, grace_until_ms=GRACE),
            (becomes(ONLINE, SpuResolution.UNKNOWN, UNKNOWN_REASON), WakeAt(KEY, GRACE)),
            id="given-online-in-grace-without-session-then-unknown",
        ),
        pytest.param(
            view_of(UNKNOWN, grace_until_ms=GRACE),
            (WakeAt(KEY, GRACE),),
            id="given-unknown-in-grace-then-looked-at-again-when-it-ends",
        ),
        pytest.param(
            view_of(UNKNOWN, grace_until_ms=NOW),
            (becomes(UNKNOWN, SpuResolution.OFFLINE, OFFLINE_REASON),),
            id="given-unknown-after-grace-then-offline",
        ),
        pytest.param(
            view_of(ONLINE, MINE, GOING, FOREIGN, sessions=[session_of(1, complete=False)]),
            (SendComplete(1, 1, (assignment_of(MINE),)),),
            id="given-fresh-session-then-told-everything-it-is-to-hold",
        ),
        pytest.param(
            view_of(
                ONLINE,
                sessions=[session_of(1, complete=False, generation=4)],
                tombstones=[tombstone_of(GONE, 1)],
            ),
            (SendComplete(1, 4, ()),),
            id="given-fresh-session-and-tombstone-then-complete-list-first",
        ),
        pytest.param(
            view_of(
                ONLINE,
                sessions=[session_of(1)],
                tombstones=[tombstone_of(GONE, 1), tombstone_of(FOREIGN, 2)],
            ),
            (SendDelete(1, (tombstone_of(GONE, 1),)),),
            id="given-tombstone-then-told-to-delete",
        ),
        pytest.param(
            view_of(
                ONLINE,
                sessions=[session_of(1, deleted=[tombstone_of(GONE, 1)])],
                tombstones=[tombstone_of(GONE, 1)],
            ),
            (RemoveTombstone(tombstone_of(GONE, 1)),),
            id="given-deletion-confirmed-then-tombstone-removed",
        ),
        pytest.param(
            view_of(
                ONLINE,
                sessions=[session_of(1, deleted=[tombstone_of(GONE, 1)])],
                tombstones=[tombstone_of(GONE, 1), tombstone_of(GONE_TOO, 1)],
            ),
            (
                RemoveTombstone(tombstone_of(GONE, 1)),
                SendDelete(1, (tombstone_of(GONE_TOO, 1),)),
            ),
            id="given-one-of-two-confirmed-then-only-the-other-is-sent",
        ),
        pytest.param(
            view_of(OFFLINE, tombstones=[tombstone_of(GONE, 1)]),
            (),
            id="given-tombstone-of-absent-spu-then-it-waits",
        ),
    ],
)
def test_spu(view: View, actions: tuple[Action, ...]) -> None:
    assert reconcile(view, KEY, NOW) == actions


ELSEWHERE_NOW = partition_of("t", 0, (2,))
REBUILT = report_of(ELSEWHERE_NOW, 1, storage="s2")
GRAVE = tombstone_of(ELSEWHERE_NOW, 1).model_copy(update={"storage_id": StorageId("s1")})
NEXT_GRAVE = GRAVE.model_copy(update={"storage_id": StorageId("s2")})


@pytest.mark.parametrize(
    ("partition", "grave", "deleted", "actions"),
    [
        pytest.param(
            ELSEWHERE_NOW,
            GRAVE,
            (),
            (SendDelete(1, (GRAVE,)),),
            id="given-a-replica-that-moved-away-then-deleted",
        ),
        pytest.param(
            ELSEWHERE_NOW,
            GRAVE,
            (GRAVE,),
            (ReplaceTombstone(ELSEWHERE_NOW, NEXT_GRAVE),),
            id="given-it-was-rebuilt-before-it-heard-then-the-new-storage-goes-too",
        ),
        pytest.param(
            ELSEWHERE_NOW,
            NEXT_GRAVE,
            (GRAVE,),
            (SendDelete(1, (NEXT_GRAVE,)),),
            id="given-the-former-storage-was-confirmed-then-the-new-one-is-still-to-go",
        ),
        pytest.param(
            ELSEWHERE_NOW,
            NEXT_GRAVE,
            (NEXT_GRAVE,),
            (RemoveTombstone(NEXT_GRAVE),),
            id="given-the-new-one-was-confirmed-then-done",
        ),
        pytest.param(
            partition_of("t", 0, (1, 2)),
            GRAVE,
            (),
            (RemoveTombstone(GRAVE),),
            id="given-it-is-a-holder-as-a-restored-kv-may-say-then-nothing-is-deleted",
        ),
    ],
)
def test_tombstones_of_replicas_that_moved(
    partition: Partition,
    grave: Tombstone,
    deleted: tuple[Tombstone, ...],
    actions: tuple[Action, ...],
) -> None:
    session = session_of(1, REBUILT, deleted=deleted)
    view = view_of(partition, spu_of(1), spu_of(2), sessions=[session], tombstones=[grave])
    found = reconcile(view, KEY, NOW)
    assert tuple(a for a in found if not isinstance(a, WriteStatus)) == actions
