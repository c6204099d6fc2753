"""Runnel itself as a peer: a local cluster of this build."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

import runnel
from benchmarks.peers.peer import PATIENCE_S, TOPIC, Setup
from runnel.local.cluster import ClusterDaemons
from runnel.local.processes import free_base_port
from schemas.objects.partition import Partition


class RunnelPeer:
    """See `benchmarks.peers.peer.Peer`."""

    name = "Runnel"

    def __init__(self) -> None:
        self._local: ClusterDaemons | None = None
        self._cluster: runnel.Cluster | None = None

    def version(self) -> str:
        return f"Runnel {runnel.__version__}"

    def start(self, setup: Setup) -> None:
        os.environ["RUNNEL_HOME"] = str(setup.directory)
        local = self._local = ClusterDaemons(setup.directory / "cluster")
        base = free_base_port(local.data_dir, setup.brokers)
        plan = local.plan(setup.brokers, base, None)
        local.start(plan, lambda _step: None)
        cluster = self._cluster = runnel.connect(plan.sc_address)
        spec = {
            "partitions": 1,
            "replicationFactor": setup.brokers,
            "durability": "fsync" if setup.fsync else "replicated",
        }
        cluster.create(
            {"apiVersion": "runnel/v1", "kind": "Topic", "metadata": {"name": TOPIC}, "spec": spec}
        )
        cluster.wait("topic", TOPIC, "provisioned", PATIENCE_S)
        cluster.wait("partition", f"{TOPIC}-0", "online", PATIENCE_S)

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
        if self._local is not None:
            self._local.stop()
        self._cluster = self._local = None

    def sender(self) -> _Sender:
        return _Sender(self._connected.producer(TOPIC))

    def receiver(self, *, from_beginning: bool) -> _Receiver:
        return _Receiver(
            self._connected.consumer(TOPIC, "earliest" if from_beginning else "latest")
        )

    def pids(self) -> list[int]:
        return [row["pid"] for row in self._daemons() if row["pid"] is not None]

    def kill_leader(self) -> None:
        partition = self._connected.get("partition", f"{TOPIC}-0")
        assert isinstance(partition, Partition)
        leader = partition.status.leader
        (pid,) = [row["pid"] for row in self._daemons("spus") if row["id"] == leader]
        os.kill(pid, signal.SIGKILL)

    @property
    def _connected(self) -> runnel.Cluster:
        assert self._cluster is not None
        return self._cluster

    def _daemons(self, *kinds: str) -> Iterator[dict[str, Any]]:
        assert self._local is not None
        status = self._local.status()
        for kind in kinds or ("sc", "spus"):
            yield from status[kind]


class _Sender:
    def __init__(self, producer: runnel.Producer) -> None:
        self._producer = producer

    def send(self, value: bytes) -> None:
        self._producer.send(value)

    def send_many(self, values: Sequence[bytes]) -> None:
        self._producer.send_table(pa.table({"value": pa.array(values, pa.binary())}))

    def push(self) -> None:
        """The producer sends by itself."""

    def flush(self) -> None:
        self._producer.flush()

    def close(self) -> None:
        self._producer.close()


class _Receiver:
    def __init__(self, consumer: runnel.Consumer) -> None:
        self._consumer = consumer
        self._batches = consumer.batches()

    def receive(self) -> Sequence[bytes]:
        batch = next(self._batches, None)
        return [] if batch is None else batch.column("value").to_pylist()

    def close(self) -> None:
        self._consumer.close()
