"""A changed template restarts the SPUs of a group one after the other: view → exact actions."""

from __future__ import annotations

from typing import Any

import pytest

from sc.controllers.actions import Action, WakeAt, WriteSpuSpec, WriteStatus
from sc.controllers.spu_group import reconcile
from sc.store.view import Provisioned, View
from schemas.objects.metadata import Object
from schemas.objects.partition import LiveReplica, Partition
from schemas.objects.spu import Spu, Storage
from schemas.objects.spu_group import SpuGroup
from tests.unit.sc.builders import group_of, member_of, partition_of, report_of, session_of, spu_of
from tests.unit.sc.controllers.groups import KEY, NOW, RESERVED, becomes, seen, template

BEFORE = group_of(replicas=3)
MOVED = group_of(replicas=3, template=template(storage=Storage(log_dir="/other")))
ROOMY = group_of(replicas=3, template=template(storage=Storage(size=8 << 30)))
SMALL = group_of(replicas=3, template=template(storage=Storage(size=1 << 20)))
FAST = group_of(replicas=3, template=template(catch_up_rate=8 << 20))
RACKED = group_of(replicas=3, template=template(rack="b"))
OLD = [member_of(BEFORE, i) for i in (1, 2, 3)]
NEW = [member_of(MOVED, i) for i in (1, 2, 3)]
ONE, TWO, THREE = OLD
IDS = (1, 2, 3)


def change(spu: Spu, group: SpuGroup = MOVED) -> WriteSpuSpec:
    return WriteSpuSpec(spu, member_of(group, spu.spec.spu_id).spec)


def waits(names: str, what: str, group: SpuGroup = MOVED) -> WriteStatus:
    text = f"the changed template is not in force yet for {names}: waiting until {what}"
    return becomes(group, RESERVED, text)


def are_live(*others: int) -> str:
    """That replicas are waited for, because these SPUs, which are connected, have none that is."""
    whys = [f"that of g-{i} is not; see: runnel describe partition t-0" for i in others]
    return f"all replicas of t-0 are live: {', and '.join(whys) or 'its own catches up'}"


def view(
    *spus: Spu,
    online: tuple[int, ...] = IDS,
    objects: tuple[Object, ...] = (),
    group: SpuGroup = MOVED,
    ended: dict[str, int] | None = None,
    told: tuple[Spu, ...] = (),
    storages: dict[int, str | None] | None = None,
    unfit: tuple[int, ...] = (),
    trouble: str | None = None,
    unable: bool = False,
    **more: Any,
) -> View:
    """``told``: by which specs processes run, where not by those of the objects. ``storages``: by
    SPU, which storage of each partition it reports, where not that of its live replica; None where
    it has not reported yet. ``unfit``: SPUs whose replicas are unfit. ``trouble``: what
    keeps processes from running, ``unable`` if nobody else does."""
    specs = {spu.name: spu.spec for spu in (*spus, *told)}
    provisioned = {
        name: Provisioned(spec, trouble, (ended or {}).get(name), unable)
        for name, spec in specs.items()
    }
    partitions = [found for found in objects if isinstance(found, Partition)]
    reported: dict[int, str | None] = {i: f"s{i}" for i in online}
    reported.update(storages or {})
    sessions = [
        session_of(
            i,
            *(
                report_of(found, i, storage=reported[i], fit=i not in unfit)
                for found in partitions
                if i in found.spec.holders and reported[i] is not None
            ),
        )
        for i in online
    ]
    return seen(group, *spus, *objects, provisioned=provisioned, sessions=sessions, **more)


def replicated(
    *live: int,
    joining: tuple[int, ...] | None = None,
    leaving: tuple[int, ...] | None = None,
    replicas: tuple[int, ...] = IDS,
) -> Object:
    return partition_of(
        "t",
        0,
        replicas,
        leader=live[0],
        joining=joining,
        leaving=leaving,
        lrs=tuple(LiveReplica(spu_id=i, storage_id=f"s{i}") for i in live),
    )


#: A group beside it, whose SPU holds the same partition.
OTHER_GROUP = group_of("h", replicas=1, min_id=4, template=MOVED.spec.template)
ELSEWHERE = member_of(OTHER_GROUP, 4)
ELSEWHERE_BEFORE = member_of(group_of("h", replicas=1, min_id=4), 4)
BESIDE: dict[str, Any] = {
    "objects": (replicated(1, 2, 3, 4, replicas=(1, 2, 3, 4)),),
    "online": (1, 2, 3, 4),
}

#: A partition that an SPU of nobody here should have.
WIDE = (replicated(1, 2, 3, replicas=(1, 2, 3, 4)),)


def drained(spu: Spu) -> Spu:
    return spu.model_copy(update={"spec": spu.spec.model_copy(update={"drain": True})})


#: What an SPU that is away waits for if the only live copy is on it.
ONLY = (
    "g-1 is back: no other replica of t-0 is live; have another lead without it if it has lost"
    " that: runnel partition elect t-0 --unclean"
)

CASES = [
    pytest.param(
        view(*OLD),
        (change(ONE), waits("g-2, g-3", "g-1 is back")),
        id="given-all-connected-then-the-first",
    ),
    pytest.param(
        view(*OLD, objects=(replicated(1, 2, 3),)),
        (change(ONE), waits("g-2, g-3", "g-1 is back")),
        id="given-all-replicas-live-then-the-first",
    ),
    pytest.param(
        view(*OLD, objects=(replicated(1, 3),)),
        (waits("g-1, g-2, g-3", are_live(2)),),
        id="given-a-replica-that-is-not-live-then-none",
    ),
    pytest.param(
        view(*OLD, objects=(replicated(1, 2, joining=(3,)),)),
        (change(ONE), waits("g-2, g-3", "g-1 is back")),
        id="given-a-replica-that-is-added-then-it-is-not-waited-for",
    ),
    pytest.param(
        view(*OLD, objects=(replicated(1, joining=(2, 3)),)),
        (change(TWO), waits("g-1, g-3", are_live(2, 3))),
        id="given-others-that-are-only-added-then-the-last-live-one-waits",
    ),
    pytest.param(
        view(*OLD, objects=(replicated(1, replicas=(1,)),)),
        (change(ONE), waits("g-2, g-3", "g-1 is back")),
        id="given-a-partition-without-another-replica-then-it-is-not-waited-for",
    ),
    pytest.param(
        view(*OLD, objects=(replicated(1, replicas=(2,), joining=(2,), leaving=(1,)),)),
        (change(ONE), waits("g-2, g-3", "g-1 is back")),
        id="given-a-partition-whose-only-replica-moves-then-it-is-not-waited-for",
    ),
    pytest.param(
        view(
            NEW[0],
            *(TWO, THREE),
            ended={"g-1": 0},
            objects=(replicated(1, 2, 3),),
            storages={1: "empty"},
        ),
        (waits("g-2, g-3", are_live(1)),),
        id="given-one-that-is-back-without-its-data-then-the-next-waits-whatever-the-set-says",
    ),
    pytest.param(
        view(
            NEW[0],
            *(TWO, THREE),
            ended={"g-1": 0},
            objects=(replicated(1, 2, 3),),
            storages={1: None},
        ),
        (waits("g-2, g-3", are_live(1)),),
        id="given-one-that-is-back-and-has-not-reported-its-replica-then-the-next-waits",
    ),
    pytest.param(
        view(*OLD, objects=(replicated(1, 2, 3),), storages={1: "empty"}),
        (change(ONE), waits("g-2, g-3", are_live(1))),
        id="given-its-own-replica-is-unfit-then-that-is-no-reason-to-wait",
    ),
    pytest.param(
        view(*OLD, objects=(replicated(2, 3),), unfit=(1,)),
        (change(ONE), waits("g-2, g-3", are_live(1))),
        id="given-its-own-replica-has-left-because-it-is-unfit-then-that-is-no-reason-to-wait",
    ),
    pytest.param(
        view(*OLD, objects=(replicated(2, 3),)),
        (waits("g-1, g-2, g-3", are_live()),),
        id="given-its-own-replica-catches-up-then-it-waits",
    ),
    pytest.param(
        view(*OLD, objects=(replicated(2, replicas=(1, 2)),), unfit=(1, 2)),
        (change(THREE), waits("g-1, g-2", are_live(2))),
        id="given-its-own-replica-is-unfit-and-so-is-the-live-one-then-it-waits",
    ),
    pytest.param(
        view(*OLD, spu_of(4), objects=WIDE),
        (
            waits(
                "g-1, g-2, g-3",
                "all replicas of t-0 are live: spu-4 is offline; bring it back, or have others take"
                " its replicas: runnel spu drain spu-4",
            ),
        ),
        id="given-an-spu-that-is-away-then-the-reason-names-it-and-the-way-out",
    ),
    pytest.param(
        view(*OLD, drained(spu_of(4)), objects=WIDE),
        (
            waits(
                "g-1, g-2, g-3",
                "all replicas of t-0 are live: spu-4 is offline, and drains; see: runnel describe"
                " spu spu-4",
            ),
        ),
        id="given-it-drains-then-the-reason-says-where-to-look",
    ),
    pytest.param(
        view(*OLD, spu_of(4), objects=WIDE, grace_until_ms=NOW + 1),
        (
            WakeAt(KEY, NOW + 1),
            waits("g-1, g-2, g-3", "all replicas of t-0 are live: spu-4 may be about to connect"),
        ),
        id="given-it-is-not-known-whether-it-is-away-then-it-looks-again",
    ),
    pytest.param(
        view(
            *OLD,
            *(spu_of(i) for i in range(4, 9)),
            objects=(replicated(1, 2, 3, replicas=(*IDS, *range(4, 9))),),
            online=(*IDS, *range(4, 9)),
        ),
        (
            waits(
                "g-1, g-2, g-3",
                "all replicas of t-0 are live: "
                + "".join(
                    f"that of spu-{i} is not; see: runnel describe partition t-0, and "
                    for i in (4, 5, 6)
                )
                + "2 more are not live",
            ),
        ),
        id="given-many-that-are-not-live-then-three-are-named",
    ),
    pytest.param(
        view(*OLD, objects=(replicated(1, 2, joining=(3,), replicas=(1, 2, 3, 9)),)),
        (
            waits(
                "g-1, g-2, g-3",
                "all replicas of t-0 are live: SPU 9 is not registered; register it again, and have"
                " others take its replicas: runnel spu drain",
            ),
        ),
        id="given-a-newcomer-beside-one-that-is-missed-then-that-is-named-alone",
    ),
    pytest.param(
        view(*OLD, ELSEWHERE, told=(ELSEWHERE_BEFORE,), **BESIDE),
        (waits("g-1, g-2, g-3", "h-4 is back"),),
        id="given-one-of-another-group-with-the-same-partition-that-restarts-then-none",
    ),
    pytest.param(
        view(*OLD, ELSEWHERE, ended={"h-4": 1}, **BESIDE),
        (waits("g-1, g-2, g-3", "h-4 is back"),),
        id="given-one-of-another-group-whose-former-process-is-connected-then-none",
    ),
    pytest.param(
        view(*OLD, ELSEWHERE, **BESIDE),
        (change(ONE), waits("g-2, g-3", "g-1 is back")),
        id="given-one-of-another-group-that-is-there-then-the-first",
    ),
    pytest.param(
        view(*OLD, spu_of(4), **BESIDE),
        (change(ONE), waits("g-2, g-3", "g-1 is back")),
        id="given-one-that-nobody-here-restarts-then-the-first",
    ),
    pytest.param(
        view(NEW[0], TWO, THREE, told=(ONE,)),
        (waits("g-2, g-3", "g-1 is back"),),
        id="given-one-whose-process-was-not-told-yet-then-the-next-waits",
    ),
    pytest.param(
        view(NEW[0], TWO, THREE, ended={"g-1": 1}),
        (waits("g-2, g-3", "g-1 is back"),),
        id="given-one-whose-former-process-is-still-connected-then-the-next-waits",
    ),
    pytest.param(
        view(NEW[0], TWO, THREE, online=(2, 3)),
        (waits("g-2, g-3", "g-1 is back"),),
        id="given-one-that-is-away-then-the-next-waits",
    ),
    pytest.param(
        view(NEW[0], TWO, THREE, ended={"g-1": 0}),
        (change(TWO), waits("g-3", "g-2 is back")),
        id="given-one-that-is-back-then-the-next",
    ),
    pytest.param(
        view(NEW[0], TWO, THREE, ended={"g-1": 0}, objects=(replicated(2, 3),)),
        (waits("g-2, g-3", are_live(1)),),
        id="given-one-that-is-back-and-not-caught-up-then-the-next-waits",
    ),
    pytest.param(
        view(*NEW[:2], THREE), (change(THREE),), id="given-one-left-then-no-reason-is-needed"
    ),
    pytest.param(view(*NEW), (), id="given-all-changed-then-nothing"),
    pytest.param(
        view(ONE, TWO, THREE, online=()),
        (change(ONE), change(TWO), change(THREE)),
        id="given-none-connected-then-all",
    ),
    pytest.param(
        view(ONE, TWO, THREE, online=(2, 3)),
        (change(ONE), waits("g-2, g-3", "g-1 is back")),
        id="given-one-away-then-that-first",
    ),
    pytest.param(
        view(*OLD, online=(2, 3), objects=(replicated(1),)),
        (waits("g-1, g-2, g-3", ONLY),),
        id="given-one-away-with-the-only-live-copy-then-it-keeps-its-directory",
    ),
    pytest.param(
        seen(MOVED, *OLD, replicated(1), sessions=[session_of(2), session_of(3)]),
        (waits("g-1, g-2, g-3", ONLY),),
        id="given-the-only-live-copy-and-no-process-yet-then-that-is-started-where-it-is",
    ),
    pytest.param(
        view(*OLD, online=(), objects=(replicated(1, 2, 3),)),
        (waits("g-1, g-2, g-3", ONLY),),
        id="given-all-away-then-they-keep-their-directories",
    ),
    pytest.param(
        view(*OLD, online=(2, 3), objects=(replicated(1),), trouble="it ended", unable=True),
        (
            change(ONE),
            becomes(
                MOVED,
                RESERVED,
                "the changed template is not in force yet for g-2, g-3: waiting until g-1 is back;"
                " g-1: it ended",
            ),
        ),
        id="given-the-only-live-copy-and-it-cannot-run-then-it-gets-the-template",
    ),
    pytest.param(
        view(*OLD, online=(2, 3), objects=(replicated(1),), refusals={1: "no proof"}),
        (
            waits(
                "g-1, g-2, g-3",
                f"{ONLY}; g-1: its last attempt to connect was refused: no proof",
            ),
        ),
        id="given-the-only-live-copy-and-it-is-refused-then-it-keeps-its-directory",
    ),
    pytest.param(
        view(*OLD, online=(2, 3), objects=(replicated(1),), trouble="it was killed"),
        (waits("g-1, g-2, g-3", f"{ONLY}; g-1: it was killed"),),
        id="given-the-only-live-copy-and-somebody-kills-it-then-it-keeps-its-directory",
    ),
    pytest.param(
        view(*OLD, online=(2, 3), objects=(replicated(1),), group=SMALL),
        (change(ONE, SMALL), waits("g-2, g-3", "g-1 is back", SMALL)),
        id="given-the-only-live-copy-and-the-same-directory-then-it-gets-the-template",
    ),
    pytest.param(
        view(*OLD, online=(2, 3), objects=(replicated(1, 2),)),
        (change(ONE), waits("g-2, g-3", "g-1 is back")),
        id="given-another-live-copy-then-it-gets-the-template",
    ),
    pytest.param(
        view(*OLD, online=(2, 3), objects=(replicated(2),)),
        (change(ONE), waits("g-2, g-3", "g-1 is back")),
        id="given-a-copy-of-it-that-is-not-live-then-it-gets-the-template",
    ),
    pytest.param(
        view(*OLD, online=(3,), objects=(replicated(2),)),
        (change(ONE), waits("g-2, g-3", ONLY.replace("g-1", "g-2"))),
        id="given-the-only-live-copy-on-another-one-that-is-away-then-that-waits",
    ),
    pytest.param(
        view(*OLD, online=(2, 3), objects=(replicated(1, replicas=(1,)),)),
        (change(ONE), waits("g-2, g-3", "g-1 is back")),
        id="given-a-single-replica-and-it-is-away-then-it-gets-the-template",
    ),
    pytest.param(
        view(ONE, TWO, THREE, online=(1, 2)),
        (change(THREE), waits("g-1, g-2", "g-3 is back")),
        id="given-the-last-away-then-that-first",
    ),
    pytest.param(
        view(ONE, TWO, THREE, online=(), grace_until_ms=NOW + 1),
        (WakeAt(KEY, NOW + 1), waits("g-1, g-2, g-3", "g-1 is connected")),
        id="given-an-sc-that-has-just-begun-then-it-waits-for-their-sessions",
    ),
    pytest.param(
        view(*OLD, recovering=1),
        (waits("g-1, g-2, g-3", "the cluster has recovered"),),
        id="given-a-recovery-then-none",
    ),
    pytest.param(
        view(*OLD, told=tuple(NEW)),
        tuple(change(spu) for spu in OLD),
        id="given-restored-objects-and-processes-that-run-by-the-template-then-all-at-once",
    ),
    pytest.param(
        view(*OLD, told=tuple(NEW), recovering=1),
        tuple(change(spu) for spu in OLD),
        id="given-the-same-in-a-recovery-then-all-at-once",
    ),
    pytest.param(
        view(*OLD, told=tuple(NEW[:1]), recovering=1),
        (change(ONE), waits("g-2, g-3", "the cluster has recovered")),
        id="given-one-that-runs-by-the-template-in-a-recovery-then-that-alone",
    ),
    pytest.param(
        view(*OLD, group=ROOMY, objects=(replicated(2, 3),)),
        (change(ONE, ROOMY), waits("g-2, g-3", "g-1 is back", ROOMY)),
        id="given-more-room-then-it-waits-for-no-replicas",
    ),
    pytest.param(
        view(*OLD, group=SMALL, objects=(replicated(2, 3),)),
        (waits("g-1, g-2, g-3", are_live(), SMALL),),
        id="given-less-room-then-it-waits-for-replicas",
    ),
    pytest.param(
        view(*OLD, group=FAST, objects=(replicated(2, 3),)),
        (waits("g-1, g-2, g-3", are_live(), FAST),),
        id="given-a-lower-rate-then-it-waits-for-replicas",
    ),
    pytest.param(
        view(*OLD, group=RACKED),
        tuple(change(spu, RACKED) for spu in OLD),
        id="given-a-change-that-restarts-nobody-then-all-at-once",
    ),
]


@pytest.mark.parametrize(("seen_by", "actions"), CASES)
def test_template(seen_by: View, actions: tuple[Action, ...]) -> None:
    assert reconcile(seen_by, KEY, NOW) == actions


def test_given_a_trouble_that_holds_the_others_up_then_both_are_said() -> None:
    broken = view(NEW[0], TWO, THREE, online=(2, 3))
    assert broken.provisioning is not None
    spus = {**broken.provisioning.spus, "g-1": Provisioned(NEW[0].spec, "it ended")}
    broken = seen(MOVED, NEW[0], TWO, THREE, provisioned=spus, sessions=[*broken.sessions.values()])
    (status,) = reconcile(broken, KEY, NOW)
    assert isinstance(status, WriteStatus)
    assert status.status.reason == (
        "the changed template is not in force yet for g-2, g-3: waiting until g-1 is back;"
        " g-1: it ended"
    )


def test_given_one_that_is_to_be_removed_then_what_the_others_wait_for_is_said_too() -> None:
    """What wakes a group that waits looks for that in its reason."""
    shrunk = group_of(replicas=2, template=MOVED.spec.template)
    held = replicated(3, replicas=(3,))
    found = reconcile(view(*OLD, group=shrunk, objects=(held,)), KEY, NOW)
    reason = (
        "g-3 is removed once its replicas have moved: t-0; the changed template is not in force yet"
        " for g-2: waiting until g-1 is back"
    )
    assert found == (change(ONE), becomes(shrunk, RESERVED, reason))


def test_given_many_that_wait_then_three_are_named() -> None:
    group = group_of(replicas=6, template=template(storage=Storage(log_dir="/other")))
    spus = [member_of(group_of(replicas=6), i) for i in range(1, 7)]
    *_, status = reconcile(view(*spus, online=tuple(range(1, 7)), group=group), KEY, NOW)
    assert isinstance(status, WriteStatus)
    assert "not in force yet for g-2, g-3, g-4 and 2 more: waiting until" in str(
        status.status.reason
    )
