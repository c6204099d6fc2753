"""Topics, what their controller does about them, and clusters to look at."""

from __future__ import annotations

from typing import Any

from sc.controllers.actions import CreatePartitions, Key, WriteStatus
from sc.controllers.topic import partition_uid
from sc.store.view import View
from schemas.columns.topic_schema import Column
from schemas.objects.metadata import Metadata
from schemas.objects.partition import Partition
from schemas.objects.spu import Spu
from schemas.objects.topic import Topic, TopicResolution, TopicStatus
from tests.unit.sc.builders import partition_of, session_of, spu_of, topic_of, view_of

KEY = Key("Topic", "t")
NOW = 1_000
PENDING = TopicResolution.PENDING
INVALID = TopicResolution.INVALID_CONFIG
DONE = TopicResolution.PROVISIONED


def creates(
    topic: Topic, partitions: tuple[Partition, ...], *spus: Spu, first: bool = True
) -> CreatePartitions:
    """Partitions on ``spus``, or else on those that any test has. The first ones of a topic come
    with its status."""
    ids = sorted({i for p in partitions for i in p.spec.replicas})
    status = becomes(topic, PENDING, "placing partitions").status if first else None
    return CreatePartitions(topic, partitions, spus or tuple(spu_of(i) for i in ids), status)


def becomes(
    topic: Topic,
    resolution: TopicResolution,
    reason: str | None = None,
    replica_map: tuple[tuple[int, ...], ...] = (),
) -> WriteStatus:
    status = TopicStatus(
        resolution=resolution,
        reason=reason,
        replica_map=replica_map,
        observed_generation=topic.generation,
    )
    return WriteStatus(topic, status)


def unwritable(topic: Topic, reason: str) -> WriteStatus:
    update = {"reason": reason, "writable": False}
    return WriteStatus(topic, topic.status.model_copy(update=update))


def fresh(topic: Topic, index: int, replicas: tuple[int, ...]) -> Partition:
    """The object that a topic creates: nothing of it is set by a server but the uid."""
    made = partition_of(topic, index, replicas, observed=0)
    return made.model_copy(
        update={
            "metadata": Metadata(
                name=made.name,
                labels={"topic": topic.name},
                uid=partition_uid(topic.uid, index),
            )
        }
    )


def cluster(*objects: Any, online: tuple[int, ...] = (1, 2, 3), **more: Any) -> View:
    """Three registered SPUs; some of them have a session."""
    spus = (spu_of(i) for i in (1, 2, 3))
    return view_of(*objects, *spus, sessions=[session_of(i) for i in online], **more)


def made(resolution: TopicResolution = TopicResolution.INIT, **fields: Any) -> Topic:
    return topic_of("t", resolution, **fields)


WAITING = made(PENDING, partitions=2, factor=2, reason="placing partitions")
ONE_IS_THERE = partition_of(WAITING, 0, (1, 2))
BOTH = (ONE_IS_THERE, partition_of(WAITING, 1, (3, 1)))
PLACED_ROWS = ((1, 2), (3, 1))
PLACED = made(DONE, partitions=2, factor=2, replica_map=PLACED_ROWS)
TYPED_ROWS: dict[str, Any] = {
    "columns": (
        Column(name="id", type="int64"),
        Column(name="at", type="timestamp(us)", nullable=False),
    ),
    "key_column": "id",
    "timestamp_column": "at",
}


def typed(topic: Topic) -> Topic:
    """The topic with columns."""
    return topic.model_copy(update={"spec": topic.spec.model_copy(update=TYPED_ROWS)})
