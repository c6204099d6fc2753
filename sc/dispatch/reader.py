"""The KV reader: list, then watch, for as long as the SC runs.

A watch that breaks is resumed from its revision; one that was compacted is replaced by a new
listing, of which only the difference is passed on. The same listing runs now and then by itself
and repairs whatever the mirror has missed. An object that does not parse is reported, kept in the
KV, and not mirrored (what was readable of it before stays); everything else goes on.
"""

from __future__ import annotations

import asyncio

from sc.dispatch.metadata import MetadataDispatcher
from sc.kv.interface import KV, DeleteEvent, KeyValue, PutEvent, WatchBatch, range_all
from sc.store.codec import decode_object, decode_tombstone
from sc.store.local_store import Change, LocalStore
from schemas.causality import new_cause
from schemas.errors import CompactedError, InvalidRequestError, RetryableError
from schemas.keys import ClusterKeys
from schemas.kinds import BY_PLURAL
from schemas.logs import get_logger

RETRY_S = 0.2

log = get_logger(__name__)


class KvReader:
    """Keeps a local store in step with the KV."""

    def __init__(
        self, kv: KV, keys: ClusterKeys, store: LocalStore, dispatcher: MetadataDispatcher
    ) -> None:
        self._kv = kv
        self._keys = keys
        self._store = store
        self._dispatcher = dispatcher
        self._next_revision = 1
        #: Keys in the KV that do not parse, with the reason.
        self.unreadable: dict[str, str] = {}

    async def load(self) -> None:
        """List everything once; the mirror is complete when this returns."""
        await self._list(new_cause("list"))

    async def run(self) -> None:
        """Follow the KV after `load`. Ends by cancellation only."""
        while True:
            try:
                async with self._kv.watch(self._keys.root, self._next_revision) as watch:
                    async for batch in watch:
                        self._apply(batch)
            except CompactedError as error:
                log.warning(
                    "watch compacted, listing again", at=self._next_revision, why=str(error)
                )
                await self._relist()
            except RetryableError as error:
                log.warning("watch broke, resuming", at=self._next_revision, why=str(error))
                await asyncio.sleep(RETRY_S)

    async def repair(self) -> None:
        """Compare KV and mirror, and pass on what differs."""
        await self._list(new_cause("resync"))

    async def _relist(self) -> None:
        try:
            await self._list(new_cause("relist"))
        except (CompactedError, RetryableError) as error:
            log.warning("listing failed, trying again", why=str(error))
            await asyncio.sleep(RETRY_S)

    async def _list(self, cause: str) -> None:
        pages = [page async for page in range_all(self._kv, self._keys.root)]
        revision = pages[0].revision
        if revision < self._store.revision:
            return
        changes: list[tuple[Change, str]] = []
        objects, tombstones = set(), set()
        for kv in (kv for page in pages for kv in page.items):
            if (where := self._keys.parse_object(kv.key)) is not None and where[0] in BY_PLURAL:
                objects.add((BY_PLURAL[where[0]].kind_name(), where[1]))
            if (grave := self._keys.parse_tombstone(kv.key)) is not None:
                tombstones.add(grave)
            changes.extend((change, cause) for change, _ in self._put(kv))
        for kind, name in self._store.object_keys() - objects:
            if (removed := self._store.remove(kind, name)) is not None:
                changes.append((removed, cause))
        for spu_id, uid in self._store.tombstone_keys() - tombstones:
            if (gone := self._store.remove_tombstone(spu_id, uid)) is not None:
                changes.append((gone, cause))
        for key in self.unreadable.keys() - {kv.key for page in pages for kv in page.items}:
            del self.unreadable[key]
        self._next_revision = max(self._next_revision, revision + 1)
        self._dispatcher.apply(changes, revision)

    def _apply(self, batch: WatchBatch) -> None:
        if batch.revision <= self._store.revision:
            # A listing overtook the watch: this is history, and would bring deleted objects back.
            return
        changes: list[tuple[Change, str]] = []
        for event in batch.events:
            match event:
                case PutEvent(kv, _):
                    changes.extend(self._put(kv))
                case DeleteEvent():
                    changes.extend(self._delete(event))
        self._next_revision = max(self._next_revision, batch.revision + 1)
        self._dispatcher.apply(changes, batch.revision)

    def _put(self, kv: KeyValue) -> list[tuple[Change, str]]:
        try:
            if (where := self._keys.parse_object(kv.key)) is not None:
                obj, cause = decode_object(where[0], kv.value, kv.mod_revision)
                if obj.name != where[1]:
                    raise InvalidRequestError(f"stored object calls itself {obj.name!r}")
                change: Change | None = self._store.put(obj)
            elif self._keys.parse_tombstone(kv.key) is not None:
                change, cause = self._store.put_tombstone(decode_tombstone(kv.value)), "-"
            else:
                return []
        except InvalidRequestError as error:
            if self.unreadable.get(kv.key) != error.message:
                log.error("a stored object is left out", key=kv.key, why=error.message)
            self.unreadable[kv.key] = error.message
            return []
        self.unreadable.pop(kv.key, None)
        return [] if change is None else [(change, cause)]

    def _delete(self, event: DeleteEvent) -> list[tuple[Change, str]]:
        self.unreadable.pop(event.key, None)
        change: Change | None = None
        if (where := self._keys.parse_object(event.key)) is not None:
            cls = BY_PLURAL.get(where[0])
            change = self._store.remove(cls.kind_name(), where[1]) if cls is not None else None
        elif (grave := self._keys.parse_tombstone(event.key)) is not None:
            change = self._store.remove_tombstone(*grave)
        return [] if change is None else [(change, new_cause("delete"))]
