"""The KV reader: list, then watch, for as long as the SC runs.

A watch that breaks is resumed from its revision; one that was compacted is replaced by a new
listing, of which only the difference is passed on. The same listing runs now and then by itself
and repairs whatever the mirror has missed. The watch goes on meanwhile: what it says of a key
counts if it is later than the listing. An object that does not parse is reported, kept in the KV,
and not mirrored (what was readable of it before stays); everything else goes on.

What the KV says of who leads is told before anything of the same revision is mirrored: a controller
that another one has replaced stops following the mirror at that point, and says nothing of what the
other one wrote.

A listing is read page by page, and only differences from the mirror are kept: a repair that finds
none keeps nothing in memory, and blocks other tasks no longer than one page takes.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from sc.dispatch.changes import ChangeFeed
from sc.kv.interface import KV, DeleteEvent, KeyValue, PutEvent, WatchBatch, range_all
from sc.store.codec import decode_object, decode_tombstone
from sc.store.local_store import Change, LocalStore
from schemas.causality import new_cause
from schemas.control.messages import Tombstone
from schemas.daemon.logs import get_logger
from schemas.errors import CompactedError, InvalidRequestError, RetryableError
from schemas.objects.keys import ClusterKeys
from schemas.objects.kinds import BY_KIND, BY_PLURAL
from schemas.objects.metadata import Object
from schemas.objects.spu import Spu

RETRY_S = 0.2

NoticeOffice = Callable[[str, KeyValue | None], None]
"""Takes a key that says what the cluster is, or which SC leads, runs or works for streams, and what
it holds now; None if it is absent."""

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Bell:
    """The bell of an owner of records: it rang at a revision."""

    uid: str
    revision: int


@dataclass(frozen=True, slots=True)
class _Read:
    """The content of a key: an object, a tombstone, a bell, or neither; then ``trouble`` says
    why."""

    key: str
    found: Object | Tombstone | _Bell | None
    cause: str
    trouble: str | None = None


@dataclass(slots=True)
class _Listing:
    """All keys of the KV as of a revision, and the differences from the mirror.

    ``objects`` are names by kind; ``left`` are what SPUs have besides their objects (ids, secrets,
    tombstones): key, revision, and the key that they belong to. ``about_scs`` says which SCs there
    are and what they hold; it is told with the rest, since a watch that lags may tell of keys of
    an earlier page by then.
    """

    revision: int = 0
    keys: set[str] = field(default_factory=set)
    objects: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    tombstones: set[tuple[int, str]] = field(default_factory=set)
    bells: set[str] = field(default_factory=set)
    left: list[tuple[str, int, str]] = field(default_factory=list)
    about_scs: list[KeyValue] = field(default_factory=list)
    news: list[tuple[int, _Read]] = field(default_factory=list)


class KvReader:
    """Keeps a local store in step with the KV."""

    def __init__(
        self,
        kv: KV,
        keys: ClusterKeys,
        store: LocalStore,
        feed: ChangeFeed,
        noticed: NoticeOffice,
    ) -> None:
        self._noticed = noticed
        self._kv = kv
        self._keys = keys
        self._store = store
        self._feed = feed
        #: Keys about SCs that the KV held when it was looked at last, and those it always has.
        self._about_scs = {keys.identity, keys.current_office, keys.leader}
        self._next_revision = 1
        #: The revision of the newest listing that the mirror was brought in line with.
        self._listed = 0
        #: Ids, secrets and tombstones of SPUs that are not in the KV: their revisions, and the
        #: missing key.
        self.strays: dict[str, tuple[int, str]] = {}
        #: Keys in the KV that do not parse, with the reason.
        self.unreadable: dict[str, str] = {}
        #: The revision at which the watch last told of a key; kept while listings are going on.
        self._told: dict[str, int] = {}
        self._listings = 0
        #: What shows that the KV has another past than the mirror; None while nothing does.
        self.other_past: str | None = None
        #: Why the watch is broken, so that the mirror may be old; None while it is not.
        self.broken: str | None = None

    async def load(self) -> None:
        """List everything once; the mirror is complete when this returns."""
        await self._list(new_cause("list"))

    async def run(self) -> None:
        """Follow the KV after `load`, for ever."""
        while True:
            try:
                async with self._kv.watch(self._keys.root, self._next_revision) as watch:
                    async for batch in watch:
                        self._apply(batch)
                        self.broken = None
            except CompactedError as error:
                log.warning(
                    "watch compacted, listing again", at=self._next_revision, why=str(error)
                )
                self.broken = str(error)
                await self._relist()
            except RetryableError as error:
                log.warning("watch broke, resuming", at=self._next_revision, why=str(error))
                self.broken = str(error)
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
        listing = _Listing()
        self._listings += 1
        try:
            async for page in range_all(self._kv, self._keys.root):
                listing.revision = page.revision
                for kv in page.items:
                    self._add(listing, kv)
                await asyncio.sleep(0)
            self._adopt(listing, cause)
            self.broken = None
        finally:
            self._listings -= 1
            if not self._listings:
                self._told.clear()

    def _adopt(self, listing: _Listing, cause: str) -> None:
        """Bring the mirror in line with a listing, except for keys that changed after it. One that
        was overtaken by another listing would bring back what that one found to be gone."""
        if listing.revision < self._listed:
            return
        self._listed = listing.revision
        for kv in listing.about_scs:
            if self._told.get(kv.key, 0) <= kv.mod_revision:
                self._noticed(kv.key, kv)
        for key in self._about_scs - listing.keys:
            if self._told.get(key, 0) <= listing.revision:
                self._noticed(key, None)
        changes: list[tuple[Change, str]] = []
        for revision, read in listing.news:
            if self._told.get(read.key, 0) < revision:
                changes.extend((change, cause) for change, _ in self._mirror(read))
        # Leftovers of SPUs that somebody removed by hand.
        self.strays = {
            key: (revision, owner)
            for key, revision, owner in listing.left
            if owner not in listing.keys
        }
        for kind, names in self._store.names().items():
            for name in set(names) - listing.objects[kind]:
                mirrored = self._store.get(BY_KIND[kind], name)
                if mirrored is None or mirrored.revision > listing.revision:
                    continue
                if (removed := self._store.remove(kind, name)) is not None:
                    changes.append((removed, cause))
        for spu_id, uid in self._store.tombstone_keys() - listing.tombstones:
            if self._told.get(self._keys.tombstone(spu_id, uid), 0) > listing.revision:
                continue
            if (gone := self._store.remove_tombstone(spu_id, uid)) is not None:
                changes.append((gone, cause))
        for uid, rang in self._store.bells().items():
            if uid in listing.bells or rang > listing.revision:
                continue
            if (silent := self._store.remove_bell(uid)) is not None:
                changes.append((silent, cause))
        for key in self.unreadable.keys() - listing.keys:
            if self._told.get(key, 0) <= listing.revision:
                del self.unreadable[key]
        self._next_revision = max(self._next_revision, listing.revision + 1)
        self._feed.apply(changes, listing.revision)

    def _is_about_scs(self, key: str) -> bool:
        if key.startswith((self._keys.scs, self._keys.buckets)):
            self._about_scs.add(key)
        return key in self._about_scs

    def _add(self, listing: _Listing, kv: KeyValue) -> None:
        listing.keys.add(kv.key)
        if self._is_about_scs(kv.key):
            listing.about_scs.append(kv)
        if (where := self._keys.parse_object(kv.key)) is not None:
            cls = BY_PLURAL.get(where[0])
            if cls is not None:
                listing.objects[cls.kind_name()].add(where[1])
                mirrored = self._store.get(cls, where[1])
                if mirrored is not None and mirrored.revision >= kv.mod_revision:
                    self._compare_pasts(listing, kv, mirrored.revision)
                    return
        elif (grave := self._keys.parse_tombstone(kv.key)) is not None:
            listing.tombstones.add(grave)
            listing.left.append((kv.key, kv.mod_revision, self._keys.spu_id(grave[0])))
        elif (owner := self._keys.parse_bell(kv.key)) is not None:
            listing.bells.add(owner)
            if (rang := self._store.bell(owner)) >= kv.mod_revision:
                self._compare_pasts(listing, kv, rang)
                return
        elif (spu_id := self._keys.parse_spu_secret(kv.key)) is not None:
            listing.left.append((kv.key, kv.mod_revision, self._keys.spu_id(spu_id)))
        elif self._keys.parse_spu_id(kv.key) is not None:
            spu = self._keys.object(Spu.PLURAL, kv.value.decode(errors="replace"))
            listing.left.append((kv.key, kv.mod_revision, spu))
        listing.news.append((kv.mod_revision, self._read(kv)))

    def _compare_pasts(self, listing: _Listing, kv: KeyValue, seen: int) -> None:
        """Note a key that was seen at a revision which the listing covers, and is older in it: no
        history has both. What the watch has told since is of a later revision than the listing."""
        if kv.mod_revision < seen <= listing.revision:
            self.other_past = (
                f"the KV at revision {listing.revision} has {kv.key} of revision"
                f" {kv.mod_revision}, and this SC has seen it at {seen}"
            )

    def _apply(self, batch: WatchBatch) -> None:
        if batch.revision <= self._store.revision:
            # A listing overtook the watch: this batch is old, and would bring deleted objects back.
            return
        changes: list[tuple[Change, str]] = []
        for event in batch.events:
            key = event.kv.key if isinstance(event, PutEvent) else event.key
            if self._is_about_scs(key):
                self._noticed(key, event.kv if isinstance(event, PutEvent) else None)
            if self._listings:
                self._told[key] = batch.revision
        for event in batch.events:
            match event:
                case PutEvent(kv, _):
                    changes.extend(self._mirror(self._read(kv)))
                case DeleteEvent():
                    changes.extend(self._delete(event))
        self._next_revision = max(self._next_revision, batch.revision + 1)
        self._feed.apply(changes, batch.revision)

    def _read(self, kv: KeyValue) -> _Read:
        try:
            if (where := self._keys.parse_object(kv.key)) is not None:
                obj, cause = decode_object(where[0], kv.value, kv.mod_revision)
                if obj.name != where[1]:
                    raise InvalidRequestError(f"stored object calls itself {obj.name!r}")
                return _Read(kv.key, obj, cause)
            if self._keys.parse_tombstone(kv.key) is not None:
                return _Read(kv.key, decode_tombstone(kv.value), "-")
            if (uid := self._keys.parse_bell(kv.key)) is not None:
                cause = kv.value.decode(errors="replace") or "-"
                return _Read(kv.key, _Bell(uid, kv.mod_revision), cause)
        except InvalidRequestError as error:
            return _Read(kv.key, None, "-", trouble=error.message)
        return _Read(kv.key, None, "-")

    def _mirror(self, read: _Read) -> list[tuple[Change, str]]:
        if read.trouble is not None:
            if self.unreadable.get(read.key) != read.trouble:
                log.error("a stored object is left out", key=read.key, why=read.trouble)
            self.unreadable[read.key] = read.trouble
            return []
        self.unreadable.pop(read.key, None)
        match read.found:
            case Object():
                change: Change | None = self._store.put(read.found)
            case Tombstone():
                change = self._store.put_tombstone(read.found)
            case _Bell(uid, revision):
                change = self._store.ring(uid, revision)
            case None:
                return []
        return [] if change is None else [(change, read.cause)]

    def _delete(self, event: DeleteEvent) -> list[tuple[Change, str]]:
        self.unreadable.pop(event.key, None)
        change: Change | None = None
        if (where := self._keys.parse_object(event.key)) is not None:
            cls = BY_PLURAL.get(where[0])
            change = self._store.remove(cls.kind_name(), where[1]) if cls is not None else None
        elif (grave := self._keys.parse_tombstone(event.key)) is not None:
            change = self._store.remove_tombstone(*grave)
        elif (uid := self._keys.parse_bell(event.key)) is not None:
            change = self._store.remove_bell(uid)
        return [] if change is None else [(change, new_cause("delete"))]
