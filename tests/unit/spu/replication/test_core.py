"""One replica, step by step: dialogues of inputs and the outputs they must have, in order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from schemas.ids import MAX_RESTARTS, make_term
from spu.replication.core import step
from spu.replication.events import (
    AppendControl,
    AskElection,
    AskLrs,
    Committed,
    CutLog,
    Dropped,
    DropPrefix,
    Failed,
    Input,
    LeadNow,
    LeadsOn,
    Learned,
    Left,
    LinkDown,
    LinkUp,
    Output,
    Promised,
    Push,
    Pushed,
    Rebuild,
    Rebuilt,
    Received,
    Record,
    Repair,
    Resume,
    Send,
    SteppedDown,
    Store,
    Synced,
    Tick,
    Truncated,
    WantStorage,
    Wrote,
)
from spu.replication.history import Epoch
from spu.replication.leader import progress_of
from spu.replication.messages import (
    Ack,
    Append,
    Attach,
    Batch,
    Confirm,
    Cut,
    Position,
    Refuse,
    Reset,
)
from spu.replication.state import (
    CREDITS,
    REPLICA_LAG_TIME_MS,
    RETRY_MS,
    STALLED_MS,
    LogView,
    Member,
    Phase,
    Promise,
    ReplicaState,
    recovered,
)

A, B, C = Member(0, "a"), Member(1, "b"), Member(2, "c")
TERM = make_term(0, 1)
NEXT = make_term(0, 2)
REPLICAS = (0, 1, 2)


class Dialogue:
    """A replica, and what it is told."""

    def __init__(self, state: ReplicaState) -> None:
        self.state = state
        self.now_ms = 0

    def tell(self, event: Input) -> tuple[Output, ...]:
        self.state, outputs = step(self.state, event, self.now_ms)
        return outputs

    def hear(self, sender: int, message: object) -> tuple[Output, ...]:
        return self.tell(Received(sender, message))  # type: ignore[arg-type]

    def keep(self, event: Input) -> tuple[Output, ...]:
        """Tell, and make every promise durable at once. Gives all that came out but promises."""
        found: list[Output] = []
        waiting = list(self.tell(event))
        while waiting:
            output = waiting.pop(0)
            if isinstance(output, Record):
                waiting += self.tell(Promised(output.promise))
            else:
                found.append(output)
        return tuple(found)


def idle(spu: int = 0, storage: str = "a", **more: object) -> ReplicaState:
    return ReplicaState(spu, "boot", Promise(storage), **more)  # type: ignore[arg-type]


def learned(revision: int = 1, term: int = TERM, leader: int = 0, *lrs: Member) -> Learned:
    return Learned(revision, term, leader, lrs or (A, B, C), REPLICAS, 2)


def leading(*lrs: Member, minimum: int = 2) -> Dialogue:
    """SPU 0 leads, with links to the others; nothing is synced, nobody has answered."""
    dialogue = Dialogue(idle())
    for peer in (1, 2):
        dialogue.tell(LinkUp(peer))
    told = replace(learned(1, TERM, 0, *lrs), min_in_sync=minimum)
    dialogue.keep(told)
    dialogue.keep(LeadNow(1, TERM, told.lrs, REPLICAS, minimum))
    return dialogue


def attached(dialogue: Dialogue, spu: int, number: int, leo: int = 0) -> tuple[Output, ...]:
    """A follower with an empty log agrees."""
    position = Position(TERM, number, f"boot {spu}", "abc"[spu], 0, leo)
    return dialogue.hear(spu, position)


def test_given_an_order_to_lead_then_promise_before_anything_else() -> None:
    dialogue = Dialogue(idle(links=(1,)))
    dialogue.keep(learned())
    (record,) = dialogue.tell(LeadNow(1, TERM, (A, B, C), REPLICAS, 2))
    assert isinstance(record, Record)
    assert (record.promise.term, record.promise.leading) == (TERM, True)
    assert dialogue.state.leading is None
    assert dialogue.tell(Promised(record.promise)) == (
        AppendControl(TERM),
        Send(1, Attach(TERM, 1)),
    )
    assert dialogue.state.log == LogView(0, 1, 0, (Epoch(TERM, 0),))
    assert not dialogue.state.is_serving


@pytest.mark.parametrize(
    ("promise", "order"),
    [
        pytest.param(Promise("a", revision=5), (4, TERM, (A,)), id="given-an-older-revision"),
        pytest.param(Promise("a", term=NEXT), (1, TERM, (A,)), id="given-an-older-term"),
        pytest.param(Promise("x"), (1, TERM, (A,)), id="given-a-set-without-this-storage"),
        pytest.param(Promise("a", unfit="damage"), (1, TERM, (A,)), id="given-an-unfit-replica"),
    ],
)
def test_orders_that_are_not_followed(
    promise: Promise, order: tuple[int, int, tuple[Member, ...]]
) -> None:
    dialogue = Dialogue(ReplicaState(0, "boot", promise))
    revision, term, lrs = order
    assert dialogue.tell(LeadNow(revision, term, lrs, REPLICAS, 1)) == ()
    assert dialogue.state.promise == promise


def test_given_a_restart_then_the_next_count_of_restarts() -> None:
    promise = Promise("a", TERM, 1, REPLICAS, (A,), leading=True, pending=(A, B))
    dialogue = Dialogue(recovered(0, "boot", promise, LogView(0, 4, 2, (Epoch(TERM, 0),)), 1))
    assert dialogue.state.log.durable == 4
    outputs = dialogue.keep(Resume())
    assert outputs == (AppendControl(TERM + 1), AskLrs(1, TERM + 1, (A, B), "SPU 1 joins"))
    # The set that was asked for is needed still.
    assert dialogue.keep(Synced(5)) == ()
    assert dialogue.state.lac == 1


def test_given_a_restart_of_the_only_live_replica_then_it_needs_no_record() -> None:
    promise = Promise("a", TERM, 1, REPLICAS, (A,), leading=True)
    dialogue = Dialogue(recovered(0, "boot", promise, LogView(0, 4, 2, (Epoch(TERM, 0),)), 1))
    assert dialogue.keep(Resume()) == (LeadsOn(TERM + 1), Committed(3))
    assert dialogue.state.is_serving
    assert dialogue.state.log == LogView(0, 4, 4, (Epoch(TERM, 0),))
    # The next record begins the term.
    assert dialogue.keep(Wrote(5)) == ()
    assert dialogue.keep(Wrote(6)) == ()
    assert dialogue.state.log.history == (Epoch(TERM, 0), Epoch(TERM + 1, 4))
    assert dialogue.keep(Synced(6)) == (Committed(5),)


def test_given_a_restart_below_the_minimum_then_it_serves_what_was_committed_and_no_more() -> None:
    promise = Promise("a", TERM, 1, REPLICAS, (A,), 2, leading=True)
    for lac in (2, 3):
        view = LogView(0, 4, 4, (Epoch(TERM, 0),))
        dialogue = Dialogue(recovered(0, "boot", promise, view, lac))
        assert dialogue.keep(Resume()) == (LeadsOn(TERM + 1),)
        assert dialogue.state.lac == lac
        assert dialogue.state.is_serving is (lac == 3)


def test_given_a_restart_without_the_record_of_the_election_then_it_is_written() -> None:
    promise = Promise("a", NEXT, 1, REPLICAS, (A,), leading=True)
    dialogue = Dialogue(recovered(0, "boot", promise, LogView(0, 4, 4, (Epoch(TERM, 0),)), 3))
    assert dialogue.keep(Resume()) == (AppendControl(NEXT + 1),)


def test_given_a_restart_with_others_in_the_set_then_they_must_hold_its_record() -> None:
    promise = Promise("a", TERM, 1, REPLICAS, (A, B), leading=True)
    dialogue = Dialogue(recovered(0, "boot", promise, LogView(0, 4, 4, (Epoch(TERM, 0),)), 3))
    assert dialogue.keep(Resume()) == (AppendControl(TERM + 1),)
    assert not dialogue.state.is_serving


def test_given_an_election_of_the_only_live_replica_then_its_term_is_in_the_log() -> None:
    promise = Promise("a", TERM, 1, REPLICAS, (A,), leading=True)
    dialogue = Dialogue(recovered(0, "boot", promise, LogView(0, 4, 4, (Epoch(TERM, 0),)), 3))
    outputs = dialogue.keep(LeadNow(2, NEXT, (A,), REPLICAS, 1))
    assert outputs == (AppendControl(NEXT),)


def test_given_no_restarts_left_then_an_election_is_asked_for() -> None:
    last = TERM + MAX_RESTARTS
    promise = Promise("a", last, 1, REPLICAS, (A,), leading=True)
    (asked,) = Dialogue(recovered(0, "boot", promise, LogView(), -1)).tell(Resume())
    assert isinstance(asked, AskElection)
    assert "used up" in asked.reason


def test_given_followers_then_committed_by_what_all_hold_durably() -> None:
    dialogue = leading()
    assert attached(dialogue, 1, 1) == (
        Send(1, Confirm(TERM, 1, "boot 1", -1, 0)),
        Push(1, TERM, 1, "boot 1", 0, -1, 0),
    )
    attached(dialogue, 2, 2)
    dialogue.tell(Pushed(1, 1, 1))
    dialogue.tell(Pushed(2, 2, 1))
    assert dialogue.tell(Synced(1)) == ()
    assert dialogue.hear(1, Ack(TERM, 1, 1, 1)) == ()
    assert dialogue.hear(2, Ack(TERM, 2, 1, 0)) == ()
    # The last of them commits; who has nothing to be sent is told.
    assert dialogue.hear(2, Ack(TERM, 2, 1, 1)) == (
        Committed(0),
        Send(1, Confirm(TERM, 1, "boot 1", 0, 0)),
        Send(2, Confirm(TERM, 2, "boot 2", 0, 0)),
    )
    assert dialogue.state.is_serving


def test_given_a_position_or_an_ack_of_another_attachment_then_dropped() -> None:
    dialogue = leading()
    attached(dialogue, 1, 1)
    for late in (Ack(TERM, 9, 1, 1), Ack(NEXT, 1, 1, 1), Position(TERM, 7, "x", "b", 0, 0)):
        before = dialogue.state
        assert dialogue.hear(1, late) == ()
        assert dialogue.state == before


def test_given_credits_used_up_then_no_more_is_pushed() -> None:
    dialogue = leading(A)
    attached(dialogue, 1, 1)
    for number in range(1, CREDITS + 1):
        pushed = dialogue.tell(Pushed(1, 1, number))
        more = dialogue.tell(Wrote(number + 1))
        assert pushed == ()
        assert bool(more) is (number < CREDITS)
    assert dialogue.hear(1, Ack(TERM, 1, 1, 0))[-1:] == (
        Push(1, TERM, 1, "boot 1", CREDITS, -1, 0),
    )


def test_given_a_gap_then_sent_again_from_where_the_follower_is() -> None:
    dialogue = leading(A)
    attached(dialogue, 1, 1)
    dialogue.tell(Pushed(1, 1, 1))
    dialogue.tell(Wrote(2))
    dialogue.tell(Pushed(1, 1, 2))
    assert dialogue.hear(1, Ack(TERM, 1, 0, 0, gap=True)) == (Push(1, TERM, 1, "boot 1", 0, -1, 0),)


@pytest.mark.parametrize(
    ("last_term", "leo", "answer"),
    [
        pytest.param(7, 3, Cut(TERM, 1, "boot 1", 5, 3), id="given-a-term-we-lack-then-cut"),
        pytest.param(5, 4, Cut(TERM, 1, "boot 1", 5, 3), id="given-more-of-a-term-then-cut"),
        pytest.param(5, 3, Confirm(TERM, 1, "boot 1", -1, 0), id="given-a-beginning-then-agreed"),
        pytest.param(5, 1, Confirm(TERM, 1, "boot 1", -1, 0), id="given-less-then-agreed"),
        pytest.param(0, 0, Confirm(TERM, 1, "boot 1", -1, 0), id="given-nothing-then-agreed"),
    ],
)
def test_comparing_logs(last_term: int, leo: int, answer: object) -> None:
    dialogue = Dialogue(idle(log=LogView(0, 3, 3, (Epoch(5, 0),)), links=(1,)))
    dialogue.keep(learned())
    dialogue.keep(LeadNow(1, TERM, (A, B, C), REPLICAS, 2))
    outputs = dialogue.hear(1, Position(TERM, 1, "boot 1", "b", last_term, leo))
    assert outputs[0] == Send(1, answer)  # type: ignore[arg-type]


def test_given_a_follower_behind_the_logs_beginning_then_it_starts_over() -> None:
    log = LogView(10, 12, 12, (Epoch(5, 3), Epoch(6, 11)))
    dialogue = Dialogue(idle(log=log, lac=11, links=(1,)))
    dialogue.keep(learned())
    dialogue.keep(LeadNow(1, TERM, (A, B, C), REPLICAS, 2))
    outputs = dialogue.hear(1, Position(TERM, 1, "boot 1", "b", 5, 4))
    assert outputs == (Send(1, Reset(TERM, 1, "boot 1", 10, 5)),)


def following(log: LogView | None = None, lac: int = -1) -> Dialogue:
    """SPU 1 was attached by SPU 0, and has said where its log ends."""
    dialogue = Dialogue(ReplicaState(1, "boot", Promise("b"), log or LogView(), lac))
    dialogue.keep(learned())
    dialogue.keep(Received(0, Attach(TERM, 1)))
    return dialogue


def append(*batches: Batch, lac: int = -1, number: int = 1) -> Append:
    return Append(TERM, number, "boot", batches, lac, 0)


ONE, TWO = Batch(0, 1, TERM, b"1"), Batch(1, 2, TERM, b"2")


def test_given_an_attachment_then_the_term_is_promised_before_it_is_answered() -> None:
    dialogue = Dialogue(idle(1, "b"))
    (record,) = dialogue.hear(0, Attach(TERM, 1))
    assert isinstance(record, Record)
    assert record.promise.term == TERM
    # Meanwhile nothing of it is heard, and lower terms are over already.
    assert dialogue.hear(0, append(ONE)) == ()
    assert dialogue.hear(2, Attach(TERM - 1, 9)) == (Send(2, Refuse(TERM - 1, 9, TERM)),)
    answer = Position(TERM, 1, "boot", "b", 0, 0)
    assert dialogue.tell(Promised(record.promise)) == (Send(0, answer),)
    # Late ones, and the same again, are dropped; a newer one is answered at once.
    assert dialogue.hear(0, Attach(TERM, 1)) == ()
    answer = replace(answer, attach=2)
    assert dialogue.hear(0, Attach(TERM, 2)) == (Send(0, answer),)


def test_given_batches_then_stored_and_acknowledged_when_durable() -> None:
    dialogue = following()
    assert dialogue.hear(0, append(ONE, lac=0)) == (Store((ONE,)), Committed(0))
    # Readers may see it, but a checkpoint may not say so before the record is durable here.
    assert dialogue.state.durable_lac == -1
    assert dialogue.hear(0, append(ONE, TWO)) == (Store((TWO,)),)
    assert dialogue.tell(Synced(1)) == (Send(0, Ack(TERM, 1, 2, 1)),)
    assert dialogue.state.durable_lac == 0
    assert dialogue.hear(0, append(ONE)) == (Send(0, Ack(TERM, 1, 2, 1)),)
    gap = Batch(7, 8, TERM, b"8")
    assert dialogue.hear(0, append(gap)) == (Send(0, Ack(TERM, 1, 2, 1, gap=True)),)
    assert dialogue.hear(0, replace(append(TWO), boot="an earlier process")) == ()


def test_given_a_commit_that_overtook_its_record_then_adopted_when_that_comes() -> None:
    dialogue = following()
    agreed = Send(0, Ack(TERM, 1, 0, 0))
    assert dialogue.hear(0, Confirm(TERM, 1, "boot", 1, 0)) == (agreed,)
    assert dialogue.hear(0, append(ONE)) == (Store((ONE,)), Committed(0))
    assert dialogue.hear(0, append(TWO)) == (Store((TWO,)), Committed(1))


def test_given_records_once_more_then_what_is_said_with_them_is_heard() -> None:
    dialogue = following()
    assert dialogue.hear(0, append(ONE, TWO)) == (Store((ONE, TWO)),)
    again = Send(0, Ack(TERM, 1, 2, 0))
    assert dialogue.hear(0, append(ONE, lac=0)) == (Committed(0), again)
    gap = Send(0, Ack(TERM, 1, 2, 0, gap=True))
    assert dialogue.hear(0, append(Batch(7, 8, TERM, b"8"), lac=7)) == (Committed(1), gap)


def test_given_the_leader_dropped_a_beginning_then_so_does_the_follower() -> None:
    dialogue = following()
    dialogue.hear(0, append(ONE, TWO, lac=0))
    told = Confirm(TERM, 1, "boot", 0, 2)
    # Never above what is committed.
    assert dialogue.hear(0, told) == (DropPrefix(1),)
    assert dialogue.state.log.start == 1


def test_given_another_history_then_cut_and_compared_again() -> None:
    dialogue = following(LogView(0, 6, 6, (Epoch(1, 0), Epoch(3, 4))), lac=1)
    # The leader has term 2 where this log has term 3: cut to where our own term 1 ends.
    assert dialogue.hear(0, Cut(TERM, 1, "boot", 2, 5)) == (CutLog(4),)
    assert dialogue.hear(0, append(Batch(4, 5, TERM, b""))) == ()
    answer = Position(TERM, 1, "boot", "b", 1, 4)
    assert dialogue.tell(Truncated()) == (Send(0, answer),)


def test_given_a_cut_of_what_was_committed_then_unfit_and_nothing_is_cut() -> None:
    dialogue = following(LogView(0, 6, 6, (Epoch(3, 0),)), lac=4)
    record, told = dialogue.hear(0, Cut(TERM, 1, "boot", 0, 0))
    assert isinstance(told, Send)
    assert isinstance(record, Record)
    assert "4 was committed" in str(record.promise.unfit)
    assert dialogue.state.log.leo == 6


def test_given_a_log_that_ends_below_its_lac_then_unfit_from_the_start() -> None:
    dialogue = Dialogue(recovered(1, "boot", Promise("b", leading=True), LogView(0, 3, 3), 3))
    (record,) = dialogue.tell(Resume())
    assert isinstance(record, Record)
    assert record.promise.unfit == "its log ends at 3, but 3 was committed"
    assert not record.promise.leading


def test_given_unfit_then_it_says_so_and_keeps_its_log_until_it_is_told() -> None:
    dialogue = following(LogView(0, 6, 6, (Epoch(3, 0),)), lac=4)
    unfit = Position(TERM, 1, "boot", "b", 3, 6, "an fsync failed")
    # The leader believes that all is well: it is told at once, and again when it attaches.
    assert dialogue.keep(Failed("an fsync failed")) == (Send(0, unfit),)
    assert dialogue.keep(Received(0, Attach(TERM, 2))) == (Send(0, replace(unfit, attach=2)),)
    # Out of the live replicas by what it knows, it still discards nothing by itself.
    assert dialogue.keep(learned(2, TERM, 0, A, C)) == ()
    assert dialogue.hear(0, Reset(TERM, 2, "boot", 0, 0)) == (WantStorage(),)
    (record,) = dialogue.tell(Repair("b2"))
    assert isinstance(record, Record)
    assert (record.promise.storage, record.promise.unfit) == ("b2", "an fsync failed")
    assert dialogue.tell(Promised(record.promise)) == (Rebuild(0, 0, "b2"),)
    assert dialogue.state.log == LogView()
    # Fit only when the empty log is durable, and that of no other rebuild.
    assert dialogue.tell(Rebuilt("b1")) == ()
    (record,) = dialogue.tell(Rebuilt("b2"))
    assert isinstance(record, Record)
    assert record.promise.unfit is None
    answer = Position(TERM, 2, "boot", "b2", 0, 0)
    assert dialogue.tell(Promised(record.promise)) == (Send(0, answer),)


def test_given_a_failure_in_a_rebuild_then_the_next_attachment_begins_another() -> None:
    dialogue = following(LogView(0, 6, 6, (Epoch(3, 0),)), lac=4)
    dialogue.keep(Failed("an fsync failed"))
    dialogue.keep(Received(0, Attach(TERM, 2)))
    dialogue.hear(0, Reset(TERM, 2, "boot", 0, 0))
    dialogue.keep(Repair("b2"))
    assert dialogue.keep(Failed("and again")) == ()
    assert dialogue.tell(Rebuilt("b2")) == ()
    (said,) = dialogue.keep(Received(0, Attach(TERM, 3)))
    assert said == Send(0, Position(TERM, 3, "boot", "b2", 0, 0, "an fsync failed"))
    assert dialogue.hear(0, Reset(TERM, 3, "boot", 0, 0)) == (WantStorage(),)


def test_given_a_newer_attachment_or_an_order_to_lead_while_the_log_is_cut_then_they_wait() -> None:
    for order in (Received(0, Attach(TERM, 2)), LeadNow(1, NEXT, (A, B, C), REPLICAS, 2)):
        dialogue = following(LogView(0, 6, 6, (Epoch(1, 0), Epoch(3, 4))), lac=1)
        assert dialogue.hear(0, Cut(TERM, 1, "boot", 2, 5)) == (CutLog(4),)
        assert dialogue.keep(order) == ()
        assert dialogue.tell(Synced(6)) == ()
        (said,) = dialogue.tell(Truncated())[:1]
        if isinstance(order, LeadNow):
            assert said == AppendControl(NEXT)
        else:
            assert said == Send(0, Position(TERM, 2, "boot", "b", 1, 4))


def test_given_a_reset_then_begun_anew_where_the_leader_begins() -> None:
    dialogue = following(LogView(0, 3, 3, (Epoch(3, 0),)), lac=2)
    assert dialogue.hear(0, Reset(TERM, 1, "boot", 10, 5)) == (WantStorage(),)
    assert dialogue.keep(Repair("b2")) == (Rebuild(10, 5, "b2"),)
    assert dialogue.state.log == LogView(10, 10, 10, (Epoch(5, 9),))
    assert dialogue.keep(Rebuilt("b2")) == (Send(0, Position(TERM, 1, "boot", "b2", 5, 10)),)
    assert dialogue.state.lac == 9


def joined(dialogue: Dialogue, spu: int, number: int) -> None:
    """A follower holds everything durably."""
    attached(dialogue, spu, number)
    leo = dialogue.state.log.leo
    dialogue.tell(Pushed(spu, number, leo))
    dialogue.keep(Received(spu, Ack(TERM, number, leo, leo)))


def test_given_a_follower_with_the_control_record_then_it_is_asked_to_join() -> None:
    dialogue = leading(A, minimum=1)
    dialogue.tell(Synced(1))
    attached(dialogue, 1, 1)
    dialogue.tell(Pushed(1, 1, 1))
    (record,) = dialogue.hear(1, Ack(TERM, 1, 1, 1))
    assert isinstance(record, Record)
    assert record.promise.pending == (A, B)
    # From now on a commit needs both.
    assert dialogue.state.required == {A, B}
    dialogue.tell(Wrote(2))
    assert dialogue.tell(Synced(2)) == ()
    # Asked once the union is durable, and until then nothing else is asked.
    joined(dialogue, 2, 2)
    assert dialogue.tell(Promised(record.promise)) == (AskLrs(1, TERM, (A, B), "SPU 1 joins"),)
    assert dialogue.state.promise.required == {A, B}
    # Repeated as it was; a reconnect changes nothing, a later revision ends it.
    dialogue.now_ms += RETRY_MS
    assert AskLrs(1, TERM, (A, B), "SPU 1 joins") in dialogue.tell(Tick())
    dialogue.tell(LinkDown(1))
    assert dialogue.state.promise.required == {A, B}
    asked = dialogue.keep(learned(2, TERM, 0, A, B))
    assert asked == (AskLrs(2, TERM, (A, B, C), "SPU 2 joins"),)


def test_given_a_refusal_then_the_same_is_asked_again_only_after_a_while() -> None:
    dialogue = leading(A, minimum=1)
    dialogue.tell(Synced(1))
    joined(dialogue, 1, 1)
    assert dialogue.state.promise.required == {A, B}
    assert dialogue.keep(learned(2, TERM, 0, A)) == ()
    assert dialogue.state.promise.required == {A}
    dialogue.now_ms += RETRY_MS
    assert AskLrs(2, TERM, (A, B), "SPU 1 joins") in dialogue.keep(Tick())


def test_given_a_silent_member_then_it_is_asked_to_leave_while_the_minimum_remains() -> None:
    dialogue = leading()
    joined(dialogue, 1, 1)
    dialogue.now_ms = REPLICA_LAG_TIME_MS
    (asked,) = [o for o in dialogue.keep(Tick()) if isinstance(o, AskLrs)]
    assert asked == AskLrs(1, TERM, (A, B), "SPU 2 leaves")
    dialogue.keep(learned(2, TERM, 0, A, B))
    dialogue.tell(LinkDown(1))
    dialogue.now_ms = 3 * REPLICA_LAG_TIME_MS
    assert not [o for o in dialogue.keep(Tick()) if isinstance(o, AskLrs)]


def test_given_another_storage_then_the_old_one_leaves_whatever_the_minimum() -> None:
    dialogue = leading(A, B)
    outputs = dialogue.keep(Received(1, Position(TERM, 1, "boot 1", "b2", 0, 0, "damage")))
    assert outputs == (
        Send(1, Reset(TERM, 1, "boot 1", 0, 0)),
        AskLrs(1, TERM, (A,), "SPU 1 leaves"),
    )
    assert dialogue.state.promise.smallest == 1


@pytest.mark.parametrize("members", [(A,), (A, B)], ids=["given-too-few", "given-one-is-silent"])
def test_stuck_for_long_then_another_leader_is_asked_for(members: tuple[Member, ...]) -> None:
    dialogue = leading(*members)
    dialogue.tell(Synced(1))
    asked = []
    for _ in range(3):
        dialogue.now_ms += REPLICA_LAG_TIME_MS
        asked += [o for o in dialogue.keep(Tick()) if isinstance(o, AskElection)]
    assert [o.term for o in asked] == [TERM, TERM]
    assert f"1 of {len(members)} live replicas keep up" in asked[0].reason


def test_given_a_follower_that_fails_though_it_had_agreed_then_it_is_asked_to_leave() -> None:
    dialogue = leading(A, B, minimum=1)
    joined(dialogue, 1, 1)
    failed = Position(TERM, 1, "boot 1", "b", TERM, 1, "an fsync failed")
    assert dialogue.keep(Received(1, failed)) == (AskLrs(1, TERM, (A,), "SPU 1 leaves"),)
    dialogue.keep(learned(2, TERM, 0, A))
    dialogue.now_ms += RETRY_MS
    assert Send(1, Attach(TERM, 3)) in dialogue.keep(Tick())
    outputs = dialogue.keep(Received(1, replace(failed, attach=3)))
    assert outputs == (Send(1, Reset(TERM, 3, "boot 1", 0, 0)),)


def test_given_a_last_ack_that_was_lost_then_attached_again() -> None:
    dialogue = leading(A, B)
    attached(dialogue, 1, 1)
    dialogue.tell(Pushed(1, 1, 1))
    dialogue.hear(1, Ack(TERM, 1, 1, 0))
    dialogue.now_ms = STALLED_MS
    assert Send(1, Attach(TERM, 3)) in dialogue.tell(Tick())


def test_given_an_ack_before_the_push_was_told_then_it_holds_no_credit() -> None:
    dialogue = leading(A)
    attached(dialogue, 1, 1)
    dialogue.hear(1, Ack(TERM, 1, 1, 1))
    dialogue.tell(Pushed(1, 1, 1))
    leading_now = dialogue.state.leading
    assert leading_now is not None
    assert leading_now.followers[0].unacked == ()


def test_given_a_commit_while_a_push_is_under_way_then_the_follower_hears_of_it() -> None:
    dialogue = leading(A, minimum=1)
    attached(dialogue, 1, 1)
    assert dialogue.tell(Synced(1)) == (Committed(0),)
    assert dialogue.tell(Pushed(1, 1, 1)) == (Send(1, Confirm(TERM, 1, "boot 1", 0, 0)),)


def test_given_replicas_that_come_and_go_then_attached_and_forgotten() -> None:
    dialogue = leading(A, minimum=1)
    dialogue.keep(Learned(2, TERM, 0, (A,), (0, 1), 1))
    leading_now = dialogue.state.leading
    assert leading_now is not None
    assert [progress.spu for progress in leading_now.followers] == [1]
    outputs = dialogue.keep(Learned(3, TERM, 0, (A,), (0, 1, 2), 1))
    assert outputs == (Send(2, Attach(TERM, 3)),)


def test_given_one_that_is_refused_then_others_may_join() -> None:
    dialogue = leading(A, minimum=1)
    dialogue.tell(Synced(1))
    joined(dialogue, 1, 1)
    joined(dialogue, 2, 2)
    asked = dialogue.keep(learned(2, TERM, 0, A))
    assert asked == (AskLrs(2, TERM, (A, C), "SPU 2 joins"),)
    # Both refused, both wait; then the one that was refused longer ago comes first.
    assert dialogue.keep(learned(3, TERM, 0, A)) == ()
    for revision, name, spu in ((3, B, 1), (4, C, 2), (5, B, 1)):
        dialogue.now_ms += RETRY_MS
        asked = tuple(o for o in dialogue.keep(Tick()) if isinstance(o, AskLrs))
        assert asked == (AskLrs(revision, TERM, (A, name), f"SPU {spu} joins"),)
        assert not dialogue.keep(learned(revision + 1, TERM, 0, A))


def test_given_retention_then_the_log_begins_later_but_never_above_what_is_committed() -> None:
    dialogue = leading(A, minimum=1)
    dialogue.tell(Synced(1))
    assert dialogue.tell(Dropped(9)) == ()
    assert dialogue.state.log.start == 1
    # A follower that lacks what is gone is attached again, to be reset.
    attached(dialogue, 1, 1)
    dialogue.now_ms = RETRY_MS
    assert Send(1, Attach(TERM, 3)) in dialogue.tell(Tick())


def test_given_a_higher_term_anywhere_then_it_steps_down() -> None:
    refused = leading()
    outputs = refused.hear(1, Refuse(TERM, 1, NEXT))
    assert [type(output) for output in outputs] == [SteppedDown]
    told = leading()
    assert SteppedDown("SPU 1 leads by revision 2") in told.keep(learned(2, NEXT, 1))
    attached_itself = leading()
    outputs = attached_itself.keep(Received(1, Attach(NEXT, 1)))
    assert outputs[0] == SteppedDown("SPU 1 leads in a higher term")
    for dialogue in (refused, told, attached_itself):
        assert dialogue.state.leading is None
        with pytest.raises(AssertionError, match="only a leader writes"):
            dialogue.tell(Wrote(2))
    following_now = attached_itself.state.following
    assert following_now is not None
    assert following_now.phase is Phase.AGREEING


def test_given_a_follower_that_left_then_it_is_attached_again() -> None:
    follower = Dialogue(idle(1, "b"))
    follower.keep(learned())
    follower.keep(Received(0, Attach(TERM, 1)))
    follower.hear(0, append(ONE, lac=-1))
    gone = Refuse(TERM, 1, TERM)
    assert follower.keep(Left()) == (Send(0, gone),)
    # What is said to it is lost, the last commit included.
    assert follower.hear(0, append(lac=0)) == ()

    leader = leading()
    attached(leader, 1, 1)
    leader.hear(1, Refuse(TERM, 9, TERM))
    assert matched(leader, 1)
    leader.hear(1, gone)
    assert not matched(leader, 1)
    leader.now_ms = RETRY_MS - 1
    assert not [o for o in leader.tell(Tick()) if isinstance(o, Send)]
    leader.now_ms = RETRY_MS
    assert Send(1, Attach(TERM, 3)) in leader.tell(Tick())


def matched(dialogue: Dialogue, spu: int) -> bool:
    """Whether a leader has found a follower's log to agree, and hears from it."""
    leading = dialogue.state.leading
    progress = None if leading is None else progress_of(leading, spu)
    return progress is not None and progress.matched


def test_given_silence_then_attached_again() -> None:
    dialogue = leading()
    dialogue.now_ms = RETRY_MS
    outputs = dialogue.tell(Tick())
    assert [o for o in outputs if isinstance(o, Send)] == [
        Send(1, Attach(TERM, 3)),
        Send(2, Attach(TERM, 4)),
    ]
