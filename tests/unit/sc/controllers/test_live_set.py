"""What a live replica set may become: the rules by table, and as laws over all small cases."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sc.controllers.live_set import (
    Answer,
    Fitness,
    LiveSet,
    MemberHealth,
    answer,
    member_health,
    remove_unfit,
)
from sc.store.view import View
from schemas.objects.partition import LiveReplica
from tests.unit.sc.builders import (
    TERM_1,
    live,
    lrs_request_of,
    partition_of,
    report_of,
    session_of,
    spu_of,
    view_of,
)

NOW, GRACE = 1_000, 5_000
P = partition_of("t", 0, (1, 2, 3), leader=1, term=TERM_1, lrs=(live(1), live(2), live(3)))
ALL = (live(1), live(2), live(3))
NEW = live(2, "new")

LIVE = MemberHealth(Fitness.LIVE)
UNFIT = MemberHealth(Fitness.UNFIT, "it is unfit")
OFFLINE = MemberHealth(Fitness.OFFLINE, "it is offline")
UNKNOWN = MemberHealth(Fitness.UNKNOWN, "it is unknown")


def spus_1_and_2(*reports: Any, **more: Any) -> View:
    return view_of(P, spu_of(1), spu_of(2), sessions=[session_of(2, *reports)], **more)


@pytest.mark.parametrize(
    ("view", "found"),
    [
        pytest.param(spus_1_and_2(report_of(P, 2)), LIVE, id="given-fit-report-then-live"),
        pytest.param(
            spus_1_and_2(),
            MemberHealth(Fitness.UNKNOWN, "SPU 2 has not reported its replica yet"),
            id="given-session-without-report-then-unknown",
        ),
        pytest.param(
            spus_1_and_2(report_of(P, 2, storage="new")),
            MemberHealth(
                Fitness.UNFIT,
                "SPU 2 came back without its data: its storage is new,"
                " the live replica's was storage-2",
            ),
            id="given-another-storage-then-unfit",
        ),
        pytest.param(
            spus_1_and_2(report_of(P, 2, fit=False, reason="fsync failed")),
            MemberHealth(Fitness.UNFIT, "the replica on SPU 2 is unfit: fsync failed"),
            id="given-unfit-report-then-unfit",
        ),
        pytest.param(
            spus_1_and_2(report_of(P, 2, fit=False)),
            MemberHealth(Fitness.UNFIT, "the replica on SPU 2 is unfit: no reason given"),
            id="given-unfit-report-without-words-then-said-so",
        ),
        pytest.param(
            view_of(P, spu_of(2)),
            MemberHealth(Fitness.OFFLINE, "SPU 2 is offline"),
            id="given-no-session-then-offline",
        ),
        pytest.param(
            view_of(P, spu_of(2), grace_until_ms=GRACE),
            MemberHealth(Fitness.UNKNOWN, "SPU 2 is unknown"),
            id="given-no-session-in-grace-then-unknown",
        ),
        pytest.param(
            view_of(P, grace_until_ms=GRACE),
            MemberHealth(Fitness.OFFLINE, "SPU 2 is offline"),
            id="given-spu-that-was-deleted-then-offline-even-in-grace",
        ),
    ],
)
def test_member_health(view: View, found: MemberHealth) -> None:
    assert member_health(view, P.uid, live(2), NOW) == found


def stands(two: MemberHealth, three: MemberHealth = LIVE) -> dict[LiveReplica, MemberHealth]:
    return dict(zip(ALL, (LIVE, two, three), strict=True))


@pytest.mark.parametrize(
    ("two", "three", "minimum", "left"),
    [
        pytest.param(LIVE, LIVE, 1, ALL, id="given-all-live-then-all-stay"),
        pytest.param(OFFLINE, LIVE, 2, (live(1), live(3)), id="given-one-offline-then-it-leaves"),
        pytest.param(OFFLINE, LIVE, 3, ALL, id="given-offline-and-the-minimum-lost-then-it-stays"),
        pytest.param(OFFLINE, OFFLINE, 1, (live(1),), id="given-two-offline-then-both-leave"),
        pytest.param(
            OFFLINE, OFFLINE, 2, ALL, id="given-two-offline-and-too-few-left-then-both-stay"
        ),
        pytest.param(UNFIT, LIVE, 3, (live(1), live(3)), id="given-unfit-then-leaves-in-any-case"),
        pytest.param(UNFIT, UNFIT, 3, (live(1),), id="given-two-unfit-then-the-leader-is-left"),
        pytest.param(
            UNFIT, OFFLINE, 2, (live(1), live(3)), id="given-unfit-left-then-the-offline-one-stays"
        ),
        pytest.param(UNFIT, OFFLINE, 1, (live(1),), id="given-unfit-and-offline-then-both-leave"),
        pytest.param(UNKNOWN, LIVE, 1, ALL, id="given-unknown-then-it-stays"),
        pytest.param(
            UNKNOWN, OFFLINE, 1, ALL, id="given-somebody-unknown-then-the-offline-one-waits"
        ),
        pytest.param(
            UNKNOWN, UNFIT, 1, (live(1), live(2)), id="given-somebody-unknown-then-unfit-leave"
        ),
    ],
)
def test_remove_unfit(two: MemberHealth, three: MemberHealth, minimum: int, left: LiveSet) -> None:
    assert remove_unfit(ALL, 1, stands(two, three), minimum) == left


BOTH = (live(1), live(2))
STAY = "SPU {} must stay: {} would remain, minInSyncReplicas is {}"


@pytest.mark.parametrize(
    ("before", "asked", "health", "minimum", "expected"),
    [
        pytest.param(
            ALL,
            BOTH,
            stands(LIVE),
            2,
            Answer(BOTH),
            id="given-lagging-and-enough-remain-then-it-leaves",
        ),
        pytest.param(
            ALL,
            BOTH,
            stands(LIVE),
            3,
            Answer(ALL, STAY.format(3, 2, 3)),
            id="given-lagging-and-too-few-would-remain-then-it-stays",
        ),
        pytest.param(
            ALL,
            (live(1),),
            stands(LIVE),
            2,
            Answer(ALL, "SPUs 2, 3 must stay: 1 would remain, minInSyncReplicas is 2"),
            id="given-two-lagging-and-too-few-would-remain-then-both-stay",
        ),
        pytest.param(
            ALL,
            BOTH,
            stands(LIVE, UNFIT),
            3,
            Answer(BOTH),
            id="given-unfit-then-it-leaves-whatever-the-minimum",
        ),
        pytest.param(
            ALL,
            BOTH,
            stands(OFFLINE, LIVE),
            2,
            Answer((live(1), live(3)), STAY.format(3, 1, 2)),
            id="given-another-one-offline-then-that-one-leaves-and-the-lagging-one-stays",
        ),
        pytest.param(
            ALL,
            (live(2), live(3)),
            stands(LIVE),
            1,
            Answer(ALL, "SPU 1 leads: only an election may remove it"),
            id="given-the-leader-left-out-then-it-stays",
        ),
        pytest.param(
            BOTH,
            (live(1, "new"), live(2)),
            {**stands(LIVE), live(1, "new"): UNFIT},
            1,
            Answer(
                BOTH,
                "SPU 1 leads: only an election may remove it; SPU 1 cannot join: it is unfit",
            ),
            id="given-the-leader-with-another-storage-then-it-stays",
        ),
        pytest.param(
            (live(1),),
            (),
            stands(LIVE),
            1,
            Answer((live(1),), "SPU 1 leads: only an election may remove it"),
            id="given-nobody-asked-for-then-refused",
        ),
        pytest.param(
            BOTH, ALL, stands(LIVE), 2, Answer(ALL), id="given-a-fit-follower-then-it-joins"
        ),
        pytest.param(
            (live(1), live(3)),
            (live(1), live(3), live(2)),
            stands(LIVE),
            2,
            Answer(ALL),
            id="given-a-follower-that-joins-then-in-the-order-of-ids",
        ),
        pytest.param(
            BOTH,
            ALL,
            stands(LIVE, UNFIT),
            2,
            Answer(BOTH, "SPU 3 cannot join: it is unfit"),
            id="given-an-unfit-follower-then-it-does-not-join",
        ),
        pytest.param(
            BOTH,
            ALL,
            stands(LIVE, OFFLINE),
            2,
            Answer(BOTH, "SPU 3 cannot join: it is offline"),
            id="given-an-offline-follower-then-it-does-not-join",
        ),
        pytest.param(
            BOTH,
            ALL,
            stands(LIVE, UNKNOWN),
            2,
            Answer(BOTH, "SPU 3 cannot join: it is unknown"),
            id="given-a-follower-that-did-not-report-then-it-does-not-join",
        ),
        pytest.param(
            BOTH,
            (*BOTH, live(9)),
            {**stands(LIVE), live(9): LIVE},
            2,
            Answer(BOTH, "SPU 9 cannot join: the spec gives it no replica"),
            id="given-an-spu-outside-the-spec-then-it-does-not-join",
        ),
        pytest.param(
            BOTH,
            (*BOTH, NEW),
            {**stands(LIVE), NEW: UNFIT},
            2,
            Answer(BOTH, "SPU 2 cannot join twice"),
            id="given-a-second-storage-of-a-member-then-it-does-not-join",
        ),
        pytest.param(
            BOTH,
            (live(1), NEW),
            {**stands(UNFIT), NEW: LIVE},
            2,
            Answer((live(1), NEW)),
            id="given-a-member-that-was-rebuilt-then-its-new-storage-takes-its-place",
        ),
        pytest.param(
            ALL,
            BOTH,
            stands(OFFLINE, UNFIT),
            1,
            Answer((live(1),)),
            id="given-somebody-went-offline-since-then-it-does-not-come-back-by-the-request",
        ),
        pytest.param(
            BOTH,
            (live(1), live(3)),
            stands(LIVE),
            2,
            Answer(BOTH, STAY.format(2, 1, 2)),
            id="given-a-change-for-another-then-who-joins-does-not-count-as-remaining",
        ),
        pytest.param(BOTH, BOTH, stands(LIVE), 2, Answer(BOTH), id="given-no-change-then-none"),
    ],
)
def test_answer(
    before: LiveSet,
    asked: LiveSet,
    health: dict[LiveReplica, MemberHealth],
    minimum: int,
    expected: Answer,
) -> None:
    request = lrs_request_of(P, *asked)
    assert answer(request, before, 1, health, replicas=(1, 2, 3), minimum=minimum) == expected


MEMBERS = [live(i, storage) for i, storage in product((1, 2, 3, 9), (None, "new"))]


@st.composite
def cases(draw: st.DrawFn) -> tuple[LiveSet, LiveSet, dict[LiveReplica, MemberHealth], int]:
    others = [m for m in ALL[1:] if draw(st.booleans())]
    asked = draw(st.lists(st.sampled_from(MEMBERS), max_size=5))
    health = {m: draw(st.sampled_from([LIVE, UNFIT, OFFLINE, UNKNOWN])) for m in MEMBERS}
    return (live(1), *others), tuple(asked), health | {live(1): LIVE}, draw(st.integers(1, 3))


@given(cases())
def test_law_no_request_breaks_a_rule(
    case: tuple[LiveSet, LiveSet, dict[LiveReplica, MemberHealth], int],
) -> None:
    before, asked, health, minimum = case
    request = lrs_request_of(P, *asked)
    found = answer(request, before, 1, health, replicas=(1, 2, 3), minimum=minimum)
    alone = remove_unfit(before, 1, health, minimum)
    new, old = set(found.lrs), set(before)
    assert live(1) in new
    assert len({m.spu_id for m in new}) == len(found.lrs), "each SPU once"
    assert new <= old | set(asked), "nobody joins who was not asked for"
    assert all(health[m] == LIVE and m.spu_id in (1, 2, 3) for m in new - old)
    for member in old - new:
        assert health[member] == UNFIT or len(old & new) >= minimum
        assert health[member] in (UNFIT, OFFLINE) or member not in asked
    if found.refusal is not None:
        assert found.lrs == alone, "whole or not at all"
    else:
        assert new == (set(alone) & set(asked)) | (set(asked) - old)
