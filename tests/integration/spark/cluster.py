"""A real cluster for tests of Spark: one SC and one SPU as processes, and a proxy that counts.

The SPU advertises the proxy's port, so every byte between clients and the SPU passes through
it. It parses frames only as far as their header, to say which api was asked how often.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import yaml

import runnel
from runnel.local.plan import HOST
from schemas.wire.protocol import FRAME_HEADER, PREFIX, Api
from tests.ports import free_ports

DEADLINE_S = 60.0


class CountingProxy:
    """Forwards connections to the SPU; counts requests by api and the bytes of the answers.

    Runs an event loop in a thread of its own, so that blocking tests can look at it.
    """

    def __init__(self, target_port: int) -> None:
        self.requests: Counter[Api] = Counter()
        self.answer_bytes = 0
        #: The processes that asked for records.
        self.fetching_pids: set[int] = set()
        self._target_port = target_port
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._stop = asyncio.Event()
        self.port = 0
        self._thread = threading.Thread(target=self._run, name="proxy")
        self._thread.start()
        assert self._started.wait(DEADLINE_S)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(DEADLINE_S)

    def reset(self) -> None:
        """Count from zero."""
        self.requests.clear()
        self.answer_bytes = 0
        self.fetching_pids.clear()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        tasks: set[asyncio.Task[None]] = set()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = self._loop.create_task(self._connection(reader, writer))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        server = await asyncio.start_server(accept, HOST, 0)
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._stop.wait()
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connection(
        self, client: asyncio.StreamReader, answers: asyncio.StreamWriter
    ) -> None:
        peer_port = answers.get_extra_info("peername")[1]
        writers = [answers]
        try:
            spu, requests = await asyncio.open_connection(HOST, self._target_port)
            writers.append(requests)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._forward_requests(client, requests, peer_port))
                group.create_task(self._forward_answers(spu, answers))
        except* (OSError, asyncio.IncompleteReadError):
            pass  # One side went away: so does the other.
        finally:
            for writer in writers:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()

    async def _forward_requests(
        self, client: asyncio.StreamReader, spu: asyncio.StreamWriter, peer_port: int
    ) -> None:
        while True:
            prefix = await client.readexactly(PREFIX.size)
            (length,) = PREFIX.unpack(prefix)
            body = await client.readexactly(length)
            api = Api(FRAME_HEADER.unpack_from(body)[0])
            self.requests[api] += 1
            if api in (Api.FETCH, Api.SUBSCRIBE):
                self.fetching_pids.update(_owners(peer_port))
            spu.write(prefix + body)
            await spu.drain()

    async def _forward_answers(
        self, spu: asyncio.StreamReader, client: asyncio.StreamWriter
    ) -> None:
        while data := await spu.read(1 << 20):
            self.answer_bytes += len(data)
            client.write(data)
            await client.drain()
        raise asyncio.IncompleteReadError(b"", None)


def _owners(local_port: int) -> list[int]:
    """The processes whose end of a loopback connection has this port."""
    return [
        found.pid
        for found in psutil.net_connections("tcp")
        if found.laddr and found.laddr.port == local_port and found.pid is not None
    ]


@dataclass
class RunningCluster:
    """Addresses of a running cluster, a client of it, and the proxy before its SPU."""

    sc: str
    client: runnel.Cluster
    proxy: CountingProxy

    def topic(self, name: str, partitions: int = 1) -> str:
        """Create a topic and wait until it takes records."""
        self.client.apply(runnel.Topic(name, partitions=partitions))
        self.client.wait("topic", name, "provisioned")
        self.client.offsets(name)
        return name


@contextmanager
def run_cluster(directory: Path) -> Iterator[RunningCluster]:
    """An SC and an SPU with their data under ``directory``, until the block ends."""
    sc_port, sc_private, spu_port, spu_private, spu_http = free_ports(5)
    processes: list[subprocess.Popen[bytes]] = []

    def launch(module: str, config: dict[str, object]) -> None:
        file = directory / f"{module}.yaml"
        file.write_text(yaml.safe_dump(config))
        with (directory / f"{module}.log").open("wb") as log:
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-P", "-m", module, "-c", str(file)], stdout=log, stderr=log
                )
            )

    def logs() -> str:
        return "\n".join(f"{f.name}:\n{f.read_text()[-2000:]}" for f in directory.glob("*.log"))

    proxy = CountingProxy(spu_port)
    try:
        launch(
            "sc",
            {
                "cluster": "spark-tests",
                "kv": f"sqlite:{directory / 'kv.db'}",
                "public": {"host": HOST, "port": sc_port},
                "private": {"host": HOST, "port": sc_private},
            },
        )
        address = f"{HOST}:{sc_port}"
        with _connected(address, processes[0]) as client:
            client.apply(
                runnel.Spu(
                    "spu-0",
                    0,
                    public_endpoint={"ingress": [{"ip": HOST}], "port": proxy.port},
                    private_endpoint={"host": HOST, "port": spu_private},
                )
            )
            launch(
                "spu",
                {
                    "spuId": 0,
                    "logDir": str(directory / "spu-0"),
                    "controller": f"{HOST}:{sc_private}",
                    "public": {"host": HOST, "port": spu_port},
                    "private": {"host": HOST, "port": spu_private},
                    "http": {"host": HOST, "port": spu_http},
                },
            )
            client.wait("spu", "spu-0", "online", timeout=DEADLINE_S)
            yield RunningCluster(address, client, proxy)
    except runnel.RunnelError as error:
        error.add_note(logs())
        raise
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait(DEADLINE_S)
        proxy.close()


@contextmanager
def _connected(address: str, sc: subprocess.Popen[bytes]) -> Iterator[runnel.Cluster]:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            client = runnel.connect(address)
            break
        except runnel.UnreachableError:
            if time.monotonic() > deadline or sc.poll() is not None:
                raise
            time.sleep(0.05)
    with client:
        yield client
