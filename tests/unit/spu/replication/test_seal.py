"""A log is sealed: who appends the record, when that counts, and what a cut makes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spu.replication.events import (
    AppendBatches,
    AppendControl,
    Appended,
    AppendSeal,
    Committed,
    Elected,
    Flushed,
    LinkUp,
    Output,
    PartitionUpdated,
    Push,
    Pushed,
    Resume,
    TruncateLog,
)
from spu.replication.history import TermStart
from spu.replication.messages import Append, AppendAck, Attach, Batch, CommitUpdate, Truncate
from spu.replication.state import HardState, LogView, recovered
from tests.unit.spu.replication.dialogue import (
    NEXT,
    REPLICAS,
    TERM,
    A,
    B,
    C,
    Dialogue,
    append,
    attached,
    idle,
    learned,
)

SEAL = Batch(1, 2, TERM, b"seal", seals=True)


def sealed(update: PartitionUpdated) -> PartitionUpdated:
    return replace(update, sealed=True)


def alone(*, to_seal: bool) -> Dialogue:
    """SPU 0 leads without followers; what it has is not synced."""
    dialogue = Dialogue(idle())
    told = replace(learned(1, TERM, 0, A), min_in_sync=1, sealed=to_seal)
    dialogue.keep(told)
    dialogue.keep(Elected(1, TERM, (A,), REPLICAS, 1))
    return dialogue


def again(revision: int, **what: object) -> PartitionUpdated:
    told = replace(learned(revision, TERM, 0, A), min_in_sync=1)
    return replace(told, **what)  # type: ignore[arg-type]


def seals(outputs: tuple[Output, ...]) -> int:
    return sum(isinstance(output, AppendSeal) for output in outputs)


def test_given_a_leader_that_does_not_serve_yet_then_it_seals_once_it_does() -> None:
    dialogue = alone(to_seal=True)
    assert dialogue.state.log == LogView(0, 1, 0, (TermStart(TERM, 0),))
    outputs = dialogue.tell(Flushed(1))
    assert outputs == (Committed(0), AppendSeal(TERM))
    assert dialogue.state.log == LogView(0, 2, 1, (TermStart(TERM, 0),), sealed=1)
    assert dialogue.state.sealed_end is None, "it is not committed"
    assert dialogue.tell(Flushed(2)) == (Committed(1),)
    assert dialogue.state.sealed_end == 1


def test_given_a_leader_that_serves_then_it_seals_once_it_is_told() -> None:
    dialogue = alone(to_seal=False)
    assert seals(dialogue.tell(Flushed(1))) == 0
    dialogue.tell(Appended(5))
    assert seals(dialogue.keep(again(2, sealed=True))) == 1
    assert dialogue.state.log.sealed == 5
    for event in (again(3, sealed=True), Flushed(6)):
        assert seals(dialogue.keep(event)) == 0, "once"


def test_given_the_same_revision_then_it_is_told_all_the_same() -> None:
    """An order to lead may come before the rest of its revision."""
    dialogue = Dialogue(idle())
    dialogue.keep(Elected(1, TERM, (A,), REPLICAS, 1))
    dialogue.tell(Flushed(1))
    assert seals(dialogue.keep(again(1, sealed=True))) == 1


def test_given_an_older_revision_then_nothing() -> None:
    dialogue = alone(to_seal=False)
    dialogue.tell(Flushed(1))
    assert dialogue.keep(again(0, sealed=True)) == ()


def test_given_a_clients_record_behind_the_seal_then_a_bug() -> None:
    dialogue = alone(to_seal=True)
    dialogue.tell(Flushed(1))
    with pytest.raises(AssertionError, match="no client's record follows a seal"):
        dialogue.tell(Appended(9))


def test_given_followers_then_the_seal_counts_once_all_hold_it() -> None:
    dialogue = Dialogue(idle())
    for peer in (1, 2):
        dialogue.tell(LinkUp(peer))
    dialogue.keep(sealed(learned()))
    dialogue.keep(Elected(1, TERM, (A, B, C), REPLICAS, 2))
    for spu in (1, 2):
        attached(dialogue, spu, spu)
        dialogue.tell(Pushed(spu, spu, 1))
    dialogue.tell(Flushed(1))
    dialogue.hear(1, AppendAck(TERM, 1, 1, 1))
    outputs = dialogue.hear(2, AppendAck(TERM, 2, 1, 1))
    # The record is there before it is pushed.
    assert [type(output) for output in outputs if not isinstance(output, Committed)][-3:] == [
        AppendSeal,
        Push,
        Push,
    ]
    dialogue.tell(Flushed(2))
    dialogue.hear(1, AppendAck(TERM, 1, 2, 2))
    assert dialogue.state.sealed_end is None
    dialogue.hear(2, AppendAck(TERM, 2, 2, 2))
    assert dialogue.state.sealed_end == 1


def following() -> Dialogue:
    """SPU 1 follows SPU 0; its log ends with a seal that it does not know to be committed."""
    dialogue = Dialogue(idle(1, "b"))
    dialogue.keep(learned(1, TERM, 0, A, B, C))
    dialogue.keep_heard(0, Attach(TERM, 1, "leader"))
    dialogue.hear(0, append(Batch(0, 1, TERM, b"1"), lac=0))
    dialogue.hear(0, append(SEAL, lac=0))
    return dialogue


def test_given_a_follower_then_it_shows_the_seal_only_below_its_lac() -> None:
    dialogue = following()
    assert (dialogue.state.log.sealed, dialogue.state.sealed_end) == (1, None)
    dialogue.hear(0, CommitUpdate(TERM, 1, "boot", 1, 0))
    assert dialogue.state.sealed_end == 1
    # Control records of later leaders may follow.
    behind = Append(TERM, 1, "boot", (Batch(2, 3, TERM, b"term"),), 2, 0)
    assert dialogue.hear(0, behind)[0] == AppendBatches((Batch(2, 3, TERM, b"term"),))
    assert dialogue.state.sealed_end == 1


def test_given_a_cut_then_the_seal_is_gone_with_the_rest() -> None:
    dialogue = following()
    dialogue.keep_heard(2, Attach(NEXT, 1, "other"))
    outputs = dialogue.hear(2, Truncate(NEXT, 1, "boot", TERM, 1))
    assert outputs == (TruncateLog(1),)
    assert dialogue.state.log.sealed is None


@pytest.mark.parametrize(
    ("leo", "expected"), [(1, None), (2, 1), (3, 1)], ids=["below", "at-it", "behind"]
)
def test_a_cut_log(leo: int, expected: int | None) -> None:
    assert LogView(0, 3, 3, (TermStart(TERM, 0),), 1).cut_to(leo).sealed == expected


def test_given_another_leader_of_a_sealed_log_then_its_control_record_follows_and_no_seal() -> None:
    log = LogView(0, 2, 2, (TermStart(TERM, 0),), sealed=1)
    dialogue = Dialogue(idle(log=log, lac=1))
    told = replace(learned(2, NEXT, 0, A), min_in_sync=1, sealed=True)
    dialogue.keep(told)
    assert dialogue.keep(Elected(2, NEXT, (A,), REPLICAS, 1)) == (AppendControl(NEXT),)
    assert seals(dialogue.tell(Flushed(3))) == 0
    assert (dialogue.state.log.sealed, dialogue.state.sealed_end) == (1, 1)


@pytest.mark.parametrize("still", [False, True], ids=["given-not-any-more", "given-it-still-is"])
def test_given_a_restart_then_records_wait_by_the_disk_and_only_the_sc_has_it_sealed(
    *, still: bool
) -> None:
    """The KV may have been restored meanwhile, and a seal is for good."""
    hard_state = HardState("a", TERM, 1, (0,), (A,), 1, leading=True)
    view = LogView(0, 4, 4, (TermStart(TERM, 0),))
    dialogue = Dialogue(recovered(0, "boot", hard_state, view, 3, to_seal=True))
    assert seals(dialogue.keep(Resume())) == 0
    assert dialogue.state.is_serving
    assert not dialogue.state.answers_producers
    said = replace(again(1, sealed=still), replicas=(0,))
    assert seals(dialogue.keep(said)) == still
    assert dialogue.state.answers_producers
