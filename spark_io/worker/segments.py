"""What is asked of a cluster to read a stream of Runnel between two cuts. Runs on the driver."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import runnel
from runnel.net.routing import SegmentGoneError
from schemas.control.streams import EpochInfo, segment_of
from schemas.errors import (
    LOST_RECORDS,
    DivergedError,
    InvalidRequestError,
    NotFoundError,
    NotReadyError,
    OffsetOutOfRangeError,
)
from schemas.streams.cuts import Frontier, StreamCut
from schemas.streams.epochs import Segment, creation_epoch, number_of, segment_text
from spark_io.options.cuts import StreamRange
from spark_io.options.read import ReadOptions
from spark_io.options.table import FAIL_ON_DATA_LOSS
from spark_io.plan.sharing import TaskSlices
from spark_io.plan.slices import LogBounds, LogSlice, Plan
from spark_io.segments.walk import Piece, Walk
from spark_io.worker.planning import log, log_bounds, plan_tasks


class StreamPlanner:
    """Questions about one stream, all of one moment: its current segments are asked once."""

    def __init__(self, cluster: runnel.Cluster, name: str, options: ReadOptions) -> None:
        """Raises NotFoundError, NotReadyError, UnreachableError."""
        self._cluster = cluster
        self._options = options
        self.stream = cluster.stream(name)
        self.current: EpochInfo = self.stream.epoch()
        self._segments = {one.id: one for one in map(segment_of, self.current.segments)}

    def beginning(self, wanted: StreamRange) -> StreamCut:
        """Where a read begins. Raises InvalidRequestError, and what `present` raises."""
        match wanted.start:
            case StreamCut() as cut:
                return self.present(cut)
            case "earliest":
                return self.stream.head()
            case _:
                return self.stream.tail()

    def present(self, cut: StreamCut) -> StreamCut:
        """A cut from which all is there. Raises OffsetOutOfRangeError if what lies behind it was
        truncated; or gives where the stream begins instead, as the options say."""
        if not self.is_of_this(cut):
            return self.stream.head()
        place, head = self.frontier(cut), self.frontier(self.stream.head())
        if (where := head.is_after(place)) is None:
            return cut
        text = f"stream {self.stream.name}: records were truncated before they were read: {where}"
        if self._options.fail_on_data_loss:
            raise OffsetOutOfRangeError(
                f"{text}; begin at earliest, or {FAIL_ON_DATA_LOSS}=false goes on with what is"
                " there"
            )
        log.warning("%s; what is there is read", text)
        return place.joined(head).cut

    def is_of_this(self, cut: StreamCut) -> bool:
        """Whether a cut is of the stream that there is now. If it is of an earlier one of its name:
        raises NotFoundError, or warns, as the options say."""
        if cut.stream != self.stream.name or cut.uid == self.current.uid:
            return True
        text = f"stream {self.stream.name} was deleted and created again since it was read"
        if self._options.fail_on_data_loss:
            raise NotFoundError(
                f"{text}; begin the query with a new checkpointLocation, or"
                f" {FAIL_ON_DATA_LOSS}=false to go on with the new one"
            )
        log.warning("%s; reading goes on with the new one", text)
        return False

    def behind_both(self, one: StreamCut, other: StreamCut) -> StreamCut:
        """The place behind two cuts."""
        return self.frontier(one).joined(self.frontier(other)).cut

    def lost(self, segment: int, offset: int, end: int) -> None:
        """A segment ends before the place up to which it was read. Raises DivergedError, or warns,
        as the options say."""
        text = (
            f"segment {segment_text(segment)} of stream {self.stream.name} ends at {end}, and was"
            f" read up to {offset}: {LOST_RECORDS}"
        )
        if self._options.fail_on_data_loss:
            raise DivergedError(
                f"{text}; begin the query with a new checkpointLocation, or"
                f" {FAIL_ON_DATA_LOSS}=false to go on",
                diverged_at=end,
            )
        log.warning("%s; the stream goes on behind that place", text)

    def end_for(self, begin: StreamCut, tail: StreamCut) -> StreamCut:
        """Where the stream ends for who reads from a cut on, if its end was ``tail``."""
        return self.frontier(begin).end_with(self.frontier(tail), self.current.epoch).cut

    def walk(self, begin: StreamCut, stop: StreamCut | None = None) -> Walk:
        """The way from one cut to another. Raises InvalidRequestError for what is no place in this
        stream, and for a stop before the beginning."""
        start = self.frontier(begin)
        end = None if stop is None else self.frontier(stop)
        if end is not None and (where := start.is_after(end)) is not None:
            raise InvalidRequestError(
                f"stream {self.stream.name}: the read stops before it begins: {where}"
            )
        return Walk(start, end, self._segments, lambda one: self.stream.segment(segment_text(one)))

    def frontier(self, cut: StreamCut) -> Frontier:
        """A cut with its segments. Raises InvalidRequestError if it is no place in this stream."""
        name = self.stream.name
        if cut.stream != name:
            raise InvalidRequestError(f"the cut is of stream {cut.stream}, not of {name}")
        if cut.uid != self.current.uid:
            raise NotFoundError(f"the cut is of an earlier stream {name}, which was deleted")
        try:
            newest = max(map(creation_epoch, cut.offsets), default=0)
            known = {**self._of_epoch(newest), **self._segments}
            return Frontier(
                cut, [known[one] if one in known else self._segment(one) for one in cut.offsets]
            )
        except NotFoundError as error:
            raise InvalidRequestError(f"the cut is no place in stream {name}: {error}") from error

    def logs(self, numbers: Iterable[int]) -> dict[int, LogBounds]:
        """The logs of segments as they are, by their numbers.

        If one was truncated away meanwhile: raises OffsetOutOfRangeError, or where that is allowed
        NotReadyError, since the next look finds it so.
        """
        chosen = sorted(set(numbers))
        try:
            return log_bounds(self._cluster, self.stream.name, chosen, {}) if chosen else {}
        except SegmentGoneError as error:
            text = f"stream {self.stream.name}: {error.message} while this read was planned"
            if self._options.fail_on_data_loss:
                raise OffsetOutOfRangeError(f"{text}; begin again") from None
            raise NotReadyError(text) from None

    def tasks(self, pieces: Sequence[Piece], sizes: Mapping[int, float]) -> list[TaskSlices]:
        """The tasks for pieces of segments. ``sizes``: about the bytes of a record, by number."""
        plan = Plan()
        for piece in pieces:
            plan.slices.append(
                LogSlice(self.stream.name, self.current.uid, piece.number, piece.start, piece.end)
            )
            plan.sizes.append(round((piece.end - piece.start) * sizes.get(piece.number, 0.0)))
        return plan_tasks(self._cluster, plan, self._options)

    def _of_epoch(self, number: int) -> Mapping[int, Segment]:
        if number == self.current.epoch:
            return self._segments
        return {one.id: one for one in map(segment_of, self.stream.epoch(number).segments)}

    def _segment(self, segment: int) -> Segment:
        return segment_of(self.stream.segment(segment_text(segment)))


def plan_stream(options: ReadOptions, wanted: StreamRange) -> list[TaskSlices]:
    """The tasks of a batch read of a stream. Raises what `StreamPlanner` raises."""
    with runnel.connect(options.sc) as cluster:
        planner = StreamPlanner(cluster, wanted.name, options)
        begin = planner.beginning(wanted)
        stop = wanted.stop
        if not isinstance(stop, StreamCut):
            stop = planner.end_for(begin, planner.stream.tail())
        elif wanted.start == "earliest":
            # Before the beginning, nothing is there.
            stop = planner.present(stop)
        walk = planner.walk(begin, stop)
        take_all(planner, walk)
        return planner.tasks(walk.pieces, record_bytes(planner, walk.pieces))


def take_all(planner: StreamPlanner, walk: Walk) -> None:
    """Take everything up to the stop of a walk."""
    while True:
        opened = walk.open()
        ends = {one: end for one in opened if (end := walk.end_of(one)) is not None}
        if unknown := [one for one in opened if one not in ends]:
            # Its seal was not done when the planner asked; the stop lies behind it all the same.
            logs = planner.logs(map(number_of, unknown))
            ends |= {one: logs[number_of(one)].end for one in unknown}
        if all(ends[one] <= offset for one, offset in opened.items()):
            return
        walk.take(ends)


def record_bytes(planner: StreamPlanner, pieces: Sequence[Piece]) -> dict[int, float]:
    """About the bytes of a record in each segment, by its number."""
    found = planner.logs(piece.number for piece in pieces)
    return {number: record_size(bounds) for number, bounds in found.items()}


def record_size(bounds: LogBounds) -> float:
    """About the bytes of a record in a log."""
    return bounds.size_bytes / max(1, bounds.end - bounds.start)
