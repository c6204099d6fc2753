"""Measures reader groups on real SPUs: how soon all is read by somebody, what an idle group costs,
and what four readers get through beside one consumer.

    python -m benchmarks.reader_groups [--segments 10,100,1000] [--readers 10] [--lease 5]
        [--records 2000000] [--json]

Each reader is a process. *Join*: from the moment at which all begin until each segment has a reader
and loads differ by one at most. *Kill*: from ``kill -9`` of one until that is so again. *Idle*:
appends to the group's log in a second. *Throughput*: records of 1 KiB in four partitions, read as
Arrow batches, and record by record, by one consumer, and by a group of four in which each has one
of them.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from typing import Any, Final

import pyarrow as pa

import runnel

GROUP: Final = "bench"
IDLE_S: Final = 20.0
ROWS: Final = 2_000
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
    cluster: runnel.Cluster, address: str, segments: int, readers: int, lease_s: float
) -> dict[str, float]:
    """Seconds until all is owned after a join and after a kill, and appends per second."""
    topic = f"owned-{segments}"
    cluster.create(
        {
            "apiVersion": "runnel/v1",
            "kind": "Topic",
            "metadata": {"name": topic},
            "spec": {"partitions": segments},
        }
    )
    cluster.wait("topics", topic, "provisioned", timeout=300)
    group = cluster.reader_group(GROUP, topics=[topic], lease=lease_s)
    context = multiprocessing.get_context("spawn")
    begin, ready, rows = context.Event(), context.Value("i", 0), context.Value("q", 0)
    arguments = [(address, begin, ready, f"r{n}", rows) for n in range(readers)]
    with processes(read, arguments) as running:
        _until(lambda: ready.value == readers)
        begun = time.perf_counter()
        begin.set()
        _until(lambda: _is_even(cluster, readers))
        joined_s = time.perf_counter() - begun
        time.sleep(5.0)
        before = _appends(cluster)
        time.sleep(IDLE_S)
        appends = (_appends(cluster) - before) / IDLE_S
        begun = time.perf_counter()
        running[0].kill()
        _until(lambda: _is_even(cluster, readers - 1))
        killed_s = time.perf_counter() - begun
    group.delete()
    cluster.delete("topic", topic)
    return {
        "segments": segments,
        "joinS": joined_s,
        "killS": killed_s,
        "appendsPerSecond": appends,
        "mostAppendsPerSecond": 3 * readers / lease_s,
    }


def throughput(cluster: runnel.Cluster, address: str, records: int) -> dict[str, float]:
    """Records per second of one consumer, and of a group of four."""
    topic = "throughput"
    spec = {"partitions": READERS_OF_THROUGHPUT}
    cluster.create(
        {"apiVersion": "runnel/v1", "kind": "Topic", "metadata": {"name": topic}, "spec": spec}
    )
    cluster.wait("topics", topic, "provisioned")
    table = pa.table({"key": [b"%d" % n for n in range(ROWS)], "value": [b"x" * 1_000] * ROWS})
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
    """Records per second of both."""
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
        with processes(target, arguments):
            _until(lambda ready=ready, number=number: ready.value == number)
            begun = time.perf_counter()
            begin.set()
            _until(lambda rows=rows: rows.value >= wanted)
            found[f"{name}By{how.title()}PerSecond"] = wanted / (time.perf_counter() - begun)
    cluster.reader_group(GROUP).delete()
    return found


def _is_even(cluster: runnel.Cluster, readers: int) -> bool:
    (group,) = cluster.reader_groups()
    loads = Counter(one.reader for one in group.segments)
    if len(group.readers) != readers or None in loads:
        return False
    shares = [loads[one.name] for one in group.readers]
    return max(shares) - min(shares) <= 1


def _appends(cluster: runnel.Cluster) -> int:
    return sum(bounds.latest for bounds in cluster.offsets("_groups").values())


def _until(condition: Any, most_s: float = 300.0) -> None:
    deadline = time.perf_counter() + most_s
    while not condition():
        if time.perf_counter() > deadline:
            raise SystemExit("it took too long")
        time.sleep(0.05)


def main() -> None:
    """Print a table, or JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--segments", default="10,100,1000")
    parser.add_argument("--readers", type=int, default=10)
    parser.add_argument("--lease", type=float, default=5.0)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    local = runnel.LocalCluster(2)
    with local as cluster:
        address = local.address
        rows = [
            ownership(cluster, address, int(segments), arguments.readers, arguments.lease)
            for segments in arguments.segments.split(",")
        ]
        speed = throughput(cluster, address, arguments.records)
    if arguments.json:
        print(json.dumps({"ownership": rows, "throughput": speed}))
        return
    print(f"{arguments.readers} readers, a lease of {arguments.lease:g} s, {os.cpu_count()} cores")
    print(f"{'segments':>10}{'join, s':>10}{'kill, s':>10}{'idle appends/s':>16}{'at most':>10}")
    for row in rows:
        print(
            f"{row['segments']:10,}{row['joinS']:10.1f}{row['killS']:10.1f}"
            f"{row['appendsPerSecond']:16.2f}{row['mostAppendsPerSecond']:10.1f}"
        )
    for how in ("Batch", "Record"):
        alone, shared = (speed[f"{name}By{how}PerSecond"] for name in ("consumer", "group"))
        print(
            f"records/s, by {how.lower()}: one consumer {alone:,.0f}, a group of"
            f" {READERS_OF_THROUGHPUT} {shared:,.0f}: {shared / alone:.2f}"
        )


if __name__ == "__main__":
    main()
