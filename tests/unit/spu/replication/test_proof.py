"""Whether a leader's disk is old: what its followers' answers say, and what it then does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from schemas.ids import make_term
from spu.replication.events import (
    AppendControl,
    Elected,
    HardStatePersisted,
    LinkDown,
    LinkUp,
    Output,
    PersistHardState,
    Push,
    Received,
    RequestElection,
    Resume,
    Send,
    SteppedDown,
    Tick,
)
from spu.replication.history import TermStart
from spu.replication.messages import (
    Append,
    Attach,
    Batch,
    CommitUpdate,
    LogEnd,
    Outdated,
    Reject,
)
from spu.replication.state import (
    AHEAD_MS,
    OLD,
    PROOF_MS,
    REPLICA_LAG_TIME_MS,
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
    idle,
    learned,
)

#: Records of term 3 up to 4, and of ``TERM`` from there on.
LOG = LogView(0, 6, 6, (TermStart(3, 0), TermStart(TERM, 4)))


def reopened(*lrs: Member, log: LogView = LOG, unclean: int = 0, links: bool = True) -> Dialogue:
    """SPU 0 was started again, and the SC has made it the leader."""
    dialogue = Dialogue(recovered(0, "boot", HardState("a", TERM), log, 1))
    for peer in (1, 2) if links else ():
        dialogue.tell(LinkUp(peer))
    told = lrs or (A, B, C)
    dialogue.keep(replace(learned(2, NEXT, 0, *told), unclean_term=unclean))
    outputs = dialogue.keep(Elected(2, NEXT, told, REPLICAS, 2))
    assert all(isinstance(output, Send) for output in outputs if links)
    return dialogue


def resumed() -> Dialogue:
    """SPU 0 was started again and leads on, without a word of the SC; it knows itself and SPU 1 to
    be live."""
    hard_state = HardState("a", TERM, 2, REPLICAS, (A, B), 2, leading=True)
    dialogue = Dialogue(recovered(0, "boot", hard_state, LOG, 5))
    dialogue.keep(Resume())
    for peer in (1, 2):
        dialogue.keep(LinkUp(peer))
    return dialogue


def answer(spu: int, log: LogView = LOG, lac: int = 3, lac_term: int = 3, **more: object) -> LogEnd:
    """What a follower answers that has this log."""
    number, storage = spu, "abc"[spu]
    known = LogEnd(NEXT, number, f"boot {spu}", storage, log.last_term, log.leo, None, lac)
    more = {"lac_term": lac_term, "promised_boot": "boot", **more}
    return replace(known, **more)  # type: ignore[arg-type]


def begins(outputs: tuple[Output, ...]) -> bool:
    return AppendControl(NEXT) in outputs


def unfit_reason(dialogue: Dialogue) -> str | None:
    return dialogue.state.newest.unfit


def test_given_all_live_replicas_agree_then_it_begins_at_once() -> None:
    dialogue = reopened()
    assert not begins(dialogue.keep(Received(1, answer(1))))
    assert not dialogue.state.may_append
    assert begins(dialogue.keep(Received(2, answer(2))))
    assert dialogue.state.proven


def test_given_a_log_that_was_proven_since_the_start_then_an_election_costs_nothing() -> None:
    dialogue = Dialogue(idle())
    dialogue.keep(learned(2, NEXT))
    assert dialogue.keep(Elected(2, NEXT, (A, B, C), REPLICAS, 2)) == (AppendControl(NEXT),)


@pytest.mark.parametrize(
    ("said", "unclean", "old"),
    [
        pytest.param(
            answer(1, lac=5, lac_term=TERM), 0, False, id="given-the-same-record-then-fit"
        ),
        pytest.param(
            answer(1, LogView(0, 7, 7, LOG.history), 6, TERM),
            0,
            True,
            id="given-one-at-the-end-then-old",
        ),
        pytest.param(answer(1, lac=5, lac_term=3), 0, True, id="given-another-term-then-old"),
        pytest.param(answer(1, lac=-1, lac_term=0), 0, False, id="given-none-committed-then-fit"),
        pytest.param(
            answer(1, lac=9, lac_term=TERM, unfit="damage"),
            0,
            True,
            id="given-an-unfit-one-then-old",
        ),
        pytest.param(
            answer(1, LogView(0, 4, 4, (TermStart(3, 0),)), 5, 3, unfit="damage"),
            0,
            False,
            id="given-one-that-damage-took-from-the-other-then-fit",
        ),
        pytest.param(
            answer(1, LogView(2, 6, 6, (TermStart(TERM, 4),)), 1, 0),
            0,
            False,
            id="given-one-below-where-the-others-log-begins-then-fit",
        ),
        pytest.param(
            answer(1, lac=9, lac_term=TERM), NEXT, False, id="given-elected-uncleanly-then-fit"
        ),
        pytest.param(
            answer(1, LogView(0, 9, 9, (TermStart(NEXT, 0),)), 8, NEXT),
            NEXT,
            True,
            id="given-a-record-of-the-unclean-term-then-old",
        ),
        pytest.param(
            answer(1, LogView(0, 9, 9, (TermStart(3, 0),)), 8, 3),
            4 << 16,
            True,
            id="given-an-unclean-term-that-the-log-lacks-then-old",
        ),
        pytest.param(
            answer(1, LogView(0, 9, 9, (TermStart(3, 0),)), 8, 3),
            TERM,
            False,
            id="given-an-unclean-term-that-the-log-holds-then-fit",
        ),
    ],
)
def test_contradictions(said: LogEnd, unclean: int, old: bool) -> None:
    for proven in (False, True):
        dialogue = reopened(unclean=unclean)
        if proven:
            # It also counts when it is heard later.
            for spu in (1, 2):
                dialogue.keep(Received(spu, answer(spu)))
            assert dialogue.state.may_append
        outputs = dialogue.tell(Received(1, said))
        assert ((unfit_reason(dialogue) or "").startswith(OLD)) is old
        if old:
            # Durably, before it steps down.
            assert [type(output) for output in outputs] == [PersistHardState, SteppedDown]


@pytest.mark.parametrize(
    ("unclean", "old"),
    [
        pytest.param(6, False, id="given-an-unclean-term-that-the-log-has-forgotten-then-fit"),
        pytest.param(7, False, id="given-one-that-it-remembers-then-fit"),
        pytest.param(0, True, id="given-none-then-old"),
        pytest.param(5, True, id="given-that-of-the-records-then-old"),
    ],
)
def test_a_log_that_retention_has_shortened(unclean: int, *, old: bool) -> None:
    """The record of the unclean term was at 900, just like the first one that the other has."""
    terms = [make_term(0, number) for number in range(10)]
    history = (TermStart(terms[7], 901), TermStart(terms[8], 902))
    dialogue = Dialogue(
        recovered(0, "boot", HardState("a", terms[8]), LogView(902, 905, 905, history), 904)
    )
    dialogue.tell(LinkUp(1))
    dialogue.keep(replace(learned(2, terms[9], 0, A), unclean_term=terms[unclean], min_in_sync=1))
    dialogue.keep(Elected(2, terms[9], (A,), REPLICAS, 1))
    said = LogEnd(terms[9], 1, "boot 1", "b", terms[5], 1_000, None, 999, terms[5], "boot")
    dialogue.keep(Received(1, said))
    assert (unfit_reason(dialogue) is not None) is old


def test_given_a_term_promised_to_another_process_then_old() -> None:
    dialogue = reopened()
    dialogue.tell(Received(1, answer(1, promised_boot="another boot")))
    assert "promised term" in str(unfit_reason(dialogue))
    # The follower says so, and does not follow.
    follower = Dialogue(idle(1, "b"))
    follower.keep(learned(2, NEXT))
    follower.keep(Received(0, Attach(NEXT, 4, "one boot")))
    before = follower.state
    (said,) = follower.keep(Received(0, Attach(NEXT, 1, "another boot")))
    assert isinstance(said, Send)
    assert isinstance(said.message, LogEnd)
    assert (said.message.attach, said.message.promised_boot) == (1, "one boot")
    assert follower.state == before


def test_given_a_later_restart_of_its_own_term_then_old() -> None:
    dialogue = reopened()
    dialogue.tell(Received(1, Reject(NEXT, 1, NEXT + 1)))
    assert "of its own" in str(unfit_reason(dialogue))


def test_given_a_live_replica_with_a_longer_log_then_its_election_is_asked_for() -> None:
    dialogue = reopened()
    longer = LogView(0, 9, 9, LOG.history)
    dialogue.keep(Received(1, answer(1, longer)))
    (asked,) = dialogue.keep(Received(2, answer(2)))
    assert asked == RequestElection(NEXT, "SPU 1 is live, and its log is ahead of this one")
    assert unfit_reason(dialogue) is None
    assert dialogue.tell(Tick()) == ()
    dialogue.now_ms = AHEAD_MS - 1
    assert not begins(dialogue.keep(Tick()))
    # The SC cannot elect one that does not reach it.
    dialogue.now_ms = AHEAD_MS
    assert begins(dialogue.keep(Tick()))
    assert dialogue.state.proven


@pytest.mark.parametrize(
    "ahead",
    [
        pytest.param(1, id="of-a-replica-that-is-live"),
        pytest.param(2, id="of-one-that-may-be-live-by-now"),
    ],
)
def test_given_a_longer_log_and_no_word_of_the_sc_then_it_never_begins(ahead: int) -> None:
    dialogue = resumed()
    longer = LogView(0, 9, 9, LOG.history)
    for spu in (1, 2):
        log = longer if spu == ahead else LOG
        dialogue.keep(Received(spu, replace(answer(spu, log), term=TERM + 1)))
    # The SC may be away, and elect the other one when it is back.
    dialogue.now_ms = 10 * AHEAD_MS
    dialogue.keep(Tick())
    assert not dialogue.state.may_append
    assert not dialogue.state.proven


def test_given_a_longer_log_that_is_not_live_or_not_fit_then_it_begins() -> None:
    longer = LogView(0, 9, 9, LOG.history)
    not_live = reopened(A, B)
    not_live.keep(Received(2, answer(2, longer)))
    assert begins(not_live.keep(Received(1, answer(1))))
    unfit = reopened()
    unfit.keep(Received(2, answer(2, longer, unfit="damage")))
    assert begins(unfit.keep(Received(1, answer(1))))


def test_given_the_sc_has_not_spoken_then_all_replicas_must_answer_and_commits_need_them() -> None:
    dialogue = resumed()
    for spu in (1, 2):
        assert not dialogue.state.may_append
        said = replace(answer(spu), term=TERM + 1)
        dialogue.keep(Received(spu, said))
    assert dialogue.state.may_append
    assert dialogue.state.required == {A, B, C}
    dialogue.keep(learned(2, TERM, 0, A, B))
    assert dialogue.state.required == {A, B}


@pytest.mark.parametrize(
    ("version", "holders", "begins"),
    [
        pytest.param((0, 3), (0, 1, 2, 3), False, id="given-a-later-revision-then-all-of-it"),
        pytest.param((0, 3), (1, 3), False, id="given-a-move-away-then-it-waits-as-well"),
        pytest.param((1, 1), (0, 3), False, id="given-a-later-incarnation-then-all-of-it"),
        pytest.param((0, 3), (0, 1), True, id="given-a-later-revision-with-fewer-then-it-begins"),
        pytest.param((0, 2), (0, 3), True, id="given-no-later-revision-then-it-begins"),
        pytest.param((0, 0), (), True, id="given-an-earlier-version-then-it-begins"),
    ],
)
def test_given_the_sc_has_not_spoken_then_holders_that_others_know_of_count(
    version: tuple[int, int], holders: tuple[int, ...], *, begins: bool
) -> None:
    """The disk may be one of before a move: who is live now may not be among those it knows."""
    dialogue = resumed()
    known = {1: (version, holders), 2: ((0, 1), (0, 7))}
    for spu in (1, 2):
        told, ids = known[spu]
        said = replace(answer(spu), term=TERM + 1, version=told, holders=ids)
        dialogue.keep(Received(spu, said))
    assert dialogue.state.may_append == begins
    # The word of the SC is enough.
    dialogue.keep(learned(4, TERM, 0, A, B, C))
    assert dialogue.state.may_append


def test_given_it_began_without_the_sc_then_one_that_knows_of_a_later_move_does_not_count() -> None:
    dialogue = resumed()
    for peer in (1, 2):
        dialogue.keep(Received(peer, replace(answer(peer), term=TERM + 1)))
    assert dialogue.state.may_append
    dialogue.keep(LinkDown(2))
    dialogue.keep(LinkUp(2))
    later = replace(answer(2), term=TERM + 1, attach=3, version=(0, 3), holders=(0, 3, 4))
    assert dialogue.keep(Received(2, later)) == ()
    dialogue.keep(learned(4, TERM, 0, A, B, C))
    outputs = dialogue.keep(Received(2, later))
    assert any(isinstance(output, Send) and output.to == 2 for output in outputs)


def test_given_an_old_disk_that_knows_fewer_live_replicas_then_commits_never_need_fewer() -> None:
    """The SC may elect the one that this disk has forgotten. Once its word is there, that counts,
    also before it is durable."""
    dialogue = resumed()
    for peer in (1, 2):
        dialogue.keep(Received(peer, replace(answer(peer), term=TERM + 1)))
    assert dialogue.state.required == {A, B, C}
    (record,) = dialogue.tell(learned(3, TERM, 0, A, B, C))
    assert isinstance(record, PersistHardState)
    assert dialogue.state.required == {A, B, C}
    dialogue.tell(HardStatePersisted(record.hard_state))
    assert dialogue.state.required == {A, B, C}


@pytest.mark.parametrize(
    ("log", "lac", "proven"),
    [
        pytest.param(LOG, 5, True, id="given-all-that-was-committed-then-proven"),
        pytest.param(LOG, 6, False, id="given-less-than-was-committed-then-not"),
        pytest.param(
            LogView(0, 4, 4, (TermStart(3, 0),)),
            3,
            False,
            id="given-no-record-of-the-term-then-not",
        ),
    ],
)
def test_given_a_follower_that_comes_back_and_nothing_is_written(
    log: LogView, lac: int, proven: bool
) -> None:
    """The last live replica can lead even if it was started again while nobody wrote."""
    follower = Dialogue(recovered(1, "boot", HardState("b", TERM), log, 3))
    follower.keep(learned())
    follower.keep(Received(0, Attach(TERM, 1, "leader")))
    follower.keep(Received(0, CommitUpdate(TERM, 1, "boot", lac, 0)))
    assert follower.state.proven is proven


def test_given_a_follower_that_catches_up_then_it_is_proven_by_the_last_committed_record() -> None:
    follower = Dialogue(recovered(1, "boot", HardState("b", TERM), LOG, 3))
    follower.keep(learned())
    follower.keep(Received(0, Attach(TERM, 1, "leader")))
    for base, proven in ((6, False), (7, True)):
        batch = Batch(base, base + 1, TERM, b"1")
        follower.keep(Received(0, Append(TERM, 1, "boot", (batch,), 7, 0)))
        assert follower.state.proven is proven


def test_given_a_connected_replica_that_is_silent_then_it_gets_a_second() -> None:
    dialogue = reopened(A, B)
    assert not begins(dialogue.keep(Received(1, answer(1))))
    dialogue.now_ms = PROOF_MS - 1
    assert not begins(dialogue.keep(Tick()))
    dialogue.now_ms = PROOF_MS
    assert begins(dialogue.keep(Tick()))


def test_given_a_live_replica_that_is_silent_then_after_a_while_another_leader_is_asked_for() -> (
    None
):
    dialogue = reopened()
    dialogue.keep(Received(1, answer(1)))
    dialogue.now_ms = REPLICA_LAG_TIME_MS - 1
    assert not [o for o in dialogue.keep(Tick()) if isinstance(o, RequestElection)]
    dialogue.now_ms = REPLICA_LAG_TIME_MS
    (asked,) = (o for o in dialogue.keep(Tick()) if isinstance(o, RequestElection))
    assert asked.reason == "it must compare its log with that of SPU 2 first"


def test_given_a_live_follower_without_what_is_committed_then_it_is_told_and_is_unfit() -> None:
    leader = reopened()
    for spu in (1, 2):
        leader.keep(Received(spu, answer(spu)))
    leader.state = replace(leader.state, lac=5)
    short = LogView(0, 5, 5, LOG.history)
    (told,) = leader.keep(LinkUp(1))
    assert isinstance(told, Send)
    assert told.message == Attach(NEXT, 3, "boot")
    (said,) = leader.keep(Received(1, replace(answer(1, short), attach=3)))
    assert said == Send(1, Outdated(NEXT, 3, "boot 1", 5))

    follower = Dialogue(ReplicaState(1, "boot 1", HardState("b", TERM), short, 3))
    follower.keep(learned(2, NEXT))
    follower.keep(Received(0, Attach(NEXT, 3, "boot")))
    follower.keep(Received(0, Outdated(NEXT, 3, "boot 1", 5)))
    assert str(unfit_reason(follower)).startswith(OLD)


def test_given_a_live_follower_that_ends_before_the_log_begins_then_it_keeps_its_seat() -> None:
    """It first becomes unfit and leaves the live replicas: only then is its log discarded."""
    leader = reopened(log=replace(LOG, start=5))
    for spu in (1, 2):
        leader.keep(Received(spu, answer(spu)))
    leader.state = replace(leader.state, lac=5)
    leader.keep(LinkUp(1))
    short = answer(1, LogView(0, 3, 3, (TermStart(3, 0),)), lac=2)
    (said,) = leader.keep(Received(1, replace(short, attach=3)))
    assert said == Send(1, Outdated(NEXT, 3, "boot 1", 5))


def test_given_a_witness_that_is_behind_then_its_disk_is_not_old() -> None:
    """A replica that is not live may lack what is committed, also where the SC has not spoken."""
    dialogue = resumed()
    dialogue.keep(Received(1, replace(answer(1), term=TERM + 1)))
    behind = answer(2, LogView(0, 5, 5, LOG.history))
    outputs = dialogue.keep(Received(2, replace(behind, term=TERM + 1)))
    assert dialogue.state.witnesses == {B, C}
    sent = [output.message for output in outputs if isinstance(output, Send) and output.to == 2]
    assert [type(message) for message in sent] == [CommitUpdate]
    assert Push in {type(output) for output in outputs}
