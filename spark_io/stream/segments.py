"""A stream of Runnel as a stream of Spark: its offsets in the checkpoint are stream cuts.

::

    {"stream": "shop/orders@AAEk…"}

A batch never holds a record of a key while an earlier record of that key is left for a later one.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

import runnel
from runnel import StreamCut
from schemas.errors import InvalidRequestError
from schemas.streams.epochs import number_of
from spark_io.options.cuts import StreamRange
from spark_io.options.read import ReadOptions, TriggerLimits
from spark_io.refusals import refusing
from spark_io.rows.columns import Projection
from spark_io.segments.walk import Walk
from spark_io.stream.admission import Backlog, admit, waits
from spark_io.stream.asking import AskingReader
from spark_io.worker.segments import StreamPlanner, record_bytes, record_size, take_all

if TYPE_CHECKING:
    from pyspark.sql.datasource import InputPartition

_CUT = "stream"


class SegmentStreamReader(AskingReader):
    """Reads the segments of a stream."""

    def __init__(self, options: ReadOptions, wanted: StreamRange, projection: Projection) -> None:
        super().__init__(options, projection)
        self._wanted = wanted
        self._initial: dict[str, Any] | None = None
        self._target: StreamCut | None = None
        self._began: float | None = None

    @refusing
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a query without a checkpoint begins; the same however often Spark asks."""
        if self._initial is None:
            self._initial = _written(
                self._ask(lambda cluster: self._planner(cluster).beginning(self._wanted))
            )
        return self._initial

    @refusing
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the next batch ends; ``start`` if there is nothing to read yet."""
        begin = self._read(start)
        limits = TriggerLimits() if isinstance(limit, ReadAllAvailable) else self.options.limits
        now = time.monotonic()
        # The first batch of a query does not wait.
        since_ms = float("inf") if self._began is None else (now - self._began) * 1000
        end = self._ask(lambda cluster: self._next(self._planner(cluster), begin, limits, since_ms))
        if end is None:
            return start
        self._began = now
        return _written(end)

    @refusing
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """From now on, nothing is read that is not committed yet."""
        self._target = self._ask(self._tail)

    @refusing
    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """The end of the stream, for the progress of the query."""
        return _written(self._ask(self._tail))

    @refusing
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of a batch; none if nothing is to be read."""
        begin, stop = self._read(start), self._read(end)

        def ask(cluster: runnel.Cluster) -> list[InputPartition]:
            if begin == stop:
                return []
            planner = self._planner(cluster)
            if not planner.is_of_this(stop):
                # Nobody can read what was planned of a stream that is gone.
                return []
            there = planner.present(begin)
            # A query that never committed begins at its option anew, which may be behind the end
            # that was planned; and the end, too, may have been truncated since.
            walk = planner.walk(there, planner.behind_both(stop, there))
            take_all(planner, walk)
            return list(planner.tasks(walk.pieces, record_bytes(planner, walk.pieces)))

        return self._ask(ask)

    def _read(self, data: Any) -> StreamCut:
        """The cut in a checkpoint. Raises InvalidRequestError."""
        name = self._wanted.name
        try:
            cut = StreamCut.parse(data[_CUT])
            if cut.stream != name:
                raise InvalidRequestError(f"it is a cut of stream {cut.stream}, not of {name}")
        except (KeyError, TypeError, AttributeError, InvalidRequestError) as error:
            why = f": {error.message}" if isinstance(error, InvalidRequestError) else ""
            raise InvalidRequestError(
                f"the checkpoint's offsets {json.dumps(data)[:200]} are not those of a query over"
                f" stream {name}; begin it with a new checkpointLocation{why}"
            ) from error
        return cut

    def _planner(self, cluster: runnel.Cluster) -> StreamPlanner:
        return StreamPlanner(cluster, self._wanted.name, self.options)

    def _tail(self, cluster: runnel.Cluster) -> StreamCut:
        return cluster.stream(self._wanted.name).tail()

    def _next(
        self, planner: StreamPlanner, begin: StreamCut, limits: TriggerLimits, since_ms: float
    ) -> StreamCut | None:
        """Where the batch from a cut on ends; None if there is none yet."""
        there = planner.present(begin)
        target = None if self._target is None else planner.behind_both(self._target, there)
        walk = planner.walk(there, target)
        left = limits
        while backlogs := _backlogs(planner, walk):
            if not walk.pieces and self._target is None and waits(backlogs, limits, since_ms):
                return None
            ends = admit(backlogs, left)
            before = len(walk.pieces)
            walk.take(ends)
            if len(walk.pieces) == before:
                break
            taken = walk.pieces[before:]
            if any(ends[one] < backlog.end for one, backlog in backlogs.items()):
                break
            sizes = {number_of(one): backlog.record_bytes for one, backlog in backlogs.items()}
            rows = sum(piece.end - piece.start for piece in taken)
            size = sum((piece.end - piece.start) * sizes[piece.number] for piece in taken)
            if (rest := _rest(left, rows, round(size))) is None:
                break
            left = rest
        return walk.cut if walk.pieces else None


def _backlogs(planner: StreamPlanner, walk: Walk) -> dict[int, Backlog]:
    """What is left of the open segments, by id; empty if nothing is."""
    opened = walk.open()
    logs = planner.logs(map(number_of, opened))
    found = {}
    for one, offset in opened.items():
        log = logs[number_of(one)]
        if offset > log.end:
            planner.lost(one, offset, log.end)
        end = walk.end_of(one)
        # What a cut names may not be committed yet.
        last = log.end if end is None else min(end, log.end)
        found[one] = Backlog(offset, max(offset, last), record_size(log))
    return found if any(backlog.length for backlog in found.values()) else {}


def _rest(limits: TriggerLimits, rows: int, size: int) -> TriggerLimits | None:
    """What the limits leave after so much; None if that is nothing."""
    offsets = None if limits.max_offsets is None else limits.max_offsets - rows
    max_bytes = None if limits.max_bytes is None else limits.max_bytes - size
    if (offsets is not None and offsets < 1) or (max_bytes is not None and max_bytes < 1):
        return None
    return TriggerLimits(offsets, max_bytes)


def _written(cut: StreamCut) -> dict[str, Any]:
    return {_CUT: str(cut)}
