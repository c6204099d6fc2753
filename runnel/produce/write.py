"""Writing a table in one call: `write_table` makes the topic, sends the rows, waits for all.

Nothing is sent, and no topic is made, unless the rows fit the topic, each row is small enough, and
the settings that were asked for are those of the topic. Neighbours: `runnel.produce.producer`
sends, `runnel.records.declared_columns` says which columns a new topic gets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from time import time_ns
from typing import Any, Final, TypedDict

import pyarrow as pa

from runnel.admin.client import Admin
from runnel.manifests import Topic
from runnel.produce.producer import Producer, Progress
from runnel.produce.settings import ProducerSettings
from runnel.records.arrow_schema import row_sizes
from runnel.records.declared_columns import columns_of_table
from runnel.records.record import BatchMetadata
from runnel.records.row_tables import fit_table
from runnel.records.tables import check_sizes, measured, record_table, with_transaction_ids
from schemas.errors import (
    ConflictError,
    DeadlineExceededError,
    InvalidRequestError,
    NotFoundError,
)
from schemas.objects.topic import Topic as TopicObject

WRITE_TIMEOUT_S: Final = 60.0


class TopicOptions(TypedDict, total=False):
    """What `write` may say of the topic that it makes; a topic that is there must agree."""

    partitions: int | None
    replication_factor: int | None
    key_column: str | None
    timestamp_column: str | None


@dataclass(frozen=True, slots=True)
class Written:
    """What `Cluster.write` has written: ``records`` in ``batches``, all committed.

    ``created``: the topic was made for it.
    """

    topic: str
    records: int
    created: bool
    batches: tuple[BatchMetadata, ...]

    @property
    def offsets(self) -> dict[int, range]:
        """Per partition, from the offset of the first of the records to the one after the last.

        Records that others sent at the same time may lie between them.
        """
        found: dict[int, range] = {}
        for batch in self.batches:
            first, end = batch.base_offset, batch.base_offset + batch.records
            known = found.get(batch.partition, range(first, end))
            found[batch.partition] = range(min(known.start, first), max(known.stop, end))
        return dict(sorted(found.items()))

    def __str__(self) -> str:
        made = ", which was created" if self.created else ""
        noun = "record" if self.records == 1 else "records"
        return f"{self.records} {noun} to topic {self.topic}{made}"


async def write_table(
    admin: Admin,
    open_producer: Callable[[str, ProducerSettings], Awaitable[Producer]],
    name: str,
    data: Any,
    wanted: TopicOptions,
    *,
    transaction_ids: Any = None,
    timeout: float = WRITE_TIMEOUT_S,
    on_progress: Progress | None = None,
) -> Written:
    """Append rows to a topic, made for them where it is not there; see `Cluster.write`."""
    if isinstance(data, Iterator):
        # Rows are looked at more than once. Readers of Arrow are iterators, too.
        data = data.read_all() if isinstance(data, pa.RecordBatchReader) else list(data)
    topic = await _find(admin, name)
    created = False
    if topic is None:
        new, rows = await asyncio.to_thread(_new_topic, name, data, wanted, transaction_ids)
        try:
            topic = _as_topic(await admin.create(new))
            created = True
        except ConflictError:
            # Somebody else made it meanwhile.
            topic = await _find(admin, name)
            if topic is None:
                raise
    if not created:
        _check_agreement(topic, wanted)
        rows = await asyncio.to_thread(_fitting, topic, data, transaction_ids)
    if not topic.status.replica_map:
        await _until_placed(admin, topic, created, timeout)
    async with await open_producer(name, ProducerSettings(acks="committed")) as producer:
        delivery = await producer.send_table(
            rows, transaction_ids=transaction_ids, on_progress=on_progress
        )
        await producer.flush()
        return Written(name, rows.num_rows, created, await delivery)


async def _find(admin: Admin, name: str) -> TopicObject | None:
    try:
        found = _as_topic(await admin.get("topic", name))
    except NotFoundError:
        return None
    if found.deleting:
        raise ConflictError(
            f"topic {name!r} is being deleted; wait for it with:"
            f" runnel wait topic {name} --for deleted"
        )
    return found


def _as_topic(found: object) -> TopicObject:
    if not isinstance(found, TopicObject):
        raise TypeError(f"the SC gave {found!r} for a topic")
    return found


async def _until_placed(admin: Admin, topic: TopicObject, created: bool, timeout: float) -> None:
    try:
        await admin.wait("topic", topic.name, "provisioned", timeout)
    except DeadlineExceededError as error:
        made = f"; topic {topic.name!r} was created and stays" if created else ""
        raise DeadlineExceededError(f"nothing was written{made}. {error.message}") from error


def _new_topic(
    name: str, data: Any, wanted: TopicOptions, transaction_ids: Any
) -> tuple[TopicObject, pa.Table]:
    """The topic for these rows, and the rows as it takes them."""
    columns = columns_of_table(data, wanted.get("timestamp_column"))
    new = Topic(name, schema=columns, **wanted)
    return new, _fitting(new, data, transaction_ids)


def _fitting(topic: TopicObject, data: Any, transaction_ids: Any) -> pa.Table:
    """The rows as a topic takes them. Raises what sending them would, before anything is sent."""
    columns = topic.spec.columns
    if columns is None:
        rows = _records(topic, data)
        parts = measured(rows)
    else:
        rows = fit_table(data, columns, topic.name)
        parts = measured(rows, row_sizes)
    check_sizes(parts, topic.spec.max_record_size, topic.name)
    if transaction_ids is not None:
        with_transaction_ids(parts, transaction_ids)
    return rows


def _records(topic: TopicObject, data: Any) -> pa.Table:
    try:
        return record_table(data, time_ns() // 1000)
    except InvalidRequestError as error:
        raise InvalidRequestError(
            f"topic {topic.name!r} exists and has no schema, so it takes only bytes:"
            f" {error.message}. Or write to another topic"
        ) from error


def _check_agreement(topic: TopicObject, wanted: TopicOptions) -> None:
    """Raise ConflictError where a topic that exists is not the one that was asked for."""
    spec = topic.spec
    there: TopicOptions = {
        "partitions": spec.partition_count,
        "replication_factor": spec.replica_count,
        "key_column": spec.key_column,
        "timestamp_column": spec.timestamp_column,
    }
    differing = [
        f"{option} {there[option]}, not {value}"  # type: ignore[literal-required]
        for option, value in wanted.items()
        if value is not None and value != there[option]  # type: ignore[literal-required]
    ]
    if differing:
        raise ConflictError(
            f"topic {topic.name!r} exists with {', '.join(differing)}; nothing was written. Leave"
            " that out, or write to another topic"
        )
