"""Produce and consume, beside the floor of the same bytes in the same run.

    python -m benchmarks.produce_consume [--mb 200] [--durability fsync|replicated] [--json]

One SPU process, one partition, one producer, ``acks: committed``. ``send`` is measured from the
first call to the end of ``flush``. Floors: see `benchmarks.floor`; "of floor" is the share of the
slower one for produce, of loopback for consume.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa

import runnel
from benchmarks.floor import loopback_copy, sequential_write
from benchmarks.local_cluster import local_cluster
from schemas.quantities import format_size

#: Records of per-record ``send``: enough for a steady state, not for a coffee.
SEND_RECORDS = 300_000


@dataclass(frozen=True)
class Row:
    """One measurement. MB are 10^6 bytes of values."""

    what: str
    record_size: int
    records: int
    seconds: float
    floor_mb_per_s: float

    @property
    def records_per_s(self) -> float:
        return self.records / self.seconds

    @property
    def mb_per_s(self) -> float:
        return self.records * self.record_size / self.seconds / 1e6

    def to_json(self) -> dict[str, object]:
        return {
            **asdict(self),
            "records_per_s": round(self.records_per_s),
            "mb_per_s": round(self.mb_per_s, 1),
            "of_floor": round(self.mb_per_s / self.floor_mb_per_s, 3),
        }


def values(record_size: int, records: int) -> pa.Table:
    """Records of random bytes: nothing that compresses or repeats."""
    data = pa.py_buffer(os.urandom(record_size * records))
    offsets = pa.array(range(0, record_size * records + 1, record_size), pa.int32())
    column = pa.Array.from_buffers(pa.binary(), records, [None, offsets.buffers()[1], data])
    return pa.table({"value": column})


def bare_loop(items: list[bytes]) -> float:
    """Seconds of a loop that appends key and value to two lists: what Python itself costs."""
    keys: list[bytes | None] = []
    kept: list[bytes] = []
    begin = time.perf_counter()
    for item in items:
        keys.append(None)
        kept.append(item)
    return time.perf_counter() - begin


def measure(cluster: runnel.Cluster, record_size: int, size: int, durability: str) -> list[Row]:
    """Rows for one record size."""
    records = size // record_size
    table = values(record_size, records)
    total = records * record_size
    with tempfile.TemporaryDirectory() as directory:
        write = total / sequential_write(Path(directory), total) / 1e6
    loopback = total / loopback_copy(total) / 1e6
    produce_floor = min(write, loopback)
    rows = [
        Row("floor: write + fsync", record_size, records, total / write / 1e6, write),
        Row("floor: loopback copy", record_size, records, total / loopback / 1e6, loopback),
    ]

    name = f"bench-{record_size}"
    cluster.apply(
        {
            "apiVersion": "runnel/v1",
            "kind": "Topic",
            "metadata": {"name": name},
            "spec": {"partitions": 1, "durability": durability},
        }
    )
    cluster.wait("topic", name, "provisioned")
    cluster.wait("partition", f"{name}-0", "online")
    with cluster.producer(name) as producer:
        begin = time.perf_counter()
        producer.send_table(table)
        producer.flush()
        took = time.perf_counter() - begin
    rows.append(Row("send_table", record_size, records, took, produce_floor))

    begin = time.perf_counter()
    consumed = sum(b.num_rows for b in cluster.consumer(name, "earliest", "latest").batches())
    rows.append(Row("consume", record_size, consumed, time.perf_counter() - begin, loopback))
    assert consumed == records

    items = table.column("value").slice(0, min(SEND_RECORDS, records)).to_pylist()
    bare = bare_loop(items)
    with cluster.producer(name) as producer:
        begin = time.perf_counter()
        for item in items:
            producer.send(item)
        producer.flush()
        took = time.perf_counter() - begin
    rows.append(Row("send", record_size, len(items), took, produce_floor))
    rows.append(Row("floor: two list appends", record_size, len(items), bare, produce_floor))
    cluster.delete("topic", name)
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--mb", type=int, default=200, help="bytes of values per measurement, in MB"
    )
    parser.add_argument("--durability", choices=["fsync", "replicated"], default="fsync")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows: list[Row] = []
    with local_cluster() as address, runnel.connect(address) as cluster:
        for record_size in (100, 1_024):
            rows += measure(cluster, record_size, arguments.mb * 1_000_000, arguments.durability)
    if arguments.json:
        print(json.dumps([row.to_json() for row in rows], indent=2))
        return
    print(
        f"one partition, acks committed, durability {arguments.durability}, {arguments.mb} MB each"
    )
    print(f"{'':24} {'record':>7} {'records/s':>13} {'MB/s':>9} {'of floor':>9}")
    for row in rows:
        share = "" if row.what.startswith("floor") else f"{row.mb_per_s / row.floor_mb_per_s:.2f}"
        size = format_size(row.record_size)
        print(
            f"{row.what:24} {size:>7} {row.records_per_s:>13,.0f} {row.mb_per_s:>9,.1f} {share:>9}"
        )


if __name__ == "__main__":
    main()
