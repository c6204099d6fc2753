"""Who leads next: only fit, online members of the live replica set, the best of them first."""

from __future__ import annotations

from typing import Any

import pytest

from sc.controllers.actions import Key, WriteStatus
from sc.controllers.election import candidates, elect
from sc.controllers.partition import reconcile
from sc.store.view import STOPS_MS, View
from schemas.control.session_end import SessionEnd
from schemas.ids import next_election
from schemas.objects.partition import LiveReplica, Partition, PartitionResolution
from tests.unit.sc.builders import (
    TERM_1,
    TERM_2,
    live,
    partition_of,
    report_of,
    session_of,
    spu_of,
    unreachable_of,
    view_of,
)

NOW = 1_000


def led(
    lrs: tuple[LiveReplica, ...] = (live(1), live(2), live(3)), *, minimum: int = 1, **more: Any
) -> Partition:
    """Led by SPU 1 at the first term, with replicas on three SPUs."""
    return partition_of("t", 0, (1, 2, 3), leader=1, term=TERM_1, lrs=lrs, minimum=minimum, **more)


def seen(partition: Partition, *others: Partition, **reports: dict[str, Any]) -> View:
    """A view in which some SPUs are online; ``s2={"leo": 7}`` is what SPU 2 reports."""
    sessions = [
        session_of(int(name[1:]), report_of(partition, int(name[1:]), **fields))
        for name, fields in reports.items()
    ]
    return view_of(partition, *others, *(spu_of(i) for i in (1, 2, 3)), sessions=sessions)


@pytest.mark.parametrize(
    ("partition", "reports", "expected"),
    [
        pytest.param(led(), {}, [], id="given-nobody-online-then-nobody"),
        pytest.param(
            led(preferred=1),
            {"s1": {"leo": 9}, "s2": {}},
            [2, 1],
            id="given-the-leader-of-now-then-it-is-the-last",
        ),
        pytest.param(led((live(1),)), {"s2": {}}, [], id="given-not-live-then-not-a-candidate"),
        pytest.param(led(), {"s2": {"fit": False}}, [], id="given-unfit-then-not-a-candidate"),
        pytest.param(led(), {"s2": {"storage": "new"}}, [], id="given-lost-disk-then-no-candidate"),
        pytest.param(
            led(),
            {"s2": {"leo": 9, "last_term": 1}, "s3": {"leo": 5, "last_term": 2}},
            [3, 2],
            id="given-later-last-term-then-before-a-longer-log",
        ),
        pytest.param(
            led(), {"s2": {"leo": 5}, "s3": {"leo": 9}}, [3, 2], id="given-longer-log-then-first"
        ),
        pytest.param(
            led(preferred=3), {"s2": {}, "s3": {}}, [3, 2], id="given-equal-logs-then-the-preferred"
        ),
        pytest.param(led(), {"s2": {}, "s3": {}}, [2, 3], id="given-all-equal-then-lowest-id"),
        pytest.param(
            partition_of("t", 0, (1, 3), leader=1, term=TERM_1, lrs=(live(1), live(2), live(3))),
            {"s2": {"leo": 9}, "s3": {}},
            [3],
            id="given-no-replica-by-the-spec-then-not-a-candidate",
        ),
    ],
)
def test_candidates(
    partition: Partition, reports: dict[str, dict[str, Any]], expected: list[int]
) -> None:
    assert candidates(seen(partition, **reports), partition, NOW) == expected


def test_given_equal_logs_then_the_spu_that_leads_least() -> None:
    busy = partition_of("u", 0, (2,), leader=2, term=TERM_1, lrs=(live(2),))
    partition = led()
    assert candidates(seen(partition, busy, s2={}, s3={}), partition, NOW) == [3, 2]


def test_given_an_spu_that_stops_then_any_other_leads_rather_than_it() -> None:
    partition = led(preferred=2)
    view = seen(partition, s2={"leo": 9}, s3={})
    view.sessions[2].stops_ms = NOW
    assert candidates(view, partition, NOW) == [3, 2]
    assert candidates(view, partition, NOW + STOPS_MS) == [2, 3]


@pytest.mark.parametrize(
    ("leo", "preferred", "expected"),
    [
        pytest.param(0, 1, [3, 2, 1], id="given-equal-logs-then-the-one-that-reaches-all"),
        pytest.param(0, 2, [3, 2, 1], id="given-the-preferred-one-is-cut-off-then-not-the-first"),
        pytest.param(9, 1, [2, 3, 1], id="given-a-longer-log-then-first-although-cut-off"),
    ],
)
@pytest.mark.parametrize(("tells", "of"), [(1, 2), (2, 1)])
def test_a_line_that_is_cut(
    tells: int, of: int, leo: int, preferred: int, expected: list[int]
) -> None:
    partition = led(minimum=3, preferred=preferred)
    view = seen(partition, s1={}, s2={"leo": leo}, s3={})
    view.sessions[tells].unreachable = {of: unreachable_of(of)}
    assert candidates(view, partition, NOW) == expected


def test_given_elections_not_written_yet_then_they_count_as_leading() -> None:
    partition = led()
    view = seen(partition, s2={}, s3={})
    view.elected.update([2])
    assert candidates(view, partition, NOW) == [3, 2]


def test_given_a_flapping_spu_then_it_is_the_last_but_the_leader_whatever_its_log() -> None:
    partition = led()
    view = seen(partition, s1={}, s2={"leo": 9}, s3={})
    for _ in range(2):
        view.suspicions.ended(2, SessionEnd.LOST, NOW)
    assert candidates(view, partition, NOW) == [3, 2, 1]
    assert candidates(view, partition, NOW + 60_000) == [2, 3, 1]


UNFIT = {"fit": False}


@pytest.mark.parametrize(
    ("minimum", "reports", "lrs"),
    [
        pytest.param(
            2,
            {"s2": {}, "s3": {}},
            (live(2), live(3)),
            id="given-enough-remain-then-the-absent-leader-is-dropped",
        ),
        pytest.param(
            3,
            {"s2": {}, "s3": {}},
            (live(1), live(2), live(3)),
            id="given-too-few-would-remain-then-all-stay",
        ),
        pytest.param(
            2,
            {"s2": {}},
            (live(1), live(2), live(3)),
            id="given-two-absent-and-too-few-left-then-all-stay",
        ),
        pytest.param(
            3,
            {"s1": UNFIT, "s2": {}, "s3": {}},
            (live(2), live(3)),
            id="given-unfit-leader-then-dropped-whatever-the-minimum",
        ),
        pytest.param(
            3,
            {"s2": {}, "s3": {"storage": "new"}},
            (live(1), live(2)),
            id="given-another-one-unfit-then-dropped-and-the-absent-leader-stays",
        ),
    ],
)
def test_elected(
    minimum: int, reports: dict[str, dict[str, Any]], lrs: tuple[LiveReplica, ...]
) -> None:
    partition = led(minimum=minimum)
    status = elect(seen(partition, **reports), partition, NOW)
    assert status is not None
    assert (status.leader, status.term, status.lrs) == (2, TERM_2, lrs)
    assert status.resolution is PartitionResolution.OFFLINE, "until it says that it leads"


def test_given_members_that_may_still_come_back_then_none_is_dropped() -> None:
    partition = led()
    view = seen(partition, s2={})
    view.grace_until_ms = NOW + 1
    status = elect(view, partition, NOW)
    assert status is not None
    assert (status.leader, status.lrs) == (2, partition.status.lrs)


@pytest.mark.parametrize(
    ("reports", "another", "leader"),
    [
        pytest.param({"s1": {}, "s3": {}}, False, 3, id="given-others-then-not-the-leader-of-now"),
        pytest.param({"s1": {}}, False, 1, id="given-no-other-then-the-leader-of-now-again"),
        pytest.param({"s1": {}}, True, None, id="given-no-other-and-another-wanted-then-nobody"),
        pytest.param({"s1": {}, "s3": {}}, True, 3, id="given-another-wanted-then-another"),
        pytest.param({"s1": UNFIT}, False, None, id="given-leader-unfit-then-not-again"),
    ],
)
def test_the_leader_of_now(
    reports: dict[str, dict[str, Any]], another: bool, leader: int | None
) -> None:
    partition = led()
    status = elect(seen(partition, **reports), partition, NOW, another=another)
    if leader is None:
        assert status is None
    else:
        assert status is not None
        assert (status.leader, status.term) == (leader, TERM_2)


@pytest.mark.parametrize(
    "reports",
    [
        pytest.param({"s2": {}}, id="given-leader-offline-then-the-next-is-elected"),
        pytest.param({"s1": {"fit": False}, "s2": {}}, id="given-leader-unfit-then-the-next"),
        pytest.param({"s1": {"storage": "new"}, "s2": {}}, id="given-leader-wiped-then-the-next"),
    ],
)
def test_partition_gets_a_new_leader(reports: dict[str, dict[str, Any]]) -> None:
    partition = led()
    actions = reconcile(seen(partition, **reports), Key("Partition", "t-0"), NOW)
    (write,) = [action for action in actions if isinstance(action, WriteStatus)]
    assert (write.status.leader, write.status.term) == (2, TERM_2)  # type: ignore[attr-defined]


def test_given_target_that_refuses_then_the_next_at_a_higher_term() -> None:
    """SPU 2 was elected and says, asked to lead, that it is unfit: SPU 3 is tried."""
    partition = led((live(2), live(3))).with_status(
        led((live(2), live(3))).status.model_copy(update={"leader": 2, "term": TERM_2})
    )
    actions = reconcile(seen(partition, s2=UNFIT, s3={}), Key("Partition", "t-0"), NOW)
    (write,) = actions
    assert isinstance(write, WriteStatus)
    assert write.status == partition.status.model_copy(
        update={
            "leader": 3,
            "term": next_election(TERM_2),
            "lrs": (live(3),),
            "reason": "SPU 3 is taking over",
        }
    )
