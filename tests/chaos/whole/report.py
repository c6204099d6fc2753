"""What a run says while it goes on, and in the end. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.chaos.whole.checker import Broken, Violation, check
from tests.chaos.whole.daemons import wrong_ends
from tests.chaos.whole.history import STEADY, History, Place
from tests.chaos.whole.plan import ORDERS, Kind
from tests.chaos.whole.progress import (
    PATIENCE_S,
    READ_PATIENCE_S,
    Calm,
    Silence,
    longest_silence,
)

SHOWN: Final = 20
"""How many violations are shown one by one."""
SOME_MOVE: Final = 4
"""Of so many drains, at least one moves a replica before it is cancelled."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came out. ``unread`` is that of one reader: none is covered by another one. ``problems``
    are failures of the run itself, such as replicas that differ."""

    history: History
    violations: Sequence[Violation]
    unacknowledged: Silence | None
    unread: Silence | None
    problems: Sequence[str]

    @property
    def is_good(self) -> bool:
        """Whether all promises were kept, and progress came back in time, for readers too."""
        came_back = _is_within(self.unacknowledged, PATIENCE_S)
        came_back &= _is_within(self.unread, READ_PATIENCE_S)
        return came_back and not self.violations and not self.problems


def judge(history: History, problems: Sequence[str] = ()) -> Verdict:
    """Check everything that was written down."""
    calms = [Calm(begin_s, end_s) for begin_s, end_s in history.calms]
    acknowledged: dict[str, list[float]] = {_name(place): [] for place in history.log}
    for sender in history.senders:
        for told in sender.acknowledged:
            acknowledged.setdefault(_name(told.place), []).append(told.at_s)
    for times in acknowledged.values():
        times.sort()
    # Where a consumer is opened again and again, that it is takes time of its own.
    read = {
        f"{reader.name} of {_name(place)}": reader.times[place]
        for reader in history.readers
        for place in history.log
        if reader.way in STEADY and reader.topic == place[0]
    }
    return Verdict(
        history,
        check(history),
        longest_silence(calms, acknowledged),
        longest_silence(calms, read),
        [*problems, *_of_faults(history), *_of_moves(history), *wrong_ends(history)],
    )


def _is_within(silence: Silence | None, patience_s: float) -> bool:
    return silence is None or silence.took_s <= patience_s


def _of_faults(history: History) -> list[str]:
    """Kinds of faults that were to come, could have come, and never did. Orders may fail."""
    excused = {kind.value for kind in ORDERS} | history.cannot
    return [f"never in force: {kind}" for kind in never_in_force(history) if kind not in excused]


def _of_moves(history: History) -> list[str]:
    drains = sum(fault.in_force and fault.kind == Kind.DRAIN.value for fault in history.faults)
    if drains < SOME_MOVE or moved(history):
        return []
    return [f"no replica moved, although {drains} drains were in force"]


def moved(history: History) -> int:
    """How many replicas were, after a storm, at an SPU where they were not before it."""
    last: dict[str, list[int]] = {}
    count = 0
    for placed in history.placed:
        for name, replicas in placed.items():
            count += len({*replicas} - {*last.get(name, replicas)})
        last |= placed
    return count


def never_in_force(history: History) -> list[str]:
    """Kinds of faults that were drawn and never in force."""
    drawn = {fault.kind for fault in history.faults}
    return sorted(drawn - {fault.kind for fault in history.faults if fault.in_force})


def progress_line(at_s: float, acknowledged: int, per_second: float, active: Sequence[str]) -> str:
    """One line while the run goes on."""
    now = ", ".join(active) or "calm"
    return f"{at_s:6.0f} s  {acknowledged:8,} acknowledged  {per_second:5.0f}/s  {now}"


def summary(verdict: Verdict, seed: int, minutes: float) -> str:
    """The end of the run, as text of several lines."""
    history = verdict.history
    faults = Counter(fault.kind for fault in history.faults if fault.in_force)
    missed = Counter(fault.kind for fault in history.faults if not fault.in_force)
    broken = Counter(violation.broken for violation in verdict.violations)
    acknowledged = sum(len(sender.acknowledged) for sender in history.senders)
    read = sum(
        len(rows)
        for reader in history.readers
        for session in reader.sessions
        for rows in session.rows.values()
    )
    failed = sum(len(sender.failed) for sender in history.senders)
    there = sum(map(len, history.log.values()))
    lost, twice, disordered = (broken[b] for b in (Broken.LOST, Broken.TWICE, Broken.ORDER))
    ended = Counter(f"{one.daemon} with {one.code}" for one in history.ended)
    never = ", ".join(never_in_force(history)) or "none"
    silent, unread = _said(verdict.unacknowledged), _said(verdict.unread)
    lines = [
        f"seed {seed}, {minutes:g} minutes, {len(history.calms)} storms",
        f"faults: {_counted(faults)}",
        f"faults without force: {_counted(missed)}; never in force: {never}",
        f"replicas that moved: {moved(history)}",
        f"acknowledged {acknowledged:,}, failed {failed:,}, in the log {there:,}, read {read:,}",
        f"lost {lost}, twice {twice}, out of order {disordered}, all {len(verdict.violations)}",
        f"longest without an acknowledgement after healing: {silent}, at most {PATIENCE_S:g} s",
        f"longest without a read after healing: {unread}, at most {READ_PATIENCE_S:g} s",
        f"errors of readers: {_counted(_errors(history))}",
        f"daemons that ended by themselves: {_counted(ended)}",
        *verdict.problems,
        *map(str, verdict.violations[:SHOWN]),
        "good" if verdict.is_good else "FAILED",
    ]
    return "\n".join(lines)


def _errors(history: History) -> Counter[str]:
    return Counter(error.partition(":")[0] for reader in history.readers for error in reader.errors)


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {what}" for what, count in sorted(counts.items())) or "none"


def _said(silence: Silence | None) -> str:
    if silence is None:
        return "never calm"
    return f"{silence.took_s:.1f} s ({silence.where})"


def _name(place: Place) -> str:
    return f"{place[0]}-{place[1]}"
