"""A log does what a list of batches does, whatever is done to it and whenever it crashes."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from schemas.wire.batch import NO_TRANSACTION, BatchHeader, read_header, set_offset_and_term
from spu.replication.history import History, TermStart, extended, forgotten
from spu.replication.producer_state import ProducerTable, with_last_id
from tests.laws import examples
from tests.unit.spu.builders import NOW_US, OpenLog, batch_of, new_log_directory, open_log
from tests.unit.spu.builders import settings_of as log_settings

SMALL = log_settings(segment=1 << 10)

#: Records, bytes of payload, producer, by how much the term rises, and the transaction id: None, or
#: by how much it rises to the first one and from there to the last one.
Wish = tuple[int, int, int, int, tuple[int, int] | None]
a_batch = st.tuples(
    st.integers(1, 5),
    st.integers(0, 300),
    st.sampled_from([0, 7, 8]),
    st.sampled_from([0, 0, 0, 1]),
    st.none() | st.tuples(st.integers(0, 2), st.integers(0, 2)),
)


@dataclass
class Model:
    """The log as a list. ``origin`` and ``before`` are where it began, and after what."""

    origin: int = 0
    before: History = ()
    batches: list[bytes] = field(default_factory=list)
    start: int = 0
    wanted: int = 0
    durable: int = 0
    lac: int = -1
    #: Batches below are unknown to duplicate detection.
    known_from: int = 0
    #: The last transaction id before where it began.
    id_before: int = NO_TRANSACTION

    @property
    def headers(self) -> list[BatchHeader]:
        return [read_header(batch) for batch in self.batches]

    @property
    def leo(self) -> int:
        return self.headers[-1].next_offset if self.batches else self.origin

    @property
    def boundaries(self) -> list[int]:
        return [self.origin, *(header.next_offset for header in self.headers)]

    @property
    def history(self) -> History:
        history = self.before
        for header in self.headers:
            history = extended(history, header.term, header.base_offset)
        return forgotten(history, self.start)

    def producers(self, known_from: int) -> object:
        table = ProducerTable()
        for header in self.headers:
            if header.base_offset >= known_from:
                table.record(header, header.base_offset)
        return table.dump()

    def last_id(self, below: int) -> int:
        """The last transaction id of batches that begin below an offset."""
        ids = [one.last_transaction_id for one in self.headers if one.base_offset < below]
        return max([self.id_before, *ids])

    def position(self, transaction_id: int) -> int:
        """Where to read from for an id on; the end where it is above all."""
        found = [
            one.base_offset
            for one in self.headers
            if one.last_transaction_id >= transaction_id and one.next_offset > self.start
        ]
        return max(min(found, default=self.leo), self.start)

    def cut(self, leo: int) -> None:
        self.batches = [b for b in self.batches if read_header(b).base_offset < leo]
        self.durable = min(self.durable, leo)
        self.wanted = max(self.start, min(self.wanted, leo))


class LogLaw(RuleBasedStateMachine):
    """Every rule does the same to a log and to the model; the invariants compare them."""

    @initialize()
    def begin(self) -> None:
        self.patches = [
            mock.patch.multiple(os, fsync=lambda fd: None, fdatasync=lambda fd: None),
            # Small segments, and yet several entries in an index and a scan from the middle.
            mock.patch("spu.storage.index.INDEX_INTERVAL_BYTES", 300),
            mock.patch("spu.storage.checkpoint.VERIFY_AGAIN_BYTES", 400),
        ]
        for patch in self.patches:
            patch.start()
        self.path = new_log_directory(Path(tempfile.mkdtemp()))
        self.opened: OpenLog = open_log(self.path, SMALL)
        self.model = Model()
        self.term = 1
        self.sequences: dict[int, int] = {}

    def teardown(self) -> None:
        if hasattr(self, "opened"):
            self.opened.crash()
            for patch in self.patches:
                patch.stop()
            shutil.rmtree(self.path)

    def _new(self, unpersisted: Wish) -> bytearray:
        count, size, producer, rise, id_rise = unpersisted
        self.term += rise
        ids = None
        if id_rise is not None:
            first = max(self.model.last_id(self.model.leo), 0) + id_rise[0]
            ids = first, first + id_rise[1]
        sequence = self.sequences.get(producer, 0)
        self.sequences[producer] = sequence + 1
        return batch_of(count, b"p" * size, ids=ids, producer_id=producer, sequence=sequence)

    @rule(unpersisted=a_batch)
    def append(self, unpersisted: Wish) -> None:
        batch = self._new(unpersisted)
        assert self.opened.append(batch, self.term) == self.model.leo
        self.model.batches.append(bytes(batch))

    @rule(wishes=st.lists(a_batch, min_size=1, max_size=8))
    def append_batches(self, wishes: list[Wish]) -> None:
        new = []
        for unpersisted in wishes:
            batch = self._new(unpersisted)
            set_offset_and_term(batch, self.model.leo, self.term)
            self.model.batches.append(bytes(batch))
            new.append(bytes(batch))
        self.opened.log.append_batches(new, NOW_US)

    @rule()
    def roll(self) -> None:
        self.opened.log.roll(NOW_US)

    @precondition(lambda self: self.opened.log.roll_is_due(NOW_US * 2))
    @rule()
    def begin_next(self) -> None:
        self.opened.log.begin_next(NOW_US)

    @rule(data=st.data(), checkpoint=st.booleans())
    def sync(self, data: st.DataObject, checkpoint: bool) -> None:
        model = self.model
        model.lac = data.draw(st.integers(model.lac, max(model.lac, model.durable - 1)))
        self.opened.sync(lac=model.lac, checkpoint=checkpoint)
        model.durable, model.start = model.leo, model.wanted

    @rule(data=st.data())
    def truncate_prefix(self, data: st.DataObject) -> None:
        model = self.model
        offset = data.draw(st.integers(model.start, max(model.start, model.lac + 1)))
        self.opened.log.truncate_prefix(offset)
        model.wanted = max(model.wanted, offset)

    @rule(data=st.data())
    def truncate_suffix(self, data: st.DataObject) -> None:
        model, log = self.model, self.opened.log
        lowest = max(model.lac + 1, model.start)
        places = [offset for offset in model.boundaries if offset >= lowest]
        if not places:
            return
        offset = data.draw(st.sampled_from(places))
        log.truncate_suffix(offset)
        model.cut(offset)
        model.durable = offset
        if log.producers.dump() != model.producers(model.known_from):
            # Only where the log's beginning is gone may it know less.
            model.known_from = log.segments[0].base_offset
            assert model.known_from > model.origin

    @precondition(lambda self: self.model.start < self.model.leo)
    @rule(data=st.data(), max_bytes=st.integers(1, 1_500))
    def read(self, data: st.DataObject, max_bytes: int) -> None:
        """Whole batches from any offset on, from inside a batch too."""
        model = self.model
        offset = data.draw(st.integers(model.start, model.leo - 1))
        found = self.opened.log.read(offset, max_bytes, model.leo, wait=True)
        expected = b"".join(
            batch for batch in model.batches if read_header(batch).next_offset > offset
        )
        assert found.data
        assert expected.startswith(bytes(found.data))

    @rule(start=st.integers(0, 40), last_id=st.integers(NO_TRANSACTION, 9))
    def rebuild(self, start: int, last_id: int) -> None:
        before = (TermStart(self.term, start - 1),) if start else ()
        known = with_last_id((), last_id)
        self.opened.log.rebuild(start, self.term if start else 0, known)
        self.model = Model(start, before, [], start, start, start, start - 1, start, last_id)

    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        """The unsynced tail is kept, lost, or torn in the middle of a batch."""
        model = self.model
        kept = data.draw(st.sampled_from([b for b in model.boundaries if b >= model.durable]))
        torn = data.draw(st.sampled_from([0, 1, 50]))
        self.opened.crash()
        for segment in self.opened.log.segments:
            mine = [
                h
                for h in model.headers
                if segment.base_offset <= h.base_offset < segment.end_offset
            ]
            size = sum(header.length for header in mine if header.base_offset < kept)
            if segment.base_offset > kept:
                os.unlink(segment.path)
            elif size < segment.size:
                os.truncate(segment.path, size + torn)
        model.cut(kept)
        model.wanted = model.start
        self.opened = open_log(self.path, SMALL)
        assert self.opened.found.unfit is None
        assert not self.opened.found.set_aside
        assert self.opened.found.lac <= min(model.lac, model.durable - 1)
        model.durable = kept

    @invariant()
    def same_bounds_and_terms(self) -> None:
        log, model = self.opened.log, self.model
        assert (log.log_start, log.leo, log.durable_leo) == (model.start, model.leo, model.durable)
        assert log.history == model.history
        assert log.last_term == (model.history[-1].term if model.history else 0)

    @invariant()
    def same_producers(self) -> None:
        assert self.opened.log.producers.dump() == self.model.producers(self.model.known_from)

    @invariant()
    def same_transaction_ids(self) -> None:
        log, model = self.opened.log, self.model
        assert log.last_id == model.last_id(model.leo)
        assert log.id_before_start == model.last_id(model.start)
        for asked in {0, log.last_id // 2, log.last_id, log.last_id + 1} - {NO_TRANSACTION}:
            assert log.offset_for_transaction_id(asked, log.leo) == model.position(asked)

    @invariant()
    def same_batches(self) -> None:
        log, model = self.opened.log, self.model
        found, offset = b"", log.log_start
        while offset < log.leo:
            result = log.read(offset, 600, log.leo, wait=True)
            found += bytes(result.data)
            offset = result.next_offset
        assert found == b"".join(
            batch for batch in model.batches if read_header(batch).next_offset > model.start
        )

    @invariant()
    def segments_hold_one_term_and_what_the_files_hold(self) -> None:
        log = self.opened.log
        assert log.size_bytes == sum(os.stat(segment.path).st_size for segment in log.segments)
        for segment in log.segments:
            terms = {
                header.term
                for header in self.model.headers
                if segment.base_offset <= header.base_offset < segment.end_offset
            }
            assert len(terms) <= 1


TestLogLaw = LogLaw.TestCase
TestLogLaw.settings = settings(max_examples=examples(15), stateful_step_count=40)
