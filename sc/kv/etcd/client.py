"""`KV` over etcd. See the package's docstring for the parts.

Each call is one of etcd's. These may be sent again after an attempt without an answer:

- reads, keep-alives, and grants (a lease that no client knows of expires by itself);
- revocations and compactions, which take effect once: an answer that it "was done already" after
  an attempt without an answer means success;
- transactions that `outcome` allows. When their second attempt finds a compare broken, the key is
  read before a conflict is reported.

The store compacts itself: a client that has seen enough revisions go by asks etcd to forget all
but the last ``keep_revisions``. Several clients may do so side by side.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sc.kv.etcd import wire
from sc.kv.etcd.channel import Members, Repeat
from sc.kv.etcd.failures import text_of_alarm
from sc.kv.etcd.options import EtcdOptions
from sc.kv.etcd.outcome import Guard, conflict_is_certain, guard_of, only_reads
from sc.kv.etcd.watch import EtcdWatch
from sc.kv.interface import (
    DEFAULT_PAGE,
    KV,
    Compare,
    KeyValue,
    Op,
    RangePage,
    TxnResult,
    Watch,
)
from sc.kv.requests import (
    check_key,
    check_page,
    check_prefix,
    check_ttl,
    check_txn,
    check_watch_revision,
)
from schemas.daemon.etcd_versions import version_warning
from schemas.daemon.logs import get_logger
from schemas.errors import (
    CompactedError,
    DeadlineExceededError,
    InvalidRequestError,
    NotFoundError,
    OverloadedError,
    RunnelError,
    UnauthorizedError,
)

_log = get_logger(__name__)


class EtcdKV(KV):
    """A store in etcd. Make one with `open`."""

    SHARED = True

    def __init__(self, members: Members, *, keep_revisions: int, revision: int) -> None:
        self._members = members
        self._keep_revisions = keep_revisions
        self._step = max(1, keep_revisions // 10)
        self._newest = revision
        self._compacted = revision - keep_revisions
        self._compaction: asyncio.Task[None] | None = None
        self._watches: set[EtcdWatch] = set()

    @classmethod
    async def open(cls, options: EtcdOptions) -> EtcdKV:
        """Connect, authenticate and make sure that etcd answers.

        Raises UnreachableError when no endpoint does, UnauthorizedError for a refused user,
        UnsupportedError when the package of etcd's schema is missing.
        """
        members = Members(options)
        try:
            await _check_version(members)
            revision = await _revision(members)
        except BaseException:
            await members.close()
            raise
        return cls(members, keep_revisions=options.keep_revisions, revision=revision)

    async def get(self, key: str, *, revision: int = 0) -> KeyValue | None:
        check_key(key)
        page = await self._page(wire.get_request(key, _readable(revision)), revision)
        return page.items[0] if page.items else None

    async def range(
        self,
        prefix: str,
        *,
        start_after: str | None = None,
        limit: int = DEFAULT_PAGE,
        revision: int = 0,
    ) -> RangePage:
        check_prefix(prefix)
        check_page(limit, start_after)
        request = wire.range_request(
            prefix, start_after=start_after, limit=limit, revision=_readable(revision)
        )
        return await self._page(request, revision)

    async def txn(
        self, compares: Sequence[Compare], success: Sequence[Op], failure: Sequence[Op] = ()
    ) -> TxnResult:
        check_txn(compares, success, failure)
        guard = guard_of(compares, success, failure)
        if only_reads(success, failure):
            repeat = Repeat.READ
        else:
            repeat = Repeat.NEVER if guard is None else Repeat.HARMLESS
        request = wire.txn_request(compares, success, failure)
        reply = await self._members.call(wire.TXN, request, repeat)
        result = wire.parse_txn(reply.payload, success, failure)
        if guard is not None and reply.doubtful and not result.succeeded:
            await self._make_certain(guard)
        self._compact_behind(result.revision)
        return result

    def watch(self, prefix: str, from_revision: int) -> Watch:
        check_prefix(prefix)
        check_watch_revision(from_revision)
        self._members.check_open()
        watch = EtcdWatch(self._members, prefix, from_revision, self._watches.discard)
        self._watches.add(watch)
        return watch

    async def lease_grant(self, ttl_ms: int) -> int:
        check_ttl(ttl_ms)
        request = wire.lease_grant_request(-(-ttl_ms // 1000))
        reply = await self._members.call(wire.LEASE_GRANT, request, Repeat.READ, for_lease=True)
        return wire.parse_lease_grant(reply.payload)

    async def lease_keep_alive(self, lease: int) -> int:
        request = wire.lease_keep_alive_request(lease)
        payload = await self._members.exchange(wire.LEASE_KEEP_ALIVE, request)
        ttl_s = wire.parse_lease_keep_alive(payload)
        if ttl_s <= 0:
            raise NotFoundError(f"lease {lease} expired or was revoked; grant a new one")
        return ttl_s * 1000

    async def lease_revoke(self, lease: int) -> None:
        request = wire.lease_revoke_request(lease)
        try:
            await self._members.call(wire.LEASE_REVOKE, request, Repeat.HARMLESS, for_lease=True)
        except DeadlineExceededError as error:
            if not isinstance(error.__cause__, NotFoundError):
                raise

    async def compact(self, revision: int) -> None:
        if revision < 1:
            raise InvalidRequestError(f"cannot compact to revision {revision}; use 1 or more")
        request = wire.compact_request(revision)
        try:
            await self._members.call(wire.COMPACT, request, Repeat.HARMLESS)
        except DeadlineExceededError as error:
            if not isinstance(error.__cause__, CompactedError):
                raise
        except CompactedError as error:
            raise await self._with_readable_revision(error) from error

    async def revision(self) -> int:
        return await _revision(self._members)

    async def check_writable(self) -> None:
        # The member says it by itself: asking for alarms would be a write of the raft log.
        try:
            status = await self._members.call(wire.STATUS, wire.status_request(), Repeat.READ)
        except UnauthorizedError:
            # Some versions tell only root. A write says by itself what is wrong then.
            return
        alarms = wire.parse_alarms(status.payload)
        if alarms:
            raise OverloadedError("; ".join(map(text_of_alarm, alarms)))

    async def close(self) -> None:
        compaction, self._compaction = self._compaction, None
        if compaction is not None:
            compaction.cancel()
            await asyncio.wait([compaction])
        await self._members.close()
        watches, self._watches = self._watches, set()
        for watch in watches:
            await watch.stop()

    async def _page(self, request: bytes, revision: int) -> RangePage:
        try:
            reply = await self._members.call(wire.RANGE, request, Repeat.READ)
        except CompactedError as error:
            raise await self._with_readable_revision(error) from error
        return wire.parse_range(reply.payload, revision)

    async def _with_readable_revision(self, error: CompactedError) -> CompactedError:
        # etcd does not say which revision was compacted; the present can always be read.
        current = await self.revision()
        return CompactedError(f"{error.message}; read at {current}", first_available=current)

    async def _make_certain(self, guard: Guard) -> None:
        """After an attempt without an answer and one whose compares failed: return if the conflict
        is certain. Raises DeadlineExceededError if the first attempt may have been applied."""
        current = await self.get(guard.key)
        before = None
        if current is not None and current.mod_revision > 1:
            try:
                before = await self.get(guard.key, revision=current.mod_revision - 1)
            except CompactedError:
                before = None
        if not conflict_is_certain(guard, current, before):
            raise DeadlineExceededError(
                f"the outcome of a transaction on {guard.key!r} is unknown: its first attempt got "
                "no answer, and the key has changed since; read it again, then decide"
            )

    def _compact_behind(self, revision: int) -> None:
        """Start a compaction when enough revisions have gone by since the last."""
        self._newest = max(self._newest, revision)
        under_way = self._compaction is not None and not self._compaction.done()
        if not under_way and self._is_compaction_due():
            self._compaction = asyncio.create_task(
                self._compact_while_due(), name="etcd-compaction"
            )

    def _is_compaction_due(self) -> bool:
        target = self._newest - self._keep_revisions
        return self._keep_revisions > 0 and target >= max(1, self._compacted + self._step)

    async def _compact_while_due(self) -> None:
        # More revisions may go by during a compaction, and no transaction may come after them.
        while self._is_compaction_due():
            self._compacted = self._newest - self._keep_revisions
            try:
                await self.compact(self._compacted)
            except CompactedError:
                # Another client was faster.
                continue
            except RunnelError as error:
                _log.warning("could not compact etcd's history", at=self._compacted, why=str(error))
                return


async def _check_version(members: Members) -> None:
    try:
        status = await members.call(wire.STATUS, wire.status_request(), Repeat.READ)
    except UnauthorizedError:
        # Newer versions tell only root, and have none of the faults to warn of. If the reason is
        # another one, the next call reports it.
        return
    version = wire.parse_status(status.payload)
    if (warning := version_warning(version)) is not None:
        _log.warning("this version of etcd has known faults", etcd=version, why=warning)


async def _revision(members: Members) -> int:
    reply = await members.call(wire.RANGE, wire.revision_request(), Repeat.READ)
    return wire.parse_range(reply.payload, 0).revision


def _readable(revision: int) -> int:
    # etcd would take a negative one for the present.
    if revision < 0:
        raise InvalidRequestError(f"revision {revision} cannot be read; 0 means current")
    return revision
