"""Redis as a peer: one server and a stream, with an append-only file.

Redis acknowledges before its replicas have a record and elects no leader by itself, so there are no
three brokers and no failover to compare.
"""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Sequence
from typing import Any, Final

from benchmarks.own_daemons import Daemon
from benchmarks.peers.peer import PATIENCE_S, TOPIC, Setup, UnavailableError, client, program
from benchmarks.peers.ports import free_ports

_VARIABLE: Final = "BENCH_REDIS_SERVER"
_NAME: Final = "redis-server"
_HOW: Final = "apt-get install redis-server"
#: Commands in one pipeline; more of them do not make it faster.
_PIPELINE: Final = 1_000


class RedisPeer:
    """See `benchmarks.peers.peer.Peer`."""

    name = "Redis"

    def __init__(self) -> None:
        self._server: Daemon | None = None
        self._port = 0

    def version(self) -> str:
        command = [program(_VARIABLE, _NAME, _HOW), "--version"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        found = re.search(r"v=(\S+)", said)
        library = client("redis", "redis")
        return f"Redis {found[1] if found else said}, redis-py {library.__version__}"

    def start(self, setup: Setup) -> None:
        if setup.brokers > 1:
            raise UnavailableError(
                "its replication is asynchronous: nothing waits for all replicas"
            )
        (self._port,) = free_ports(1)
        sync = "always" if setup.fsync else "no"
        options = ["--port", str(self._port), "--bind", "127.0.0.1", "--dir", str(setup.directory)]
        kept = ["--appendonly", "yes", "--appendfsync", sync, "--save", ""]
        command = [program(_VARIABLE, _NAME, _HOW), *options, *kept]
        self._server = Daemon(command, setup.directory / "redis.log")
        self._server.start()
        redis, deadline = self._connected(), time.monotonic() + PATIENCE_S
        while True:
            try:
                redis.ping()
                return
            except client("redis", "redis").exceptions.ConnectionError:
                self._server.check()
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def stop(self) -> None:
        if self._server is not None:
            self._server.end(signal.SIGKILL)
        self._server = None

    def sender(self) -> _Sender:
        return _Sender(self._connected())

    def receiver(self, *, from_beginning: bool) -> _Receiver:
        redis = self._connected()
        last = None if from_beginning else redis.xrevrange(TOPIC, count=1)
        return _Receiver(redis, last[0][0] if last else b"0")

    def pids(self) -> list[int]:
        assert self._server is not None
        return [self._server.pid]

    def kill_leader(self) -> None:
        raise UnavailableError("it elects no leader by itself")

    def _connected(self) -> Any:
        return client("redis", "redis").Redis("127.0.0.1", self._port)


class _Sender:
    def __init__(self, redis: Any) -> None:
        self._redis = redis
        self._waiting = redis.pipeline(transaction=False)

    def send(self, value: bytes) -> None:
        self._waiting.xadd(TOPIC, {"v": value})
        if len(self._waiting) >= _PIPELINE:
            self._waiting.execute()

    def send_many(self, values: Sequence[bytes]) -> None:
        for value in values:
            self.send(value)

    def push(self) -> None:
        self.flush()

    def flush(self) -> None:
        if len(self._waiting):
            self._waiting.execute()

    def close(self) -> None:
        self.flush()
        self._redis.close()


class _Receiver:
    def __init__(self, redis: Any, last: bytes) -> None:
        self._redis = redis
        self._last = last

    def receive(self) -> Sequence[bytes]:
        wait_ms = int(PATIENCE_S * 1000)
        found = self._redis.xread({TOPIC: self._last}, count=10_000, block=wait_ms)
        if not found:
            return []
        ((_, entries),) = found.items() if isinstance(found, dict) else found
        if isinstance(found, dict):
            (entries,) = entries
        self._last = entries[-1][0]
        return [fields[b"v"] for _, fields in entries]

    def close(self) -> None:
        self._redis.close()
