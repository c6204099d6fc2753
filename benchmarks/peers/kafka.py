"""Apache Kafka as a peer: brokers that are also its KRaft controllers, and librdkafka's client.

``BENCH_KAFKA_LIBS`` names a directory with Kafka's jars: ``libs`` of its tarball, or the
dependencies of Maven's ``org.apache.kafka:kafka_2.13`` and an slf4j backend. ``fsync`` is
``flush.messages=1``: Kafka itself recommends to leave flushing to the operating system.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.kafka_brokers import java_command, kafka_brokers
from benchmarks.own_daemons import Daemon
from benchmarks.peers.peer import PATIENCE_S, TOPIC, Setup, UnavailableError, client, program
from benchmarks.peers.ports import free_ports

_VARIABLE: Final = "BENCH_KAFKA_LIBS"
_JAVA: Final = "BENCH_JAVA"


class KafkaPeer:
    """See `benchmarks.peers.peer.Peer`."""

    name = "Kafka"

    def __init__(self) -> None:
        self._brokers: list[Daemon] = []
        self._ports: list[int] = []

    def version(self) -> str:
        library = client("confluent_kafka", "confluent-kafka")
        program(_JAVA, "java", "apt-get install default-jre-headless")
        libs = _libs()
        jars = [path.stem for path in libs.glob("kafka-clients-[0-9]*.jar")]
        if not jars:
            raise UnavailableError(f"{libs} has no kafka-clients-VERSION.jar")
        return (
            f"Kafka {jars[0].removeprefix('kafka-clients-')}, confluent-kafka {library.__version__}"
        )

    def start(self, setup: Setup) -> None:
        ports = free_ports(2 * setup.brokers)
        self._ports = ports[: setup.brokers]
        controllers = ports[setup.brokers :]
        java = java_command(program(_JAVA, "java", ""), _libs())
        self._brokers = kafka_brokers(java, setup.directory, self._ports, controllers, {})
        for broker in self._brokers:
            broker.start()
        self._create_topic(setup)

    def _create_topic(self, setup: Setup) -> None:
        admin_library = client("confluent_kafka.admin", "confluent-kafka")
        admin = admin_library.AdminClient(self._client_config())
        config = {"min.insync.replicas": str(setup.brokers // 2 + 1)}
        if setup.fsync:
            config["flush.messages"] = "1"
        deadline = time.monotonic() + PATIENCE_S
        while len(admin.list_topics(timeout=PATIENCE_S).brokers) < setup.brokers:
            for broker in self._brokers:
                broker.check()
            if time.monotonic() > deadline:
                raise RuntimeError(f"not all {setup.brokers} brokers came")
            time.sleep(0.2)
        topic = admin_library.NewTopic(TOPIC, 1, setup.brokers, config=config)
        # Brokers that have just come close connections now and then.
        while TOPIC not in admin.list_topics(timeout=PATIENCE_S).topics:
            for made in admin.create_topics([topic]).values():
                error = made.exception(PATIENCE_S)
            if error is not None and time.monotonic() > deadline:
                raise error
            time.sleep(0.2)

    def stop(self) -> None:
        for broker in self._brokers:
            broker.end(signal.SIGKILL)
        self._brokers.clear()

    def sender(self) -> _Sender:
        limits = {"queue.buffering.max.messages": 1_000_000, "batch.size": 1_048_576}
        config = {"acks": "all", "enable.idempotence": True, "linger.ms": 1}
        library = client("confluent_kafka", "confluent-kafka")
        return _Sender(library.Producer({**self._client_config(), **config, **limits}))

    def receiver(self, *, from_beginning: bool) -> _Receiver:
        library = client("confluent_kafka", "confluent-kafka")
        start = library.OFFSET_BEGINNING if from_beginning else library.OFFSET_END
        consumer = library.Consumer({**self._client_config(), "group.id": "bench"})
        consumer.assign([library.TopicPartition(TOPIC, 0, start)])
        return _Receiver(consumer)

    def pids(self) -> list[int]:
        return [broker.pid for broker in self._brokers]

    def kill_leader(self) -> None:
        admin = client("confluent_kafka.admin", "confluent-kafka").AdminClient(
            self._client_config()
        )
        leader = admin.list_topics(TOPIC, timeout=PATIENCE_S).topics[TOPIC].partitions[0].leader
        self._brokers[leader].end(signal.SIGKILL)
        del self._brokers[leader]

    def _client_config(self) -> dict[str, Any]:
        servers = ",".join(f"127.0.0.1:{port}" for port in self._ports)
        # librdkafka writes about brokers that are away to standard error.
        return {"bootstrap.servers": servers, "log_level": 0}


def _libs() -> Path:
    if named := os.environ.get(_VARIABLE):
        return Path(named)
    try:
        script = program(_VARIABLE, "kafka-server-start.sh", "")
    except UnavailableError as error:
        raise UnavailableError(
            f"no kafka-server-start.sh on the PATH, and {_VARIABLE} names no directory of jars; get"
            " them by mvn dependency:copy-dependencies of org.apache.kafka:kafka_2.13"
            " and org.slf4j:slf4j-simple"
        ) from error
    return Path(script).resolve().parents[1] / "libs"


class _Sender:
    def __init__(self, producer: Any) -> None:
        self._producer = producer
        self._failed: list[Any] = []

    def _told(self, error: Any, _message: Any) -> None:
        if error is not None:
            self._failed.append(error)

    def send(self, value: bytes) -> None:
        self._produce(value, on_delivery=self._told)

    def send_many(self, values: Sequence[bytes]) -> None:
        for value in values:
            self._produce(value)

    def _produce(self, value: bytes, **more: Any) -> None:
        while True:
            try:
                self._producer.produce(TOPIC, value, **more)
                return
            except BufferError:
                self._producer.poll(0.01)

    def push(self) -> None:
        self._producer.poll(0)

    def flush(self) -> None:
        if left := self._producer.flush(PATIENCE_S):
            raise RuntimeError(f"{left} records were not acknowledged")
        if self._failed:
            raise RuntimeError(f"a record was not acknowledged: {self._failed[0]}")

    def close(self) -> None:
        self.flush()


class _Receiver:
    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    def receive(self) -> Sequence[bytes]:
        # It waits for all of them, or for the time: so it asks for one first.
        if (first := self._consumer.poll(PATIENCE_S)) is None:
            return []
        found = [first, *self._consumer.consume(10_000, 0)]
        return [message.value() for message in found if message.error() is None]

    def close(self) -> None:
        self._consumer.close()
