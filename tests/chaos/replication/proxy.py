"""A proxy before the private port of an SPU, which can cut what comes from one other SPU.

Who dials stands in the greeting, the first frame. A cut connection stays open and carries nothing,
as where a network drops everything: neither end is told.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading

from schemas.wire.protocol import PREFIX, unpack_frame
from spu.replication.wire import Greeting

_CHUNK = 1 << 16


class PeerProxy:
    """Forwards a loopback port of its own, `port`, to ``target``, in a thread of its own."""

    def __init__(self, target: int) -> None:
        self.port = 0
        self._target = target
        self._cut: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._listening = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        if not self._listening.wait(10):
            raise TimeoutError("the proxy does not listen")

    def cut(self, peer: int) -> None:
        """Let nothing through any more between the target and SPU ``peer``, which dials it."""
        self._cut.add(peer)

    def heal(self) -> None:
        """Let everything through again."""
        self._cut.clear()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _run(self) -> None:
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._listening.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            prefix = await reader.readexactly(PREFIX.size)
            frame = await reader.readexactly(PREFIX.unpack(prefix)[0])
            _, fixed, tail = unpack_frame(memoryview(frame))
            peer = Greeting.unpack(fixed, tail).spu
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
            back.write(prefix + frame)
            await asyncio.gather(
                self._pass_on(peer, reader, back), self._pass_on(peer, there, writer)
            )
        writer.close()

    async def _pass_on(
        self, peer: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            while data := await reader.read(_CHUNK):
                while peer in self._cut:  # noqa: ASYNC110 - set from another thread
                    await asyncio.sleep(0.05)
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()
