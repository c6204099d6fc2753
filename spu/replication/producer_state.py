"""Duplicate detection: what a partition remembers of each producer.

A producer numbers its batches per partition and epoch, from 0 on. The leader remembers the last
five batches of each producer. If one of them is sent again, it is a duplicate and gets the offset
that it got the first time. The successor of the last batch is new. Any other sequence means that an
earlier batch is missing, or that the duplicate is too old to be answered. The table follows from
the log alone: recovery rebuilds it, so every replica of a log has the same one. Pure; bounded, as
it forgets the producers that were silent for longest.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from schemas.errors import FencedError, InvalidRequestError, NotReadyError
from schemas.wire.batch import MAX_TRANSACTION_ID, NO_TRANSACTION, BatchHeader

REMEMBERED_BATCHES: Final = 5
MAX_PRODUCERS: Final = 2_000
_SEQUENCES: Final = 1 << 32
_NO_PRODUCER: Final = 0

#: Producer id, epoch, and (sequence, base offset, next offset) of its last batches.
ProducerDump = tuple[tuple[int, int, tuple[tuple[int, int, int], ...]], ...]


class ProducerSnapshot(NamedTuple):
    """A producer table as it was when the log ended at ``leo``."""

    leo: int
    dump: ProducerDump


#: The table of an empty log.
NO_PRODUCERS: Final = ProducerSnapshot(0, ())


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The batch is in the log already."""

    base_offset: int
    next_offset: int


class _Producer:
    __slots__ = ("batches", "epoch")

    def __init__(self, epoch: int, batches: Iterable[tuple[int, int, int]] = ()) -> None:
        self.epoch = epoch
        self.batches: deque[tuple[int, int, int]] = deque(batches, REMEMBERED_BATCHES)


class ProducerTable:
    """The producers of one partition, the latest to append last."""

    def __init__(self, dump: ProducerDump = ()) -> None:
        self._producers: OrderedDict[int, _Producer] = OrderedDict(
            (producer_id, _Producer(epoch, batches)) for producer_id, epoch, batches in dump
        )

    def check(self, header: BatchHeader) -> Duplicate | None:
        """None if this batch is new, or the `Duplicate` that it is.

        Raises FencedError for an epoch that another instance of the producer has replaced,
        NotReadyError if an earlier batch has not arrived (it may still arrive: send both again in
        order; the details name its sequence, and the offset after the producer's last batch in the
        log), InvalidRequestError for a duplicate whose offset is forgotten. A new epoch begins at
        0. An unknown producer may begin anywhere: retention may have deleted its batches.
        """
        known = self._producers.get(header.producer_id)
        if known is None or not known.batches:
            return None
        if header.producer_epoch < known.epoch:
            raise FencedError(
                f"producer {header.producer_id:#x} has epoch {known.epoch} here; epoch"
                f" {header.producer_epoch} was replaced and must stop"
            )
        if header.producer_epoch > known.epoch:
            if header.sequence != 0:
                raise _missing(header, 0, known)
            return None
        expected = (known.batches[-1][0] + 1) % _SEQUENCES
        if header.sequence == expected:
            return None
        for sequence, base_offset, next_offset in known.batches:
            if sequence == header.sequence:
                return Duplicate(base_offset, next_offset)
        # Half of the circle of sequences lies ahead, the other half behind.
        if (header.sequence - expected) % _SEQUENCES < _SEQUENCES // 2:
            raise _missing(header, expected, known)
        raise InvalidRequestError(
            f"sequence {header.sequence} of producer {header.producer_id:#x} was appended long"
            f" ago; only the last {REMEMBERED_BATCHES} batches can be recognised"
        )

    def record(self, header: BatchHeader, base_offset: int) -> None:
        """Remember an appended batch. Batches without a producer id are ignored."""
        producer_id = header.producer_id
        if not producer_id:
            return
        known = self._producers.get(producer_id)
        if known is None or known.epoch != header.producer_epoch:
            known = self._producers[producer_id] = _Producer(header.producer_epoch)
            if len(self._producers) > MAX_PRODUCERS:
                self._producers.popitem(last=False)
        self._producers.move_to_end(producer_id)
        known.batches.append((header.sequence, base_offset, base_offset + header.record_count))

    def dump_before(self, offset: int) -> ProducerDump:
        """The part of the table that is about batches below ``offset``. Together with the records
        from there on, it gives the whole table again."""
        found = []
        for producer_id, known in self._producers.items():
            batches = tuple(batch for batch in known.batches if batch[2] <= offset)
            if batches:
                found.append((producer_id, known.epoch, batches))
        return tuple(found)

    def dump(self) -> ProducerDump:
        """The table as plain data, the longest silent producer first."""
        return tuple(
            (producer_id, known.epoch, tuple(known.batches))
            for producer_id, known in self._producers.items()
        )


def dump_from(rows: Iterable[Any]) -> ProducerDump:
    """A dump from its JSON form. Raises ValueError, TypeError."""
    return tuple(
        (producer_id, epoch, tuple((a, b, c) for a, b, c in batches))
        for producer_id, epoch, batches in rows
    )


def with_last_id(dump: ProducerDump, last_id: int) -> ProducerDump:
    """A dump that also holds the last transaction id of its log, if there is one.

    The id is in a row of producer 0, an id that no producer has: SPUs of earlier versions take the
    row for a silent producer, keep it, and pass it on.
    """
    if last_id == NO_TRANSACTION:
        return dump
    return (*dump, (_NO_PRODUCER, 0, ((last_id, 0, 0),)))


def split_last_id(dump: ProducerDump) -> tuple[ProducerDump, int]:
    """The reverse of `with_last_id`: the producers alone, and the id or `NO_TRANSACTION`."""
    ids = [
        batch[0]
        for producer_id, _, batches in dump
        if producer_id == _NO_PRODUCER
        for batch in batches
    ]
    alone = tuple(row for row in dump if row[0] != _NO_PRODUCER)
    return alone, min(max(ids, default=NO_TRANSACTION), MAX_TRANSACTION_ID)


def newest_snapshot(snapshots: Iterable[ProducerSnapshot], leo: int) -> ProducerSnapshot:
    """The snapshot with the highest end that is not above ``leo``, or `NO_PRODUCERS`."""
    return max(
        (snapshot for snapshot in snapshots if snapshot.leo <= leo),
        key=lambda snapshot: snapshot.leo,
        default=NO_PRODUCERS,
    )


def _missing(header: BatchHeader, expected: int, known: _Producer) -> NotReadyError:
    """The error of a batch that comes before the one of this sequence."""
    return NotReadyError(
        f"sequence {header.sequence} of producer {header.producer_id:#x}, epoch"
        f" {header.producer_epoch}, arrived before {expected}; send the batches from {expected} on"
        f" again, in order",
        expectedSequence=expected,
        knownEnd=known.batches[-1][2],
    )
