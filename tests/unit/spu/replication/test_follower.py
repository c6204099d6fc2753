"""A follower, step by step: dialogues of inputs and the outputs they must have, in order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from schemas.ids import make_term
from spu.replication.events import (
    AdvanceLogStart,
    AppendBatches,
    AppendControl,
    Committed,
    Elected,
    Failed,
    Flushed,
    HardStatePersisted,
    LogReset,
    LogTruncated,
    NewStorageId,
    PersistHardState,
    Received,
    ResetLog,
    Send,
    StorageIdChosen,
    TruncateLog,
)
from spu.replication.history import TermStart
from spu.replication.messages import (
    AppendAck,
    Attach,
    Batch,
    CommitUpdate,
    LogEnd,
    Reject,
    Reset,
    Truncate,
)
from spu.replication.state import (
    OLD,
    RETRACTED,
    UNCLEAN_BOOT,
    HardState,
    LogView,
    ReplicaState,
)
from tests.unit.spu.replication.dialogue import (
    NEXT,
    ONE,
    REPLICAS,
    TERM,
    TWO,
    A,
    B,
    C,
    Dialogue,
    append,
    idle,
    learned,
)


def following(log: LogView | None = None, lac: int = -1) -> Dialogue:
    """SPU 1 was attached by SPU 0, and has said where its log ends."""
    known = ReplicaState(1, "boot", HardState("b"), log or LogView(), lac, proven=True)
    dialogue = Dialogue(known)
    dialogue.keep(learned())
    dialogue.keep(Received(0, Attach(TERM, 1)))
    return dialogue


def log_end(*fields: Any, **more: Any) -> LogEnd:
    """The answer of `following`, which knows the revision of `learned`."""
    return replace(LogEnd(*fields, **more), version=(0, 1), holders=REPLICAS)


def test_given_an_attachment_then_the_term_is_promised_before_it_is_answered() -> None:
    dialogue = Dialogue(idle(1, "b"))
    (record,) = dialogue.hear(0, Attach(TERM, 1))
    assert isinstance(record, PersistHardState)
    assert record.hard_state.term == TERM
    # Meanwhile nothing of it is heard, and lower terms are over already.
    assert dialogue.hear(0, append(ONE)) == ()
    assert dialogue.hear(2, Attach(TERM - 1, 9)) == (Send(2, Reject(TERM - 1, 9, TERM)),)
    answer = LogEnd(TERM, 1, "boot", "b", 0, 0, lac=-1)
    assert dialogue.tell(HardStatePersisted(record.hard_state)) == (Send(0, answer),)
    # Late ones, and the same again, are dropped; a newer one is answered at once.
    assert dialogue.hear(0, Attach(TERM, 1)) == ()
    answer = replace(answer, attach=2)
    assert dialogue.hear(0, Attach(TERM, 2)) == (Send(0, answer),)


def test_given_other_holders_while_the_logs_are_compared_then_it_answers_again() -> None:
    """The leader may lead without the SC: what this replica hears, it has to hear."""
    dialogue = following()
    assert dialogue.keep(learned(2)) == ()
    answer = LogEnd(TERM, 1, "boot", "b", 0, 0, lac=-1, version=(0, 3), holders=(0, 1, 2, 3))
    moves = replace(learned(3), replicas=(0, 1, 2, 3))
    assert dialogue.keep(moves) == (Send(0, answer),)
    # Not once the leader has begun.
    dialogue.keep(Received(0, append(ONE)))
    assert dialogue.keep(replace(learned(4), replicas=REPLICAS)) == ()


def test_given_batches_then_stored_and_acknowledged_when_durable() -> None:
    dialogue = following()
    assert dialogue.hear(0, append(ONE, lac=0)) == (AppendBatches((ONE,)), Committed(0))
    # Readers may see it, but a checkpoint may not say so before the record is durable here.
    assert dialogue.state.durable_lac == -1
    assert dialogue.hear(0, append(ONE, TWO)) == (AppendBatches((TWO,)),)
    assert dialogue.tell(Flushed(1)) == (Send(0, AppendAck(TERM, 1, 2, 1)),)
    assert dialogue.state.durable_lac == 0
    assert dialogue.hear(0, append(ONE)) == (Send(0, AppendAck(TERM, 1, 2, 1)),)
    gap = Batch(7, 8, TERM, b"8")
    assert dialogue.hear(0, append(gap)) == (Send(0, AppendAck(TERM, 1, 2, 1, gap=True)),)
    assert dialogue.hear(0, replace(append(TWO), boot="an earlier process")) == ()


def test_given_a_commit_that_overtook_its_record_then_adopted_when_that_comes() -> None:
    dialogue = following()
    agreed = Send(0, AppendAck(TERM, 1, 0, 0))
    assert dialogue.hear(0, CommitUpdate(TERM, 1, "boot", 1, 0)) == (agreed,)
    assert dialogue.hear(0, append(ONE)) == (AppendBatches((ONE,)), Committed(0))
    assert dialogue.hear(0, append(TWO)) == (AppendBatches((TWO,)), Committed(1))


def test_given_records_once_more_then_what_is_said_with_them_is_heard() -> None:
    dialogue = following()
    assert dialogue.hear(0, append(ONE, TWO)) == (AppendBatches((ONE, TWO)),)
    again = Send(0, AppendAck(TERM, 1, 2, 0))
    assert dialogue.hear(0, append(ONE, lac=0)) == (Committed(0), again)
    gap = Send(0, AppendAck(TERM, 1, 2, 0, gap=True))
    assert dialogue.hear(0, append(Batch(7, 8, TERM, b"8"), lac=7)) == (Committed(1), gap)


def test_given_the_leader_dropped_a_beginning_then_so_does_the_follower() -> None:
    dialogue = following()
    dialogue.hear(0, append(ONE, TWO, lac=0))
    told = CommitUpdate(TERM, 1, "boot", 0, 2)
    # Never above what is committed.
    assert dialogue.hear(0, told) == (AdvanceLogStart(1),)
    assert dialogue.state.log.start == 1


def test_given_another_history_then_cut_and_compared_again() -> None:
    dialogue = following(LogView(0, 6, 6, (TermStart(1, 0), TermStart(3, 4))), lac=1)
    # The leader has term 2 where this log has term 3: cut to where our own term 1 ends.
    assert dialogue.hear(0, Truncate(TERM, 1, "boot", 2, 5)) == (TruncateLog(4),)
    assert dialogue.hear(0, append(Batch(4, 5, TERM, b""))) == ()
    answer = log_end(TERM, 1, "boot", "b", 1, 4, lac=1, lac_term=1)
    assert dialogue.tell(LogTruncated()) == (Send(0, answer),)


def test_given_a_cut_of_what_was_committed_then_unfit_and_nothing_is_cut() -> None:
    dialogue = following(LogView(0, 6, 6, (TermStart(3, 0),)), lac=4)
    order = Truncate(TERM, 1, "boot", 0, 0)
    # Only an unclean election, which the SC has recorded, takes away what was committed.
    assert dialogue.hear(0, order) == ()
    assert dialogue.state.newest.unfit is None
    assert dialogue.state.following is not None
    assert "offset 4 was committed" in str(dialogue.state.following.refuses_cut)
    dialogue.keep(replace(learned(), unclean_term=TERM))
    record, told = dialogue.hear(0, order)
    assert isinstance(told, Send)
    assert isinstance(record, PersistHardState)
    assert "4 was committed" in str(record.hard_state.unfit)
    assert dialogue.state.log.leo == 6


@pytest.mark.parametrize(
    ("unclean", "discards"),
    [
        pytest.param(0, False, id="given-clean-elections-only-then-kept"),
        pytest.param(TERM, True, id="given-an-unclean-one-before-the-leader-s-then-discarded"),
        pytest.param(NEXT, True, id="given-that-of-the-leader-then-discarded"),
        pytest.param(make_term(0, 3), False, id="given-a-later-one-then-kept-for-its-leader"),
        pytest.param(3, False, id="given-one-that-the-log-has-seen-then-kept"),
    ],
)
def test_a_cut_of_what_was_committed(unclean: int, discards: bool) -> None:
    dialogue = Dialogue(
        ReplicaState(
            1, "boot", HardState("b"), LogView(0, 6, 6, (TermStart(3, 0),)), 4, proven=True
        )
    )
    dialogue.keep(replace(learned(2, NEXT), unclean_term=unclean))
    dialogue.keep(Received(0, Attach(NEXT, 1)))
    dialogue.keep(Received(0, Truncate(NEXT, 1, "boot", 0, 0)))
    assert (dialogue.state.newest.unfit is not None) is discards
    assert dialogue.state.log.leo == 6


def test_given_an_object_that_returned_then_the_unclean_election_is_not_forgotten() -> None:
    dialogue = Dialogue(idle())
    dialogue.keep(replace(learned(2), unclean_term=TERM))
    for revision in (2, 3):
        dialogue.keep(learned(revision))
        assert dialogue.state.newest.unclean_term == TERM
    dialogue.keep(replace(learned(4, NEXT), unclean_term=NEXT))
    assert dialogue.state.newest.unclean_term == NEXT


def test_given_unfit_then_it_says_so_and_keeps_its_log_until_it_is_told() -> None:
    dialogue = following(LogView(0, 6, 6, (TermStart(3, 0),)), lac=4)
    unfit = log_end(TERM, 1, "boot", "b", 3, 6, "an fsync failed", 4, 3)
    # The leader believes that all is well: it is told at once, and again when it attaches.
    assert dialogue.keep(Failed("an fsync failed")) == (Send(0, unfit),)
    assert dialogue.keep(Received(0, Attach(TERM, 2))) == (Send(0, replace(unfit, attach=2)),)
    # Out of the live replicas by what it knows, it still discards nothing by itself.
    assert dialogue.keep(learned(2, TERM, 0, A, C)) == ()
    assert dialogue.hear(0, Reset(TERM, 2, "boot", 0, 0)) == (NewStorageId(),)
    (record,) = dialogue.tell(StorageIdChosen("b2"))
    assert isinstance(record, PersistHardState)
    assert (record.hard_state.storage, record.hard_state.unfit) == ("b2", "an fsync failed")
    assert dialogue.tell(HardStatePersisted(record.hard_state)) == (ResetLog(0, 0, "b2"),)
    assert dialogue.state.log == LogView()
    # Fit only when the empty log is durable, and that of no other rebuild.
    assert dialogue.tell(LogReset("b1")) == ()
    (record,) = dialogue.tell(LogReset("b2"))
    assert isinstance(record, PersistHardState)
    assert record.hard_state.unfit is None
    answer = replace(log_end(TERM, 2, "boot", "b2", 0, 0, lac=-1), version=(0, 2))
    assert dialogue.tell(HardStatePersisted(record.hard_state)) == (Send(0, answer),)


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        pytest.param(UNCLEAN_BOOT, "damage", f"damage; before that: {UNCLEAN_BOOT}", id="worse"),
        pytest.param(f"{OLD}: a", "damage", f"damage; before that: {OLD}: a", id="worse-than-old"),
        pytest.param("damage", UNCLEAN_BOOT, "damage", id="better"),
        pytest.param("damage", "more damage", "damage", id="as-bad"),
        pytest.param(UNCLEAN_BOOT, UNCLEAN_BOOT, UNCLEAN_BOOT, id="the-same"),
        pytest.param(UNCLEAN_BOOT, f"{OLD}: a", UNCLEAN_BOOT, id="as-good"),
    ],
)
def test_why_a_replica_is_unfit_for_two_reasons(first: str, second: str, reason: str) -> None:
    dialogue = following(LogView(0, 6, 6, (TermStart(3, 0),)), lac=4)
    dialogue.keep(Failed(first))
    dialogue.keep(Failed(second))
    assert dialogue.state.hard_state.unfit == reason
    # Only a log that is whole may be chosen.
    dialogue.keep(replace(Elected(2, NEXT, (A, B, C), REPLICAS, 2), unclean=True))
    assert dialogue.state.newest.leading is (reason == UNCLEAN_BOOT)
    dialogue.keep(Received(0, Attach(NEXT + 1, 9)))
    dialogue.hear(0, Reset(NEXT + 1, 9, "boot", 0, 0))
    rebuild = dialogue.state.rebuild
    assert rebuild is not None
    assert rebuild.aside is (OLD in reason)


def test_given_a_failure_in_a_rebuild_then_the_next_attachment_begins_another() -> None:
    dialogue = following(LogView(0, 6, 6, (TermStart(3, 0),)), lac=4)
    dialogue.keep(Failed("an fsync failed"))
    dialogue.keep(Received(0, Attach(TERM, 2)))
    dialogue.hear(0, Reset(TERM, 2, "boot", 0, 0))
    dialogue.keep(StorageIdChosen("b2"))
    assert dialogue.keep(Failed("and again")) == ()
    assert dialogue.tell(LogReset("b2")) == ()
    (said,) = dialogue.keep(Received(0, Attach(TERM, 3)))
    assert said == Send(0, log_end(TERM, 3, "boot", "b2", 0, 0, "an fsync failed", -1))
    assert dialogue.hear(0, Reset(TERM, 3, "boot", 0, 0)) == (NewStorageId(),)


def test_given_a_newer_attachment_or_an_order_to_lead_while_the_log_is_cut_then_they_wait() -> None:
    for order in (Received(0, Attach(TERM, 2)), Elected(1, NEXT, (A, B, C), REPLICAS, 2)):
        dialogue = following(LogView(0, 6, 6, (TermStart(1, 0), TermStart(3, 4))), lac=1)
        assert dialogue.hear(0, Truncate(TERM, 1, "boot", 2, 5)) == (TruncateLog(4),)
        assert dialogue.keep(order) == ()
        assert dialogue.tell(Flushed(6)) == ()
        (said,) = dialogue.tell(LogTruncated())[:1]
        if isinstance(order, Elected):
            assert said == AppendControl(NEXT)
        else:
            assert said == Send(0, log_end(TERM, 2, "boot", "b", 1, 4, lac=1, lac_term=1))


@pytest.mark.parametrize(
    ("unfit", "told", "aside"),
    [
        pytest.param(None, False, False, id="given-no-word-then-not"),
        pytest.param(None, True, True, id="given-the-leader-says-so-then-kept"),
        pytest.param("an fsync failed", False, False, id="given-damage-then-not"),
        pytest.param(OLD, False, True, id="given-an-old-disk-then-kept"),
        pytest.param(RETRACTED, False, True, id="given-other-committed-records-then-kept"),
    ],
)
def test_whether_a_log_that_begins_anew_is_kept_aside(
    unfit: str | None, *, told: bool, aside: bool
) -> None:
    dialogue = following(LogView(0, 3, 3, (TermStart(3, 0),)), lac=2)
    if unfit is not None:
        dialogue.keep(Failed(unfit))
        dialogue.keep(Received(0, Attach(TERM, 2)))
    number = 1 if unfit is None else 2
    dialogue.hear(0, Reset(TERM, number, "boot", 10, 5, aside=told))
    assert dialogue.keep(StorageIdChosen("b2")) == (ResetLog(10, 5, "b2", aside=aside),)


def test_given_a_reset_then_begun_anew_where_the_leader_begins() -> None:
    dialogue = following(LogView(0, 3, 3, (TermStart(3, 0),)), lac=2)
    assert dialogue.hear(0, Reset(TERM, 1, "boot", 10, 5)) == (NewStorageId(),)
    assert dialogue.keep(StorageIdChosen("b2")) == (ResetLog(10, 5, "b2"),)
    assert dialogue.state.log == LogView(10, 10, 10, (TermStart(5, 9),))
    assert dialogue.keep(LogReset("b2")) == (
        Send(0, log_end(TERM, 1, "boot", "b2", 5, 10, lac=9, lac_term=5)),
    )
    assert dialogue.state.lac == 9
