"""Whether a replica's disk is old: what a leader proves before it appends anything.

A disk goes back in time if somebody puts a copy of it back, or restores a virtual machine. The log
on it is whole, but lacks records that were committed since. A leader with such a log would order
replicas that hold them to discard them. So a replica is unproven from each opening of its log until
it holds the first record of a leader that it follows and all that this leader says was committed,
or has passed this test as a leader:

- it knows its revision from the SC since the opening, and every live replica has answered, or every
  replica has answered, and the latest revision that any of them knows names no SPU that this disk
  does not know (`unknown_holders`: then only the SC can help); other replicas that are connected
  get `PROOF_MS`;
- no answer contradicts its log (`contradiction`), and no fit live replica has a longer one, or the
  SC could not elect that one for `AHEAD_MS`. Until the SC has spoken, every replica may be live.

A contradiction counts whenever it is heard. The replica is then unfit: its disk is old. A last add
confirmed that an unclean election took away contradicts nothing (`_is_retracted`).

Neighbours: `spu.replication.unproven_leader`, `spu.replication.leader` and
`spu.replication.follower`, which act on this. Pure.
"""

from __future__ import annotations

from schemas.ids import election_term, format_term
from spu.replication.history import History, last_term, term_at
from spu.replication.messages import LogEnd
from spu.replication.state import OLD, PROOF_MS, Leading, Member, ReplicaState


def contradiction(state: ReplicaState, leading: Leading, sender: int, answer: LogEnd) -> str | None:
    """Why the answer of SPU ``sender`` shows that this leader's disk is old; None if it does
    not."""
    if answer.promised_boot not in ("", state.boot):
        return (
            f"{OLD}: SPU {sender} has promised term {format_term(leading.term)} to an earlier"
            " process of this SPU, which this disk knows nothing of"
        )
    lac, log = answer.lac, state.log
    if lac is None or lac < log.start:
        return None
    # Damage, or the log's beginning, may have taken the follower's own record away, and its term.
    is_known = lac < answer.leo and answer.lac_term != 0
    if lac < log.leo and (not is_known or term_at(log.history, lac) == answer.lac_term):
        return None
    unclean = state.newest.unclean_term
    if _is_retracted(answer.last_term, unclean, log.history, leading.term):
        return None
    return (
        f"{OLD}: SPU {sender} knows that offset {lac} of term {format_term(answer.lac_term)} was"
        f" committed, and this log, which ends at {log.leo}, does not hold that record"
    )


def may_be_taken_away(state: ReplicaState, answer: LogEnd) -> bool:
    """Whether an unclean election may have taken away what the replica with this answer knows to be
    committed: this log does not hold the last such record, or begins too late to say so."""
    lac = answer.lac
    if lac is None or lac < 0 or not answer.last_term < state.newest.unclean_term:
        return False
    is_known = lac < answer.leo and answer.lac_term != 0
    # Above the end of this log, this is a term as late as that election.
    return not (is_known and term_at(state.log.history, lac) == answer.lac_term)


def _is_retracted(theirs: int, unclean_term: int, history: History, term: int) -> bool:
    """Whether an unclean election may have taken away what a replica whose log ends in term
    ``theirs`` knows to be committed, if a leader of ``term`` with this ``history`` says so.

    The leader's log descends from that election if it holds a record of that term or a later one:
    retention may have taken the former."""
    if not theirs < unclean_term:
        return False
    return last_term(history) >= unclean_term or election_term(term) == unclean_term


def awaited(state: ReplicaState, leading: Leading, now_ms: int) -> str | None:
    """What a leader that must prove its log still waits for, in words; None if it has it all."""
    answered = {p.spu for p in leading.followers if p.answer is not None} | {state.spu}
    replicas = {state.spu, *state.hard_state.replicas} | unknown_holders(state, leading)
    live = {member.spu for member in state.hard_state.required}
    if not replicas <= answered and not (state.confirmed and live <= answered):
        missing = sorted((live if state.confirmed else replicas) - answered)
        names = ", ".join(f"SPU {spu}" for spu in missing)
        return f"it must compare its log with that of {names} first"
    if now_ms - leading.began_ms < PROOF_MS and (replicas & set(state.links)) - answered:
        return "it gives other replicas time to answer"
    return None


def unknown_holders(state: ReplicaState, leading: Leading) -> set[int]:
    """SPUs that hold the partition by the latest revision that another replica knows, and not by
    what this one knows; none once the SC has spoken. The disk may be one of before a move."""
    answers = [p.answer for p in leading.followers if p.answer is not None]
    latest = max(answers, key=lambda answer: answer.version, default=None)
    if state.confirmed or latest is None or latest.version <= state.newest.version:
        return set()
    return set(latest.holders) - {state.spu, *state.hard_state.replicas}


def ahead(state: ReplicaState, leading: Leading) -> int | None:
    """A fit live replica whose log is ahead of this one's; None if there is none.

    Before the SC has spoken, any replica may be live: the set that this disk knows may be an older
    one.
    """
    mine, best = (state.log.last_term, state.log.leo), None
    for progress in leading.followers:
        answer = progress.answer
        if answer is None or answer.unfit is not None:
            continue
        live = Member(progress.spu, answer.storage) in state.hard_state.required
        if (live or not state.confirmed) and (answer.last_term, answer.leo) > mine:
            mine, best = (answer.last_term, answer.leo), progress.spu
    return best
