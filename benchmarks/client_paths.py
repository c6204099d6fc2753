"""The client alone: what a record costs on its way into `send` and out of a consumer.

    python -m benchmarks.client_paths [--rounds 7] [--records 200000] [--mb 100] [--json]

The SPU is a stand-in in a process of its own. It keeps batches unchanged and returns them to
fetches: no checksums, no disk, no replicas. So everything slow here is the client, or the socket.
Every round measures each row once, beside its yardstick in the same round; the table shows the
median of the ratios. The yardsticks are a loop that appends key and value to two lists, and a bare
socket (`runnel.bench.floor`). "calls" is the time of the calls of `send` alone, while the client's
loop works in parallel. The last column is the ratio of processor time, of the calling thread for
"calls" and of the process otherwise: it means something even on a busy machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import random
import statistics
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, cast

import pyarrow as pa

from runnel.bench.floor import loopback
from runnel.consume import blocking as consuming
from runnel.consume.consumer import Consumer
from runnel.consume.settings import ConsumerSettings
from runnel.loop_thread import LoopThread
from runnel.net.metadata import LeaderCache
from runnel.net.offsets import make_range
from runnel.net.pool import ConnectionPool
from runnel.net.routing import RetryPolicy, TopicRoute
from runnel.produce import blocking as producing
from runnel.produce import producer
from runnel.produce.settings import ProducerSettings
from schemas.control.assignments import Assignments, Endpoint, PartitionLeader, TopicAssignment
from schemas.errors import UnsupportedError
from schemas.ids import PartitionUid
from schemas.objects.partition import PartitionResolution
from schemas.objects.topic import Compression, Durability, TopicResolution
from schemas.wire.batch import read_header, set_offset_and_term
from schemas.wire.framing import FrameReader
from schemas.wire.protocol import (
    MAX_FRAME_BYTES,
    PROTOCOL_VERSION,
    Api,
    HelloResponse,
    pack_error,
    pack_frame,
    unpack_frame,
)
from schemas.wire.record_requests import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ProduceRequest,
    ProduceResponse,
)

RECORD_SIZE = 100
TABLE_RECORD_SIZE = 1_024
#: For latency: records per second, and how many records.
RATE = 5_000
LATENCY_RECORDS = 10_000


@dataclass
class Log:
    """The batches of one partition."""

    batches: list[tuple[int, int, memoryview]] = field(default_factory=list)
    end: int = 0
    grown: asyncio.Event = field(default_factory=asyncio.Event)

    def append(self, batch: memoryview) -> int:
        base = self.end
        if batch.readonly:
            batch = memoryview(bytearray(batch))
        set_offset_and_term(batch, base, 1)
        self.end += read_header(batch).record_count
        self.batches.append((base, self.end, batch))
        self.grown.set()
        self.grown = asyncio.Event()
        return base

    def read(self, offset: int, limit: int) -> list[memoryview]:
        found: list[memoryview] = []
        for _base, end, batch in self.batches:
            if end > offset and (not found or limit >= len(batch)):
                found.append(batch)
                limit -= len(batch)
            elif found:
                break
        return found


class StandIn(asyncio.BufferedProtocol):
    """One connection to the SPU that keeps everything and checks nothing."""

    def __init__(self, logs: dict[PartitionUid, Log]) -> None:
        self._logs = logs
        self._reader = FrameReader(owned=True)
        self._waiting: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._reader.received(nbytes)
        while (frame := self._reader.next_frame()) is not None:
            header, fixed, tail = unpack_frame(frame)
            if header.api == Api.FETCH:
                task = asyncio.ensure_future(
                    self._fetch(header.correlation, FetchRequest.unpack(fixed))
                )
                self._waiting.add(task)
                task.add_done_callback(self._waiting.discard)
            elif header.api in (Api.SUBSCRIBE, Api.CREDIT, Api.UNSUBSCRIBE):
                # It acts like an SPU without subscriptions, so that the client fetches.
                refusal = UnsupportedError("the stand-in pushes nothing")
                self._transport.writelines(pack_error(header.api, header.correlation, refusal))
            else:
                self._answer(header.api, header.correlation, *self._result(header.api, fixed, tail))

    def _answer(self, api: int, correlation: int, fixed: bytes, *tail: memoryview | bytes) -> None:
        self._transport.writelines(pack_frame(api, correlation, fixed, *tail))

    def _result(self, api: int, fixed: memoryview, tail: memoryview) -> tuple[bytes, ...]:
        match api:
            case Api.HELLO:
                return HelloResponse(PROTOCOL_VERSION, 1, MAX_FRAME_BYTES).pack(), b"bench"
            case Api.PRODUCE:
                uid = ProduceRequest.unpack(fixed).uid
                base = self._log(uid).append(tail)
                return (ProduceResponse(base, base).pack(),)
            case _:
                request = ListOffsetsRequest.unpack(fixed)
                end = self._log(request.uid).end
                offset = 0 if request.position < -1 else end
                return (ListOffsetsResponse(offset, 0, end - 1, 0).pack(),)

    def _log(self, uid: PartitionUid) -> Log:
        if uid not in self._logs:
            # Only the partitions of the current measurement are kept.
            self._logs.clear()
            self._logs[uid] = Log()
        return self._logs[uid]

    async def _fetch(self, correlation: int, request: FetchRequest) -> None:
        log = self._log(request.uid)
        while not (found := log.read(request.offset, request.max_bytes)):
            await log.grown.wait()
        self._answer(Api.FETCH, correlation, FetchResponse(0, log.end - 1).pack(), *found)


def _serve(told: Connection) -> None:
    async def serve() -> None:
        logs: dict[PartitionUid, Log] = {}
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: StandIn(logs), "127.0.0.1", 0)
        told.send(server.sockets[0].getsockname()[1])
        await loop.run_in_executor(None, told.recv)

    try:
        import uvloop
    except ImportError:
        asyncio.run(serve())
    else:
        uvloop.run(serve())


class Topic:
    """A topic of one client and one stand-in; ``loop_thread`` is the client's."""

    def __init__(self, loop_thread: LoopThread, port: int, partitions: int) -> None:
        self._thread = loop_thread
        self._assignment = TopicAssignment(
            name="bench",
            uid=str(uuid.uuid4()),
            resolution=TopicResolution.PROVISIONED,
            partition_count=partitions,
            replication_factor=1,
            compression=Compression.NONE,
            durability=Durability.REPLICATED,
            max_record_size=1 << 20,
            partitions=tuple(
                PartitionLeader(
                    index=index,
                    uid=PartitionUid(str(uuid.uuid4())),
                    resolution=PartitionResolution.ONLINE,
                    leader=1,
                    endpoint=Endpoint(host="127.0.0.1", port=port),
                )
                for index in range(partitions)
            ),
        )
        self._connections = ConnectionPool("bench", random.random)

    async def assignments(self, topic: str) -> Assignments:
        """The SC's answer for a topic."""
        return Assignments(
            cluster="bench", cluster_uid="bench", revision=1, topics=(self._assignment,)
        )

    def _route(self) -> TopicRoute:
        leaders = LeaderCache(cast(Any, self), time.monotonic)
        return TopicRoute(
            self._assignment, leaders, self._connections, random.random, RetryPolicy()
        )

    def producer(self, **options: Any) -> producing.Producer:
        async def opened() -> producer.Producer:
            settings = ProducerSettings(**options)
            return producer.Producer(self._route(), settings, random_id=7, wait_for_room=True)

        return producing.Producer(self._thread, self._thread.call(opened()))

    def consumer(self, start: Any, stop: Any) -> consuming.Consumer:
        async def opened() -> Consumer:
            async def route() -> TopicRoute:
                return self._route()

            async def no_schema(_route: TopicRoute) -> None:
                return None

            wanted = make_range(start, stop, None)
            inner = Consumer("bench", route, no_schema, wanted, ConsumerSettings())
            await inner.start()
            return inner

        return consuming.Consumer(self._thread, self._thread.call(opened()))

    def close(self) -> None:
        self._thread.call(self._connections.close())


@dataclass(frozen=True)
class Took:
    """Seconds of wall time, and of processor time."""

    wall: float
    cpu: float


class Watch:
    """Measures from its creation to each `took`."""

    def __init__(self, cpu: Callable[[], float]) -> None:
        self._cpu = cpu
        self._began = time.perf_counter(), cpu()

    def took(self) -> Took:
        return Took(time.perf_counter() - self._began[0], self._cpu() - self._began[1])


def bare_loop(records: list[tuple[bytes | None, bytes]]) -> Took:
    """A loop that appends key and value to two lists: what Python itself costs."""
    keys: list[bytes | None] = []
    values: list[bytes] = []
    watch = Watch(time.thread_time)
    for key, value in records:
        keys.append(key)
        values.append(value)
    return watch.took()


@dataclass
class Row:
    """One row of the table; ``unit`` is what ``rates`` count per second."""

    what: str
    unit: str
    rates: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    cpu_ratios: list[float] = field(default_factory=list)


class Bench:
    """All rows, filled round by round."""

    def __init__(self, thread: LoopThread, port: int, records: int, megabytes: int) -> None:
        self._thread = thread
        self._port = port
        values = [os.urandom(RECORD_SIZE) for _ in range(records)]
        self._keyed = [(b"key-%d" % (n % 1_000), value) for n, value in enumerate(values)]
        self._distinct = [(b"key-%d" % n, value) for n, value in enumerate(values)]
        self._keyless: list[tuple[bytes | None, bytes]] = [(None, value) for value in values]
        rows = megabytes * 1_000_000 // TABLE_RECORD_SIZE
        self._table = pa.table({"value": [os.urandom(TABLE_RECORD_SIZE) for _ in range(rows)]})
        self._table_bytes = rows * TABLE_RECORD_SIZE
        self.rows: dict[str, Row] = {}

    def round(self) -> None:
        """Measure every row once."""
        self._send("send, keys, 1 partition", self._keyed, 1)
        self._send("send, keys, 16 partitions", self._keyed, 16)
        self._send("send, new keys, 16 partitions", self._distinct, 16)
        self._send("send, no keys, 16 partitions", self._keyless, 16)
        self._tables()
        self._latency()

    def _add(self, what: str, unit: str, count: float, took: Took, yard: Took) -> None:
        row = self.rows.setdefault(what, Row(what, unit))
        row.rates.append(count / took.wall)
        row.ratios.append(took.wall / yard.wall)
        row.cpu_ratios.append(took.cpu / yard.cpu)

    def _send(self, what: str, records: list[Any], partitions: int) -> None:
        topic = Topic(self._thread, self._port, partitions)
        bare = bare_loop(records)
        with topic.producer(buffer_bytes=1 << 30) as sending:
            calls, all_of_it = Watch(time.thread_time), Watch(time.process_time)
            for key, value in records:
                sending.send(value, key)
            called = calls.took()
            sending.flush()
            flushed = all_of_it.took()
        topic.close()
        self._add("bare loop", "records", len(records), bare, bare)
        self._add(f"{what}: calls", "records", len(records), called, bare)
        self._add(f"{what}: with flush", "records", len(records), flushed, bare)

    def _tables(self) -> None:
        seconds = loopback(self._table_bytes)
        bare = Took(seconds, seconds)
        topic = Topic(self._thread, self._port, 1)
        size = self._table_bytes / 1e6

        def timed(what: str, work: Callable[[], object]) -> None:
            watch = Watch(time.process_time)
            work()
            self._add(what, "MB", size, watch.took(), bare)

        self._add("bare socket", "MB", size, bare, bare)
        with topic.producer() as sending:
            timed("send_table", lambda: self._send_table(sending))
        with topic.consumer("earliest", "latest") as reading:
            timed("consume into Arrow", lambda: self._read(reading))
        topic.close()

    def _send_table(self, sending: producing.Producer) -> None:
        sending.send_table(self._table)
        sending.flush()

    def _read(self, reading: consuming.Consumer) -> None:
        assert pa.Table.from_batches(list(reading.batches())).num_rows == self._table.num_rows

    def _latency(self) -> None:
        """Measure from `send` until a consumer has the record, both in this process."""
        topic = Topic(self._thread, self._port, 1)
        waits: list[float] = []
        with topic.producer() as sending, topic.consumer({0: 0}, {0: LATENCY_RECORDS}) as reading:

            def read() -> None:
                for batch in reading.batches():
                    now = time.perf_counter_ns()
                    waits.extend(
                        (now - int.from_bytes(value[:8], "big")) / 1e6
                        for value in batch.column("value").to_pylist()
                    )

            reader = threading.Thread(target=read)
            reader.start()
            begin = time.perf_counter()
            for number in range(LATENCY_RECORDS):
                while time.perf_counter() < begin + number / RATE:
                    time.sleep(0.0002)
                sending.send(time.perf_counter_ns().to_bytes(8, "big") + bytes(RECORD_SIZE - 8))
            reader.join()
        topic.close()
        waits.sort()
        for name, share in (("p50", 0.5), ("p99", 0.99)):
            row = self.rows.setdefault(f"latency {name}", Row(f"latency {name}", "ms"))
            row.rates.append(waits[int(len(waits) * share)])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--records", type=int, default=200_000, help="per-record sends a row")
    parser.add_argument("--mb", type=int, default=100, help="bytes of values of a table, in MB")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    spu = context.Process(target=_serve, args=(there,), daemon=True)
    spu.start()
    thread = LoopThread("bench")
    try:
        bench = Bench(thread, here.recv(), arguments.records, arguments.mb)
        for _ in range(arguments.rounds):
            bench.round()
    finally:
        thread.stop()
        here.send(None)
        spu.join()
    if arguments.json:
        print(json.dumps([vars(row) for row in bench.rows.values()], indent=2))
        return
    print(f"medians of {arguments.rounds} rounds")
    print(f"{'':42} {'':>22} {'of yardstick':>13} {'CPU':>7}")
    for row in bench.rows.values():
        rate = f"{statistics.median(row.rates):,.1f} {row.unit}{'' if row.unit == 'ms' else '/s'}"
        shares = [
            f"1/{statistics.median(ratios):.1f}" if ratios else ""
            for ratios in (row.ratios, row.cpu_ratios)
        ]
        print(f"{row.what:42} {rate:>22} {shares[0]:>13} {shares[1]:>7}")


if __name__ == "__main__":
    main()
