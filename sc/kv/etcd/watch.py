"""Following etcd's history: a stream that is opened again whenever it breaks.

Order and completeness rest on one number, the revision to ask for next. It moves past a revision
only when all its events have arrived, or when etcd says that the watch has caught up (a progress
message); never because of the revision in an answer's header, which runs ahead while a watch is
catching up. A stream that breaks is opened again there, on whichever member is current.

`Assembler` regroups: etcd never splits a revision's events over responses, but it does split a
large response into fragments, anywhere. The last revision of a fragment is held back until the
next fragment shows that it is complete.

A slow consumer costs no memory: one response at most is held, and nothing is read from the stream
until it is used up. Flow control then stops etcd, which keeps the place of the watch in its
history. If that is compacted meanwhile, the watch ends with CompactedError, after the batches
that had arrived before.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from itertools import groupby

from sc.kv.etcd import wire
from sc.kv.etcd.channel import Endpoint, Members, Stream, round_pause_s
from sc.kv.etcd.failures import CallFailed, Failure, Verdict, failure_of
from sc.kv.interface import DeleteEvent, Event, PutEvent, Watch, WatchBatch
from schemas.daemon.logs import get_logger
from schemas.errors import CompactedError, UnauthorizedError

_log = get_logger(__name__)


class Assembler:
    """Events in, whole revisions out, each once and in order. Pure.

    ``next_revision`` is the first revision that was not given out; a broken stream is resumed
    there.
    """

    def __init__(self, from_revision: int) -> None:
        self.next_revision = from_revision
        self._held: list[Event] = []

    def feed(self, events: Sequence[Event], *, more_follow: bool) -> list[WatchBatch]:
        """Batches that are complete now. ``more_follow`` when ``events`` are a fragment and not
        the last, so that its last revision may go on in the next."""
        everything = [*self._held, *events]
        groups = [(rev, tuple(group)) for rev, group in groupby(everything, _revision_of)]
        self._held = list(groups.pop()[1]) if more_follow and groups else []
        batches = [WatchBatch(rev, group) for rev, group in groups if rev >= self.next_revision]
        if batches:
            self.next_revision = batches[-1].revision + 1
        return batches

    def caught_up(self, revision: int) -> None:
        """All events up to ``revision`` have arrived."""
        self.next_revision = max(self.next_revision, revision + 1)

    def restart_at(self, revision: int) -> None:
        """Forget what is incomplete; the stream will be opened again at ``revision``."""
        self._held = []
        self.next_revision = revision


def lacks_history(batch: WatchBatch) -> bool:
    """Whether an event does not tell the version it replaced. etcd reads that when it sends the
    event, and cannot once the revision before was compacted."""
    return any(
        event.previous is None and (isinstance(event, DeleteEvent) or event.kv.version > 1)
        for event in batch.events
    )


class EtcdWatch(Watch):
    """A `Watch` over a stream. ``on_close`` is called once, when it ends."""

    def __init__(
        self,
        members: Members,
        prefix: str,
        from_revision: int,
        on_close: Callable[[EtcdWatch], None],
    ) -> None:
        self._members = members
        self._prefix = prefix
        self._assembler = Assembler(from_revision)
        self._on_close = on_close
        self._ready: deque[WatchBatch] = deque()
        self._reading: asyncio.Task[None] | None = None
        self._endpoint: Endpoint | None = None
        self._stream: Stream | None = None
        self._opened_at = 0
        self._token: str | None = None
        self._token_renewed = False
        self._closed = False

    async def __anext__(self) -> WatchBatch:
        while not self._closed:
            self._members.check_open()
            if self._ready:
                return self._ready.popleft()
            if self._reading is None:
                self._reading = asyncio.create_task(self._read(), name="etcd-watch")
            reading = self._reading
            # Not awaited itself: the wait may be cancelled, reading goes on for the next call.
            await asyncio.wait([reading])
            if self._reading is reading:
                self._reading = None
            if not reading.cancelled():
                reading.result()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            self._on_close(self)
        await self.stop()

    async def stop(self) -> None:
        """Stop reading, and wake a consumer that waits for a batch."""
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
            await asyncio.wait([reading])
            if not reading.cancelled():
                # No caller will ask for its error any more.
                reading.exception()
        self._drop_stream()

    async def _read(self) -> None:
        """Return when at least one batch is ready."""
        clock = asyncio.get_running_loop().time
        broken_since: float | None = None
        failures = 0
        while not self._ready:
            try:
                if self._stream is None:
                    self._stream = await self._open()
                    broken_since = None
                payload = await self._stream.read()
                failures = 0
                self._take(wire.parse_watch(payload))
            except CallFailed as failed:
                now = clock()
                broken_since = now if broken_since is None else broken_since
                self._handle(failed.failure)
                if now - broken_since > self._members.request_timeout_s:
                    raise failed.failure.error(failed.failure.message) from failed
                await asyncio.sleep(round_pause_s(failures))
                failures += 1

    async def _open(self) -> Stream:
        """A stream on which etcd has confirmed the watch."""
        at = self._assembler.next_revision
        self._endpoint, stream = await self._members.open_stream(wire.WATCH)
        self._token = self._members.token
        try:
            async with asyncio.timeout(self._members.attempt_timeout_s):
                await stream.write(wire.watch_request(self._prefix, at))
                reply = wire.parse_watch(await stream.read())
            self._check_canceled(reply)
        except TimeoutError:
            stream.cancel()
            failure = failure_of(self._endpoint.name, "DEADLINE_EXCEEDED", "no answer to a watch")
            raise CallFailed(failure) from None
        except BaseException:
            stream.cancel()
            raise
        self._opened_at = at
        self._token_renewed = False
        return stream

    def _take(self, reply: wire.WatchReply) -> None:
        self._check_canceled(reply)
        if not reply.events:
            if not reply.fragment and not reply.created:
                self._assembler.caught_up(reply.revision)
            return
        for batch in self._assembler.feed(reply.events, more_follow=reply.fragment):
            if lacks_history(batch) and batch.revision != self._opened_at:
                # Allowed at the compacted revision only. Asked for that revision, etcd says
                # whether it is, or that it is compacted itself.
                self._assembler.restart_at(batch.revision)
                self._drop_stream()
                return
            self._ready.append(batch)

    def _check_canceled(self, reply: wire.WatchReply) -> None:
        if not reply.canceled:
            return
        self._drop_stream()
        if reply.compact_revision:
            raise CompactedError(
                f"revision {self._assembler.next_revision} was compacted; list again and watch "
                "from there",
                first_available=reply.compact_revision,
            )
        name = self._endpoint.name if self._endpoint else "?"
        raise CallFailed(failure_of(name, "CANCELLED", reply.cancel_reason))

    def _handle(self, failure: Failure) -> None:
        """Get ready to open the stream again. Raises RunnelError when that cannot help."""
        at = self._assembler.next_revision
        self._drop_stream()
        self._assembler.restart_at(at)
        if failure.error is UnauthorizedError and not self._token_renewed:
            # etcd before 3.5.16 refuses an expired token like a missing permission.
            self._token_renewed = True
            self._members.forget_token(self._token)
            return
        if failure.verdict in (Verdict.FINAL, Verdict.EXPIRED):
            raise failure.error(failure.message)
        _log.info("watch broke, opening it again", at=at, prefix=self._prefix, why=failure.message)
        if self._endpoint is not None:
            self._members.turn_from(self._endpoint, failure)

    def _drop_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.cancel()


def _revision_of(event: Event) -> int:
    return event.kv.mod_revision if isinstance(event, PutEvent) else event.mod_revision
