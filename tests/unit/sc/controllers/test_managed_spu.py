"""SPUs of groups: their processes are started, go on by another spec, and end."""

from __future__ import annotations

import pytest

from sc.controllers.actions import (
    Action,
    EndSpu,
    Key,
    ProvisionSpu,
    RegisterSpu,
    SendDelete,
    UnregisterSpu,
    WakeAt,
    WriteStatus,
)
from sc.controllers.spu import LOOK_MS, reconcile
from sc.store.view import Provisioned, View
from schemas.ids import Term
from schemas.objects.spu import PublicEndpoint, Spu, SpuResolution, SpuSpec, Storage
from schemas.objects.spu_group import SpuGroupResolution, SpuTemplate
from tests.unit.sc.builders import (
    group_of,
    live,
    member_of,
    partition_of,
    report_of,
    session_of,
    spu_of,
    tombstone_of,
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
    becomes,
)

MANAGED_KEY = Key("Spu", "g-1")
GROUP = group_of()
MANAGED = member_of(GROUP, 1)
WAITS = member_of(GROUP, 1, SpuResolution.INIT, reason=INIT_REASON)
AWAY = member_of(GROUP, 1, SpuResolution.OFFLINE, reason=OFFLINE_REASON)
RACKED = member_of(group_of(template=SpuTemplate(rack="b")), 1)
ELSEWHERE = member_of(group_of(template=SpuTemplate(storage=Storage(log_dir="/other"))), 1)
SMALL = member_of(group_of(template=SpuTemplate(storage=Storage(size=1 << 20))), 1)
CUSTOM = spu_of(1, name="g-1")
BROKEN = "its process ended 3 times in a row (exit code 1): no such directory"
DRAINED = "drained: no partition is on it"
SHRUNK = group_of(replicas=0)
DRAINS = member_of(GROUP, 1, SpuResolution.DRAINING, reason=DRAINED)
DRAINS = DRAINS.with_status(DRAINS.status.model_copy(update={"drained": True}))


LATER = WakeAt(MANAGED_KEY, NOW + LOOK_MS)
SHARED = partition_of("s", 0, (1, 2), leader=1, term=Term(1 << 16), lrs=(live(1),))
NOT_LIVE = (
    "all replicas of s-0 are live: SPU 2 is not registered; register it again, and have others take"
    " its replicas: runnel spu drain"
)
AT_OTHER_PORTS = member_of(
    group_of(template=SpuTemplate(public_endpoint=PublicEndpoint(port=9505))), 1
)
#: And in the directory of `ELSEWHERE`.
AT_OTHER_PORTS_FIRST = AT_OTHER_PORTS.model_copy(
    update={"spec": AT_OTHER_PORTS.spec.model_copy(update={"storage": ELSEWHERE.spec.storage})}
)


def goes_on(spu: Spu, until: str, before: str | None = None) -> WriteStatus:
    """That the process of an SPU runs by another spec, and what it waits for."""
    reason = f"its process goes on by another spec than this one until {until}"
    resolution = SpuResolution.ONLINE if before is None else SpuResolution.OFFLINE
    return becomes(spu, resolution, reason if before is None else f"{before}; {reason}")


def runs(spu: Spu, trouble: str | None = None, *, unable: bool = False) -> dict[str, Provisioned]:
    """What a provisioner says that runs an SPU by this spec."""
    return {spu.name: Provisioned(spu.spec, trouble, unable=unable)}


@pytest.mark.parametrize(
    ("view", "actions"),
    [
        pytest.param(
            view_of(GROUP, WAITS, provisioned={}),
            (ProvisionSpu(WAITS),),
            id="given-new-managed-spu-then-started",
        ),
        pytest.param(
            view_of(GROUP, WAITS, provisioned={}, registered={}),
            (RegisterSpu(WAITS), ProvisionSpu(WAITS)),
            id="given-it-is-not-registered-then-that-before-its-start",
        ),
        pytest.param(
            view_of(GROUP, WAITS, provisioned={}, registered={"g-1": 7}),
            (UnregisterSpu("g-1", 7), RegisterSpu(WAITS), ProvisionSpu(WAITS)),
            id="given-name-of-another-id-then-registered-anew-before-its-start",
        ),
        pytest.param(
            view_of(GROUP, WAITS, provisioned=runs(WAITS)),
            (),
            id="given-it-runs-by-its-spec-then-nothing",
        ),
        pytest.param(
            view_of(GROUP, RACKED, provisioned=runs(MANAGED), sessions=[session_of(1)]),
            (),
            id="given-a-change-that-its-process-does-not-see-then-not-restarted",
        ),
        pytest.param(
            view_of(GROUP, ELSEWHERE, provisioned=runs(MANAGED), sessions=[session_of(1)]),
            (ProvisionSpu(ELSEWHERE, 1),),
            id="given-it-runs-by-another-spec-then-started-by-this-one",
        ),
        pytest.param(
            view_of(
                *(GROUP, ELSEWHERE),
                provisioned=runs(MANAGED),
                sessions=[session_of(1)],
                recovering=1,
            ),
            (goes_on(ELSEWHERE, "the cluster has recovered"), LATER),
            id="given-a-restored-kv-with-another-spec-then-its-process-goes-on",
        ),
        pytest.param(
            view_of(GROUP, ELSEWHERE, provisioned=runs(MANAGED), recovering=1),
            (goes_on(ELSEWHERE, "the cluster has recovered", OFFLINE_REASON), LATER),
            id="given-a-restored-kv-and-it-is-away-then-it-keeps-its-spec",
        ),
        pytest.param(
            view_of(GROUP, ELSEWHERE, provisioned={}, recovering=1),
            (becomes(ELSEWHERE, SpuResolution.OFFLINE, OFFLINE_REASON), ProvisionSpu(ELSEWHERE)),
            id="given-a-restored-kv-and-nobody-knows-of-a-process-then-started",
        ),
        pytest.param(
            view_of(
                *(GROUP, ELSEWHERE, member_of(GROUP, 2)),
                provisioned=runs(MANAGED)
                | {"g-2": Provisioned(member_of(GROUP, 2).spec, ended_session=1)},
                sessions=[session_of(1), session_of(2)],
            ),
            (goes_on(ELSEWHERE, "g-2 is back"), LATER),
            id="given-another-one-that-restarts-then-it-follows",
        ),
        pytest.param(
            view_of(
                *(GROUP, MANAGED, member_of(GROUP, 2)),
                provisioned=runs(SMALL)
                | {"g-2": Provisioned(member_of(GROUP, 2).spec, ended_session=1)},
                sessions=[session_of(1), session_of(2)],
            ),
            (goes_on(MANAGED, "g-2 is back"), LATER),
            id="given-another-one-that-restarts-and-more-room-then-it-follows",
        ),
        pytest.param(
            view_of(
                *(GROUP, MANAGED, member_of(GROUP, 2)),
                provisioned=runs(SMALL)
                | {"g-2": Provisioned(member_of(GROUP, 2).spec, ended_session=1)},
                sessions=[session_of(1)],
            ),
            (goes_on(MANAGED, "g-2 is back"), LATER),
            id="given-another-one-that-has-said-goodbye-and-is-not-back-then-it-follows",
        ),
        pytest.param(
            view_of(
                *(GROUP, MANAGED, member_of(GROUP, 2)),
                provisioned=runs(SMALL)
                | {"g-2": Provisioned(member_of(GROUP, 2).spec, BROKEN, ended_session=1)},
                sessions=[session_of(1)],
            ),
            (ProvisionSpu(MANAGED, 1),),
            id="given-another-one-that-does-not-come-back-then-it-is-not-waited-for",
        ),
        pytest.param(
            view_of(
                *(GROUP, AT_OTHER_PORTS, SHARED),
                provisioned=runs(ELSEWHERE),
                sessions=[session_of(1, report_of(SHARED, 1))],
            ),
            (ProvisionSpu(AT_OTHER_PORTS_FIRST, 1),),
            id="given-other-ports-then-those-first-since-no-replica-becomes-live-before",
        ),
        pytest.param(
            view_of(
                *(GROUP, AT_OTHER_PORTS),
                provisioned={
                    MANAGED.name: Provisioned(SpuSpec(spu_id=0), spec_known=False),
                },
                sessions=[session_of(1)],
            ),
            (ProvisionSpu(AT_OTHER_PORTS, 1),),
            id="given-a-process-of-which-nobody-knows-the-directory-then-that-of-the-object",
        ),
        pytest.param(
            view_of(
                *(GROUP, AT_OTHER_PORTS, SHARED),
                provisioned={
                    MANAGED.name: Provisioned(SpuSpec(spu_id=0), spec_known=False),
                },
                sessions=[session_of(1, report_of(SHARED, 1))],
            ),
            (goes_on(AT_OTHER_PORTS, NOT_LIVE), LATER),
            id="given-such-a-process-beside-a-replica-that-is-not-live-then-it-goes-on",
        ),
        pytest.param(
            view_of(
                *(GROUP, AT_OTHER_PORTS, SHARED),
                provisioned=runs(AT_OTHER_PORTS_FIRST),
                sessions=[session_of(1, report_of(SHARED, 1))],
            ),
            (goes_on(AT_OTHER_PORTS, NOT_LIVE), LATER),
            id="given-the-ports-and-another-directory-then-that-waits-for-replicas",
        ),
        pytest.param(
            view_of(
                *(GROUP, MANAGED, SHARED),
                provisioned=runs(SMALL),
                sessions=[session_of(1, report_of(SHARED, 1))],
            ),
            (ProvisionSpu(MANAGED, 1),),
            id="given-a-replica-beside-it-that-is-not-live-and-more-room-then-it-gets-that",
        ),
        pytest.param(
            view_of(GROUP, ELSEWHERE, SHARED, provisioned=runs(MANAGED)),
            (
                goes_on(
                    ELSEWHERE,
                    "g-1 is back: no other replica of s-0 is live; have another lead without it if"
                    " it has lost that: runnel partition elect s-0 --unclean",
                    OFFLINE_REASON,
                ),
                LATER,
            ),
            id="given-it-is-away-with-the-only-live-copy-then-it-keeps-its-directory",
        ),
        pytest.param(
            view_of(GROUP, ELSEWHERE, SHARED, provisioned=runs(MANAGED, BROKEN, unable=True)),
            (becomes(ELSEWHERE, SpuResolution.OFFLINE, BROKEN), ProvisionSpu(ELSEWHERE)),
            id="given-the-only-live-copy-and-it-cannot-run-then-started-by-its-spec",
        ),
        pytest.param(
            view_of(
                *(GROUP, ELSEWHERE, SHARED),
                provisioned=runs(MANAGED),
                sessions=[session_of(1, report_of(SHARED, 1))],
            ),
            (
                goes_on(ELSEWHERE, NOT_LIVE),
                LATER,
            ),
            id="given-a-replica-beside-its-own-that-is-not-live-then-it-follows",
        ),
        pytest.param(
            view_of(GROUP, WAITS),
            (),
            id="given-nothing-that-starts-spus-then-it-waits",
        ),
        pytest.param(
            view_of(CUSTOM, provisioned={}, sessions=[session_of(1)]),
            (),
            id="given-custom-then-never-started",
        ),
        pytest.param(
            view_of(CUSTOM, provisioned=runs(MANAGED), sessions=[session_of(1)]),
            (EndSpu("g-1"),),
            id="given-custom-in-the-place-of-a-managed-one-then-that-ends",
        ),
        pytest.param(
            view_of(CUSTOM, provisioned=runs(ELSEWHERE), sessions=[session_of(1)], recovering=1),
            (),
            id="given-custom-in-the-place-of-one-that-ends-later-then-it-waits-for-nothing",
        ),
        pytest.param(
            view_of(GROUP, provisioned=runs(MANAGED)),
            (EndSpu("g-1"),),
            id="given-object-gone-then-its-process-ends",
        ),
        pytest.param(
            view_of(GROUP, provisioned=runs(MANAGED), registered={"g-1": 1}),
            (UnregisterSpu("g-1", 1), EndSpu("g-1")),
            id="given-object-gone-and-registered-then-turned-away-first",
        ),
        pytest.param(
            view_of(GROUP, provisioned={"g-2": Provisioned(MANAGED.spec)}),
            (),
            id="given-object-gone-and-only-another-runs-then-nothing",
        ),
        pytest.param(
            view_of(GROUP, WAITS, provisioned=runs(WAITS, BROKEN)),
            (becomes(WAITS, SpuResolution.INIT, BROKEN),),
            id="given-trouble-before-it-ever-connected-then-init-with-the-reason",
        ),
        pytest.param(
            view_of(GROUP, MANAGED, provisioned=runs(MANAGED, BROKEN)),
            (becomes(MANAGED, SpuResolution.OFFLINE, BROKEN),),
            id="given-trouble-then-offline-with-the-reason",
        ),
        pytest.param(
            view_of(GROUP, MANAGED, provisioned=runs(MANAGED, BROKEN), grace_until_ms=GRACE),
            (becomes(MANAGED, SpuResolution.OFFLINE, BROKEN), WakeAt(MANAGED_KEY, GRACE)),
            id="given-trouble-in-grace-then-nobody-waits-for-it",
        ),
        pytest.param(
            view_of(GROUP, MANAGED, provisioned=runs(MANAGED, BROKEN), sessions=[session_of(1)]),
            (),
            id="given-trouble-and-a-session-all-the-same-then-online",
        ),
        pytest.param(
            view_of(
                GROUP,
                member_of(GROUP, 1, SpuResolution.OFFLINE, reason=BROKEN),
                provisioned=runs(AWAY),
            ),
            (
                becomes(
                    member_of(GROUP, 1, SpuResolution.OFFLINE, reason=BROKEN),
                    SpuResolution.OFFLINE,
                    OFFLINE_REASON,
                ),
            ),
            id="given-trouble-over-then-the-plain-reason-again",
        ),
        pytest.param(
            view_of(SHRUNK, MANAGED, provisioned=runs(MANAGED), sessions=[session_of(1)]),
            (becomes(MANAGED, SpuResolution.DRAINING, DRAINED, drained=True),),
            id="given-group-shrunk-then-draining",
        ),
        pytest.param(
            view_of(
                SHRUNK,
                MANAGED,
                LED,
                provisioned=runs(MANAGED),
                sessions=[session_of(1, report_of(LED))],
            ),
            (becomes(MANAGED, SpuResolution.DRAINING, f"{DRAINED}; {LEFT}", drained=True),),
            id="given-it-keeps-a-replica-that-others-hold-then-the-reason-names-it",
        ),
        pytest.param(
            view_of(
                group_of(deleting=True),
                MANAGED,
                provisioned=runs(MANAGED),
                sessions=[session_of(1)],
            ),
            (becomes(MANAGED, SpuResolution.DRAINING, DRAINED, drained=True),),
            id="given-group-on-its-way-out-then-draining",
        ),
        pytest.param(
            view_of(SHRUNK, DRAINS, provisioned=runs(DRAINS), sessions=[session_of(1)]),
            (),
            id="given-draining-then-nothing",
        ),
        pytest.param(
            view_of(GROUP, DRAINS, provisioned=runs(DRAINS), sessions=[session_of(1)]),
            (becomes(DRAINS, SpuResolution.ONLINE, None),),
            id="given-draining-and-wanted-again-then-online",
        ),
        pytest.param(
            view_of(SHRUNK, DRAINS, provisioned=runs(DRAINS)),
            (becomes(DRAINS, SpuResolution.OFFLINE, f"{DRAINED}; {OFFLINE_REASON}", drained=True),),
            id="given-draining-and-gone-then-offline",
        ),
        pytest.param(
            view_of(
                group_of(resolution=SpuGroupResolution.INVALID, replicas=0),
                MANAGED,
                provisioned=runs(MANAGED),
                sessions=[session_of(1)],
            ),
            (),
            id="given-group-that-became-invalid-then-online-as-before",
        ),
        pytest.param(
            view_of(
                SHRUNK,
                DRAINS,
                provisioned=runs(DRAINS),
                sessions=[session_of(1)],
                tombstones=[tombstone_of(GONE, 1)],
            ),
            (
                becomes(
                    DRAINS,
                    SpuResolution.DRAINING,
                    "drains: all replicas are elsewhere; it deletes what is left of 1 replica",
                ),
                SendDelete(1, (tombstone_of(GONE, 1),)),
            ),
            id="given-draining-then-it-is-still-told-to-delete",
        ),
    ],
)
def test_managed_spu(view: View, actions: tuple[Action, ...]) -> None:
    assert reconcile(view, MANAGED_KEY, NOW) == actions
