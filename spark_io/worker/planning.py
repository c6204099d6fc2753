"""What is asked of a cluster to plan a read: topics, columns, offsets. Runs on the driver."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

import runnel
from runnel import KnownTopic, PartitionOffsets, TransactionId
from schemas.columns.topic_schema import TopicSchema
from schemas.control.assignments import TopicAssignment
from schemas.errors import InvalidRequestError, NotFoundError
from schemas.objects.topic import Topic
from schemas.objects.topic import TopicResolution as Resolution
from schemas.wire.log_requests import SegmentState
from spark_io.options.places import Place, Wish
from spark_io.options.read import ReadOptions
from spark_io.options.topics import TopicChoice
from spark_io.plan.sharing import LEAST_TASKS, TaskSlices, share
from spark_io.plan.slices import LogBounds, LogSlice, Plan, TopicBounds, plan_slices
from spark_io.plan.splitting import piece_counts, split

log: Final = logging.getLogger("runnel")


def topics_schema(options: ReadOptions) -> TopicSchema | None:
    """The columns of typed topics, as of now; None for topics without a schema.

    Raises NotFoundError for a topic that does not exist, InvalidRequestError where the topics have
    different columns, UnreachableError.
    """

    with runnel.connect(options.sc) as cluster:
        return common_schema(cluster, chosen_topics(cluster, options.topics))


def common_schema(cluster: runnel.Cluster, names: Sequence[str]) -> TopicSchema | None:
    """The schema that all of these topics have. Raises as `topics_schema`."""
    return _common([(name, _schema(cluster, name)) for name in names])


def sink_of(sc: str, topic: str | None) -> tuple[runnel.ClusterInfo, TopicSchema | None]:
    """The cluster, and the columns of the topic if one is named. Raises as `topics_schema`."""
    with runnel.connect(sc) as cluster:
        return cluster.info, None if topic is None else _schema(cluster, topic)


def chosen_topics(cluster: runnel.Cluster, choice: TopicChoice) -> tuple[str, ...]:
    """The names of the topics of a read, as of now. Raises NotFoundError if a pattern has none."""
    if not (names := existing_topics(cluster, choice)):
        raise NotFoundError(f"option {choice.option}: no topic matches {choice.pattern!r}")
    return names


def existing_topics(cluster: runnel.Cluster, choice: TopicChoice) -> tuple[str, ...]:
    """The topics that were named, whether they exist or not, or those that match a pattern.

    A topic that was placed once may hold records, whatever it waits for now.
    """
    if choice.pattern is None:
        return choice.names
    found = [
        one.metadata.name
        for one in cluster.list("topic")
        if isinstance(one, Topic) and one.status.replica_map and not one.deleting
    ]
    return choice.matching(found)


def placed(
    topic: TopicAssignment, chosen: Sequence[int], known: Collection[int] = ()
) -> Sequence[int]:
    """Those of some partitions that may hold records, all if none may.

    Where the SC has no place for partitions that were added, they are the last ones: they hold
    nothing, and readers go on with the others. But an SC may be behind a reader: ``known`` were
    placed.
    """
    if topic.resolution is Resolution.PROVISIONED or not topic.partitions:
        return chosen
    last = topic.partitions[-1].index
    return [index for index in chosen if index <= last or index in known] or chosen


def find_bounds(
    cluster: runnel.Cluster, topics: Iterable[str], options: ReadOptions
) -> list[TopicBounds]:
    """The logs of all partitions that are read, as of now.

    Raises NotFoundError for a topic that does not exist, InvalidRequestError for a partition that
    does not, RetryableErrors.
    """
    assignments = [cluster.topic(topic) for topic in topics]
    partitions: dict[str, Sequence[int]] = {
        one.name: options.topics.chosen(one.name, one.partition_count) for one in assignments
    }
    uids = {one.name: one.uid for one in assignments}
    wishes = (options.starting, options.ending)
    for wish in wishes:
        wish.check(partitions, uids)
    if all(wish.by_topic is None for wish in wishes):
        # Who names each partition waits for all of them.
        partitions = {one.name: placed(one, partitions[one.name]) for one in assignments}
    return [
        _bounds(cluster, name, uids[name], chosen, options) for name, chosen in partitions.items()
    ]


def plan_read(options: ReadOptions) -> list[TaskSlices]:
    """The tasks of a batch, as of now; no slice is empty. Asks for offsets, and where large
    partitions are split, for segments.

    Raises NotFoundError for a topic that does not exist, UnreachableError, and what
    `spark_io.plan.slices.plan_slices` raises.
    """

    with runnel.connect(options.sc) as cluster:
        bounds = find_bounds(cluster, chosen_topics(cluster, options.topics), options)
        plan = plan_slices(options, bounds)
        for text in plan.warnings:
            log.warning("%s", text)
        return plan_tasks(cluster, plan, options)


def plan_tasks(cluster: runnel.Cluster, plan: Plan, options: ReadOptions) -> list[TaskSlices]:
    """The tasks for the slices of a plan: none for empty ones, several for large ones, one for
    several small ones.

    Raises NotFoundError for a topic that is another one than was planned.
    """
    lengths = [max(0, piece.end - piece.start) for piece in plan.slices]
    least = options.min_partitions or 1
    counts = piece_counts(plan.sizes, lengths, least, options.max_partition_bytes)
    known: dict[str, KnownTopic] = {}
    found: list[LogSlice] = []
    sizes: list[int] = []
    for piece, size, count in zip(plan.slices, plan.sizes, counts, strict=True):
        if not count:
            continue
        if piece.topic not in known:
            known[piece.topic] = cluster.known_topic(piece.topic)
            if known[piece.topic].topic.uid != piece.topic_uid:
                raise NotFoundError(
                    f"topic {piece.topic!r} was deleted and created again while this read was"
                    " planned; load it again"
                )
        told = known[piece.topic].only(piece.partition)
        piece = replace(piece, told=told)
        marks = _marks(cluster, piece) if count > 1 else ()
        found.extend(split(piece, count, marks))
        sizes.extend([size // count] * count)
    found = _with_terms(cluster, found)
    least_shared = options.min_partitions or LEAST_TASKS
    return share(found, sizes, least_shared, options.max_partition_bytes)


def _with_terms(cluster: runnel.Cluster, pieces: Sequence[LogSlice]) -> list[LogSlice]:
    """The pieces with the terms below their starts and ends that nobody has told yet. Leaders that
    tell no terms are not asked."""
    wanted: dict[str, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for piece in pieces:
        if piece.most_term:
            ends = ((piece.start, piece.start_term), (piece.end, piece.end_term))
            unknown = {offset for offset, term in ends if offset and not term}
            wanted[piece.topic][piece.partition] |= unknown
    terms: dict[tuple[str, int, int], int] = {}
    for topic, partitions in wanted.items():
        # One offset of each partition at a time.
        while offsets := {index: left.pop() for index, left in partitions.items() if left}:
            told = cluster.terms_below(topic, offsets)
            terms |= {(topic, index, offsets[index]): term for index, term in told.items()}
    return [
        replace(
            piece,
            start_term=piece.start_term or terms.get((*piece.key, piece.start), 0),
            end_term=piece.end_term or terms.get((*piece.key, piece.end), 0),
        )
        for piece in pieces
    ]


def _bounds(
    cluster: runnel.Cluster, topic: str, uid: str, chosen: Sequence[int], options: ReadOptions
) -> TopicBounds:
    found = cluster.offsets(topic, chosen, read=options.starting.read_before(topic))
    # Asked after the ends: what is not found before them can only come later.
    first = _looked_up(cluster, topic, chosen, options.starting)
    last = _looked_up(cluster, topic, chosen, options.ending)
    logs = tuple((index, _log(found[index], first.get(index), last.get(index))) for index in chosen)
    return TopicBounds(topic, uid, logs)


def log_bounds(
    cluster: runnel.Cluster,
    topic: str,
    partitions: Sequence[int],
    read: Mapping[int, runnel.OffsetAndTerm],
) -> dict[int, LogBounds]:
    """The logs of partitions as they are, compared with what was ``read``. Raises
    RetryableErrors."""
    found = cluster.offsets(topic, partitions, read=read)
    return {index: _log(found[index], None, None) for index in partitions}


def _log(found: PartitionOffsets, first: int | None, last: int | None) -> LogBounds:
    size = found.size_bytes
    if found.first < found.earliest:
        size += found.archived_bytes
    return LogBounds(found.first, found.latest, first, last, size, found.term, found.diverged_at)


def _looked_up(
    cluster: runnel.Cluster, topic: str, chosen: Sequence[int], wish: Wish
) -> Mapping[int, int]:
    """By partition the offset of the first record of a time or a transaction id."""
    wanted: dict[Place, list[int]] = defaultdict(list)
    for index in chosen:
        place = wish.place(topic, index)
        if not isinstance(place, int):
            wanted[place].append(index)
    found: dict[int, int] = {}
    for place, indexes in wanted.items():
        if isinstance(place, datetime | TransactionId):
            found.update(cluster.offsets_at(topic, place, indexes))
    return found


def _marks(cluster: runnel.Cluster, piece: LogSlice) -> list[tuple[int, int]]:
    """The ends of the segments of a partition, and the bytes before each."""
    marks: list[tuple[int, int]] = []
    size = 0
    log_start = cluster.offsets(piece.topic, [piece.partition])[piece.partition].earliest
    archive = None if piece.told is None else piece.told.archive
    files = () if archive is None else archive.listed.partition(piece.partition).covering(0)
    for file in files:
        if file.until <= log_start:
            marks = marks or [(file.base, 0)]
            size += file.size
            marks.append((file.until, size))
    for segment in cluster.segments(piece.topic, piece.partition).items:
        if segment.end_offset <= segment.base_offset or segment.state is SegmentState.TRUNCATED:
            continue
        if not marks:
            marks.append((segment.base_offset, 0))
        size += segment.size_bytes
        marks.append((segment.end_offset, size))
    return marks


def _schema(cluster: runnel.Cluster, topic: str) -> TopicSchema | None:
    # If there is no such topic, the error says how to create it.
    cluster.topic(topic)
    if "/" in topic:
        # Streams have no schema in this version.
        return None
    found = cluster.get("topic", topic)
    return found.spec.row_schema if isinstance(found, Topic) else None


def _common(schemas: Sequence[tuple[str, TopicSchema | None]]) -> TopicSchema | None:
    """The schema that all topics have. Raises InvalidRequestError that names two that differ."""
    (first, rows), *others = schemas
    for name, other in others:
        if (rows is None) != (other is None):
            plain, typed = (first, name) if rows is None else (name, first)
            raise InvalidRequestError(
                f"topic {typed!r} has columns of its own and topic {plain!r} has none; read them"
                " apart"
            )
        if rows is None or other is None:
            continue
        for mine, theirs in zip(rows.columns, other.columns, strict=False):
            if mine != theirs:
                raise InvalidRequestError(
                    f"topics {first!r} and {name!r} have different columns: {mine.name}"
                    f" {mine.type} and {theirs.name} {theirs.type}; read them apart"
                )
        if len(rows.columns) != len(other.columns):
            longer, more = (
                (first, rows) if len(rows.columns) > len(other.columns) else (name, other)
            )
            extra = more.columns[min(len(rows.columns), len(other.columns))].name
            raise InvalidRequestError(
                f"topics {first!r} and {name!r} have different columns: only {longer!r} has"
                f" {extra}; read them apart"
            )
    return rows
