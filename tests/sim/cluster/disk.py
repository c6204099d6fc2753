"""What an SPU's disk has of one replica, the page cache included, and what a crash leaves of it."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field, replace
from random import Random

from schemas.wire.batch import BatchHeader
from spu.replication.history import History, extended
from spu.replication.messages import Batch
from spu.replication.producer_state import ProducerDump, ProducerTable
from spu.replication.state import HardState, LogView

#: What tells a control record from others.
CONTROL = b"control"


@dataclass(slots=True)
class ReplicaDisk:
    """Batches without a gap from ``start`` on.

    All below the offset ``synced`` survives a loss of power. ``lac`` is the last add confirmed that
    was persisted. ``first`` is how many batches of the partition come before the first one here.
    ``before_term`` is the term of the record before ``start``, ``settled`` are the producers there.
    ``damage`` is what every recovery finds wrong until the log is replaced; ``broken`` means that
    an fsync failed: what came after it is not read back. ``old`` means that a copy was put back in
    its place, and that it lacks records since: below ``held``, all was durable there before, and
    may have been acknowledged.
    """

    hard_state: HardState
    batches: list[Batch] = field(default_factory=list)
    bases: list[int] = field(default_factory=list)
    start: int = 0
    first: int = 0
    before_term: int = 0
    synced: int = 0
    lac: int = -1
    settled: ProducerDump = ()
    damage: str | None = None
    broken: bool = False
    old: bool = False
    held: int = 0

    @property
    def leo(self) -> int:
        return self.batches[-1].end if self.batches else self.start

    @property
    def last_term(self) -> int:
        """The term of the last batch, also of one that was dropped."""
        return self.batches[-1].term if self.batches else self.before_term

    def append(self, batch: Batch) -> None:
        self.batches.append(batch)
        self.bases.append(batch.base)

    def read(self, start: int, most: int) -> tuple[Batch, ...]:
        """Up to ``most`` batches from the one that begins at ``start``."""
        at = bisect_left(self.bases, start)
        return tuple(self.batches[at : at + most])

    def cut(self, leo: int) -> None:
        """Remove everything from ``leo`` on, as durably as the rest."""
        at = bisect_left(self.bases, leo)
        del self.batches[at:], self.bases[at:]
        self.synced = min(self.synced, leo)

    def drop(self, start: int, headers: dict[bytes, BatchHeader]) -> None:
        """Let the log begin at ``start``, the beginning of a batch or the log's end."""
        at = bisect_left(self.bases, start)
        if not at:
            return
        table = ProducerTable(self.settled)
        for batch in self.batches[:at]:
            note(table, batch, headers)
        self.settled = table.dump()
        self.before_term = self.batches[at - 1].term
        self.first += at
        self.start = start
        self.synced = max(self.synced, start)
        del self.batches[:at], self.bases[:at]

    def begin_anew(self, start: int, last_term: int, first: int, known: ProducerDump) -> None:
        """An empty log in the place of this one; ``known`` are the producers before it."""
        self.batches.clear()
        self.bases.clear()
        self.start = self.synced = start
        self.first, self.before_term, self.lac = first, last_term, start - 1
        self.settled, self.damage, self.broken = known, None, False
        self.old, self.held = False, 0

    def copied(self) -> ReplicaDisk:
        """A copy of what is durable, as somebody makes it of files."""
        kept = bisect_left(self.bases, self.synced)
        copy = replace(self, batches=self.batches[:kept], bases=self.bases[:kept], broken=False)
        copy.synced = copy.leo
        return copy

    def lose_power(self, chance: Random) -> bool:
        """Lose any suffix of what is not synced; gives whether something was lost."""
        safe = bisect_left(self.bases, self.synced)
        kept = safe if self.broken else chance.randint(safe, len(self.batches))
        lost = kept < len(self.batches)
        del self.batches[kept:], self.bases[kept:]
        return lost

    def tear(self) -> bool:
        """Lose the last batch, if it was not synced; gives whether it was lost."""
        if not self.batches or self.batches[-1].base < self.synced:
            return False
        del self.batches[-1], self.bases[-1]
        return True

    def rot(self, chance: Random) -> bool:
        """Damage below what is durable, which the next recovery finds: it keeps what is before."""
        if not self.batches or self.damage is not None:
            return False
        kept = chance.randrange(len(self.batches))
        del self.batches[kept:], self.bases[kept:]
        self.synced = min(self.synced, self.leo)
        self.damage = f"damage at {self.leo}"
        return True

    def view(self) -> LogView:
        """The log as recovery finds it."""
        history: History = ()
        if self.start and self.before_term:
            history = extended((), self.before_term, self.start - 1)
        for batch in self.batches:
            if not history or history[-1].term != batch.term:
                history = extended(history, batch.term, batch.base)
        sealed = next((batch.base for batch in self.batches if batch.seals), None)
        return LogView(self.start, self.leo, self.leo, history, sealed)

    def producers(self, headers: dict[bytes, BatchHeader]) -> ProducerTable:
        """Producers as they follow from the log."""
        table = ProducerTable(self.settled)
        for batch in self.batches:
            note(table, batch, headers)
        return table


def note(table: ProducerTable, batch: Batch, headers: dict[bytes, BatchHeader]) -> None:
    """Remember the producer of a batch."""
    if batch.data != CONTROL:
        table.record(headers[bytes(batch.data)], batch.base)


def settle(disk: ReplicaDisk) -> None:
    """Recovery makes durable what it keeps."""
    disk.synced = disk.leo


def new_storage(number: int, lost: str | None = None) -> str:
    """A storage id that was never used, also where a disk with another one was ``lost``."""
    return f"s{number}"
