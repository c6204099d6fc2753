"""The fetches of one client connection: held back, read, or waiting for more records.

Two bounds hold. No fetch is carried out while the client does not read what was sent, and one fetch
at a time reads from the disk. So a slow client costs the memory of one answer, not of all of them.
A fetch first tries the page cache on the loop, and is repeated in a thread if it needs the disk. A
fetch that finds less than it asks for waits in the replica (`spu.replica.waiters`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial

from schemas.errors import RunnelError
from schemas.wire.record_requests import FetchFlags, FetchRequest
from spu.replica.replica import Found, Replica
from spu.server.pending_request import PendingRequest, Responder
from spu.storage.segment import Damage


class Fetches:
    """``read_threads`` runs reads that need the disk."""

    def __init__(self, read_threads: Executor, client: Responder) -> None:
        self._read_threads = read_threads
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._disk_busy = False
        # Fetches that wait for the client to read what was sent, or for the disk.
        self._held_back: deque[tuple[PendingRequest, bool]] = deque()

    def begin(self, request: PendingRequest, replica: Replica, fetch: FetchRequest) -> None:
        """Answer a fetch, now or when there are enough records."""
        if FetchFlags.LOCATE in fetch.flags and not self._client.is_on_this_host:
            # Elsewhere, a path is of no use, and nobody's business.
            fetch = replace(fetch, flags=fetch.flags & ~FetchFlags.LOCATE)
        request.replica, request.fetch = replica, fetch
        self._try(request, final=False)

    def resume(self) -> None:
        """Try each held-back fetch once; one that still cannot run is held back again."""
        for _ in range(len(self._held_back)):
            if not self._client.is_writable:
                return
            request, final = self._held_back.popleft()
            self._try(request, final=final)

    def close(self) -> None:
        """The client is gone."""
        self._held_back.clear()

    def _try(self, request: PendingRequest, *, final: bool) -> None:
        """Answer a fetch if there are enough records; with ``final``, whatever there is."""
        replica, fetch, client = request.replica, request.fetch, self._client
        if replica is None or fetch is None or not client.is_pending(request):
            return
        if not client.is_writable:
            self._held_back.append((request, final))
            return
        try:
            found = replica.fetch(fetch)
        except BlockingIOError:
            self._read_in_thread(request, replica, fetch, final=final)
        except (RunnelError, Damage, OSError) as error:
            client.refuse_read(request, replica, error)
        else:
            self._deliver(request, replica, found, final=final)

    def _read_in_thread(
        self, request: PendingRequest, replica: Replica, fetch: FetchRequest, *, final: bool
    ) -> None:
        if self._disk_busy:
            self._held_back.append((request, final))
            return
        self._disk_busy = True
        read = partial(replica.fetch, fetch, wait=True)
        future = self._loop.run_in_executor(self._read_threads, read)
        future.add_done_callback(partial(self._was_read, request, replica, final=final))

    def _was_read(
        self, request: PendingRequest, replica: Replica, read: asyncio.Future[Found], *, final: bool
    ) -> None:
        self._disk_busy = False
        error = None if read.cancelled() else read.exception()
        if error is not None:
            self._client.refuse_read(request, replica, error)
        elif not read.cancelled():
            self._deliver(request, replica, read.result(), final=final)
        self.resume()

    def _deliver(
        self, request: PendingRequest, replica: Replica, found: Found, *, final: bool
    ) -> None:
        fetch = request.fetch
        if not self._client.is_pending(request) or fetch is None:
            return
        if found.enough or final or fetch.max_wait_ms == 0:
            self._client.answer(request, found.response.pack(), found.data)
            return
        if found.response.lac != replica.lac:
            # More records were committed while a thread was reading.
            self._try(request, final=False)
            return
        request.waiter = replica.when_more(fetch, len(found.data), partial(self._woken, request))

    def _woken(self, request: PendingRequest, error: RunnelError | None) -> None:
        request.waiter = None
        if error is not None:
            self._client.refuse(request, error)
        else:
            self._try(request, final=True)
