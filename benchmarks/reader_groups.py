"""Measures reader groups on real SPUs: how soon all is read by somebody, what an idle group costs,
and what four readers get through beside one consumer; and how soon a Kafka consumer group is there.

    python -m benchmarks.reader_groups [--segments 10,100,1000] [--readers 10] [--rounds 3]
        [--lease 5] [--records 2000000] [--no-kafka] [--json]

Each reader is a process. *Join*: from the moment at which all begin until each segment has a reader
and loads differ by one at most. *Kill*: from ``kill -9`` of one until that is so again. *One more*:
the same, from when another one begins. *Idle*: appends to the group's log in a second.
*Throughput*: records of 1,000 bytes in four partitions, read as Arrow batches, and one by one, by
one consumer, and by a group of four in which each has one of them.

Kafka (`benchmarks.kafka_groups`) comes by ``mvn`` and needs a JDK; without them, all the rest is
measured.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from typing import Any, Final

import psutil
import pyarrow as pa

import runnel
from benchmarks.kafka_groups import PROTOCOLS, Rebalances, kafka_groups
from benchmarks.peers.peer import UnavailableError

GROUP: Final = "bench"
IDLE_S: Final = 20.0
ROWS: Final = 2_000
VALUE_BYTES: Final = 1_000
READERS_OF_THROUGHPUT: Final = 4


def read(address: str, begin: Any, ready: Any, name: str, rows: Any) -> None:
    """Read as one of the group, from the moment of ``begin``."""
    with runnel.connect(address) as cluster:
        group = cluster.reader_group(GROUP)
        with ready.get_lock():
            ready.value += 1
        begin.wait()
        for batch in group.reader(name).batches():
            with rows.get_lock():
                rows.value += batch.num_rows


def read_shared(
    address: str, begin: Any, ready: Any, name: str, rows: Any, by_record: bool
) -> None:
    """The same, but the group is even before the moment of ``begin``."""
    with (
        runnel.connect(address) as cluster,
        cluster.reader_group(GROUP) as group,
        group.reader(name) as reader,
    ):
        while len(reader.segments()) != 1:
            time.sleep(0.05)
        with ready.get_lock():
            ready.value += 1
        begin.wait()
        count(reader, rows, by_record=by_record)


def count(reader: Any, rows: Any, *, by_record: bool) -> None:
    """Add up what is read: batches, or records that are looked at one by one."""
    if by_record:
        done = 0
        for record in reader:
            done += len(record.value) > 0
            if not done % ROWS:
                with rows.get_lock():
                    rows.value += ROWS
    else:
        for batch in reader.batches():
            with rows.get_lock():
                rows.value += batch.num_rows


def consume(address: str, topic: str, begin: Any, ready: Any, rows: Any, by_record: bool) -> None:
    """Read alone, from the moment of ``begin``."""
    with runnel.connect(address) as cluster:
        with ready.get_lock():
            ready.value += 1
        begin.wait()
        count(cluster.consumer(topic, "earliest"), rows, by_record=by_record)


@contextmanager
def processes(target: Any, arguments: Sequence[tuple[Any, ...]]) -> Iterator[list[BaseProcess]]:
    """Processes that are killed at the end."""
    context = multiprocessing.get_context("spawn")
    running: list[BaseProcess] = [context.Process(target=target, args=one) for one in arguments]
    try:
        for one in running:
            one.start()
        yield running
    finally:
        for one in running:
            one.kill()
            one.join()


def ownership(
    cluster: runnel.Cluster, address: str, segments: int, arguments: argparse.Namespace
) -> tuple[Rebalances, float]:
    """How soon all is owned, and an idle group's appends per second."""
    topic = f"owned-{segments}"
    _say(f"Runnel: {segments:,} partitions")
    cluster.create(
        {
            "apiVersion": "runnel/v1",
            "kind": "Topic",
            "metadata": {"name": topic},
            "spec": {"partitions": segments},
        }
    )
    cluster.wait("topics", topic, "provisioned", timeout=300)
    group = cluster.reader_group(GROUP, topics=[topic], lease=arguments.lease)
    readers, rounds = arguments.readers, arguments.rounds
    context = multiprocessing.get_context("spawn")
    ready, rows = context.Value("i", 0), context.Value("q", 0)
    # All are connected before the first begins.
    begins = [context.Event() for _ in range(readers + rounds)]
    commands = [(address, one, ready, f"r{n}", rows) for n, one in enumerate(begins)]

    def took(act: Callable[[], None], alive: int) -> float:
        begun = time.perf_counter()
        act()
        _until(lambda: _is_even(cluster, alive))
        return time.perf_counter() - begun

    def begin_all() -> None:
        for one in begins[:readers]:
            one.set()

    with processes(read, commands) as running:
        _until(lambda: ready.value == readers + rounds)
        join_s, kill_s, one_more_s = took(begin_all, readers), [], []
        time.sleep(arguments.lease)
        before = _appends(cluster)
        time.sleep(IDLE_S)
        appends = (_appends(cluster) - before) / IDLE_S
        for n in range(rounds):
            kill_s.append(took(running[n].kill, readers - 1))
            time.sleep(arguments.lease)
            one_more_s.append(took(begins[readers + n].set, readers))
            time.sleep(arguments.lease)
    group.delete()
    cluster.delete("topic", topic)
    return Rebalances(join_s, tuple(kill_s), tuple(one_more_s)), appends


def beside_kafka(arguments: argparse.Namespace) -> dict[str, list[Rebalances]]:
    """By the protocol; nothing without Kafka."""
    found: dict[str, list[Rebalances]] = {}
    try:
        with kafka_groups(arguments.lease) as groups:
            for segments in arguments.segments:
                for protocol in PROTOCOLS:
                    name = f"{groups.version} {protocol}"
                    _say(f"{name}: {segments:,} partitions")
                    one = groups.measure(protocol, segments, arguments.readers, arguments.rounds)
                    found.setdefault(name, []).append(one)
    except UnavailableError as error:
        _say(f"Kafka is not measured: {error}")
    return found


def throughput(cluster: runnel.Cluster, address: str, records: int) -> dict[str, float]:
    """Records per second of one consumer, and of a group of four, and what these cost."""
    topic = "throughput"
    _say(f"throughput: {records:,} records")
    spec = {"partitions": READERS_OF_THROUGHPUT}
    cluster.create(
        {"apiVersion": "runnel/v1", "kind": "Topic", "metadata": {"name": topic}, "spec": spec}
    )
    cluster.wait("topics", topic, "provisioned")
    table = pa.table(
        {"key": [b"%d" % n for n in range(ROWS)], "value": [b"x" * VALUE_BYTES] * ROWS}
    )
    with cluster.producer(topic) as producer:
        for _ in range(records // ROWS):
            producer.send_table(table)
    found = {}
    for by_record in (False, True):
        found.update(_beside(cluster, address, topic, records // ROWS * ROWS, by_record=by_record))
    return found


def _beside(
    cluster: runnel.Cluster, address: str, topic: str, wanted: int, *, by_record: bool
) -> dict[str, float]:
    """For both: records per second, and processor time of the readers."""
    if by_record:
        # Nobody reads the last few of a partition: see `count`.
        wanted -= READERS_OF_THROUGHPUT * ROWS
    found = {}
    how = "record" if by_record else "batch"
    context = multiprocessing.get_context("spawn")
    for name, number in (("consumer", 1), ("group", READERS_OF_THROUGHPUT)):
        begin, ready, rows = context.Event(), context.Value("i", 0), context.Value("q", 0)
        if name == "group":
            cluster.reader_group(GROUP, topics=[topic])
            target: Any = read_shared
            arguments: list[tuple[Any, ...]] = [
                (address, begin, ready, f"r{n}", rows, by_record) for n in range(number)
            ]
        else:
            target = consume
            arguments = [(address, topic, begin, ready, rows, by_record)]
        with processes(target, arguments) as running:
            _until(lambda ready=ready, number=number: ready.value == number)
            before_s, begun = _cpu_s(running), time.perf_counter()
            begin.set()
            _until(lambda rows=rows: rows.value >= wanted)
            found[f"{name}By{how.title()}PerSecond"] = wanted / (time.perf_counter() - begun)
            used_s = _cpu_s(running) - before_s
            found[f"{name}By{how.title()}CpuSecondsPerMillion"] = used_s / wanted * 1e6
    cluster.reader_group(GROUP).delete()
    return found


def _is_even(cluster: runnel.Cluster, readers: int) -> bool:
    (group,) = cluster.reader_groups()
    loads = Counter(one.reader for one in group.segments)
    if len(group.readers) != readers or None in loads:
        return False
    shares = [loads[one.name] for one in group.readers]
    return max(shares) - min(shares) <= 1


def _cpu_s(running: Sequence[BaseProcess]) -> float:
    """Processor time of all of them."""
    times = [psutil.Process(one.pid).cpu_times() for one in running]
    return float(sum(one.user + one.system for one in times))


def _appends(cluster: runnel.Cluster) -> int:
    return sum(bounds.latest for bounds in cluster.offsets("_groups").values())


def _until(condition: Any, most_s: float = 300.0) -> None:
    deadline = time.perf_counter() + most_s
    while not condition():
        if time.perf_counter() > deadline:
            raise SystemExit("it took too long")
        time.sleep(0.05)


def as_json(segments: int, found: Rebalances) -> dict[str, object]:
    """What is printed of one size."""
    return {
        "segments": segments,
        "joinS": found.join_s,
        "killS": found.kill_s,
        "oneMoreS": found.one_more_s,
    }


def _say(what: str) -> None:
    print(f"{what} (load {os.getloadavg()[0]:.1f})", file=sys.stderr, flush=True)


def main() -> None:
    """Print a table, or JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--segments", type=_numbers, default=(10, 100, 1_000))
    parser.add_argument("--readers", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3, help="how many readers are killed")
    parser.add_argument("--lease", type=float, default=5.0)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--kafka", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    least = (READERS_OF_THROUGHPUT + 1) * ROWS
    if arguments.records < least or arguments.rounds < 1:
        parser.error(f"--records is at least {least:,}, and --rounds 1")
    local = runnel.LocalCluster(2)
    with local as cluster:
        address = local.address
        own = [ownership(cluster, address, one, arguments) for one in arguments.segments]
        speed = throughput(cluster, address, arguments.records)
    # Only one of them runs at a time.
    kafka = beside_kafka(arguments) if arguments.kafka else {}
    systems = {"Runnel": [found for found, _ in own], **kafka}
    appends = [one for _, one in own]
    most = 3 * arguments.readers / arguments.lease
    if arguments.json:
        rows = {
            name: [as_json(*one) for one in zip(arguments.segments, found, strict=True)]
            for name, found in systems.items()
        }
        cost = {"appendsPerSecond": appends, "mostAppendsPerSecond": most}
        print(json.dumps({"ownership": rows, "idle": cost, "throughput": speed}))
        return
    print(
        f"{arguments.readers} readers, a lease of {arguments.lease:g} s, {os.cpu_count()} cores;"
        f" seconds, medians of {arguments.rounds}"
    )
    print(f"{'':24}{'segments':>10}{'join':>8}{'kill':>8}{'one more':>10}")
    for name, found in systems.items():
        for segments, one in zip(arguments.segments, found, strict=True):
            print(
                f"{name:24}{segments:10,}{one.join_s:8.1f}{statistics.median(one.kill_s):8.1f}"
                f"{statistics.median(one.one_more_s):10.1f}"
            )
    for segments, idle in zip(arguments.segments, appends, strict=True):
        print(f"idle, {segments:,} segments: {idle:.2f} appends/s of at most {most:g}")
    print(f"records of {VALUE_BYTES:,} bytes")
    for how in ("Batch", "Record"):
        for name, readers in (
            ("consumer", "one consumer"),
            ("group", f"a group of {READERS_OF_THROUGHPUT}"),
        ):
            rate = speed[f"{name}By{how}PerSecond"]
            cpu_s = speed[f"{name}By{how}CpuSecondsPerMillion"]
            print(
                f"by {how.lower()}, {readers}: {rate:,.0f}/s, {cpu_s:.2f} s of processors a million"
            )


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(one) for one in text.split(","))


if __name__ == "__main__":
    main()
