"""The KV store as the SC sees it: etcd's data model behind a small asyncio interface.

Every backend passes one contract suite, and nothing above this module may rely on more than
this text says. The model is etcd's:

- **Revisions.** The store has one revision, a positive number. Every transaction that changes at
  least one key makes it grow by exactly one; everything else leaves it alone. A put always
  changes its key, even when the value stays the same; deleting an absent key changes nothing.
- **Order.** Transactions are strictly serializable and durable (where the backend is durable at
  all) before they are answered. Reads at revision 0 are linearizable. Reads and watches
  never show anything that is not durable.
- **History.** The past can be read and watched back to the last compacted revision.
- **Leases.** A key may be attached to one lease; when the lease expires or is revoked, all its
  keys are deleted in one revision.

Keys are non-empty text in the order of their UTF-8 bytes. Values are bytes.

Errors of every method: `InvalidRequestError` for a request that breaks a rule below,
`StorageFailedError` once the backend's storage failed (the outcome of writes in flight is then
unknown), `UnreachableError` after `KV.close` or without a connection, `DeadlineExceededError` when
no answer came in time (the outcome of a write is unknown: read again, then decide).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import ClassVar, Final, Self

MAX_TXN_OPS: Final = 128
"""Most compares, and most operations in either branch, of one transaction."""

MAX_TXN_BYTES: Final = 1_500_000
"""Most bytes of keys and values in one transaction; etcd refuses requests above 1.5 MiB."""

MAX_PAGE: Final = 10_000
"""Most items of one page."""

DEFAULT_PAGE: Final = 1_000


@dataclass(frozen=True, slots=True)
class KeyValue:
    """One version of a key.

    ``create_revision`` is the revision of the put that created the key after it was last absent,
    ``mod_revision`` of the put that wrote this version; ``version`` counts puts from 1 since the
    creation. ``lease`` is 0 for a key without one.
    """

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    version: int
    lease: int


@dataclass(frozen=True, slots=True)
class RangePage:
    """Items in key order as of ``revision``; ``more`` when the prefix holds keys after the last."""

    items: tuple[KeyValue, ...]
    revision: int
    more: bool


@dataclass(frozen=True, slots=True)
class ModRevisionIs:
    """The key was last written at ``revision``; 0 holds when the key is absent."""

    key: str
    revision: int


@dataclass(frozen=True, slots=True)
class CreateRevisionIs:
    """The key was created at ``revision``; 0 holds when the key is absent."""

    key: str
    revision: int


@dataclass(frozen=True, slots=True)
class VersionIs:
    """The key was put ``version`` times since its creation; 0 holds when the key is absent."""

    key: str
    version: int


@dataclass(frozen=True, slots=True)
class LeaseIs:
    """The key is attached to ``lease``; 0 holds when it has none or the key is absent."""

    key: str
    lease: int


@dataclass(frozen=True, slots=True)
class ValueIs:
    """The key holds exactly ``value``. Never holds for an absent key."""

    key: str
    value: bytes


Compare = ModRevisionIs | CreateRevisionIs | VersionIs | LeaseIs | ValueIs


@dataclass(frozen=True, slots=True)
class Put:
    """Write a key and attach it to ``lease``; 0 detaches it from the one it had."""

    key: str
    value: bytes
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a key; an absent one is no error."""

    key: str


@dataclass(frozen=True, slots=True)
class DeletePrefix:
    """Delete every key that starts with ``prefix``, which must not be empty."""

    prefix: str


@dataclass(frozen=True, slots=True)
class Get:
    """Read a key as the operations before it in the same transaction left it."""

    key: str


Op = Put | Delete | DeletePrefix | Get


@dataclass(frozen=True, slots=True)
class PutResponse:
    """A put was applied; its key's ``mod_revision`` is the transaction's revision."""


@dataclass(frozen=True, slots=True)
class DeleteResponse:
    """How many keys a `Delete` or `DeletePrefix` removed."""

    deleted: int


@dataclass(frozen=True, slots=True)
class GetResponse:
    """What a `Get` found; None for an absent key."""

    kv: KeyValue | None


OpResponse = PutResponse | DeleteResponse | GetResponse


@dataclass(frozen=True, slots=True)
class TxnResult:
    """``succeeded`` when every compare held. ``responses`` answer the operations of the branch
    taken, one each, in order. ``revision`` is the store's revision after the transaction."""

    succeeded: bool
    revision: int
    responses: tuple[OpResponse, ...]


@dataclass(frozen=True, slots=True)
class PutEvent:
    """A key was written. ``previous`` is the version replaced: None for a creation
    (``kv.version == 1``), and possibly for an event at the compacted revision itself."""

    kv: KeyValue
    previous: KeyValue | None


@dataclass(frozen=True, slots=True)
class DeleteEvent:
    """A key was deleted at ``mod_revision``. ``previous`` is the version that was deleted; it may
    be None for an event at the compacted revision itself, and only there."""

    key: str
    mod_revision: int
    previous: KeyValue | None


Event = PutEvent | DeleteEvent


@dataclass(frozen=True, slots=True)
class WatchBatch:
    """All events of one revision under the watched prefix, in the order of the operations that
    caused them (keys of one `DeletePrefix` or one lease in key order). Never empty; a key occurs
    at most once."""

    revision: int
    events: tuple[Event, ...]


class Watch(ABC, AsyncIterator[WatchBatch]):
    """An endless stream of batches, for one consumer.

    Use it as an async context manager, or call `aclose`. Cancelling a pending ``anext`` loses no
    batch: the next call returns it. The stream ends only after `aclose`; trouble is an error
    raised by ``anext``: `CompactedError` when the next revision to deliver was compacted, at the
    start or because the consumer was too slow. Batches wait in the store's history, not in a
    queue, so a slow consumer costs no memory.
    """

    @abstractmethod
    async def __anext__(self) -> WatchBatch: ...

    @abstractmethod
    async def aclose(self) -> None:
        """Release what the watch holds. May be called again."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()


class KV(ABC):
    """A key-value store with revisions, transactions, watches and leases. See the module's
    docstring for the model and for errors that every method may raise.

    Methods may be called concurrently from one event loop. Cancelling a call that writes does not
    undo the write: its outcome is unknown.
    """

    SHARED: ClassVar[bool] = False
    """Whether processes on several hosts can use one store at the same time."""

    @abstractmethod
    async def get(self, key: str, *, revision: int = 0) -> KeyValue | None:
        """The key as of ``revision`` (0: now); None when it was absent.

        Raises CompactedError below the compacted revision (the compacted revision itself can be
        read), InvalidRequestError above the current one.
        """

    @abstractmethod
    async def range(
        self,
        prefix: str,
        *,
        start_after: str | None = None,
        limit: int = DEFAULT_PAGE,
        revision: int = 0,
    ) -> RangePage:
        """Keys that start with ``prefix`` (empty: all) and sort after ``start_after``.

        For a consistent listing pass the first page's ``revision`` with every later page, as
        `range_all` does. ``limit`` is 1 to `MAX_PAGE` items.

        Raises CompactedError and InvalidRequestError as `get` does. ``first_available`` of that
        error is readable, but need not be the oldest readable revision: etcd does not report that.
        """

    @abstractmethod
    async def txn(
        self, compares: Sequence[Compare], success: Sequence[Op], failure: Sequence[Op] = ()
    ) -> TxnResult:
        """If all ``compares`` hold, apply ``success``, else ``failure``: atomically, in order, in
        one revision, durable before the answer.

        Raises InvalidRequestError, with nothing applied, when there are more than `MAX_TXN_OPS`
        compares or operations in a branch, more than `MAX_TXN_BYTES` bytes, or when a branch puts
        a key twice or both puts and deletes it (deleting it twice is fine); NotFoundError, with
        nothing applied, when the branch taken puts with a lease that does not exist;
        OverloadedError, with nothing applied, when too much is waiting to be written.
        """

    @abstractmethod
    def watch(self, prefix: str, from_revision: int) -> Watch:
        """Every batch of events under ``prefix`` (empty: all) with a revision at or above
        ``from_revision``, in order, exactly once, without gaps.

        ``from_revision`` is at least 1 and may lie in the future. To follow a listing, watch from
        its revision + 1; to resume, from the last batch's revision + 1. A watch from the compacted
        revision itself, or above, misses nothing. ``first_available`` of its CompactedError is
        the compacted revision.
        """

    @abstractmethod
    async def lease_grant(self, ttl_ms: int) -> int:
        """A new lease's id, a positive number never used before.

        The lease lives at least ``ttl_ms`` (at least 1; backends may round up, etcd to seconds)
        from now, and from every `lease_keep_alive`. After a restart of the store it lives for a
        whole ``ttl_ms`` again.
        """

    @abstractmethod
    async def lease_keep_alive(self, lease: int) -> int:
        """Start the lease's time anew; returns the granted time in ms.

        Raises NotFoundError when the lease expired or was revoked.
        """

    @abstractmethod
    async def lease_revoke(self, lease: int) -> None:
        """End a lease now and delete its keys in one revision.

        Raises NotFoundError when the lease expired or was revoked.
        """

    @abstractmethod
    async def compact(self, revision: int) -> None:
        """Forget versions seen only below ``revision``. The store also compacts itself.

        Raises CompactedError when that was already done, InvalidRequestError above the current
        revision.
        """

    @abstractmethod
    async def revision(self) -> int:
        """The current revision. An empty store has a positive one as well."""

    async def check_writable(self) -> None:  # noqa: B027
        """Raises OverloadedError if a write would find no room, as far as the backend knows;
        backends that do not know say nothing."""

    @abstractmethod
    async def close(self) -> None:
        """Finish what was asked for and release everything. May be called again. Pending and
        later calls, also of watches, raise UnreachableError."""


async def range_all(
    kv: KV, prefix: str, *, page_size: int = DEFAULT_PAGE, revision: int = 0
) -> AsyncIterator[RangePage]:
    """All pages of a prefix as of one revision: the one given, else that of the first page.

    Yields at least one page, so that the revision to watch from is known for an empty prefix too.
    Raises CompactedError when compaction overtakes the listing: start again.
    """
    page = await kv.range(prefix, limit=page_size, revision=revision)
    yield page
    while page.more:
        page = await kv.range(
            prefix, start_after=page.items[-1].key, limit=page_size, revision=page.revision
        )
        yield page
