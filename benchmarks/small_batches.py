"""Measures what a small batch costs the SPU alone, with many producers at once.

    python -m benchmarks.small_batches [--connections 1,16] [--partitions 1,16] [--seconds 4]
        [--durability replicated,fsync] [--spus 1] [--replication-factor 1] [--rounds 3] [--json]

The cluster consists of real processes. The clients are bare sockets, which send prepared frames and
count the bytes of the answers. Each connection keeps ``--window`` requests in flight, each a batch
of one record of 100 B, spread over the partitions. Every round measures each case once; the table
shows medians. "us" is the SPUs' processor time (user and system) for a batch.
"""

from __future__ import annotations

import argparse
import json
import selectors
import socket
import statistics
import time
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from benchmarks.local_cluster import local_cluster
from runnel import blocking
from runnel.bench.cpu import Meter, find_local
from runnel.net.address import parse_address
from schemas.control.assignments import TopicAssignment
from schemas.objects.topic import partition_name
from schemas.wire.batch import build
from schemas.wire.payload import RECORD_SCHEMA, encode_records
from schemas.wire.protocol import (
    FRAME_OVERHEAD,
    MIN_PROTOCOL_VERSION,
    PROTOCOL_VERSION,
    Api,
    HelloRequest,
    pack_frame,
)
from schemas.wire.record_requests import Acks, ProduceRequest, ProduceResponse

RECORD_SIZE: Final = 100
_ANSWER_BYTES: Final = FRAME_OVERHEAD + ProduceResponse.LAYOUT.size


@dataclass(frozen=True, slots=True)
class Case:
    """``connections`` producers over ``partitions`` of one topic."""

    connections: int
    partitions: int
    durability: str


class Producer:
    """A bare connection to the leader of some partitions, with ``window`` requests in flight."""

    def __init__(self, topic: TopicAssignment, index: int, window: int) -> None:
        # One connection leads to one SPU: it writes to the partitions that this one leads.
        endpoint = topic.partitions[index % len(topic.partitions)].endpoint
        led = [partition for partition in topic.partitions if partition.endpoint == endpoint]
        if endpoint is None:
            raise SystemExit(f"{topic.name} has no leader")
        self.socket = socket.create_connection((endpoint.host, endpoint.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        hello = HelloRequest(MIN_PROTOCOL_VERSION, PROTOCOL_VERSION)
        self.socket.sendall(b"".join(pack_frame(Api.HELLO, 1, hello.pack())))
        self.socket.recv(4096)
        batch = _batch()
        self._requests = [
            b"".join(
                pack_frame(
                    Api.PRODUCE,
                    number + 2,
                    ProduceRequest(
                        led[(index + number) % len(led)].uid,
                        Acks.COMMITTED,
                        30_000,
                    ).pack(),
                    batch,
                )
            )
            for number in range(window)
        ]
        self.window = window
        self._next = 0
        self._left_over = 0

    def send(self, count: int) -> None:
        """Send ``count`` requests."""
        window = len(self._requests)
        numbers = range(self._next, self._next + count)
        self.socket.sendall(b"".join(self._requests[number % window] for number in numbers))
        self._next = (self._next + count) % window

    def answered(self) -> int:
        """Wait for answers; returns how many requests they answer."""
        data = self.socket.recv(1 << 20)
        if not data:
            raise SystemExit("the SPU closed the connection; see its log")
        answers, self._left_over = divmod(self._left_over + len(data), _ANSWER_BYTES)
        return answers

    def begin(self) -> None:
        """Send the first window of requests."""
        self.send(len(self._requests))

    def close(self) -> None:
        self.socket.close()


def run(producers: list[Producer], seconds: float) -> int:
    """Keep all windows full for ``seconds``; returns how many batches were committed."""
    done = 0
    under_way = 0
    with selectors.DefaultSelector() as selector:
        for producer in producers:
            selector.register(producer.socket, selectors.EVENT_READ, producer)
            producer.begin()
            under_way += producer.window
        end = time.perf_counter() + seconds
        while under_way:
            for key, _ in selector.select():
                answers = key.data.answered()
                done += answers
                under_way -= answers
                if time.perf_counter() < end:
                    key.data.send(answers)
                    under_way += answers
    return done


def _topic(
    cluster: blocking.Cluster, name: str, case: Case, replication_factor: int
) -> TopicAssignment:
    spec = {
        "partitions": case.partitions,
        "replicationFactor": replication_factor,
        "durability": case.durability,
    }
    cluster.create(
        {"apiVersion": "runnel/v1", "kind": "Topic", "metadata": {"name": name}, "spec": spec}
    )
    cluster.wait("topic", name, "provisioned", 30.0)
    for index in range(case.partitions):
        cluster.wait("partition", partition_name(name, index), "online", 30.0)
    return cluster.topic(name)


def _batch() -> bytes:
    now_us = time.time_ns() // 1_000
    columns = [[now_us], [None], [b"x" * RECORD_SIZE], [None]]
    arrays = [pa.array(c, field.type) for c, field in zip(columns, RECORD_SCHEMA, strict=True)]
    payload = encode_records(pa.RecordBatch.from_arrays(arrays, schema=RECORD_SCHEMA))
    return bytes(
        build(payload, record_count=1, first_timestamp_us=now_us, last_timestamp_us=now_us)
    )


def _print(rows: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{'durability':<11} {'connections':>11} {'partitions':>10} {'batches/s':>10} {'us':>8}")
    for row in rows:
        print(
            f"{row['durability']:<11} {row['connections']:>11} {row['partitions']:>10}"
            f" {row['batches_per_s']:>10,} {row['spu_us_per_batch']:>8}"
        )


def main() -> None:
    """Measure all cases and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", default="1,16")
    parser.add_argument("--partitions", default="1,16")
    parser.add_argument("--durability", default="replicated,fsync")
    parser.add_argument("--replication-factor", type=int, default=1)
    parser.add_argument("--spus", type=int, default=1)
    parser.add_argument("--window", type=int, default=32, help="requests in flight on each")
    parser.add_argument("--seconds", type=float, default=4.0, help="for each case and round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    cases = [
        Case(connections, partitions, durability)
        for durability in arguments.durability.split(",")
        for connections in map(int, arguments.connections.split(","))
        for partitions in map(int, arguments.partitions.split(","))
    ]
    rounds: dict[Case, list[tuple[float, float]]] = {case: [] for case in cases}
    with local_cluster(arguments.spus) as address, blocking.connect(address) as cluster:
        local = find_local([parse_address(address)], [])
        meter = Meter(local.pids if local is not None else None)
        for number in range(arguments.rounds):
            for at, case in enumerate(cases):
                topic = _topic(cluster, f"small-{number}-{at}", case, arguments.replication_factor)
                producers = [
                    Producer(topic, index, arguments.window) for index in range(case.connections)
                ]
                run(producers, 0.5)
                meter.start()
                batches = run(producers, arguments.seconds)
                used = meter.stop()
                for producer in producers:
                    producer.close()
                cluster.delete("topic", topic.name)
                spus_s = sum(
                    seconds
                    for daemon, seconds in (used.daemons or {}).items()
                    if daemon.startswith("spu")
                )
                rounds[case].append((batches / used.wall_s, 1e6 * spus_s / batches))
    rows = [
        {
            "connections": case.connections,
            "partitions": case.partitions,
            "durability": case.durability,
            "batches_per_s": round(statistics.median(rate for rate, _ in found)),
            "spu_us_per_batch": round(statistics.median(cost for _, cost in found), 1),
        }
        for case, found in rounds.items()
    ]
    _print(rows, as_json=arguments.json)


if __name__ == "__main__":
    main()
