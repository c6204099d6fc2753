"""Who leads next: only fit, online members of the live replica set, the best of them first."""

from __future__ import annotations

from typing import Any

import pytest

from sc.controllers.actions import Key, WriteStatus
from sc.controllers.election import candidates, elect
from sc.controllers.partition import reconcile
from sc.store.view import View
from schemas.ids import Term
from schemas.partition import LiveReplica, Partition, PartitionResolution
from tests.unit.sc.builders import (
    TERM_1,
    TERM_2,
    live,
    partition_of,
    report_of,
    session_of,
    spu_of,
    view_of,
)

NOW = 1_000


def led(
    lrs: tuple[LiveReplica, ...] = (live(1), live(2), live(3)), *, minimum: int = 1, **more: Any
) -> Partition:
    """Led by SPU 1 at the first term, with replicas on three SPUs."""
    partition = partition_of("t", 0, (1, 2, 3), leader=1, term=TERM_1, lrs=lrs, **more)
    log = partition.spec.log.model_copy(update={"min_in_sync_replicas": minimum})
    return partition.model_copy(update={"spec": partition.spec.model_copy(update={"log": log})})


def seen(partition: Partition, *others: Partition, **reports: dict[str, Any]) -> View:
    """A view in which some SPUs are online; ``s2={"leo": 7}`` is what SPU 2 reports."""
    sessions = []
    for name, fields in reports.items():
        spu_id = int(name[1:])
        logs: dict[str, Any] = {k: v for k, v in fields.items() if k in ("leo", "last_term")}
        rest = {k: v for k, v in fields.items() if k not in logs}
        report = report_of(partition, spu_id, **rest).model_copy(update=logs)
        sessions.append(session_of(spu_id, report))
    return view_of(partition, *others, *(spu_of(i) for i in (1, 2, 3)), sessions=sessions)


@pytest.mark.parametrize(
    ("partition", "reports", "expected"),
    [
        pytest.param(led(), {}, [], id="given-nobody-online-then-nobody"),
        pytest.param(led(), {"s1": {}}, [], id="given-only-the-leader-of-now-then-nobody"),
        pytest.param(led((live(1),)), {"s2": {}}, [], id="given-not-live-then-not-a-candidate"),
        pytest.param(led(), {"s2": {"fit": False}}, [], id="given-unfit-then-not-a-candidate"),
        pytest.param(led(), {"s2": {"storage": "new"}}, [], id="given-lost-disk-then-no-candidate"),
        pytest.param(
            led(),
            {"s2": {"leo": 9, "last_term": Term(1)}, "s3": {"leo": 5, "last_term": Term(2)}},
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
    ],
)
def test_candidates(
    partition: Partition, reports: dict[str, dict[str, Any]], expected: list[int]
) -> None:
    assert candidates(seen(partition, **reports), partition) == expected


def test_given_equal_logs_then_the_spu_that_leads_least() -> None:
    busy = partition_of("u", 0, (2,), leader=2, term=TERM_1, lrs=(live(2),))
    partition = led()
    assert candidates(seen(partition, busy, s2={}, s3={}), partition) == [3, 2]


@pytest.mark.parametrize(
    ("minimum", "lrs"),
    [
        pytest.param(2, (live(2), live(3)), id="given-enough-remain-then-the-absent-is-dropped"),
        pytest.param(3, (live(1), live(2), live(3)), id="given-too-few-would-remain-then-all-stay"),
    ],
)
def test_elected(minimum: int, lrs: tuple[LiveReplica, ...]) -> None:
    partition = led(minimum=minimum)
    status = elect(seen(partition, s2={}, s3={}), partition)
    assert status is not None
    assert (status.leader, status.term, status.lrs) == (2, TERM_2, lrs)
    assert status.resolution is PartitionResolution.OFFLINE, "until it says that it leads"


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
