"""What a producer gets through a leader that commits slowly.

    python -m benchmarks.slow_commits [--commit-ms 1,10,100,1000] [--rate 1000] [--seconds 10]
        [--json]

The leader is a stand-in that commits as a disk does: one commit after another, each with all the
batches that came meanwhile. Records of 100 B are sent at ``--rate``. The accumulator, the sender
and the sockets are the client's own. Each case is measured twice in one run, in turns: with batches
that are *held* while as many as allowed are in flight, as a producer does it, and with batches that
are sealed by their *age* alone. Columns: records acknowledged by the end, their ratio, and the
median time from sending a record to its acknowledgement. At the lowest latency of commits nothing
is ever full, so there both columns of latency should be equal.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
import uuid
from collections.abc import Callable
from typing import Any, Final, cast

from runnel.net.metadata import LeaderCache
from runnel.net.pool import ConnectionPool
from runnel.net.routing import RetryPolicy, TopicRoute
from runnel.produce.accumulator import Accumulator
from runnel.produce.counts import SendCounts
from runnel.produce.delivery import Batch, Outcome
from runnel.produce.sender import PartitionSender, SenderSettings
from runnel.produce.settings import LINGER_MS, MAX_IN_FLIGHT, ProducerSettings
from schemas.control.assignments import Assignments, Endpoint, PartitionLeader, TopicAssignment
from schemas.ids import PartitionUid
from schemas.objects.partition import PartitionResolution
from schemas.objects.topic import Compression, Durability, TopicResolution
from schemas.wire.batch import read_header
from schemas.wire.framing import FrameReader
from schemas.wire.protocol import (
    MAX_FRAME_BYTES,
    PROTOCOL_VERSION,
    Api,
    HelloResponse,
    pack_frame,
    unpack_frame,
)
from schemas.wire.record_requests import Acks, ProduceResponse

RECORD_SIZE: Final = 100
_TICK_S: Final = 0.001


class SlowLeader(asyncio.BufferedProtocol):
    """One connection to a leader whose commits take ``commit_s`` each."""

    def __init__(self, commit_s: float) -> None:
        self._commit_s = commit_s
        self._reader = FrameReader(owned=True)
        self._waiting: list[tuple[int, int]] = []
        self._committing = False
        self._end = 0
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._reader.received(nbytes)
        while (frame := self._reader.next_frame()) is not None:
            header, _fixed, tail = unpack_frame(frame)
            if header.api == Api.HELLO:
                hello = HelloResponse(PROTOCOL_VERSION, 1, MAX_FRAME_BYTES)
                self._answer(Api.HELLO, header.correlation, hello.pack(), b"bench")
                continue
            self._waiting.append((header.correlation, self._end))
            self._end += read_header(tail).record_count
        if not self._committing:
            self._begin()

    def _begin(self) -> None:
        committing, self._waiting = self._waiting, []
        self._committing = bool(committing)
        if committing:
            self._loop.call_later(self._commit_s, self._committed, committing)

    def _committed(self, committed: list[tuple[int, int]]) -> None:
        for correlation, base in committed:
            answer = ProduceResponse(base, base)
            self._answer(Api.PRODUCE, correlation, answer.pack())
        self._begin()

    def _answer(self, api: int, correlation: int, fixed: bytes, *tail: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.writelines(pack_frame(api, correlation, fixed, *tail))


class _OneLeader:
    """The SC's answers about a topic whose only partition is led at ``port``."""

    def __init__(self, port: int) -> None:
        self.topic = TopicAssignment(
            name="bench",
            uid=str(uuid.uuid4()),
            resolution=TopicResolution.PROVISIONED,
            partition_count=1,
            replication_factor=1,
            compression=Compression.NONE,
            durability=Durability.FSYNC,
            max_record_size=1 << 20,
            partitions=(
                PartitionLeader(
                    index=0,
                    uid=PartitionUid(str(uuid.uuid4())),
                    resolution=PartitionResolution.ONLINE,
                    leader=1,
                    endpoint=Endpoint(host="127.0.0.1", port=port),
                ),
            ),
        )

    async def assignments(self, _topic: str) -> Assignments:
        return Assignments(cluster="bench", cluster_uid="bench", revision=1, topics=(self.topic,))


def _make_accumulator(settings: ProducerSettings, *, holds: bool) -> Accumulator[Outcome]:
    return Accumulator(
        "bench",
        1,
        max_record_bytes=1 << 20,
        batch_bytes=settings.batch_bytes,
        linger_s=LINGER_MS / 1000,
        clock=time.monotonic,
        new_outcome=lambda: Outcome("bench"),
        eager=True,
        max_in_flight=MAX_IN_FLIGHT if holds else None,
    )


async def measure(
    commit_s: float, rate: int, seconds: float, *, holds: bool
) -> tuple[int, list[float]]:
    """Send at ``rate``; the records acknowledged after ``seconds``, and their latencies in s."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: SlowLeader(commit_s), "127.0.0.1", 0)
    only = _OneLeader(server.sockets[0].getsockname()[1])
    connections = ConnectionPool("bench", lambda: 0.5)
    leaders = LeaderCache(cast(Any, only), time.monotonic)
    route = TopicRoute(only.topic, leaders, connections, lambda: 0.5, RetryPolicy())
    settings = ProducerSettings()
    accumulator = _make_accumulator(settings, holds=holds)
    sent_at: dict[Batch, list[float]] = {}
    latencies: list[float] = []

    def settled(batch: Batch) -> None:
        accumulator.release(batch)
        now = time.monotonic()
        if batch.outcome.exception() is None:
            latencies.extend(now - at for at in sent_at.pop(batch))

    sender = PartitionSender(
        0,
        route,
        SenderSettings(
            producer_id=7,
            acks=Acks.COMMITTED,
            codec="none",
            max_in_flight=settings.max_in_flight,
            delivery_timeout_ms=settings.delivery_timeout_ms,
            request_timeout_ms=settings.request_timeout_ms,
        ),
        SendCounts(),
        settled,
        time.monotonic,
    )
    sending = loop.create_task(sender.run())
    began = time.monotonic()
    sent = 0
    try:
        while (now := time.monotonic()) < began + seconds:
            while sent < (now - began) * rate:
                batch = accumulator.append(None, b"x" * RECORD_SIZE, time.time_ns() // 1000)
                sent_at.setdefault(batch, []).append(now)
                sent += 1
            for batch in accumulator.take(now)[0]:
                sender.put(batch)
            await asyncio.sleep(_TICK_S)
        return len(latencies), latencies
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        sender.end("the benchmark is over")
        await connections.close()
        server.close()


def _run(runner: Callable[[bool], tuple[int, list[float]]]) -> dict[str, Any]:
    by_age, slow = runner(False)
    held, fast = runner(True)
    return {
        "age": by_age,
        "held": held,
        "ratio": round(held / max(1, by_age), 2),
        "age_p50_ms": round(statistics.median(slow or [0.0]) * 1000, 1),
        "held_p50_ms": round(statistics.median(fast or [0.0]) * 1000, 1),
    }


def main() -> None:
    """Measure all cases and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commit-ms", default="1,10,100,1000")
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=10.0, help="for each case")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = []
    for commit_ms in map(float, arguments.commit_ms.split(",")):

        def run(holds: bool, commit_s: float = commit_ms / 1000) -> tuple[int, list[float]]:
            return asyncio.run(measure(commit_s, arguments.rate, arguments.seconds, holds=holds))

        rows.append({"commit_ms": commit_ms, **_run(run)})
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{'commit':>9} {'by age':>8} {'held':>8} {'ratio':>6} {'p50 age':>9} {'p50 held':>9}")
    for row in rows:
        print(
            f"{row['commit_ms']:>6g} ms {row['age']:>8,} {row['held']:>8,} {row['ratio']:>6}"
            f" {row['age_p50_ms']:>6} ms {row['held_p50_ms']:>6} ms"
        )


if __name__ == "__main__":
    main()
