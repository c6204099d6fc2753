"""NATS JetStream as a peer: servers with a stream in files, and its asyncio client.

The client's event loop has a thread of its own, as the clients of the others have. ``fsync`` is
``sync_interval: always``; otherwise NATS syncs every two minutes.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Coroutine, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

from benchmarks.own_daemons import Daemon
from benchmarks.peers.peer import PATIENCE_S, TOPIC, Setup, client, program
from benchmarks.peers.ports import free_ports

_VARIABLE: Final = "BENCH_NATS_SERVER"
_NAME: Final = "nats-server"
_HOW: Final = "go install github.com/nats-io/nats-server/v2@latest"
_PACKAGE: Final = "nats-py"
#: Publishes that wait for their acknowledgement.
_PENDING: Final = 4_000
#: The client sends nothing again by itself. So long without any answer, and this does.
_RESEND_S: Final = 1.0
_REFUSED_S: Final = 0.005
_T = TypeVar("_T")


class NatsPeer:
    """See `benchmarks.peers.peer.Peer`."""

    name = "NATS"

    def __init__(self) -> None:
        self._servers: list[Daemon] = []
        self._ports: list[int] = []
        self._loop: _Loop | None = None

    def version(self) -> str:
        command = [program(_VARIABLE, _NAME, _HOW), "--version"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        library = client("nats.aio.client", _PACKAGE)
        return f"NATS {said.split()[-1].removeprefix('v')}, nats-py {library.__version__}"

    def start(self, setup: Setup) -> None:
        ports = free_ports(2 * setup.brokers)
        self._ports, routes = ports[: setup.brokers], ports[setup.brokers :]
        listed = ", ".join(f"nats://127.0.0.1:{port}" for port in routes)
        for number, (port, route) in enumerate(zip(self._ports, routes, strict=True)):
            store = setup.directory / f"server-{number}"
            sync = "sync_interval: always" if setup.fsync else ""
            text = f"server_name: s{number}\nhost: 127.0.0.1\nport: {port}\n"
            text += f'jetstream {{ store_dir: "{store}", {sync} }}\n'
            if setup.brokers > 1:
                text += f"cluster {{ name: c, listen: 127.0.0.1:{route}, routes: [{listed}] }}\n"
            config = setup.directory / f"server-{number}.conf"
            config.write_text(text)
            command = [program(_VARIABLE, _NAME, _HOW), "-c", str(config)]
            server = Daemon(command, setup.directory / f"server-{number}.log")
            server.start()
            self._servers.append(server)
        self._loop = _Loop()
        self._loop.run(self._create_stream(setup.brokers))

    async def _create_stream(self, replicas: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                connection = await self._connect()
                try:
                    stream = connection.jetstream()
                    await stream.add_stream(name=TOPIC, subjects=[TOPIC], num_replicas=replicas)
                finally:
                    await connection.close()
                return
            except Exception:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.1)

    async def _connect(self) -> Any:
        servers = [f"nats://127.0.0.1:{port}" for port in self._ports]
        return await client("nats", _PACKAGE).connect(
            servers, error_cb=_quiet, reconnect_time_wait=0.05, max_reconnect_attempts=-1
        )

    def stop(self) -> None:
        if self._loop is not None:
            self._loop.close()
        for server in self._servers:
            server.end(signal.SIGKILL)
        self._servers.clear()
        self._loop = None

    def sender(self) -> _Sender:
        loop = self._running
        return _Sender(loop, loop.run(self._connect()))

    def receiver(self, *, from_beginning: bool) -> _Receiver:
        loop = self._running
        connection = loop.run(self._connect())
        api = client("nats.js.api", _PACKAGE)
        policy = api.DeliverPolicy.ALL if from_beginning else api.DeliverPolicy.NEW
        arrived: SimpleQueue[bytes] = SimpleQueue()

        async def keep(message: Any) -> None:
            arrived.put(message.data)

        subscribe = connection.jetstream().subscribe(
            TOPIC,
            cb=keep,
            ordered_consumer=True,
            deliver_policy=policy,
            pending_msgs_limit=-1,
            pending_bytes_limit=-1,
        )
        loop.run(subscribe)
        return _Receiver(loop, connection, arrived)

    def pids(self) -> list[int]:
        return [server.pid for server in self._servers]

    def kill_leader(self) -> None:
        number = int(self._running.run(self._leader()).removeprefix("s"))
        self._servers[number].end(signal.SIGKILL)
        del self._servers[number]

    async def _leader(self) -> str:
        connection = await self._connect()
        try:
            found = await connection.jetstream().stream_info(TOPIC)
            return str(found.cluster.leader)
        finally:
            await connection.close()

    @property
    def _running(self) -> _Loop:
        assert self._loop is not None
        return self._loop


class _Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE_S)

    def close(self) -> None:
        self.run(self._cancel_others())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(PATIENCE_S)
        self.loop.close()

    async def _cancel_others(self) -> None:
        """The client leaves tasks behind that look after consumers."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


class _Sender:
    def __init__(self, loop: _Loop, connection: Any) -> None:
        self._loop = loop
        self._connection = connection
        self._stream = connection.jetstream(publish_async_max_pending=_PENDING)
        self._waiting: deque[bytes] = deque()
        self._unanswered: dict[asyncio.Future[Any], bytes] = {}

    def send(self, value: bytes) -> None:
        self._waiting.append(value)
        if len(self._waiting) >= _PENDING:
            self._loop.run(self._publish())

    def send_many(self, values: Sequence[bytes]) -> None:
        for value in values:
            self.send(value)

    def push(self) -> None:
        asyncio.run_coroutine_threadsafe(self._publish(), self._loop.loop)

    def flush(self) -> None:
        self._loop.run(self._acknowledged())

    async def _publish(self) -> None:
        while self._waiting:
            value = self._waiting.popleft()
            future = await self._stream.publish_async(TOPIC, value)
            self._unanswered[future] = value
            future.add_done_callback(self._told)

    async def _acknowledged(self) -> None:
        """What is refused, as while no server leads, or is not answered, because the server that
        had it died, is sent again."""
        patience_s = _RESEND_S
        while self._waiting or self._unanswered:
            await self._publish()
            if before := list(self._unanswered):
                done, _ = await asyncio.wait(before, timeout=patience_s)
                if not done:
                    # A slow disk must not get everything again and again.
                    patience_s *= 2
                    for future in before:
                        future.cancel()
            if self._waiting:
                await asyncio.sleep(_REFUSED_S)

    def _told(self, future: asyncio.Future[Any]) -> None:
        value = self._unanswered.pop(future)
        if future.cancelled() or future.exception() is not None:
            self._waiting.append(value)

    def close(self) -> None:
        self.flush()
        self._loop.run(self._connection.close())


class _Receiver:
    def __init__(self, loop: _Loop, connection: Any, arrived: SimpleQueue[bytes]) -> None:
        self._loop = loop
        self._connection = connection
        self._arrived = arrived

    def receive(self) -> Sequence[bytes]:
        try:
            first = self._arrived.get(timeout=PATIENCE_S)
        except Empty:
            return []
        return [first, *(self._arrived.get() for _ in range(self._arrived.qsize()))]

    def close(self) -> None:
        self._loop.run(self._connection.close())


async def _quiet(_error: Exception) -> None:
    """A server that was killed is meant to be away."""
