"""The three workloads. Each sets itself up, warms up, and measures from its first record on.

- `produce`: send as fast as the producer takes it, until the last acknowledgement. Latency is
  that of a batch, from the call that sends it to its acknowledgement; with records one by one,
  that of one in 512. Sending is not paced, so it is mostly the wait in the producer's full buffer.
- `consume`: write first, unmeasured; then read that. Latency is from asking the consumer for the
  next batch (or record) to receiving it. The consumer reads ahead, so this is the remaining wait.
- `end_to_end`: records by an open-loop `Schedule`, and a consumer that starts before the first.
  The timestamp of a record says when it was due; latency is from then until the consumer has
  handed it out.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from runnel.bench.arrivals import Arrivals
from runnel.bench.cpu import Meter, Usage
from runnel.bench.latency import Samples
from runnel.bench.payload import Payload
from runnel.bench.schedule import Schedule
from runnel.bench.settings import Settings
from runnel.blocking import Cluster
from runnel.loop_thread import LoopThread
from runnel.produce.blocking import Producer
from runnel.produce.delivery import Delivery, TableDelivery
from runnel.produce.settings import LINGER_MS, ProducerOptions
from schemas.errors import DeadlineExceededError, RunnelError

#: Records that are sent between two looks at the clock, and how many bytes at most.
_AT_ONCE: Final = 512
_AT_ONCE_BYTES: Final = 256 << 10
#: Between two looks at the schedule: waking up for every record would be most of the work. The wait
#: for a look counts as latency.
_PAUSE_S: Final = 0.001
#: How long a consumer may go without a record after the last was sent.
_PATIENCE_S: Final = 30.0


class Report(Protocol):
    """Called by the main thread with the progress."""

    def step(self, what: str) -> None:
        """A new step begins."""

    def advance(self, share: float) -> None:
        """The share of the step that is done, from 0 to 1. Called often."""


@dataclass(frozen=True, slots=True)
class Measured:
    """``records`` in ``usage.wall_s`` seconds."""

    records: int
    latencies_ms: Samples
    usage: Usage


@dataclass(frozen=True, slots=True)
class Run:
    """Shared by all workloads. ``thread`` is the one in which the client's loop runs."""

    cluster: Cluster
    thread: LoopThread
    topic: str
    settings: Settings
    pids: Mapping[str, int] | None
    report: Report

    def producer(self) -> Producer:
        """A producer with the settings."""
        options: ProducerOptions = {
            "acks": self.settings.acks,
            "compression": self.settings.compression,
            "batch_bytes": self.settings.batch_bytes,
            "linger_ms": self.settings.linger_ms,
        }
        return self.cluster.producer(self.topic, **options)

    def payload(self) -> Payload:
        """Records to send: all of them, or a pool."""
        goal = self.settings.goal
        wanted = goal.records if goal.records is not None else 1 << 30
        return Payload(self.settings.record_size, wanted, self.settings.batch_bytes)


class _Acknowledgements:
    """Notes when deliveries are acknowledged, in the client's own thread, which wakes no other."""

    def __init__(self, thread: LoopThread) -> None:
        self._thread = thread
        self._waiting: set[asyncio.Task[None]] = set()
        self._samples_ms: list[float] = []

    def expect(self, sent_at: float, delivery: Delivery | TableDelivery) -> None:
        """Something was sent at a time of `perf_counter`."""
        self._thread.soon(lambda: self._begin(sent_at, delivery))

    def samples_ms(self) -> Samples:
        """All latencies, once everything was flushed."""
        self._thread.call(self._settled())
        return np.array(self._samples_ms)

    def _begin(self, sent_at: float, delivery: Delivery | TableDelivery) -> None:
        task = asyncio.get_running_loop().create_task(self._wait(sent_at, delivery))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def _wait(self, sent_at: float, delivery: Delivery | TableDelivery) -> None:
        try:
            await delivery
        except RunnelError:
            # The flush of the producer tells.
            return
        self._samples_ms.append((perf_counter() - sent_at) * 1e3)

    async def _settled(self) -> None:
        await asyncio.gather(*self._waiting)


def produce(run: Run) -> Measured:
    """See the module's text. Raises what the producer raises."""
    payload = run.payload()
    values = None if run.settings.columnar else payload.values()
    with run.producer() as producer:
        run.report.step("warming up")
        _warm_up(run, producer, payload)
        run.report.step("producing")
        acknowledged = _Acknowledgements(run.thread)
        meter = Meter(run.pids)
        if values is None:
            records = _send_tables(run, producer, payload, acknowledged)
        else:
            records = _send_singly(run, producer, values, acknowledged)
        producer.flush()
        usage = meter.stop()
        return Measured(records, acknowledged.samples_ms(), usage)


def consume(run: Run) -> Measured:
    """See the module's text. Raises what producer and consumer raise, DeadlineExceededError."""
    payload = run.payload()
    start = {p: found.latest for p, found in run.cluster.offsets(run.topic).items()}
    wanted = run.settings.records or run.settings.default_records
    run.report.step("writing what will be read")
    with run.producer() as producer:
        written = 0
        for table in payload.tables():
            producer.send_table(table.slice(0, wanted - written))
            written += min(table.num_rows, wanted - written)
            run.report.advance(written / wanted)
            if written >= wanted:
                break
    stop = _committed(run, start, written)
    run.report.step("consuming")
    goal, waits_s, records = run.settings.goal, list[float](), 0
    meter = Meter(run.pids)
    begin = perf_counter()
    while goal.left(records, perf_counter() - begin):
        with run.cluster.consumer(run.topic, start, stop) as consumer:
            batches = consumer.batches() if run.settings.columnar else iter(consumer)
            asked_at = perf_counter()
            for found in batches:
                now = perf_counter()
                waits_s.append(now - asked_at)
                records += found.num_rows if isinstance(found, pa.RecordBatch) else 1
                if run.settings.columnar or not records % _AT_ONCE:
                    run.report.advance(goal.share(records, now - begin))
                    if not goal.left(records, now - begin):
                        break
                asked_at = perf_counter()
    usage = meter.stop()
    return Measured(records, np.array(waits_s) * 1e3, usage)


def _committed(run: Run, start: Mapping[int, int], written: int) -> dict[int, int]:
    """Where partitions end once all written records are committed; without ``acks: committed`` that
    may take a while. Raises DeadlineExceededError if they are not.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        stop = {p: found.latest for p, found in run.cluster.offsets(run.topic).items()}
        there = sum(end - start.get(p, 0) for p, end in stop.items())
        if there >= written:
            return stop
        if time.monotonic() >= deadline:
            raise DeadlineExceededError(
                f"{there} of {written} records are committed {_PATIENCE_S:.0f} s after they were"
                f" sent; write them with --acks committed to see why"
            )
        time.sleep(0.01)


def end_to_end(run: Run) -> Measured:
    """See the module's text. Raises what producer and consumer raise, DeadlineExceededError if
    records that were sent do not arrive.
    """
    goal = run.settings.goal
    schedule = Schedule(float(run.settings.rate or 1), goal.records or 1)
    payload = run.payload()
    run.report.step("warming up")
    with run.producer() as producer, run.cluster.consumer(run.topic, "latest") as consumer:
        arrivals = Arrivals(schedule.records)
        reader = threading.Thread(
            target=arrivals.read, args=(consumer.batches(),), name="bench consumer", daemon=True
        )
        reader.start()
        _warm_up(run, producer, payload)
        arrivals.wait_for_any(_PATIENCE_S)
        run.report.step(f"sending {run.settings.rate:,} records/s")
        meter = Meter(run.pids)
        arrivals.begin()
        _send_on_schedule(run, producer, payload, schedule, arrivals)
        producer.flush()
        arrivals.wait_for_all(_PATIENCE_S)
        usage = meter.stop()
        return Measured(schedule.records, arrivals.latencies_ms(), usage)


def _warm_up(run: Run, producer: Producer, payload: Payload) -> None:
    """Open all connections and touch all code once: a few batches, unmeasured."""
    # Records without a key go to one partition after another, table by table.
    for _ in range(run.settings.partitions or 1):
        producer.send_table(payload.table(0, 1))
    producer.send_table(payload.table(0, payload.piece_rows))
    producer.flush()


def _send_tables(
    run: Run, producer: Producer, payload: Payload, acknowledged: _Acknowledgements
) -> int:
    goal, sent, begin = run.settings.goal, 0, perf_counter()
    for table in payload.tables():
        now = perf_counter()
        run.report.advance(goal.share(sent, now - begin))
        left = goal.left(sent, now - begin)
        if not left:
            break
        piece = table.slice(0, left)
        acknowledged.expect(now, producer.send_table(piece))
        sent += piece.num_rows
    return sent


def _send_singly(
    run: Run, producer: Producer, values: list[bytes], acknowledged: _Acknowledgements
) -> int:
    goal, sent, at, begin = run.settings.goal, 0, 0, perf_counter()
    at_once = max(1, min(_AT_ONCE, _AT_ONCE_BYTES // run.settings.record_size))
    send = producer.send
    while left := goal.left(sent, (now := perf_counter()) - begin):
        run.report.advance(goal.share(sent, now - begin))
        part = values[at : at + min(at_once, left)]
        acknowledged.expect(now, send(part[0]))
        for value in part[1:]:
            send(value)
        sent += len(part)
        at = (at + len(part)) % len(values)
    return sent


def _send_on_schedule(
    run: Run, producer: Producer, payload: Payload, schedule: Schedule, arrivals: Arrivals
) -> None:
    values = payload.values()
    # Tables are gathered for as long as the producer would let single records wait.
    linger_ms = LINGER_MS if run.settings.linger_ms is None else run.settings.linger_ms
    pause_s = max(_PAUSE_S, linger_ms / 1e3 if run.settings.columnar else 0.0)
    sent = 0
    while sent < schedule.records:
        arrivals.raise_failure()
        elapsed_s = perf_counter() - arrivals.begin_s
        due = schedule.due(elapsed_s)
        times = [arrivals.due_us(schedule.at_s(i)) for i in range(sent, due)]
        rows = [values[i % len(values)] for i in range(sent, due)]
        if run.settings.columnar:
            producer.send_table(pa.table({"value": rows, "timestamp": times}))
        else:
            for value, due_us in zip(rows, times, strict=True):
                producer.send(value, timestamp=due_us)
        sent = due
        run.report.advance(sent / schedule.records)
        if sent < schedule.records:
            time.sleep(max(pause_s, schedule.at_s(sent) - elapsed_s))
