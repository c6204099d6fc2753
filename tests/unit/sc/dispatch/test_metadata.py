"""The metadata dispatcher: generations, reports and whom it wakes."""

from __future__ import annotations

import pytest

from sc.controllers.actions import Key
from sc.dispatch.metadata import MAX_STRANGERS, MetadataDispatcher
from sc.store.local_store import ObjectChanged
from sc.store.view import ElectionAsked, SessionState, View
from schemas.causality import caused_by
from schemas.control.messages import Hello, LoadReport, Obstacles, Report, SpuRequest
from schemas.control.session_end import SessionEnd
from schemas.ids import PartitionUid, make_term
from schemas.objects.metadata import Object
from schemas.objects.partition import Partition
from schemas.objects.spu_group import CHANGED
from schemas.objects.topic import TopicResolution
from tests.unit.sc.builders import (
    TERM_1,
    election_request_of,
    group_of,
    live,
    lrs_request_of,
    member_of,
    partition_of,
    report_of,
    spu_of,
    tombstone_of,
    topic_of,
    unreachable_of,
)

P = partition_of("t", 0, (1,))
SPU_KEY, P_KEY = Key("Spu", "spu-1"), Key("Partition", "t-0")


P_OF_1 = partition_of("t", 0, (1, 2), leader=1, term=TERM_1, lrs=(live(1),))
P_OF_2 = partition_of("other", 0, (2,), leader=2, term=TERM_1, lrs=(live(2),))


class Bench:
    """A dispatcher over a small store, and whom it woke."""

    def __init__(self, *objects: Object) -> None:
        self.sessions: dict[int, SessionState] = {}
        self.view = View(sessions=self.sessions)
        for obj in objects:
            self.view.store.put(obj)
        self.woken: list[tuple[Key, str]] = []
        self.dispatcher = MetadataDispatcher(
            self.view, self.sessions, lambda key, cause: self.woken.append((key, cause))
        )

    def keys(self) -> list[Key]:
        found = [key for key, _ in self.woken]
        self.woken.clear()
        return found


@pytest.fixture
def bench() -> Bench:
    return Bench(spu_of(1), P)


def hello(*reports: object, instance: str = "i") -> Hello:
    return Hello(software="test", spu_id=1, instance=instance, replicas=reports)


def test_given_hello_then_its_replicas_are_the_first_report(bench: Bench) -> None:
    with caused_by("spu1-x"):
        bench.dispatcher.opened(1, hello(report_of(P)))
    assert bench.view.report(1, P.uid) == report_of(P)
    assert not bench.sessions[1].complete
    assert bench.woken == [(SPU_KEY, "spu1-x"), (P_KEY, "spu1-x")]


@pytest.mark.parametrize(
    ("leader", "reported", "unknown"),
    [
        pytest.param(1, 0, {P_OF_1.uid: TERM_1}, id="given-a-disk-that-never-led-then-noted"),
        pytest.param(1, TERM_1, {}, id="given-a-disk-that-led-then-not"),
        pytest.param(1, TERM_1 + 1, {}, id="given-a-disk-that-led-again-then-not"),
        pytest.param(2, 0, {}, id="given-a-follower-then-not"),
    ],
)
def test_given_hello_then_terms_that_its_leaders_know_nothing_of_are_noted(
    leader: int, reported: int, unknown: dict[str, int]
) -> None:
    partition = P_OF_1.with_status(P_OF_1.status.model_copy(update={"leader": leader}))
    bench = Bench(spu_of(1), partition)
    bench.dispatcher.opened(1, hello(report_of(partition, term=reported)))
    assert bench.sessions[1].unknown_leads == unknown
    # What it reports later says nothing of what its disk held before.
    bench.dispatcher.reported(1, 1, Report(replicas=(report_of(partition, term=reported),)))
    assert bench.sessions[1].unknown_leads == unknown


def test_given_newer_session_then_nothing_of_the_older_is_left(bench: Bench) -> None:
    bench.dispatcher.opened(1, hello(report_of(P)))
    bench.dispatcher.told_everything(1, 1)
    bench.dispatcher.opened(2, hello())
    assert bench.sessions[1] == SessionState(1, 2)


def test_given_late_close_of_an_older_generation_then_nothing_changes(bench: Bench) -> None:
    bench.dispatcher.opened(1, hello())
    bench.dispatcher.opened(2, hello())
    bench.keys()
    bench.dispatcher.closed(1, 1, SessionEnd.LOST)
    assert bench.sessions[1].generation == 2
    assert bench.keys() == []
    bench.dispatcher.closed(1, 2, SessionEnd.LOST)
    assert bench.sessions == {}
    assert bench.keys() == [SPU_KEY, P_KEY]


def test_given_close_of_an_unknown_session_then_nothing_changes(bench: Bench) -> None:
    bench.dispatcher.closed(1, 1, SessionEnd.LOST)
    assert bench.keys() == []


def test_given_first_spu_back_then_suspects_that_get_their_time_anew_are_woken(
    bench: Bench,
) -> None:
    bench.dispatcher.opened(1, hello())
    bench.dispatcher.closed(1, 1, SessionEnd.CLOSED)
    bench.keys()
    other = hello().model_copy(update={"spu_id": 2})
    bench.dispatcher.opened(1, other)
    assert bench.keys() == [SPU_KEY, P_KEY]


@pytest.mark.parametrize("recovering", [True, False])
def test_given_a_recovery_then_whoever_connects_wakes_what_is_not_elected_anew(
    recovering: bool,
) -> None:
    elected = partition_of("other", 0, (2,), leader=2, term=make_term(2, 1), lrs=(live(2),))
    bench = Bench(spu_of(3), P_OF_1, elected)
    bench.view.incarnation, bench.view.recovering = 2, recovering
    bench.dispatcher.opened(1, hello().model_copy(update={"spu_id": 3}))
    woken = bench.keys()
    assert {key for key in woken if key.kind == "Partition"} == (
        {Key("Partition", P_OF_1.name)} if recovering else set()
    )


@pytest.mark.parametrize("generation", [1, 3])
def test_given_report_of_another_generation_then_ignored(bench: Bench, generation: int) -> None:
    bench.dispatcher.opened(2, hello())
    bench.keys()
    bench.dispatcher.reported(1, generation, Report(replicas=(report_of(P),)))
    bench.dispatcher.told_everything(1, generation)
    assert bench.sessions[1] == SessionState(1, 2)
    assert bench.keys() == []


def test_given_report_without_session_then_ignored(bench: Bench) -> None:
    bench.dispatcher.reported(1, 1, Report(replicas=(report_of(P),)))
    assert (bench.sessions, bench.keys()) == ({}, [])


def test_given_report_then_its_partition_is_woken_by_the_cause_of_the_report(bench: Bench) -> None:
    bench.dispatcher.opened(1, hello())
    bench.keys()
    with caused_by("spu1-report"):
        bench.dispatcher.reported(1, 1, Report(replicas=(report_of(P, term=65_537),)))
    assert bench.view.report(1, P.uid) == report_of(P, term=65_537)
    assert bench.woken == [(P_KEY, "spu1-report")]


def test_given_report_then_a_group_that_waits_for_replicas_is_woken(bench: Bench) -> None:
    bench.view.store.put(group_of("idle"))
    bench.view.store.put(group_of("ports", reason="g-1 listens where another one does"))
    bench.view.store.put(group_of("waits", reason=f"{CHANGED} g-1: waiting until g-2 is back"))
    whole = partition_of("whole", 0, (1,), leader=1, lrs=(live(1),))
    bench.view.store.put(whole)
    bench.dispatcher.opened(1, hello())
    bench.keys()
    bench.dispatcher.reported(1, 1, Report(replicas=(report_of(whole),)))
    assert bench.keys() == [Key("Partition", "whole-0"), Key("SpuGroup", "waits")]
    # It has no live replica.
    bench.dispatcher.reported(1, 1, Report(replicas=(report_of(P),)))
    assert bench.keys() == [P_KEY]
    # Its SPU need not wait for this one.
    bench.dispatcher.reported(1, 1, Report(replicas=(report_of(P, fit=False),)))
    assert bench.keys() == [P_KEY, Key("SpuGroup", "waits")]


def test_given_another_load_then_the_owner_is_woken(bench: Bench) -> None:
    owner = Key("Topic", "t")
    hot = report_of(P).model_copy(update={"load": LoadReport(parts=2)})
    bench.dispatcher.opened(1, hello(hot))
    woken = bench.keys()
    assert owner in woken
    bench.dispatcher.reported(1, 1, Report(replicas=(hot,)))
    assert bench.keys() == [P_KEY]
    bench.dispatcher.reported(1, 1, Report(replicas=(report_of(P),)))
    assert bench.keys() == [owner, P_KEY]


def test_given_report_of_an_unknown_uid_then_kept_and_nobody_woken(bench: Bench) -> None:
    stranger = partition_of("other")
    bench.dispatcher.opened(1, hello())
    bench.keys()
    bench.dispatcher.reported(1, 1, Report(replicas=(report_of(stranger),)))
    assert bench.view.report(1, stranger.uid) is not None
    assert bench.keys() == []


def test_given_deletion_confirmed_then_report_forgotten_and_spu_woken(bench: Bench) -> None:
    bench.view.store.put_tombstone(tombstone_of(P, 1))
    bench.dispatcher.opened(1, hello(report_of(P)))
    bench.keys()
    bench.dispatcher.reported(1, 1, Report(deleted=(tombstone_of(P, 1),)))
    assert bench.view.report(1, P.uid) is None
    assert bench.sessions[1].deleted == {P.uid: tombstone_of(P, 1)}
    assert bench.keys() == [SPU_KEY]


@pytest.mark.parametrize("connected", [True, False], ids=["given-a-session", "given-none"])
def test_given_tombstone_removed_then_its_confirmation_is_forgotten(
    bench: Bench, connected: bool
) -> None:
    other = partition_of("other")
    graves = tombstone_of(P, 1), tombstone_of(other, 1)
    for grave in graves:
        bench.view.store.put_tombstone(grave)
    bench.dispatcher.opened(1, hello())
    bench.dispatcher.reported(1, 1, Report(deleted=graves))
    if not connected:
        bench.dispatcher.closed(1, 1, SessionEnd.LOST)
    removed = bench.view.store.remove_tombstone(1, P.uid)
    assert removed is not None
    bench.dispatcher.changed(removed, "c")
    if connected:
        assert bench.sessions[1].deleted == {other.uid: graves[1]}
    else:
        assert bench.sessions == {}


def test_given_confirmation_without_tombstone_then_it_is_not_kept_for_the_next_one(
    bench: Bench,
) -> None:
    bench.dispatcher.opened(1, hello())
    bench.dispatcher.reported(1, 1, Report(deleted=(tombstone_of(P, 1),)))
    assert bench.sessions[1].deleted == {}


def test_given_told_everything_then_complete_and_looked_at(bench: Bench) -> None:
    bench.dispatcher.opened(1, hello())
    bench.keys()
    bench.dispatcher.told_everything(1, 1)
    assert bench.sessions[1].complete
    assert bench.keys() == [SPU_KEY, P_KEY]


def test_given_refusal_then_all_that_concerns_the_spu_is_looked_at(bench: Bench) -> None:
    bench.dispatcher.refused(1)
    assert bench.keys() == [SPU_KEY, P_KEY]


@pytest.mark.parametrize(
    ("generation", "woken"),
    [
        pytest.param(2, [SPU_KEY], id="given-this-session-then-its-spu-alone-is-looked-at"),
        pytest.param(1, [], id="given-an-earlier-session-then-nothing"),
    ],
)
def test_refused_deletions(bench: Bench, generation: int, woken: list[Key]) -> None:
    bench.view.store.put_tombstone(tombstone_of(P, 1))
    bench.dispatcher.opened(2, hello(report_of(P)))
    bench.keys()
    bench.dispatcher.not_deleted(1, generation, {P.uid: "a bad disk", "gone": "another"})
    assert bench.keys() == woken
    assert bench.sessions[1].undeleted == ({P.uid: "a bad disk"} if woken else {})


def test_given_refused_deletions_of_an_spu_of_a_group_then_the_group_is_looked_at() -> None:
    group = group_of("g")
    bench = Bench(group, member_of(group, 1))
    bench.dispatcher.opened(1, hello())
    bench.keys()
    bench.dispatcher.not_deleted(1, 1, {})
    assert bench.keys() == [Key("Spu", "g-1"), Key("SpuGroup", "g")]


@pytest.mark.parametrize("done", [True, False], ids=["given-it-is-done", "given-it-is-called-off"])
def test_given_a_refused_deletion_that_is_over_then_its_reason_is_forgotten(
    bench: Bench, done: bool
) -> None:
    bench.view.store.put_tombstone(tombstone_of(P, 1))
    bench.dispatcher.opened(1, hello())
    bench.dispatcher.not_deleted(1, 1, {P.uid: "a bad disk"})
    if done:
        bench.dispatcher.reported(1, 1, Report(deleted=(tombstone_of(P, 1),)))
    elif (removed := bench.view.store.remove_tombstone(1, P.uid)) is not None:
        bench.dispatcher.changed(removed, "c")
    assert bench.sessions[1].undeleted == {}


def test_given_changes_then_keys_carry_their_cause() -> None:
    bench = Bench()
    for number, name in enumerate(("one", "two"), 1):
        bench.dispatcher.changed(ObjectChanged(None, topic_of(name, revision=number)), f"c{number}")
    assert bench.woken == [(Key("Topic", "one"), "c1"), (Key("Topic", "two"), "c2")]


def test_given_room_on_a_disk_then_topics_that_lacked_it_are_looked_at() -> None:
    short = topic_of("short", TopicResolution.INSUFFICIENT_RESOURCES)
    bench = Bench(spu_of(1), short, topic_of("done", TopicResolution.PROVISIONED))
    bench.dispatcher.opened(1, hello().model_copy(update={"free_bytes": 5}))
    bench.keys()
    bench.dispatcher.reported(1, 1, Report(free_bytes=5))
    assert bench.keys() == [], "no news"
    bench.dispatcher.reported(1, 1, Report(free_bytes=7))
    assert bench.keys() == [Key("Topic", "short")]
    bench.dispatcher.reported(1, 1, Report())
    assert bench.sessions[1].free_bytes == 7


LED = partition_of("t", 0, (1, 2), leader=1, term=TERM_1, lrs=(live(1), live(2)), revision=5)


def asking(*objects: Object) -> Bench:
    """A bench with the first session of SPU 1, that has woken nobody yet."""
    bench = Bench(spu_of(1), *objects)
    held = [o for o in objects if isinstance(o, Partition) and 1 in o.spec.replicas]
    bench.dispatcher.opened(1, hello(*(report_of(partition, 1) for partition in held)))
    bench.keys()
    return bench


def test_given_a_leader_that_does_not_know_the_newest_state_then_it_is_asked_for_no_election() -> (
    None
):
    """What it has not heard of may be what it waits for."""
    bench = asking(LED)
    bench.dispatcher.reported(1, 1, Report(replicas=(report_of(LED, 1, revision=4),)))
    bench.keys()
    ask = SpuRequest(elections=(election_request_of(LED),))
    bench.dispatcher.asked(1, 1, ask)
    assert (bench.sessions[1].elections, bench.keys()) == ({}, [])
    bench.dispatcher.reported(1, 1, Report(replicas=(report_of(LED, 1),)))
    bench.dispatcher.asked(1, 1, ask)
    assert bench.sessions[1].elections


def test_given_requests_then_kept_and_their_partitions_woken_by_their_cause() -> None:
    other = partition_of("u", 0, (1,), leader=1, term=TERM_1, lrs=(live(1),), revision=8)
    bench = asking(LED, other)
    change, election = lrs_request_of(LED, live(1)), election_request_of(other)
    with caused_by("spu1-ask"):
        bench.dispatcher.asked(1, 1, SpuRequest(lrs=(change,), elections=(election,)))
    assert bench.sessions[1].lrs_requests == {LED.uid: change}
    assert bench.sessions[1].elections == {other.uid: ElectionAsked(election, 8)}
    assert bench.woken == [(P_KEY, "spu1-ask"), (Key("Partition", "u-0"), "spu1-ask")]


def test_given_newer_request_then_it_takes_the_place_of_the_older() -> None:
    bench = asking(LED)
    for lrs in ((live(1),), (live(1), live(2))):
        bench.dispatcher.asked(1, 1, SpuRequest(lrs=(lrs_request_of(LED, *lrs),)))
    assert bench.sessions[1].lrs_requests[LED.uid].lrs == (live(1), live(2))


@pytest.mark.parametrize(
    ("generation", "partition"),
    [
        pytest.param(2, LED, id="given-another-generation-then-ignored"),
        pytest.param(1, partition_of("x", 0, (1,)), id="given-an-unknown-uid-then-ignored"),
        pytest.param(1, P_OF_2, id="given-no-replica-there-then-ignored"),
    ],
)
def test_requests_that_are_not_kept(generation: int, partition: Partition) -> None:
    bench = asking(LED, P_OF_2)
    requests = (lrs_request_of(partition, live(1)),)
    ask = SpuRequest(lrs=requests, elections=(election_request_of(partition),))
    bench.dispatcher.asked(1, generation, ask)
    assert (bench.sessions[1].lrs_requests, bench.sessions[1].elections) == ({}, {})
    assert bench.keys() == []


def test_given_request_of_an_earlier_revision_then_ignored() -> None:
    bench = asking(LED)
    bench.dispatcher.asked(1, 1, SpuRequest(lrs=(lrs_request_of(LED, live(1), revision=4),)))
    assert (bench.sessions[1].lrs_requests, bench.keys()) == ({}, [])


def test_given_request_without_session_then_ignored() -> None:
    bench = Bench(spu_of(1), LED)
    bench.dispatcher.asked(1, 1, SpuRequest(lrs=(lrs_request_of(LED, live(1)),)))
    assert (bench.sessions, bench.keys()) == ({}, [])


def test_given_newer_session_then_requests_of_the_older_are_gone() -> None:
    bench = asking(LED)
    ask = SpuRequest(lrs=(lrs_request_of(LED, live(1)),), elections=(election_request_of(LED),))
    bench.dispatcher.asked(1, 1, ask)
    bench.dispatcher.opened(2, hello())
    assert bench.sessions[1] == SessionState(1, 2)


@pytest.mark.parametrize(
    ("new", "left"),
    [
        pytest.param(LED, True, id="given-the-same-revision-then-kept"),
        pytest.param(
            LED.with_metadata(resource_version="6"), False, id="given-a-later-revision-then-over"
        ),
        pytest.param(None, False, id="given-the-partition-gone-then-over"),
        pytest.param(
            LED.with_metadata(uid="another"), False, id="given-another-of-its-name-then-over"
        ),
    ],
)
def test_given_requests_and_a_change(new: Partition | None, left: bool) -> None:
    bench = asking(LED)
    ask = SpuRequest(lrs=(lrs_request_of(LED, live(1)),), elections=(election_request_of(LED),))
    bench.dispatcher.asked(1, 1, ask)
    bench.dispatcher.changed(ObjectChanged(LED, new), "c")
    state = bench.sessions[1]
    assert (bool(state.lrs_requests), bool(state.elections)) == (left, left)


def test_given_request_ahead_of_the_mirror_then_it_waits_for_its_revision() -> None:
    bench = asking(LED)
    bench.dispatcher.asked(1, 1, SpuRequest(lrs=(lrs_request_of(LED, live(1), revision=7),)))
    for revision, kept in ((6, True), (7, True), (8, False)):
        new = LED.with_metadata(resource_version=str(revision))
        bench.dispatcher.changed(ObjectChanged(LED, new), "c")
        assert (LED.uid in bench.sessions[1].lrs_requests) == kept


async def test_given_reports_of_nobodys_replicas_then_the_first_few_are_kept(bench: Bench) -> None:
    made_up = [report_of(partition_of(f"x{i}", 0, (1,))) for i in range(MAX_STRANGERS + 50)]
    bench.dispatcher.opened(1, hello(*made_up, report_of(P)))
    state = bench.sessions[1]
    assert len(state.reports) == MAX_STRANGERS + 1
    assert P.uid in state.reports
    assert state.unheard == 50
    bench.dispatcher.reported(1, 1, Report(replicas=(made_up[0], made_up[-1], report_of(P))))
    assert (len(state.reports), state.unheard) == (MAX_STRANGERS + 1, 51)
    # Once a partition exists, its report counts.
    bench.view.store.put(partition_of(f"x{MAX_STRANGERS + 49}", 0, (1,)))
    bench.dispatcher.reported(1, 1, Report(replicas=(made_up[-1],)))
    assert made_up[-1].uid in state.reports


async def test_given_reports_of_replicas_to_delete_then_all_are_kept(bench: Bench) -> None:
    gone = [partition_of(f"x{i}", 0, (1,)) for i in range(MAX_STRANGERS + 50)]
    for partition in gone:
        bench.view.store.put_tombstone(tombstone_of(partition, 1))
    bench.dispatcher.opened(1, hello(*map(report_of, gone)))
    assert len(bench.sessions[1].reports) == len(gone)
    assert bench.sessions[1].unheard == 0


def test_given_obstacles_then_what_they_concern_is_woken_once() -> None:
    shared, alone = partition_of("t", 0, (1, 2)), partition_of("t", 1, (1,))
    bench = Bench(spu_of(1), spu_of(2), shared, alone)
    bench.dispatcher.opened(1, hello())
    bench.keys()
    cut_off = Report(obstacles=Obstacles(unreachable=(unreachable_of(2),)))
    bench.dispatcher.reported(1, 1, cut_off)
    assert bench.sessions[1].unreachable == {2: unreachable_of(2)}
    assert bench.keys() == [SPU_KEY, P_KEY]
    bench.dispatcher.reported(1, 1, cut_off)
    assert bench.keys() == []
    stalled = (PartitionUid(alone.uid), PartitionUid("of nobody"))
    bench.dispatcher.reported(1, 1, Report(obstacles=Obstacles(stalled=stalled)))
    assert bench.sessions[1].stalled == {alone.uid}
    assert bench.keys() == [SPU_KEY, P_KEY, Key("Partition", "t-1")]
    bench.dispatcher.reported(1, 1, Report())
    assert bench.sessions[1].stalled == {alone.uid}, "a report without obstacles says nothing"
    assert bench.keys() == []


def test_given_an_unreachable_spu_comes_or_goes_then_the_one_that_names_it_is_woken() -> None:
    bench = Bench(spu_of(1), spu_of(2))
    bench.dispatcher.opened(1, hello())
    bench.dispatcher.reported(1, 1, Report(obstacles=Obstacles(unreachable=(unreachable_of(2),))))
    bench.keys()
    bench.dispatcher.opened(1, hello().model_copy(update={"spu_id": 2}))
    assert any(key == SPU_KEY for key, _ in bench.woken)
    bench.woken.clear()
    bench.dispatcher.closed(2, 1, SessionEnd.LOST)
    assert any(key == SPU_KEY for key, _ in bench.woken)
    bench.woken.clear()
