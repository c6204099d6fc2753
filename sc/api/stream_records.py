"""The records of streams for those who answer requests: reads at one revision, and writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from sc.controller import Controller
from sc.controllers.streams.records import StateRecord, StreamPaths, decode, epoch_of
from sc.kv.interface import Compare, ModRevisionIs, Op
from sc.store.records import GetRecord, NotReadError, Records, Want, get, listed
from schemas.errors import NotFoundError, NotReadyError
from schemas.objects.stream import Stream
from schemas.streams.epochs import Epoch

T = TypeVar("T")

#: When to ask again for a stream that is being created, in milliseconds: clients do so by
#: themselves. It is placed and led by then, where SPUs are online.
CREATION_RETRY_MS: Final = 100


def being_created(stream: Stream) -> NotReadyError:
    """The answer while a stream has no epoch yet: why, and when to ask again."""
    why = f": {stream.status.reason}" if stream.status.reason else "; try again in a moment"
    return NotReadyError(
        f"stream {stream.name} is being created{why}", retryAfterMs=CREATION_RETRY_MS
    )


class StreamRecords:
    """Over one controller's KV and mirror."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._kv = controller.kv
        self._keys = controller.keys

    def stream(self, name: str) -> Stream:
        """The stream of a name. Raises NotFoundError."""
        found = self._controller.view.store.get(Stream, name)
        if found is None:
            raise NotFoundError(f"Stream {name!r} does not exist")
        return found

    async def state(self, stream: Stream) -> tuple[StateRecord, Records]:
        """Where a stream is in its life, and the records of one revision to go on with. Raises
        NotReadyError before it has any."""
        paths = StreamPaths(stream.uid)
        records = await self.read(None, (GetRecord(paths.state),))
        stored = get(records, paths.state)
        if stored is None:
            raise being_created(stream)
        return decode(StateRecord, stored), records

    def current(self, stream: Stream, state: StateRecord) -> int:
        """The number of its current epoch. Raises NotReadyError while it has none."""
        if state.epoch is None:
            raise being_created(stream)
        return state.epoch

    async def epoch(self, stream: Stream, records: Records, number: int) -> Epoch:
        """An epoch by its number. Raises InvalidRequestError if it is not stored."""
        want = StreamPaths(stream.uid).epoch_want(number)
        found = await self.read(records, (want,))
        return epoch_of(number, listed(found, want))

    async def asking(self, records: Records, ask: Callable[[Records], T]) -> T:
        """What a function makes of records, which are read as it needs them."""
        while True:
            try:
                return ask(records)
            except NotReadError as missing:
                records = await self.read(records, missing.wants)

    async def read(self, records: Records | None, wants: Sequence[Want]) -> Records:
        """Records together with some more, all at one revision."""
        return await self._controller.records.read(records, wants)

    def here(self) -> list[Compare]:
        """The cluster is in this store."""
        return [ModRevisionIs(self._keys.moved, 0), ModRevisionIs(self._keys.arriving, 0)]

    async def commit(
        self, compares: Sequence[Compare], ops: Sequence[Op], *, dry_run: bool
    ) -> bool:
        """Write unless a record is at another revision; whether that was done."""
        result = await self._kv.txn([*self.here(), *compares], () if dry_run else ops)
        return result.succeeded
