"""Unclean elections: the operator's wish, who leads by it, what refuses it; and unclean boots."""

from __future__ import annotations

from typing import Any

import pytest

from sc.controllers import reconcile
from sc.controllers.actions import Action, Key, SendLead, WriteStatus
from sc.controllers.unclean import with_wish
from sc.store.view import View
from schemas.ids import Term, make_term
from schemas.objects.partition import (
    UNCLEAN_ELECTION,
    LiveReplica,
    Partition,
    PartitionResolution,
    PartitionStatus,
    UncleanElection,
)
from tests.unit.sc.builders import (
    NO_TERM,
    TERM_1,
    TERM_2,
    live,
    partition_of,
    report_of,
    session_of,
    spu_of,
    view_of,
)

KEY = Key("Partition", "t-0")
NOW = 1_000
OFFLINE = PartitionResolution.OFFLINE


def led(
    lrs: tuple[LiveReplica, ...] = (live(1),),
    *,
    wish: UncleanElection | None = None,
    term: Term = TERM_1,
    **more: Any,
) -> Partition:
    """Led by SPU 1, whose data only it has, with replicas on three SPUs."""
    partition = partition_of("t", 0, (1, 2, 3), leader=1, term=term, lrs=lrs, **more)
    return partition if wish is None else with_wish(partition, wish)


def asked(leader: int | None = None, term: Term = TERM_1) -> UncleanElection:
    return UncleanElection(term=term, leader=leader)


def seen(partition: Partition, **reports: dict[str, Any]) -> View:
    """A view in which some SPUs are online; ``s2={"leo": 7}`` is what SPU 2 reports."""
    sessions = [
        session_of(int(name[1:]), report_of(partition, int(name[1:]), **fields))
        for name, fields in reports.items()
    ]
    return view_of(partition, *(spu_of(i) for i in (1, 2, 3)), sessions=sessions)


def write_of(actions: tuple[Action, ...]) -> WriteStatus:
    (write,) = [action for action in actions if isinstance(action, WriteStatus)]
    return write


def answered(view: View) -> PartitionStatus:
    """The status that answers a wish, written together with its end."""
    write = write_of(reconcile(view, KEY, NOW))
    assert UNCLEAN_ELECTION not in write.object.metadata.annotations
    partition = view.store.get(Partition, "t-0")
    assert partition is not None
    assert write.object.revision == partition.revision, "one compare-and-swap"
    assert isinstance(write.status, PartitionStatus)
    return write.status


@pytest.mark.parametrize(("before", "after"), [(None, None), (0, 0), (36, 0)])
def test_given_an_archive_then_retention_keeps_everything_until_logs_are_compared(
    before: int | None, after: int | None
) -> None:
    partition = led(wish=asked())
    spec = partition.spec.model_copy(update={"archived_before": before})
    write = write_of(
        reconcile(seen(partition.model_copy(update={"spec": spec}), s2={"leo": 7}), KEY, NOW)
    )
    assert isinstance(write.status, PartitionStatus)
    assert write.status.unclean_term == TERM_2
    assert isinstance(write.object, Partition)
    assert write.object.spec == spec.model_copy(update={"archived_before": after})


def becomes(view: View) -> PartitionStatus:
    """What the status is after a reconcile."""
    found = [a.status for a in reconcile(view, KEY, NOW) if isinstance(a, WriteStatus)]
    partition = view.store.get(Partition, "t-0")
    assert partition is not None
    status = found[0] if found else partition.status
    assert isinstance(status, PartitionStatus)
    return status


UNFIT = {"fit": False, "reason": "damaged"}
BOOTED = {"fit": False, "reason": "power", "unclean_boot": True}


@pytest.mark.parametrize(
    ("wish", "reports", "leader"),
    [
        pytest.param(asked(), {"s2": {}}, 2, id="given-one-there-then-it-leads"),
        pytest.param(
            asked(),
            {"s2": {"leo": 9, "last_term": 1}, "s3": {"leo": 5, "last_term": 2}},
            3,
            id="given-several-then-the-last-term",
        ),
        pytest.param(
            asked(),
            {"s2": {"leo": 5}, "s3": {"leo": 9}},
            3,
            id="given-equal-terms-then-the-longest",
        ),
        pytest.param(
            asked(2), {"s2": {"leo": 5}, "s3": {"leo": 9}}, 2, id="given-one-named-then-that-one"
        ),
        pytest.param(asked(), {"s2": UNFIT, "s3": {}}, 3, id="given-one-unfit-then-not-that-one"),
        pytest.param(
            asked(),
            {"s1": {"storage": "new"}, "s3": {"leo": 1}},
            3,
            id="given-the-live-one-wiped-then-one-that-has-something",
        ),
        pytest.param(
            asked(1), {"s1": {"storage": "new"}}, 1, id="given-the-wiped-one-named-then-that-one"
        ),
        pytest.param(
            asked(),
            {"s2": {**BOOTED, "leo": 9}, "s3": {"leo": 5}},
            2,
            id="given-unclean-boot-then-ok",
        ),
    ],
)
def test_elected(wish: UncleanElection, reports: dict[str, dict[str, Any]], leader: int) -> None:
    partition = led(wish=wish)
    storage = reports[f"s{leader}"].get("storage")
    assert answered(seen(partition, **reports)) == partition.status.model_copy(
        update={
            "leader": leader,
            "term": TERM_2,
            "unclean_term": TERM_2,
            "lrs": (live(leader, storage),),
            "resolution": OFFLINE,
            "reason": f"SPU {leader} is taking over",
        }
    )


@pytest.mark.parametrize(
    ("partition", "reports", "why"),
    [
        pytest.param(
            led(wish=asked(term=TERM_2)),
            {"s2": {}},
            "it was requested at term 2, but the term is 1 now",
            id="given-another-term-then-void",
        ),
        pytest.param(
            led(wish=asked()),
            {"s1": {}, "s2": {}},
            "SPU 1 is a live replica, online and fit: no record has to be lost",
            id="given-the-leader-returned-then-aborted",
        ),
        pytest.param(
            led((live(1), live(3)), wish=asked(2)),
            {"s2": {"leo": 99}, "s3": {}},
            "SPU 3 is a live replica, online and fit: no record has to be lost",
            id="given-another-live-one-returned-then-aborted",
        ),
        pytest.param(
            led((live(1), live(3)), wish=asked(3)),
            {"s1": {**BOOTED, "leo": 9}, "s3": BOOTED},
            "all live replicas are online: the one whose log is furthest ahead leads",
            id="given-all-live-ones-booted-uncleanly-then-the-one-that-kept-most",
        ),
        pytest.param(
            led(wish=asked(4)), {"s2": {}}, "SPU 4 holds no replica of it", id="given-stranger"
        ),
        pytest.param(
            led(wish=asked(3)),
            {"s2": {}},
            "SPU 3 is offline, and has reported no replica",
            id="given-named-one-away-then-nobody-else",
        ),
        pytest.param(
            led(wish=asked(2)),
            {"s2": UNFIT, "s3": {}},
            "the replica on SPU 2 is unfit: damaged",
            id="given-named-one-unfit-then-nobody-else",
        ),
        pytest.param(
            led(wish=asked()),
            {"s2": UNFIT},
            "no replica is online and fit",
            id="given-nobody-then-nobody",
        ),
        pytest.param(
            with_wish(partition_of("t", 0, (1, 2)), asked(term=NO_TERM)),
            {"s2": {}},
            "it has had no leader yet: the first replica that is online leads, and nothing is lost",
            id="given-never-led-then-not-needed",
        ),
        pytest.param(
            led().with_metadata(annotations={UNCLEAN_ELECTION: "{"}),
            {"s2": {}},
            f"{UNCLEAN_ELECTION} does not parse: {{",
            id="given-something-else-written-there-then-dropped",
        ),
    ],
)
def test_refused(partition: Partition, reports: dict[str, dict[str, Any]], why: str) -> None:
    view = seen(partition, **reports)
    status = answered(view)
    assert (status.reason or "").endswith(f"turned down: unclean election: {why}")
    without = becomes(seen(with_wish(partition, None), **reports))
    fields = ("leader", "term", "lrs", "unclean_term", "resolution")
    assert [getattr(status, f) for f in fields] == [getattr(without, f) for f in fields]


@pytest.mark.parametrize(
    ("lrs", "reports"),
    [
        pytest.param((live(1),), {"s2": {}}, id="given-the-live-one-may-still-come"),
        pytest.param((live(2),), {"s2": {}, "s3": {}}, id="given-another-may-still-come"),
    ],
)
def test_given_grace_period_then_the_wish_waits(
    lrs: tuple[LiveReplica, ...], reports: dict[str, dict[str, Any]]
) -> None:
    partition = led(lrs, wish=asked())
    if lrs == (live(2),):
        reports = {**reports, "s2": UNFIT}
    view = seen(partition, **reports)
    view.grace_until_ms = NOW + 1
    writes = [a for a in reconcile(view, KEY, NOW) if isinstance(a, WriteStatus)]
    assert all(UNCLEAN_ELECTION in w.object.metadata.annotations for w in writes)
    assert all(getattr(w.status, "leader", None) == 1 for w in writes)


def test_given_the_live_one_connected_and_not_heard_yet_then_the_wish_waits() -> None:
    partition = led(wish=asked())
    view = seen(partition, s2={})
    view.sessions[1] = session_of(1)  # type: ignore[index]
    writes = [a for a in reconcile(view, KEY, NOW) if isinstance(a, WriteStatus)]
    assert all(UNCLEAN_ELECTION in w.object.metadata.annotations for w in writes)


def test_given_refusal_then_it_stays_in_the_reason_and_is_not_written_again() -> None:
    partition = led(wish=asked(4))
    status = answered(seen(partition, s2={}))
    after = with_wish(partition, None).with_status(status)
    assert reconcile(seen(after, s2={}), KEY, NOW) == ()


def test_given_elected_then_recorded_for_good() -> None:
    status = answered(seen(led(wish=asked()), s2={}))
    partition = led().with_status(status)
    view = seen(partition, s2={})
    assert [type(a) for a in reconcile(view, KEY, NOW)] == [SendLead]
    (sent,) = reconcile(view, KEY, NOW)
    assert isinstance(sent, SendLead)
    assert (sent.lead.term, sent.lead.unclean_term) == (TERM_2, TERM_2)
    later = partition.with_status(status.model_copy(update={"lrs": (live(2), live(3))}))
    clean = becomes(seen(later, s3={}))
    assert (clean.leader, clean.unclean_term) == (3, TERM_2)


def test_given_recovery_and_not_all_there_then_the_operator_may_choose() -> None:
    partition = led((live(1), live(2)), wish=asked())
    sessions = [session_of(2, report_of(partition, 2, term=make_term(0, 90)))]
    spus = [spu_of(i) for i in (1, 2, 3)]
    status = answered(view_of(partition, *spus, sessions=sessions, recovering=4))
    assert (status.leader, status.lrs) == (2, (live(2),))
    assert status.term == status.unclean_term == make_term(4, 1)


def test_given_recovery_and_all_have_answered_then_the_wish_is_not_needed() -> None:
    partition = led((live(1), live(2)), wish=asked(2))
    sessions = [session_of(i, report_of(partition, i, leo=i, incarnation=4)) for i in (1, 2, 3)]
    view = view_of(partition, *(spu_of(i) for i in (1, 2, 3)), sessions=sessions, recovering=4)
    status = answered(view)
    assert (status.leader, status.term) == (3, make_term(4, 1))
    assert "all replicas have answered" in (status.reason or "")


def test_given_object_lost_alone_then_above_any_term_that_one_away_may_have_seen() -> None:
    partition = with_wish(partition_of("t", 0, (1, 2, 3)), asked(term=NO_TERM))
    status = answered(seen(partition, s2={"term": make_term(0, 9, 3)}))
    assert status.leader == 2
    assert status.term > make_term(0, 9 + 100_000)


# -- unclean boots ------------------------------------------------------------------------------


PAIR = (live(1), live(2))


@pytest.mark.parametrize(
    ("reports", "leader"),
    [
        pytest.param(
            {"s1": {**BOOTED, "leo": 5}, "s2": {**BOOTED, "leo": 7}},
            2,
            id="given-all-booted-uncleanly-then-the-one-that-kept-most",
        ),
        pytest.param(
            {"s1": {**BOOTED, "leo": 5, "last_term": 2}, "s2": {**BOOTED, "leo": 7}},
            1,
            id="given-a-later-last-term-then-that-one",
        ),
        pytest.param(
            {"s1": BOOTED, "s2": UNFIT}, None, id="given-one-damaged-then-an-operator-is-needed"
        ),
        pytest.param(
            {"s1": BOOTED, "s2": {"storage": "new"}}, None, id="given-one-wiped-then-an-operator"
        ),
        pytest.param(
            {"s1": BOOTED, "s2": {**BOOTED, "storage": "new"}},
            None,
            id="given-one-wiped-and-booted-then-an-operator",
        ),
        pytest.param({"s1": BOOTED}, None, id="given-one-away-then-waited-for"),
    ],
)
def test_all_unfit_by_an_unclean_boot(
    reports: dict[str, dict[str, Any]], leader: int | None
) -> None:
    partition = led(PAIR)
    status = becomes(seen(partition, **reports))
    if leader is None:
        assert (status.leader, status.term, status.lrs) == (1, TERM_1, PAIR)
        assert status.resolution is OFFLINE
    else:
        assert (status.leader, status.term, status.lrs) == (leader, TERM_2, (live(leader),))
        assert status.unclean_term == TERM_2


def test_given_one_that_is_fit_then_it_is_elected_cleanly() -> None:
    status = becomes(seen(led(PAIR), s1=BOOTED, s2={}))
    assert (status.leader, status.lrs, status.unclean_term) == (2, (live(2),), None)


def elected_after_boot() -> Partition:
    partition = led(PAIR)
    reports = {"s1": {**BOOTED, "leo": 9}, "s2": BOOTED}
    return partition.with_status(becomes(seen(partition, **reports)))


def test_given_elected_after_an_unclean_boot_then_told_to_lead_although_unfit() -> None:
    partition = elected_after_boot()
    actions = reconcile(seen(partition, s1=BOOTED, s2=BOOTED), KEY, NOW)
    assert [type(a) for a in actions] == [SendLead]


@pytest.mark.parametrize(
    "report",
    [
        pytest.param({**BOOTED, "term": TERM_2 + 1}, id="given-it-led-and-booted-again"),
        pytest.param({**BOOTED, "storage": "new"}, id="given-it-was-wiped-meanwhile"),
        pytest.param(UNFIT, id="given-it-is-damaged-as-well"),
    ],
)
def test_given_unfit_anew_after_its_election_then_not_told_to_lead(
    report: dict[str, Any],
) -> None:
    actions = reconcile(seen(elected_after_boot(), s1=report), KEY, NOW)
    assert not [a for a in actions if isinstance(a, SendLead)]
