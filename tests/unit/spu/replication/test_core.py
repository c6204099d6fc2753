"""What is neither the leader's nor the follower's alone: to start again, to step down, to leave.

Dialogues of inputs and the outputs they must have, in order.
"""

from __future__ import annotations

import pytest

from schemas.ids import MAX_RESTARTS
from spu.replication.attachments import progress_of
from spu.replication.events import (
    AppendControl,
    Appended,
    Committed,
    Flushed,
    LeadsOn,
    LinkUp,
    PartitionUpdated,
    PersistHardState,
    Received,
    RequestElection,
    RequestLrsChange,
    Resume,
    Send,
    SteppedDown,
    Tick,
    Unassigned,
)
from spu.replication.history import TermStart
from spu.replication.messages import Attach, CommitUpdate, LogEnd, Reject
from spu.replication.state import RETRY_MS, HardState, LogView, Phase, recovered
from tests.unit.spu.replication.dialogue import (
    NEXT,
    ONE,
    REPLICAS,
    TERM,
    A,
    B,
    Dialogue,
    append,
    attached,
    idle,
    leading,
    learned,
)


def confirmed(known: HardState) -> PartitionUpdated:
    """The SC says what a replica knew before it restarted."""
    return PartitionUpdated(
        known.revision, known.term, 0, known.lrs, known.replicas, known.min_in_sync
    )


@pytest.mark.parametrize(
    ("log", "leo", "last_term"),
    [
        pytest.param(LogView(0, 4, 4, (TermStart(1, 0),)), 4, 1, id="given-all-synced-then-all"),
        pytest.param(
            LogView(0, 9, 6, (TermStart(1, 0), TermStart(2, 6))),
            6,
            1,
            id="given-a-term-that-is-not-synced-then-the-one-before",
        ),
        pytest.param(LogView(0, 4, 0, (TermStart(1, 0),)), 0, 0, id="given-none-then-none"),
        pytest.param(
            LogView(6, 9, 4, (TermStart(1, 5), TermStart(2, 8))),
            6,
            1,
            id="given-less-than-where-it-begins-then-what-is-before",
        ),
    ],
)
def test_what_is_durable_of_a_log(log: LogView, leo: int, last_term: int) -> None:
    assert (log.durable_part.leo, log.durable_part.last_term) == (leo, last_term)


def test_given_a_restart_then_the_next_count_of_restarts() -> None:
    hard_state = HardState("a", TERM, 1, REPLICAS, (A,), leading=True, pending=(A, B))
    dialogue = Dialogue(
        recovered(0, "boot", hard_state, LogView(0, 4, 2, (TermStart(TERM, 0),)), 1)
    )
    assert dialogue.state.log.durable == 4
    assert dialogue.keep(Resume()) == ()
    # The set that was asked for must answer as well, before anything is appended.
    outputs = (*dialogue.keep(confirmed(hard_state)), *dialogue.keep(LinkUp(1)))
    assert outputs == (Send(1, Attach(TERM + 1, 1, "boot")),)
    outputs = dialogue.hear(1, LogEnd(TERM + 1, 1, "boot 1", "b", TERM, 4, None, 1, TERM))
    assert outputs[:2] == (
        AppendControl(TERM + 1),
        Send(1, CommitUpdate(TERM + 1, 1, "boot 1", 1, 0)),
    )
    assert outputs[-1] == RequestLrsChange(1, TERM + 1, (A, B), "SPU 1 joins")
    # The set that was asked for is needed still.
    assert dialogue.keep(Flushed(5)) == ()
    assert dialogue.state.lac == 1


def test_given_a_restart_of_the_only_live_replica_then_it_needs_no_record() -> None:
    hard_state = HardState("a", TERM, 1, REPLICAS, (A,), leading=True)
    dialogue = Dialogue(
        recovered(0, "boot", hard_state, LogView(0, 4, 2, (TermStart(TERM, 0),)), 1)
    )
    assert dialogue.keep(Resume()) == ()
    assert dialogue.keep(confirmed(hard_state)) == (LeadsOn(TERM + 1), Committed(3))
    assert dialogue.state.is_serving
    assert dialogue.state.log == LogView(0, 4, 4, (TermStart(TERM, 0),))
    # The next record begins the term.
    assert dialogue.keep(Appended(5)) == ()
    assert dialogue.keep(Appended(6)) == ()
    assert dialogue.state.log.history == (TermStart(TERM, 0), TermStart(TERM + 1, 4))
    assert dialogue.keep(Flushed(6)) == (Committed(5),)


def test_given_a_restart_below_the_minimum_then_it_serves_what_was_committed_and_no_more() -> None:
    hard_state = HardState("a", TERM, 1, REPLICAS, (A,), 2, leading=True)
    for lac in (2, 3):
        view = LogView(0, 4, 4, (TermStart(TERM, 0),))
        dialogue = Dialogue(recovered(0, "boot", hard_state, view, lac))
        assert dialogue.keep(Resume()) == ()
        assert dialogue.keep(confirmed(hard_state)) == (LeadsOn(TERM + 1),)
        assert dialogue.state.lac == lac
        assert dialogue.state.is_serving is (lac == 3)


def test_given_a_restart_without_the_record_of_the_election_then_it_is_written() -> None:
    hard_state = HardState("a", NEXT, 1, REPLICAS, (A,), leading=True)
    dialogue = Dialogue(
        recovered(0, "boot", hard_state, LogView(0, 4, 4, (TermStart(TERM, 0),)), 3)
    )
    assert dialogue.keep(Resume()) == ()
    assert dialogue.keep(confirmed(hard_state)) == (AppendControl(NEXT + 1),)


def test_given_a_restart_with_others_in_the_set_then_they_must_hold_its_record() -> None:
    hard_state = HardState("a", TERM, 1, REPLICAS, (A, B), leading=True)
    dialogue = Dialogue(
        recovered(0, "boot", hard_state, LogView(0, 4, 4, (TermStart(TERM, 0),)), 3)
    )
    assert dialogue.keep(Resume()) == ()
    dialogue.keep(confirmed(hard_state))
    dialogue.keep(LinkUp(1))
    outputs = dialogue.hear(1, LogEnd(TERM + 1, 1, "boot 1", "b", TERM, 4, None, 3, TERM))
    assert outputs[0] == AppendControl(TERM + 1)
    assert not dialogue.state.is_serving


def test_given_no_restarts_left_then_an_election_is_asked_for() -> None:
    last = TERM + MAX_RESTARTS
    hard_state = HardState("a", last, 1, REPLICAS, (A,), leading=True)
    (asked,) = Dialogue(recovered(0, "boot", hard_state, LogView(), -1)).tell(Resume())
    assert isinstance(asked, RequestElection)
    assert "used up" in asked.reason


def test_given_a_log_that_ends_below_its_lac_then_unfit_from_the_start() -> None:
    dialogue = Dialogue(recovered(1, "boot", HardState("b", leading=True), LogView(0, 3, 3), 3))
    (record,) = dialogue.tell(Resume())
    assert isinstance(record, PersistHardState)
    assert record.hard_state.unfit == "its log ends at 3, but 3 was committed"
    assert not record.hard_state.leading


def test_given_a_higher_term_anywhere_then_it_steps_down() -> None:
    refused = leading()
    outputs = refused.hear(1, Reject(TERM, 1, NEXT))
    assert [type(output) for output in outputs] == [SteppedDown]
    told = leading()
    assert SteppedDown("SPU 1 leads by revision 2") in told.keep(learned(2, NEXT, 1))
    attached_itself = leading()
    outputs = attached_itself.keep(Received(1, Attach(NEXT, 1)))
    assert outputs[0] == SteppedDown("SPU 1 leads in a higher term")
    for dialogue in (refused, told, attached_itself):
        assert dialogue.state.leading is None
        with pytest.raises(AssertionError, match="only a leader with a proven log appends"):
            dialogue.tell(Appended(2))
    following_now = attached_itself.state.following
    assert following_now is not None
    assert following_now.phase is Phase.AGREEING


def test_given_a_follower_that_left_then_it_is_attached_again() -> None:
    follower = Dialogue(idle(1, "b"))
    follower.keep(learned())
    follower.keep(Received(0, Attach(TERM, 1)))
    follower.hear(0, append(ONE, lac=-1))
    gone = Reject(TERM, 1, TERM)
    assert follower.keep(Unassigned()) == (Send(0, gone),)
    # What is said to it is lost, the last commit included.
    assert follower.hear(0, append(lac=0)) == ()

    leader = leading()
    attached(leader, 1, 1)
    leader.hear(1, Reject(TERM, 9, TERM))
    assert matched(leader, 1)
    leader.hear(1, gone)
    assert not matched(leader, 1)
    leader.now_ms = RETRY_MS - 1
    assert not [o for o in leader.tell(Tick()) if isinstance(o, Send)]
    leader.now_ms = RETRY_MS
    assert Send(1, Attach(TERM, 3, "boot")) in leader.tell(Tick())


def matched(dialogue: Dialogue, spu: int) -> bool:
    """Whether a leader has found a follower's log to agree, and hears from it."""
    leading = dialogue.state.leading
    progress = None if leading is None else progress_of(leading, spu)
    return progress is not None and progress.matched
