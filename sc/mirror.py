"""The mirror of one SC: what every SC keeps of the KV, whether it leads or not.

Start: `load` lists the KV, then `run` follows it for as long as the process lives. Whoever leads
follows `feed`; the API reads `store`, and listens. It also knows which SCs run and which of them
holds the office, and for how long it may have missed what happened (`stale_ms`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from sc.dispatch.changes import ChangeFeed
from sc.dispatch.kv_health import PATIENCE_S, PROBE_S, KvHealth, another_past
from sc.dispatch.reader import KvReader, NoticeOffice
from sc.kv.interface import KV, KeyValue
from sc.kv.measured import MeasuredKV
from sc.leadership import Identity
from sc.metrics.instruments import ScMetrics
from sc.store.local_store import LocalStore
from schemas.clock import LEASE_CLOCK
from schemas.control.controllers import ControllerEntry
from schemas.daemon.collector import held
from schemas.errors import RunnelError
from schemas.objects.keys import ClusterKeys

#: A question to the KV, its answer and the pause before the next one take no longer while all is
#: well.
UNASKED_MS: Final = round(1000 * (PROBE_S + PATIENCE_S))


def boottime_ms() -> int:
    """Milliseconds that passed, those in which the host was suspended included where possible."""
    return time.clock_gettime_ns(LEASE_CLOCK) // 1_000_000


class Mirror:
    """What an SC knows of the KV. ``clock_ms``: milliseconds of a clock that grows also while the
    host is suspended."""

    def __init__(
        self, kv: KV, cluster: str, *, clock_ms: Callable[[], int] = lambda: boottime_ms()
    ) -> None:
        self.metrics = ScMetrics()
        self.kv = MeasuredKV(kv, self.metrics.kv_request)
        self.keys = ClusterKeys(cluster)
        self.clock_ms = clock_ms
        self.store = LocalStore()
        self.feed = ChangeFeed(self.store)
        self.reader = KvReader(self.kv, self.keys, self.store, self.feed, self._noticed)
        self.kv_health = KvHealth(self.kv, clock_ms, lambda: self.store.revision)
        #: The uid of the cluster; empty before its first SC has led.
        self.cluster_uid = ""
        #: What the cluster is; None before its first SC has led.
        self.identity: Identity | None = None
        #: The name of the tenure of now, in ``office``.
        self.office: KeyValue | None = None
        #: What holds the office on a lease: the key's value is a `ControllerEntry`.
        self.leader: KeyValue | None = None
        #: The SCs that run, by name.
        self.controllers: dict[str, ControllerEntry] = {}
        #: Who works for which part of the streams: the instances of SCs, by bucket.
        self.bucket_owners: dict[int, KeyValue] = {}
        self._broken_since_ms: int | None = None
        self._offices: list[NoticeOffice] = []

    @property
    def leader_entry(self) -> ControllerEntry | None:
        """What the SC that holds the office says of itself."""
        return None if self.leader is None else ControllerEntry.decode(self.leader.value)

    @property
    def stale_ms(self) -> int:
        """For how long changes of the KV may have been missed; 0 while it is followed. An SC that
        stood still has missed them, too, until the KV answers again."""
        broken_ms = 0
        if self._broken_since_ms is not None:
            broken_ms = max(1, self.clock_ms() - self._broken_since_ms)
        unasked_ms = self.clock_ms() - self.kv_health.answered_ms
        if unasked_ms <= UNASKED_MS:
            unasked_ms = 0
        return max(broken_ms, unasked_ms, self.kv_health.away_ms)

    def notice_office(self, noticed: NoticeOffice) -> Callable[[], None]:
        """Call ``noticed`` with each key that says who leads and what it holds (None: nothing),
        before anything of that revision is mirrored; gives the function that ends it."""
        self._offices.append(noticed)
        return lambda: self._offices.remove(noticed)

    async def load(self) -> None:
        """List the KV once. Raises RunnelError."""
        asked_ms = self.clock_ms()
        with held():
            await self.reader.load()
        self.kv_health.answered_ms = asked_ms

    async def run(self) -> None:
        """Follow the KV for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.reader.run(), name="kv reader")
            group.create_task(self._probe(), name="kv health")

    async def _probe(self) -> None:
        while True:
            await self.kv_health.probe()
            await self._mend()
            if self.reader.other_past is not None:
                raise another_past(self.reader.other_past)
            await asyncio.sleep(PROBE_S)

    async def _mend(self) -> None:
        """List again after the watch was broken: whether it goes on shows only when something
        happens."""
        if self.reader.broken is None:
            self._broken_since_ms = None
            return
        if self._broken_since_ms is None:
            self._broken_since_ms = self.clock_ms()
        elif not self.kv_health.away_ms:
            with suppress(RunnelError):
                await self.reader.repair()

    def _noticed(self, key: str, found: KeyValue | None) -> None:
        if key == self.keys.identity:
            self._read_identity(found)
        elif key == self.keys.current_office:
            self.office = found
        elif key == self.keys.leader:
            self.leader = found
        elif key.startswith(self.keys.scs):
            self.controllers.pop(key.removeprefix(self.keys.scs), None)
            if found is not None and (entry := ControllerEntry.decode(found.value)) is not None:
                self.controllers[entry.name] = entry
        elif (number := self.keys.parse_bucket(key)) is not None:
            self.bucket_owners.pop(number, None)
            if found is not None:
                self.bucket_owners[number] = found
        for noticed in tuple(self._offices):
            noticed(key, found)

    def _read_identity(self, found: KeyValue | None) -> None:
        if found is not None:
            with suppress(ValueError, KeyError, TypeError, AttributeError):
                self.identity = Identity.decode(found.value)
                self.cluster_uid = self.identity.uid
