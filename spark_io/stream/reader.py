"""A topic as a stream. One process of the driver serves all calls but `read` for a whole query.

Nothing is kept between batches but how far `availableNow` goes and when the last batch began: the
checkpoint says where the stream is.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
)

import runnel
from schemas.errors import NotFoundError, RunnelError
from spark_io.options.read import ReadOptions, TriggerLimits
from spark_io.plan.slices import TopicBounds, plan_slices
from spark_io.refusals import brief, refusing
from spark_io.rows.columns import Projection
from spark_io.stream.asking import AskingReader
from spark_io.stream.offsets import StreamPlace
from spark_io.stream.progress import (
    ends_of,
    moves,
    next_place,
    plan_batch,
    untold,
    with_terms,
)
from spark_io.worker.planning import (
    chosen_topics,
    existing_topics,
    find_bounds,
    log,
    log_bounds,
    placed,
    plan_tasks,
)

if TYPE_CHECKING:
    from pyspark.sql.datasource import InputPartition

T = TypeVar("T")

_NOTHING: Final = StreamPlace({}, {})


class TopicStreamReader(AskingReader):
    """Reads topics as a stream. Pickled to the tasks, which only call `read`."""

    def __init__(self, options: ReadOptions, projection: Projection) -> None:
        super().__init__(options, projection)
        self._initial: dict[str, Any] | None = None
        self._target: StreamPlace | None = None
        self._began: float | None = None

    @refusing
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a query without a checkpoint begins; the same however often Spark asks."""
        if self._initial is None:
            topics = self._ask(self._bounds)
            plan = plan_slices(self.options, topics)
            offsets: dict[str, dict[int, int]] = {}
            terms: dict[str, dict[int, int]] = {}
            for piece in plan.slices:
                offsets.setdefault(piece.topic, {})[piece.partition] = piece.start
                if piece.start_term:
                    terms.setdefault(piece.topic, {})[piece.partition] = piece.start_term
            uids = {topic.name: topic.uid for topic in topics}
            self._initial = self._told(StreamPlace(offsets, uids, terms), plan.warnings)
        return self._initial

    @refusing
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the next batch ends; ``start`` if there is nothing to read yet."""
        everything = isinstance(limit, ReadAllAvailable)
        limits = TriggerLimits() if everything else self.options.limits
        now = time.monotonic()
        # The first batch of a query does not wait.
        since_ms = float("inf") if self._began is None else (now - self._began) * 1000
        begin = StreamPlace.from_json(start)
        topics = self._ask(lambda cluster: self._current(cluster, begin))
        end, warnings = next_place(begin, topics, self.options, limits, since_ms, self._target)
        if end != begin:
            self._began = now
            end = self._ask(lambda cluster: _with_terms(cluster, end, topics))
        return self._told(end, warnings)

    @refusing
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """From now on, nothing is read that is not committed yet."""
        self._target = ends_of(self._ask(self._current))

    @refusing
    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """The ends of the logs, for the progress of the query: its lag is what is missing."""
        return ends_of(self._ask(self._current)).to_json()

    @refusing
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of a batch; none if nothing is to be read."""
        begin, stop = StreamPlace.from_json(start), StreamPlace.from_json(end)

        def ask(cluster: runnel.Cluster) -> list[InputPartition]:
            moving = [name for name in stop.offsets if moves(begin, stop, name)]
            there = self._logs(cluster, moving, begin, stop)
            plan = plan_batch(begin, stop, there, self.options)
            _warn(plan.warnings)
            return list(plan_tasks(cluster, plan, self.options))

        return self._ask(ask)

    def _bounds(self, cluster: runnel.Cluster) -> list[TopicBounds]:
        """The logs, and where the options say to begin."""
        return find_bounds(cluster, chosen_topics(cluster, self.options.topics), self.options)

    def _current(self, cluster: runnel.Cluster, read: StreamPlace = _NOTHING) -> list[TopicBounds]:
        """The logs of the topics that are chosen now, compared with what was ``read``."""
        choice = self.options.topics
        # The list may lack a topic that is there: only who asks for it by name hears that it is
        # gone.
        names = {*existing_topics(cluster, choice), *choice.matching(read.offsets)}
        return self._logs(cluster, sorted(names), read, read)

    def _logs(
        self, cluster: runnel.Cluster, names: Iterable[str], read: StreamPlace, known: StreamPlace
    ) -> list[TopicBounds]:
        """The logs of topics as they are, compared with what was ``read``. A topic that is not
        there any more is left out, and so are partitions that the SC has not placed, unless they
        were ``known``."""
        found = []
        for name in names:
            try:
                topic = cluster.topic(name)
                chosen = self.options.topics.chosen(name, topic.partition_count)
                # Another topic of that name says nothing of what was read.
                before = read.read_before(name) if read.uids.get(name) == topic.uid else {}
                there = known.offsets.get(name, ()) if known.uids.get(name) == topic.uid else ()
                logs = log_bounds(cluster, name, placed(topic, chosen, there), before)
            except NotFoundError:
                continue
            found.append(TopicBounds(name, topic.uid, tuple(logs.items())))
        return found

    def _told(self, place: StreamPlace, warnings: list[str]) -> dict[str, Any]:
        _warn(warnings)
        return place.to_json()


class RefusingStreamReader(DataSourceStreamReader):
    """Stands for a stream that cannot be read, until Spark asks for its first offset."""

    def __init__(self, error: RunnelError) -> None:
        self._error = error

    def initialOffset(self) -> NoReturn:  # noqa: N802
        """Raises the reason."""
        raise brief(self._error)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> NoReturn:  # noqa: N802
        """Raises the reason."""
        raise brief(self._error)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> NoReturn:
        """Raises the reason."""
        raise brief(self._error)

    def read(self, partition: InputPartition) -> NoReturn:
        """Raises the reason."""
        raise brief(self._error)


def _with_terms(
    cluster: runnel.Cluster, place: StreamPlace, topics: Sequence[TopicBounds]
) -> StreamPlace:
    """The place with the terms that only the leaders know."""
    told = {
        topic: cluster.terms_below(topic, offsets)
        for topic, offsets in untold(place, topics).items()
    }
    return with_terms(place, told) if told else place


def _warn(warnings: list[str]) -> None:
    for text in warnings:
        log.warning("%s", text)
