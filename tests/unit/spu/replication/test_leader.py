"""A leader, step by step: dialogues of inputs and the outputs they must have, in order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spu.replication.events import (
    AppendControl,
    Appended,
    Committed,
    Elected,
    Flushed,
    HardStatePersisted,
    LinkDown,
    LinkUp,
    LogStartAdvanced,
    Output,
    PartitionUpdated,
    PersistHardState,
    Push,
    Pushed,
    Received,
    RequestElection,
    RequestLrsChange,
    Send,
    Tick,
)
from spu.replication.history import TermStart
from spu.replication.messages import (
    AppendAck,
    Attach,
    CommitUpdate,
    LogEnd,
    Reject,
    Reset,
    Truncate,
)
from spu.replication.state import (
    CREDITS,
    REFUSED_MAX_MS,
    REPLICA_LAG_TIME_MS,
    RETRY_MS,
    STALLED_MS,
    HardState,
    LogView,
    Member,
    ReplicaState,
    recovered,
)
from tests.unit.spu.replication.dialogue import (
    NEXT,
    REPLICAS,
    TERM,
    A,
    B,
    C,
    Dialogue,
    attached,
    idle,
    leading,
    learned,
)


def test_given_an_order_to_lead_then_promise_before_anything_else() -> None:
    dialogue = Dialogue(idle(links=(1,)))
    dialogue.keep(learned())
    (record,) = dialogue.tell(Elected(1, TERM, (A, B, C), REPLICAS, 2))
    assert isinstance(record, PersistHardState)
    assert (record.hard_state.term, record.hard_state.leading) == (TERM, True)
    assert dialogue.state.leading is None
    assert dialogue.tell(HardStatePersisted(record.hard_state)) == (
        AppendControl(TERM),
        Send(1, Attach(TERM, 1, "boot")),
    )
    assert dialogue.state.log == LogView(0, 1, 0, (TermStart(TERM, 0),))
    assert not dialogue.state.is_serving


@pytest.mark.parametrize(
    ("hard_state", "order"),
    [
        pytest.param(HardState("a", revision=5), (4, TERM, (A,)), id="given-an-older-revision"),
        pytest.param(HardState("a", term=NEXT), (1, TERM, (A,)), id="given-an-older-term"),
        pytest.param(HardState("x"), (1, TERM, (A,)), id="given-a-set-without-this-storage"),
        pytest.param(HardState("a", unfit="damage"), (1, TERM, (A,)), id="given-an-unfit-replica"),
    ],
)
def test_orders_that_are_not_followed(
    hard_state: HardState, order: tuple[int, int, tuple[Member, ...]]
) -> None:
    dialogue = Dialogue(ReplicaState(0, "boot", hard_state))
    revision, term, lrs = order
    assert dialogue.tell(Elected(revision, term, lrs, REPLICAS, 1)) == ()
    assert dialogue.state.hard_state == hard_state


def test_given_an_election_of_the_only_live_replica_then_its_term_is_in_the_log() -> None:
    hard_state = HardState("a", TERM, 1, REPLICAS, (A,), leading=True)
    dialogue = Dialogue(
        recovered(0, "boot", hard_state, LogView(0, 4, 4, (TermStart(TERM, 0),)), 3)
    )
    outputs = dialogue.keep(Elected(2, NEXT, (A,), REPLICAS, 1))
    assert outputs == (AppendControl(NEXT),)


def test_given_followers_then_committed_by_what_all_hold_durably() -> None:
    dialogue = leading()
    assert attached(dialogue, 1, 1) == (
        Send(1, CommitUpdate(TERM, 1, "boot 1", -1, 0)),
        Push(1, TERM, 1, "boot 1", 0, -1, 0),
    )
    attached(dialogue, 2, 2)
    dialogue.tell(Pushed(1, 1, 1))
    dialogue.tell(Pushed(2, 2, 1))
    assert dialogue.tell(Flushed(1)) == ()
    assert dialogue.hear(1, AppendAck(TERM, 1, 1, 1)) == ()
    assert dialogue.hear(2, AppendAck(TERM, 2, 1, 0)) == ()
    # The last of them commits; who has nothing to be sent is told.
    assert dialogue.hear(2, AppendAck(TERM, 2, 1, 1)) == (
        Committed(0),
        Send(1, CommitUpdate(TERM, 1, "boot 1", 0, 0)),
        Send(2, CommitUpdate(TERM, 2, "boot 2", 0, 0)),
    )
    assert dialogue.state.is_serving


def test_given_a_position_or_an_ack_of_another_attachment_then_dropped() -> None:
    dialogue = leading()
    attached(dialogue, 1, 1)
    for late in (
        AppendAck(TERM, 9, 1, 1),
        AppendAck(NEXT, 1, 1, 1),
        LogEnd(TERM, 7, "x", "b", 0, 0),
    ):
        before = dialogue.state
        assert dialogue.hear(1, late) == ()
        assert dialogue.state == before


def test_given_an_attachment_that_another_process_answers_then_it_does_not_count() -> None:
    """A replica was deleted and is there again, and the order to attach comes once more."""
    dialogue = leading(A, minimum=1)
    attached(dialogue, 1, 1)
    dialogue.hear(1, AppendAck(TERM, 1, 1, 1))
    dialogue.hear(1, Reject(TERM, 1, TERM))
    before = dialogue.state
    assert dialogue.hear(1, LogEnd(TERM, 1, "boot of another", "b2", 0, 0)) == ()
    assert dialogue.state == before
    dialogue.now_ms += RETRY_MS
    assert Send(1, Attach(TERM, 3, "boot")) in dialogue.tell(Tick())


def test_given_credits_used_up_then_no_more_is_pushed() -> None:
    dialogue = leading(A)
    attached(dialogue, 1, 1)
    for number in range(1, CREDITS + 1):
        pushed = dialogue.tell(Pushed(1, 1, number))
        more = dialogue.tell(Appended(number + 1))
        assert pushed == ()
        assert bool(more) is (number < CREDITS)
    assert dialogue.hear(1, AppendAck(TERM, 1, 1, 0))[-1:] == (
        Push(1, TERM, 1, "boot 1", CREDITS, -1, 0),
    )


def test_given_a_gap_then_sent_again_from_where_the_follower_is() -> None:
    dialogue = leading(A)
    attached(dialogue, 1, 1)
    dialogue.tell(Pushed(1, 1, 1))
    dialogue.tell(Appended(2))
    dialogue.tell(Pushed(1, 1, 2))
    assert dialogue.hear(1, AppendAck(TERM, 1, 0, 0, gap=True)) == (
        Push(1, TERM, 1, "boot 1", 0, -1, 0),
    )


@pytest.mark.parametrize(
    ("last_term", "leo", "answer"),
    [
        pytest.param(7, 3, Truncate(TERM, 1, "boot 1", 5, 3), id="given-a-term-we-lack-then-cut"),
        pytest.param(5, 4, Truncate(TERM, 1, "boot 1", 5, 3), id="given-more-of-a-term-then-cut"),
        pytest.param(
            5, 3, CommitUpdate(TERM, 1, "boot 1", -1, 0), id="given-a-beginning-then-agreed"
        ),
        pytest.param(5, 1, CommitUpdate(TERM, 1, "boot 1", -1, 0), id="given-less-then-agreed"),
        pytest.param(0, 0, CommitUpdate(TERM, 1, "boot 1", -1, 0), id="given-nothing-then-agreed"),
    ],
)
def test_comparing_logs(last_term: int, leo: int, answer: object) -> None:
    dialogue = Dialogue(idle(log=LogView(0, 3, 3, (TermStart(5, 0),)), links=(1,)))
    dialogue.keep(learned())
    dialogue.keep(Elected(1, TERM, (A, B, C), REPLICAS, 2))
    outputs = dialogue.hear(1, LogEnd(TERM, 1, "boot 1", "b", last_term, leo))
    assert outputs[0] == Send(1, answer)  # type: ignore[arg-type]


def test_given_a_follower_behind_the_logs_beginning_then_it_starts_over() -> None:
    log = LogView(10, 12, 12, (TermStart(5, 3), TermStart(6, 11)))
    dialogue = Dialogue(idle(log=log, lac=11, links=(1,)))
    dialogue.keep(learned())
    dialogue.keep(Elected(1, TERM, (A, B, C), REPLICAS, 2))
    outputs = dialogue.hear(1, LogEnd(TERM, 1, "boot 1", "b", 5, 4))
    assert outputs == (Send(1, Reset(TERM, 1, "boot 1", 10, 5)),)


@pytest.mark.parametrize(
    ("unclean", "said", "aside"),
    [
        pytest.param(0, (5, 10, 9, 5), False, id="given-clean-elections-only-then-not"),
        pytest.param(6, (5, 9, 8, 5), False, id="given-the-same-record-then-not"),
        pytest.param(6, (5, 10, -1, 0), False, id="given-nothing-committed-then-not"),
        pytest.param(6, (5, 10, 2, 3), True, id="given-one-before-the-beginning-then-kept"),
        pytest.param(6, (4, 10, 8, 4), True, id="given-a-record-of-another-term-then-kept"),
        pytest.param(6, (5, 20, 19, 5), True, id="given-one-above-the-end-then-kept"),
        pytest.param(6, (5, 7, 8, 5), True, id="given-a-record-lost-to-damage-then-kept"),
        pytest.param(6, (5, 10, 2, 0), True, id="given-one-of-an-unknown-term-then-kept"),
        pytest.param(5, (5, 10, 2, 3), False, id="given-a-log-of-that-election-then-not"),
    ],
)
def test_whether_a_follower_that_starts_over_keeps_what_it_has(
    unclean: int, said: tuple[int, int, int, int], *, aside: bool
) -> None:
    """An unclean election may have taken away records below the beginning of this log."""
    log = LogView(10, 12, 12, (TermStart(5 << 16, 3), TermStart(6 << 16, 11)))
    dialogue = Dialogue(idle(log=log, lac=11, links=(1,)))
    term = 7 << 16
    dialogue.keep(replace(learned(1, term), unclean_term=unclean << 16))
    dialogue.keep(Elected(1, term, (A, B, C), REPLICAS, 2))
    last, leo, lac, lac_term = said
    answer = LogEnd(term, 1, "boot 1", "x", last << 16, leo, "damage", lac, lac_term << 16)
    (found,) = (
        output.message
        for output in dialogue.hear(1, answer)
        if isinstance(output, Send) and isinstance(output.message, Reset)
    )
    assert found == Reset(term, 1, "boot 1", 10, 5 << 16, aside=aside)


@pytest.mark.parametrize(
    ("storage", "answer"),
    [
        pytest.param("x", Reset(TERM, 1, "boot 1", 10, 5), id="given-not-live-then-it-starts-over"),
        pytest.param(
            "b", Truncate(TERM, 1, "boot 1", 0, 3), id="given-live-then-it-keeps-its-seat"
        ),
    ],
)
def test_given_a_log_that_parts_below_the_logs_beginning(storage: str, answer: object) -> None:
    """A former leader that was cut off: its records of its own term go on above the beginning of
    this log. A cut to there is not enough, and it knows that the records below are committed."""
    log = LogView(10, 12, 12, (TermStart(5, 3), TermStart(6, 11)))
    dialogue = Dialogue(idle(log=log, lac=11, links=(1,)))
    dialogue.keep(learned())
    dialogue.keep(Elected(1, TERM, (A, B, C), REPLICAS, 2))
    outputs = dialogue.hear(1, LogEnd(TERM, 1, "boot 1", storage, 4, 15))
    assert outputs[0] == Send(1, answer)  # type: ignore[arg-type]


def joined(dialogue: Dialogue, spu: int, number: int) -> None:
    """A follower holds everything durably."""
    attached(dialogue, spu, number)
    leo = dialogue.state.log.leo
    dialogue.tell(Pushed(spu, number, leo))
    dialogue.keep(Received(spu, AppendAck(TERM, number, leo, leo)))


def test_given_a_follower_with_the_control_record_then_it_is_asked_to_join() -> None:
    dialogue = leading(A, minimum=1)
    dialogue.tell(Flushed(1))
    attached(dialogue, 1, 1)
    dialogue.tell(Pushed(1, 1, 1))
    (record,) = dialogue.hear(1, AppendAck(TERM, 1, 1, 1))
    assert isinstance(record, PersistHardState)
    assert record.hard_state.pending == (A, B)
    # From now on a commit needs both.
    assert dialogue.state.required == {A, B}
    dialogue.tell(Appended(2))
    assert dialogue.tell(Flushed(2)) == ()
    # Asked once the union is durable, and until then nothing else is asked.
    joined(dialogue, 2, 2)
    assert dialogue.tell(HardStatePersisted(record.hard_state)) == (
        RequestLrsChange(1, TERM, (A, B), "SPU 1 joins"),
    )
    assert dialogue.state.hard_state.required == {A, B}
    # Repeated as it was; a reconnect changes nothing, a later revision ends it.
    dialogue.now_ms += RETRY_MS
    assert RequestLrsChange(1, TERM, (A, B), "SPU 1 joins") in dialogue.tell(Tick())
    dialogue.tell(LinkDown(1))
    assert dialogue.state.hard_state.required == {A, B}
    asked = dialogue.keep(learned(2, TERM, 0, A, B))
    assert asked == (RequestLrsChange(2, TERM, (A, B, C), "SPU 2 joins"),)


def test_given_a_refusal_then_the_same_is_asked_again_only_after_a_while() -> None:
    dialogue = leading(A, minimum=1)
    dialogue.tell(Flushed(1))
    joined(dialogue, 1, 1)
    assert dialogue.state.hard_state.required == {A, B}
    assert dialogue.keep(learned(2, TERM, 0, A)) == ()
    assert dialogue.state.hard_state.required == {A}
    dialogue.now_ms += RETRY_MS
    assert RequestLrsChange(2, TERM, (A, B), "SPU 1 joins") in dialogue.keep(Tick())


def test_given_a_silent_member_then_it_is_asked_to_leave_while_the_minimum_remains() -> None:
    dialogue = leading()
    joined(dialogue, 1, 1)
    dialogue.now_ms = REPLICA_LAG_TIME_MS
    (asked,) = [o for o in dialogue.keep(Tick()) if isinstance(o, RequestLrsChange)]
    assert asked == RequestLrsChange(1, TERM, (A, B), "SPU 2 leaves")
    dialogue.keep(learned(2, TERM, 0, A, B))
    dialogue.tell(LinkDown(1))
    dialogue.now_ms = 3 * REPLICA_LAG_TIME_MS
    assert not [o for o in dialogue.keep(Tick()) if isinstance(o, RequestLrsChange)]


def test_given_another_storage_then_the_old_one_leaves_whatever_the_minimum() -> None:
    dialogue = leading(A, B)
    outputs = dialogue.keep(Received(1, LogEnd(TERM, 1, "boot 1", "b2", 0, 0, "damage")))
    assert outputs == (
        Send(1, Reset(TERM, 1, "boot 1", 0, 0)),
        RequestLrsChange(1, TERM, (A,), "SPU 1 leaves"),
    )
    assert dialogue.state.hard_state.smallest == 1


@pytest.mark.parametrize("members", [(A,), (A, B)], ids=["given-too-few", "given-one-is-silent"])
def test_stuck_for_long_then_another_leader_is_asked_for(members: tuple[Member, ...]) -> None:
    dialogue = leading(*members)
    dialogue.tell(Flushed(1))
    asked = []
    for _ in range(3):
        dialogue.now_ms += REPLICA_LAG_TIME_MS
        asked += [o for o in dialogue.keep(Tick()) if isinstance(o, RequestElection)]
    assert [o.term for o in asked] == [TERM, TERM]
    assert f"1 of {len(members)} live replicas keep up" in asked[0].reason


def test_given_a_follower_that_fails_though_it_had_agreed_then_it_is_asked_to_leave() -> None:
    dialogue = leading(A, B, minimum=1)
    joined(dialogue, 1, 1)
    failed = LogEnd(TERM, 1, "boot 1", "b", TERM, 1, "an fsync failed")
    assert dialogue.keep(Received(1, failed)) == (RequestLrsChange(1, TERM, (A,), "SPU 1 leaves"),)
    dialogue.keep(learned(2, TERM, 0, A))
    dialogue.now_ms += RETRY_MS
    assert Send(1, Attach(TERM, 3, "boot")) in dialogue.keep(Tick())
    outputs = dialogue.keep(Received(1, replace(failed, attach=3)))
    assert outputs == (Send(1, Reset(TERM, 3, "boot 1", 0, 0)),)


def test_given_a_last_ack_that_was_lost_then_attached_again() -> None:
    dialogue = leading(A, B)
    attached(dialogue, 1, 1)
    dialogue.tell(Pushed(1, 1, 1))
    dialogue.hear(1, AppendAck(TERM, 1, 1, 0))
    dialogue.now_ms = STALLED_MS
    assert Send(1, Attach(TERM, 3, "boot")) in dialogue.tell(Tick())


def test_given_an_ack_before_the_push_was_told_then_it_holds_no_credit() -> None:
    dialogue = leading(A)
    attached(dialogue, 1, 1)
    dialogue.hear(1, AppendAck(TERM, 1, 1, 1))
    dialogue.tell(Pushed(1, 1, 1))
    leading_now = dialogue.state.leading
    assert leading_now is not None
    assert leading_now.followers[0].unacked == ()


def test_given_a_commit_while_a_push_is_under_way_then_the_follower_hears_of_it() -> None:
    dialogue = leading(A, minimum=1)
    attached(dialogue, 1, 1)
    assert dialogue.tell(Flushed(1)) == (Committed(0),)
    assert dialogue.tell(Pushed(1, 1, 1)) == (Send(1, CommitUpdate(TERM, 1, "boot 1", 0, 0)),)


def test_given_replicas_that_come_and_go_then_attached_and_forgotten() -> None:
    dialogue = leading(A, minimum=1)
    dialogue.keep(PartitionUpdated(2, TERM, 0, (A,), (0, 1), 1))
    leading_now = dialogue.state.leading
    assert leading_now is not None
    assert [progress.spu for progress in leading_now.followers] == [1]
    outputs = dialogue.keep(PartitionUpdated(3, TERM, 0, (A,), (0, 1, 2), 1))
    assert outputs == (Send(2, Attach(TERM, 3, "boot")),)


def test_given_a_connection_before_the_end_of_a_replica_is_durable_then_not_attached() -> None:
    """Otherwise the one that another revision puts there would never be attached."""
    dialogue = leading(A, minimum=1)
    attached(dialogue, 2, 2)
    dialogue.tell(LinkDown(2))
    (promise,) = dialogue.tell(PartitionUpdated(2, TERM, 0, (A,), (0, 1), 1))
    assert isinstance(promise, PersistHardState)
    assert dialogue.tell(LinkUp(2)) == ()
    dialogue.tell(HardStatePersisted(promise.hard_state))
    outputs = dialogue.keep(PartitionUpdated(3, TERM, 0, (A,), REPLICAS, 1))
    assert outputs == (Send(2, Attach(TERM, 3, "boot")),)


def test_given_a_refusal_and_the_end_of_a_replica_in_one_then_not_attached() -> None:
    dialogue = leading(A, minimum=1)
    dialogue.tell(Flushed(1))
    joined(dialogue, 2, 2)
    for revision, replicas in ((2, REPLICAS), (3, (0, 1))):
        dialogue.now_ms += REFUSED_MAX_MS
        dialogue.keep(Tick())
        outputs = dialogue.keep(PartitionUpdated(revision, TERM, 0, (A,), replicas, 1))
        assert attachments(outputs, 2) == []
    leading_now = dialogue.state.leading
    assert leading_now is not None
    assert [progress.spu for progress in leading_now.followers] == [1]


def test_given_one_that_is_refused_then_others_may_join() -> None:
    dialogue = leading(A, minimum=1)
    dialogue.tell(Flushed(1))
    joined(dialogue, 1, 1)
    joined(dialogue, 2, 2)
    asked = dialogue.keep(learned(2, TERM, 0, A))
    assert asked == (RequestLrsChange(2, TERM, (A, C), "SPU 2 joins"),)
    # Both refused, both wait; then the one that was refused longer ago comes first.
    assert dialogue.keep(learned(3, TERM, 0, A)) == ()
    dialogue.now_ms += RETRY_MS
    assert requests(dialogue.keep(Tick())) == ["SPU 1 joins"]
    assert requests(dialogue.keep(learned(4, TERM, 0, A))) == ["SPU 2 joins"]
    assert not requests(dialogue.keep(learned(5, TERM, 0, A)))


def test_given_refusals_without_end_then_each_doubles_the_wait_and_a_grant_forgets_them() -> None:
    dialogue = leading(A, minimum=1)
    dialogue.tell(Flushed(1))
    joined(dialogue, 1, 1)
    for revision, wait_ms in enumerate(
        (RETRY_MS, 2 * RETRY_MS, 4 * RETRY_MS, REFUSED_MAX_MS, REFUSED_MAX_MS), start=2
    ):
        outputs = dialogue.keep(learned(revision, TERM, 0, A))
        # From the second one on, the logs are compared once more.
        again = attachments(outputs, 1)
        assert bool(again) is (revision > 2)
        for number in again:
            joined(dialogue, 1, number)
        dialogue.now_ms += wait_ms - 1
        assert not requests(dialogue.keep(Tick()))
        dialogue.now_ms += 1
        assert requests(dialogue.keep(Tick())) == ["SPU 1 joins"]
    dialogue.keep(learned(7, TERM, 0, A, B))
    leading_now = dialogue.state.leading
    assert leading_now is not None
    assert not leading_now.refused


def test_given_another_replica_in_the_place_of_one_that_joins_then_a_refusal_shows_it() -> None:
    """The SPU deleted its replica and has a new one, all while the leader heard nothing of it and
    had nothing to push."""
    dialogue = leading(A, minimum=1)
    dialogue.tell(Flushed(1))
    joined(dialogue, 1, 1)
    dialogue.keep(learned(2, TERM, 0, A))
    dialogue.now_ms += RETRY_MS
    assert requests(dialogue.keep(Tick())) == ["SPU 1 joins"]
    (number,) = attachments(dialogue.keep(learned(3, TERM, 0, A)), 1)
    dialogue.keep(Received(1, LogEnd(TERM, number, "boot 1", "b2", 0, 0)))
    (request,) = dialogue.keep(Received(1, AppendAck(TERM, number, 1, 1)))
    assert isinstance(request, RequestLrsChange)
    assert request.lrs == (A, Member(1, "b2"))


def attachments(outputs: tuple[Output, ...], spu: int) -> list[int]:
    """The numbers of those that a leader began with a follower in these outputs."""
    return [
        output.message.attach
        for output in outputs
        if isinstance(output, Send) and output.to == spu and isinstance(output.message, Attach)
    ]


def requests(outputs: tuple[Output, ...]) -> list[str]:
    """What a leader asked the SC for in these outputs."""
    return [output.reason for output in outputs if isinstance(output, RequestLrsChange)]


def test_given_retention_then_the_log_begins_later_but_never_above_what_is_committed() -> None:
    dialogue = leading(A, minimum=1)
    dialogue.tell(Flushed(1))
    assert dialogue.tell(LogStartAdvanced(9)) == ()
    assert dialogue.state.log.start == 1
    # A follower that lacks what is gone is attached again, to be reset.
    attached(dialogue, 1, 1)
    dialogue.now_ms = RETRY_MS
    assert Send(1, Attach(TERM, 3, "boot")) in dialogue.tell(Tick())


def test_given_silence_then_attached_again() -> None:
    dialogue = leading()
    dialogue.now_ms = RETRY_MS
    outputs = dialogue.tell(Tick())
    assert [o for o in outputs if isinstance(o, Send)] == [
        Send(1, Attach(TERM, 3, "boot")),
        Send(2, Attach(TERM, 4, "boot")),
    ]
