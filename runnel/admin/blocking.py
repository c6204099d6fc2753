"""The blocking facade of the object API; `runnel.blocking.Cluster` adds records to it.

It is a class of its own because code that only manages objects (most of the command line) needs
neither Arrow nor connections to SPUs.
"""

from __future__ import annotations

import builtins
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self

from runnel.admin.answers import ApplyResult, DivergentSpu, History, ReplicaState
from runnel.admin.calls import OnWarning
from runnel.admin.client import Admin
from runnel.admin.http import ScClient
from runnel.admin.reads import Selector
from runnel.admin.streams import StreamAdmin
from runnel.admin.watch import Watch as AsyncWatch
from runnel.admin.watch import WatchEvent
from runnel.contexts import default_sc
from runnel.loop_thread import ClosedError, LoopThread, blocking_form_of
from schemas.control.streams import (
    EpochInfo,
    ScalingEvents,
    SegmentHistory,
    StreamRequest,
)
from schemas.errors import RunnelError
from schemas.objects.metadata import Object
from schemas.objects.partition import Partition
from schemas.streams.cuts import StreamCut


@contextmanager
def administer(
    address: str | None = None, by: str | None = None, on_warning: OnWarning | None = None
) -> Iterator[BlockingAdmin]:
    """The objects of a cluster, without its records; arguments as of `runnel.connect`.

    ``on_warning`` takes the SC's warnings about objects that it has accepted, in the client's
    thread; without it, they go to the log ``runnel``. It sends nothing before the first call.
    """
    address = default_sc() if address is None else address
    thread = LoopThread(f"runnel objects {address}")

    async def open_it() -> ScClient:
        opened = ScClient.parse(address, by)
        if on_warning is not None:
            opened.on_warning = on_warning
        return opened

    try:
        sc = thread.call(open_it())
        try:
            yield BlockingAdmin(thread, Admin(sc))
        finally:
            thread.call(sc.close())
    finally:
        thread.stop()


class BlockingStreamAdmin:
    """`runnel.admin.streams.StreamAdmin`, blocking."""

    def __init__(self, thread: LoopThread, inner: StreamAdmin) -> None:
        self._thread = thread
        self._inner = inner
        self.name = inner.name

    @blocking_form_of(StreamAdmin.epoch)
    def epoch(self, number: int | None = None) -> EpochInfo:
        """An epoch by its number, or the current one."""
        return self._thread.call(self._inner.epoch(number))

    @blocking_form_of(StreamAdmin.events)
    def events(self, limit: int = 100) -> ScalingEvents:
        """When it was scaled, the newest last."""
        return self._thread.call(self._inner.events(limit))

    @blocking_form_of(StreamAdmin.segment)
    def segment(self, segment: str) -> SegmentHistory:
        """A segment, EPOCH.NUMBER, with those before and after it."""
        return self._thread.call(self._inner.segment(segment))

    @blocking_form_of(StreamAdmin.head)
    def head(self) -> StreamCut:
        """The beginning of the stream: the cut of its last truncation, or its first segments."""
        return self._thread.call(self._inner.head())

    @blocking_form_of(StreamAdmin.subscribers)
    def subscribers(self) -> dict[str, StreamCut]:
        """The places that reader groups have published, by the names of the groups."""
        return self._thread.call(self._inner.subscribers())

    @blocking_form_of(StreamAdmin.subscribe)
    def subscribe(self, group: str, cut: StreamCut) -> bool:
        """Have retention keep what lies behind a cut, up to which a reader group has read."""
        return self._thread.call(self._inner.subscribe(group, cut))

    @blocking_form_of(StreamAdmin.unsubscribe)
    def unsubscribe(self, group: str) -> None:
        """Have retention wait for a reader group no more; nothing if it does not."""
        self._thread.call(self._inner.unsubscribe(group))

    @blocking_form_of(StreamAdmin.request)
    def request(self, request: str) -> StreamRequest:
        """How far a request is."""
        return self._thread.call(self._inner.request(request))

    @blocking_form_of(StreamAdmin.scale)
    def scale(
        self,
        seal: Sequence[str],
        into: Sequence[tuple[float, float]],
        *,
        timeout: float = 60.0,
    ) -> StreamRequest:
        """Replace segments by others that have the same keys, and wait until that is done."""
        return self._thread.call(self._inner.scale(seal, into, timeout=timeout))

    @blocking_form_of(StreamAdmin.seal)
    def seal(self, *, timeout: float = 60.0) -> StreamRequest:
        """Seal the stream for good, and wait until that is done."""
        return self._thread.call(self._inner.seal(timeout=timeout))


class BlockingAdmin:
    """`runnel.admin.client.Admin`, blocking."""

    def __init__(self, thread: LoopThread, inner: Admin) -> None:
        self._thread = thread
        self._admin = inner

    @blocking_form_of(Admin.apply)
    def apply(self, wanted: Object | Mapping[str, Any], *, dry_run: bool = False) -> ApplyResult:
        """Create the object, or replace labels, annotations and spec of the one that exists."""
        return self._thread.call(self._admin.apply(wanted, dry_run=dry_run))

    def create(self, wanted: Object | Mapping[str, Any], *, dry_run: bool = False) -> Object:
        """Create an object. Raises ConflictError if it exists."""
        return self._thread.call(self._admin.create(wanted, dry_run=dry_run))

    def stream(self, name: str) -> BlockingStreamAdmin:
        """One stream, by SCOPE/NAME, or NAME for one in the scope ``default``; asks nobody yet."""
        return BlockingStreamAdmin(self._thread, self._admin.stream(name))

    @blocking_form_of(Admin.patch)
    def patch(
        self, kind: str, name: str, patch: Mapping[str, Any], *, dry_run: bool = False
    ) -> Object:
        """Change some fields of labels, annotations and spec, as JSON merge patch (RFC 7386)."""
        return self._thread.call(self._admin.patch(kind, name, patch, dry_run=dry_run))

    def get(self, kind: str, name: str) -> Object:
        """One object. Raises NotFoundError."""
        return self._thread.call(self._admin.get(kind, name))

    @blocking_form_of(Admin.list)
    def list(
        self, kind: str, selector: Selector | None = None, *, show_system: bool = False
    ) -> builtins.list[Object]:
        """All objects of a kind, or those that a selector of labels chooses, as of one moment."""
        return self._thread.call(self._admin.list(kind, selector, show_system=show_system))

    @blocking_form_of(Admin.watch)
    def watch(
        self,
        kind: str,
        name: str | None = None,
        selector: Selector | None = None,
        *,
        since: int | None = None,
        show_system: bool = False,
        on_trouble: Callable[[RunnelError], None] | None = None,
    ) -> Watch:
        """Follow the objects of a kind, or one of them: see `runnel.admin.watch.Watch`.

        ``on_trouble`` is called in the client's thread.
        """
        inner = self._admin.watch(
            kind, name, selector, since=since, show_system=show_system, on_trouble=on_trouble
        )
        return Watch(self._thread, inner)

    @blocking_form_of(Admin.delete)
    def delete(self, kind: str, name: str, *, force: bool = False, dry_run: bool = False) -> Object:
        """Begin to delete an object; `wait` for ``deleted``.

        Raises NotFoundError, ConflictError.
        """
        return self._thread.call(self._admin.delete(kind, name, force=force, dry_run=dry_run))

    @blocking_form_of(Admin.history)
    def history(self, kind: str, name: str, limit: int = 20) -> History:
        """The last writes of an object that exists. Raises NotFoundError."""
        return self._thread.call(self._admin.history(kind, name, limit))

    @blocking_form_of(Admin.replicas)
    def replicas(self, partition: str) -> tuple[ReplicaState, ...]:
        """The last reports of a partition's replicas, by its name. Raises NotFoundError."""
        return self._thread.call(self._admin.replicas(partition))

    @blocking_form_of(Admin.wait)
    def wait(
        self,
        kind: str,
        name: str,
        resolution: str,
        timeout: float = 60.0,
        on_state: Callable[[str], None] | None = None,
    ) -> Object | None:
        """Wait until an object has a resolution, or is deleted (``deleted``; gives None).

        ``on_state`` is called in the client's thread.
        """
        return self._thread.call(self._admin.wait(kind, name, resolution, timeout, on_state))

    @blocking_form_of(Admin.elect)
    def elect(
        self, name: str, term: int, leader: int | None = None, timeout: float = 60.0
    ) -> Partition:
        """Elect a leader that may lack committed records; the records that it lacks are lost."""
        return self._thread.call(self._admin.elect(name, term, leader, timeout))

    @blocking_form_of(Admin.divergent_spus)
    def divergent_spus(self) -> tuple[DivergentSpu, ...]:
        """The SPUs that the SC turns away until an operator decides on a recovery (`recover`)."""
        return self._thread.call(self._admin.divergent_spus())

    @blocking_form_of(Admin.recover)
    def recover(self, spu: int) -> int:
        """Recover the cluster from a KV that was restored from a backup, and believe an SPU."""
        return self._thread.call(self._admin.recover(spu))


class Watch:
    """Iterates over `WatchEvent`, without end; see `runnel.admin.watch.Watch`."""

    def __init__(self, thread: LoopThread, inner: AsyncWatch) -> None:
        self._thread = thread
        self._inner = inner
        # A loop that was left has no more use for the watch: its connection ends.
        self._finalizer = weakref.finalize(self, thread.soon, inner.abandon)
        self._finalizer.atexit = False

    def state(self) -> list[Object]:
        """All objects that exist now; iterating continues with the changes after them."""
        return self._thread.call(self._inner.state())

    def __iter__(self) -> Iterator[WatchEvent]:
        while True:
            yield self._thread.call(anext(self._inner))

    def close(self) -> None:
        """End the connection."""
        if self._thread.running:
            self._thread.end(self._inner.close(), self._inner.abandon)
        self._finalizer.detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with suppress(ClosedError):
            self.close()
