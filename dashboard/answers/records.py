"""Records for a person to look at: a page of them, or those that come, within bounds.

Records become what ``runnel consume -o json`` prints. A page has at most `MOST_RECORDS` and stops
at `PAGE_BYTES`; a live tail leaves records out rather than fall behind, and says how many.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import pyarrow as pa
from aiohttp import web

from dashboard.answers.cluster import SharedCluster
from dashboard.open_sockets import OpenSockets
from runnel.client import Cluster
from runnel.consume.consumer import Consumer
from runnel.consume.settings import ConsumerSettings
from runnel.net.offsets import Start, TransactionId
from runnel.records.as_json import record_json, typed_json
from runnel.records.python_values import rows_of
from schemas.errors import InvalidRequestError, RunnelError
from schemas.objects.quantities import readable_size
from schemas.objects.topic import Topic

MOST_RECORDS: Final = 500
DEFAULT_RECORDS: Final = 50
#: A page ends with the record that reaches this, in JSON.
PAGE_BYTES: Final = 2 * 1024 * 1024
#: A value in JSON is cut to so many characters.
VALUE_CHARS: Final = 16 * 1024
#: How long a page waits for records; those that came by then are shown.
PAGE_S: Final = 5.0
#: Of a live tail: records a second that a browser is sent at most.
TAIL_RATE: Final = 200
#: A search for a key looks at so many records at most.
MOST_SCANNED: Final = 20_000
HEARTBEAT_S: Final = 15.0

#: Little is read ahead, for a page and for a person.
_SETTINGS: Final = ConsumerSettings(read_ahead_bytes=4 << 20, give_up_ms=10_000)


@dataclass(frozen=True, slots=True)
class Page:
    """Which records: the ``last`` of a topic, or the first from a place on, at most ``limit``.

    ``key``: only records with this key (of a typed topic: whose key column has this text).
    """

    start: Start | None = None
    partition: int | None = None
    limit: int = DEFAULT_RECORDS
    key: str | None = None


def read_page(query: Mapping[str, str]) -> Page:
    """What the query of an address asks for. Raises InvalidRequestError."""
    places = [name for name in ("offset", "since", "transaction") if query.get(name)]
    if len(places) > 1:
        raise InvalidRequestError(f"{' and '.join(places)}: give one of them")
    start: Start | None = None
    partition = _number(query, "partition", 0, 1 << 31)
    if query.get("offset"):
        if partition is None:
            raise InvalidRequestError("offset: give a partition, too")
        start = _number(query, "offset", 0, (1 << 62) - 1)
    elif query.get("transaction"):
        start = TransactionId(_number(query, "transaction", 0, (1 << 63) - 1) or 0)
    elif text := query.get("since"):
        try:
            start = datetime.fromisoformat(text)
        except ValueError:
            raise InvalidRequestError(
                f"since: {text!r} is no time; write it as 2026-01-31T12:00:00Z"
            ) from None
        if start.tzinfo is None:
            raise InvalidRequestError(f"since: {text!r} names no time zone; add Z for UTC")
    limit = _number(query, "limit", 1, MOST_RECORDS)
    return Page(start, partition, limit or DEFAULT_RECORDS, query.get("key") or None)


def _number(query: Mapping[str, str], name: str, low: int, high: int) -> int | None:
    text = query.get(name)
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 20 and low <= int(text) <= high):
        raise InvalidRequestError(f"{name}: {text!r} is not a whole number from {low} to {high}")
    return int(text)


async def records(shared: SharedCluster, topic: str, page: Page) -> dict[str, Any]:
    """A page of records. ``more``: there are others after it, or it ended before its limit;
    ``scanned`` are the records that were looked at."""
    cluster = await shared.get()
    partitions = None if page.partition is None else [page.partition]
    looked_for = MOST_SCANNED if page.key is not None else page.limit
    consumer = cluster.consumer(
        topic,
        page.start,
        "latest",
        partitions,
        tail=looked_for if page.start is None else None,
        settings=_SETTINGS,
    )
    described = await _described(cluster, topic)
    found: list[dict[str, Any]] = []
    size = scanned = 0
    full = False
    try:
        async with asyncio.timeout(PAGE_S):
            async for batch in consumer.batches(max_records=100):
                for record in as_json(topic, batch, described):
                    # A large record takes its time; others do not wait for all of them.
                    await asyncio.sleep(0)
                    scanned += 1
                    if page.key is None or described.key_of(record) == page.key:
                        found.append(record)
                        size += len(json.dumps(record))
                    if page.start is not None:
                        full = len(found) >= page.limit
                    if full or size >= PAGE_BYTES or scanned >= MOST_SCANNED:
                        full = True
                        break
                if full:
                    break
    except TimeoutError:
        full = True
    finally:
        await consumer.close()
    if page.start is None:
        found.sort(key=lambda record: (record["timestamp"], record["partition"], record["offset"]))
        found = found[-page.limit :]
    return {
        "columns": described.columns,
        "records": found,
        "more": full,
        "scanned": scanned,
    }


@dataclass(frozen=True, slots=True)
class _Described:
    """What is to know of a topic to show its records."""

    columns: list[dict[str, str]] | None
    key_column: str | None

    def key_of(self, record: Mapping[str, Any]) -> str | None:
        if self.columns is None:
            key: str | None = record.get("key")
            return key
        if self.key_column is None:
            return None
        value = record["value"].get(self.key_column)
        return None if value is None else str(value)


async def _described(cluster: Cluster, topic: str) -> _Described:
    found = await cluster.get("topics", topic)
    if not isinstance(found, Topic) or found.spec.columns is None:
        return _Described(None, None)
    columns = [{"name": column.name, "type": str(column.type)} for column in found.spec.columns]
    return _Described(columns, found.spec.key_column)


def as_json(topic: str, batch: pa.RecordBatch, described: _Described) -> Iterator[dict[str, Any]]:
    """The records of a batch as JSON, one after the other, long values cut before they are made
    objects of Python: ten million numbers in a list would take half a minute and a gigabyte."""
    for number in range(batch.num_rows):
        row = _shortened(batch.slice(number, 1))
        if described.columns is None:
            yield _cut(record_json(topic, rows_of(row)[0]))
        else:
            yield _cut(next(iter(typed_json(topic, row))))


def _shortened(row: pa.RecordBatch) -> pa.RecordBatch:
    """One record without values that are too long to look at: the beginning of texts and bytes,
    and the type and size of others."""
    if row.nbytes <= VALUE_CHARS:
        return row
    for number, column in enumerate(row.columns):
        if column.nbytes > VALUE_CHARS:
            field = row.schema.field(number)
            row = row.set_column(number, field.name, _short(column, field.name == "headers"))
    return row


def _short(column: pa.Array, headers: bool) -> pa.Array:
    """One long value, short. Headers of a record without columns are left out."""
    kind, size = column.type, readable_size(column.nbytes)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        begin = column[0].as_buffer().slice(0, VALUE_CHARS // 2).to_pybytes()
        text = begin.decode(errors="ignore")
        # Bytes that are no text stay bytes.
        if pa.types.is_binary(kind) and len(text.encode()) < len(begin) - 3:
            return pa.array([begin], kind)
        return pa.array([f"{text}… ({size})".encode()], pa.binary()).cast(kind)
    if headers and pa.types.is_list(kind):
        return pa.nulls(1, kind)
    return pa.array([f"{kind} of {size}, not shown"], pa.string())


def _cut(value: Any) -> Any:
    """A value without what is too long to look at; JavaScript gets large numbers as text."""
    match value:
        case str() if len(value) > VALUE_CHARS:
            return f"{value[:VALUE_CHARS]}… ({len(value):,} characters)"
        case bool():
            return value
        case int() if not -(1 << 53) < value < 1 << 53:
            return str(value)
        case dict():
            return {name: _cut(part) for name, part in value.items()}
        case list():
            return [_cut(part) for part in value]
        case _:
            return value


async def serve_tail(
    shared: SharedCluster,
    topic: str,
    partition: int | None,
    request: web.Request,
    sockets: OpenSockets,
) -> web.WebSocketResponse:
    """Send records as they come, until the browser goes."""
    cluster = await shared.get()
    described = await _described(cluster, topic)
    socket = web.WebSocketResponse(heartbeat=HEARTBEAT_S, max_msg_size=1024)
    await socket.prepare(request)
    sending = asyncio.create_task(_send_tail(cluster, topic, partition, described, socket))
    try:
        with sockets.serving(socket):
            async for _ in socket:
                pass
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
    return socket


async def _send_tail(
    cluster: Cluster,
    topic: str,
    partition: int | None,
    described: _Described,
    socket: web.WebSocketResponse,
) -> None:
    partitions = None if partition is None else [partition]
    consumer = cluster.consumer(topic, "latest", None, partitions, settings=_SETTINGS)
    try:
        async for frame in _frames(topic, consumer, described):
            await socket.send_json(frame)
    except RunnelError as error:
        await socket.send_json({"error": error.message})
        await socket.close()
    finally:
        await consumer.close()


async def _frames(
    topic: str, consumer: Consumer, described: _Described
) -> AsyncIterator[dict[str, Any]]:
    """Records of a topic as they come, at most `TAIL_RATE` a second."""
    loop = asyncio.get_running_loop()
    left, second = TAIL_RATE, loop.time()
    async for batch in consumer.batches(max_records=TAIL_RATE):
        if loop.time() - second >= 1:
            left, second = TAIL_RATE, loop.time()
        shown = batch.slice(0, left)
        left -= shown.num_rows
        yield {
            "records": list(as_json(topic, shown, described)),
            "leftOut": batch.num_rows - shown.num_rows,
        }
