"""What the leader tells of SPUs and segments, and what another SC's view shows of that."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sc.controllers.actions import Key
from sc.sharing.listening import UNKNOWN_MS, Heard
from sc.sharing.telling import Teller
from sc.store.view import Liveness, SessionState, View
from schemas.control.facts import SEGMENTS_AT_ONCE, Facts
from schemas.control.messages import LoadReport, ReplicaReport
from schemas.control.statistics import ReplicaNumbers
from schemas.ids import PartitionUid
from schemas.objects.partition import Partition
from schemas.objects.stream import StreamState
from tests.unit.sc.builders import report_of, session_of, spu_of, view_of
from tests.unit.sc.sharing.segments import segment_of, stream_of

ONE, GROWING = stream_of("s/one"), stream_of("s/growing", StreamState.SCALING)
SEGMENTS = tuple(segment_of(ONE, number, 1 + number % 2) for number in range(250))
SPUS = (spu_of(1), spu_of(2), spu_of(3))
KEY = Key("Stream", "s/one")


def reported(*, load: LoadReport | None = None) -> list[SessionState]:
    """Sessions of SPUs 1 and 2 in which they have told of all segments that they lead."""
    reports: dict[int, list[ReplicaReport]] = {1: [], 2: []}
    for segment in SEGMENTS:
        leader = segment.status.leader or 0
        reports[leader].append(report_of(segment, leader).model_copy(update={"load": load}))
    return [session_of(spu, *told, free_bytes=100 * spu) for spu, told in reports.items()]


def numbers(partition: Partition, at: int = 5) -> ReplicaNumbers:
    return ReplicaNumbers(PartitionUid(partition.uid), 1, at, at + 1, 1000)


@dataclass
class Other:
    """The view of an SC that does not lead."""

    view: View = field(default_factory=lambda: view_of(ONE, GROWING, *SEGMENTS, *SPUS))
    sessions: dict[int, SessionState] = field(default_factory=dict)
    woken: list[Key] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.view.sessions = self.sessions
        self.heard = Heard(self.view, self.sessions, self.woken.append)
        self.heard.lost(0)

    def hear(self, told: Iterable[Facts], now_ms: int = 0) -> list[Key]:
        """Take messages as they come over the wire; gives the streams that are to be looked at."""
        self.woken.clear()
        for message in told:
            self.heard.hear(Facts.decode(message.encode()), now_ms)
        return self.woken

    def shows(self, view: View) -> None:
        """What streams ask of it is what they would ask of the leader's view."""
        for segment in SEGMENTS:
            leader = segment.status.leader or 0
            mine, other = self.view.report(leader, segment.uid), view.report(leader, segment.uid)
            assert mine is not None
            assert other is not None
            assert (mine.load, self.view.knows(mine, segment)) == (
                *(other.load, view.knows(other, segment)),
            )
            assert self.view.numbers(segment) == view.numbers(segment)
        for spu in SPUS:
            number = spu.spec.spu_id
            assert self.view.liveness(number, 0) is view.liveness(number, 0)
            if number in view.sessions:
                assert self.sessions[number].free_bytes == view.sessions[number].free_bytes


def segments_in(told: Iterable[Facts]) -> list[str]:
    """The uids of all segments of which messages tell."""
    return [fact.uid for one in told for fact in one.segments]


def leading() -> View:
    view = view_of(ONE, GROWING, *SEGMENTS, *SPUS, sessions=reported())
    view.numbers = numbers
    return view


def test_all_is_told_first_and_then_what_changes() -> None:
    view, other = leading(), Other()
    teller = Teller(view)
    told = list(teller.news(0))
    assert [len(one.segments) for one in told] == [0, SEGMENTS_AT_ONCE, SEGMENTS_AT_ONCE, 50]
    # Loads say nothing yet; those that grow may place segments now.
    assert other.hear(told) == [Key("Stream", "s/growing")]
    other.shows(view)
    assert segments_in(teller.news(0)) == []
    view.sessions[1].reports[SEGMENTS[0].uid] = report_of(SEGMENTS[0]).model_copy(
        update={"load": LoadReport(parts=2)}
    )
    told = list(teller.news(0))
    assert segments_in(told) == [SEGMENTS[0].uid]
    assert other.hear(told) == [KEY]
    other.shows(view)
    view.numbers = lambda partition: numbers(partition, 6 if partition is SEGMENTS[7] else 5)
    told = list(teller.news(0))
    assert segments_in(told) == [SEGMENTS[7].uid]
    # How large a log is does not wake a stream: retention looks when its time comes.
    assert other.hear(told) == []
    other.shows(view)
    # The leader has connected anew, and has told nothing of this one yet.
    view.numbers = lambda partition: None if partition is SEGMENTS[7] else numbers(partition)
    assert segments_in(told := list(teller.news(0))) == [SEGMENTS[7].uid]
    assert other.hear(told) == []
    assert other.view.numbers(SEGMENTS[7]) is None
    other.shows(view)


def test_given_another_leader_then_the_former_says_nothing_of_the_segment() -> None:
    view, other = leading(), Other()
    teller = Teller(view)
    view.sessions[1].reports[SEGMENTS[0].uid] = report_of(SEGMENTS[0]).model_copy(
        update={"load": LoadReport(parts=3)}
    )
    assert KEY in other.hear(teller.news(0))
    moved = segment_of(ONE, 0, 2, revision=6)
    view.store.put(moved)
    other.view.store.put(moved)
    assert other.view.numbers(SEGMENTS[0]) is not None
    assert other.view.numbers(moved) is None
    assert segments_in(teller.news(0)) == []
    view.sessions[2].reports[moved.uid] = report_of(moved, 2)
    assert other.hear(teller.news(0)) == [KEY]
    assert other.view.report(1, moved.uid) is None
    assert other.view.report(2, moved.uid) is not None


def test_given_spus_that_go_and_may_come_back_then_nothing_is_decided_of_them() -> None:
    view, other = leading(), Other()
    teller = Teller(view)
    other.hear(teller.news(0))
    assert other.view.liveness(3, 0) is Liveness.OFFLINE
    assert isinstance(view.sessions, dict)
    gone = view.sessions.pop(2)
    view.grace_until_ms = 1_000
    assert other.hear(teller.news(0)) == [Key("Stream", "s/growing")]
    assert 2 not in other.sessions
    assert other.view.liveness(2, UNKNOWN_MS - 1) is Liveness.UNKNOWN
    view.sessions[2] = gone
    assert Key("Stream", "s/growing") in other.hear(teller.news(1_000), 1_000)
    assert other.view.liveness(3, 1_000) is Liveness.OFFLINE


def test_given_the_connection_is_lost_then_nothing_is_known_and_then_all_again() -> None:
    view, other = leading(), Other()
    other.hear(Teller(view).news(0))
    other.heard.lost(50)
    assert other.view.liveness(1, 50) is Liveness.UNKNOWN
    assert other.view.numbers(SEGMENTS[0]) is None
    assert other.view.report(1, SEGMENTS[0].uid) is None
    other.hear(Teller(view).news(0))
    other.shows(view)


def test_given_a_segment_that_is_gone_then_nothing_is_kept_of_it() -> None:
    other = Other()
    other.hear(Teller(leading()).news(0))
    other.heard.forget(SEGMENTS[0].uid)
    other.heard.forget("of nobody")
    assert other.view.report(1, SEGMENTS[0].uid) is None
    assert other.view.numbers(SEGMENTS[0]) is None
    assert other.view.report(2, SEGMENTS[1].uid) is not None


def test_a_later_version_may_say_more() -> None:
    line = b'{"spus":[{"spuId":1,"more":2}],"waits":true,"other":{},"segments":[]}\n'
    found = Facts.decode(line)
    assert found.spus is not None
    assert [one.spu_id for one in found.spus] == [1]


def test_given_an_spu_that_comes_between_two_messages_then_its_segments_are_told_next_time() -> (
    None
):
    first, second = reported()
    view = view_of(ONE, *SEGMENTS, *SPUS, sessions=[first])
    other, teller = Other(), Teller(view)
    told = teller.news(0)
    other.hear([next(told)])
    assert isinstance(view.sessions, dict)
    view.sessions[2] = second
    other.hear(told)
    other.hear(teller.news(0))
    other.shows(view)
