"""The streaming controller as a whole: one object that owns the loop and its parts.

It is made for one leadership over a mirror that is loaded, and closed as a whole when that ends.
Workers and the periodic repair run until `run` is cancelled, or until another SC leads. The API is
above this and uses `mirror`, `view` and `dispatcher`.

What it does when the KV was restored from a backup is in `sc.recoveries`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from connection_manager.manager import ClusterIdentity, ConnectionManager
from sc.controllers.actions import (
    EndSpu,
    Key,
    ProvisionAction,
    ProvisionSpu,
    RegisterSpu,
    SessionAction,
    UnregisterSpu,
)
from sc.controllers.streams.records import is_fixed
from sc.dispatch.affected import keys_of
from sc.dispatch.fences import LeaderFence
from sc.dispatch.kv_health import PATIENCE_S, PROBE_S
from sc.dispatch.kv_updater import KvUpdater
from sc.dispatch.loop import ControllerLoop
from sc.dispatch.metadata import MetadataDispatcher
from sc.dispatch.records import RecordReader
from sc.dispatch.spu_updater import SpuUpdater
from sc.dispatch.work_queue import WorkQueue
from sc.kv.interface import KV, Delete, KeyValue, ModRevisionIs
from sc.leadership import LEASE_OVER, REPLACED, Leadership, acquire
from sc.mirror import Mirror
from sc.pipelines.board import PipelineBoard
from sc.provisioning import Provisioner, SecretIssuer
from sc.recoveries import Recoveries
from sc.sharing.claims import BucketClaims
from sc.spu_secrets import SpuSecrets
from sc.statistics.board import Board
from sc.statistics.seconds import Seconds
from sc.store.buckets import Buckets
from sc.store.local_store import Change, ObjectChanged
from sc.store.suspicions import TICK_MS
from sc.store.view import SessionState, View
from schemas.causality import current_cause, new_cause
from schemas.control.messages import FindPeers, Hello, Message, Report, SpuRequest
from schemas.control.proof import Exchange
from schemas.control.session_end import SessionEnd
from schemas.control.statistics import Statistics
from schemas.daemon.logs import get_logger
from schemas.errors import (
    FencedError,
    RunnelError,
    UnauthorizedError,
    UnreachableError,
)
from schemas.objects.metadata import Object
from schemas.objects.partition import Partition
from schemas.objects.pipeline import Pipeline
from schemas.objects.spu import Spu
from schemas.objects.stream import Stream

HEARTBEAT_MS = 250
MISSES = 3
#: More than twice the time within which an SPU tries to reconnect.
GRACE_MS = 5_000
RESYNC_S = 30.0
#: `/health` says so when the KV has been away for this long, and later on the sessions end: an SC
#: that can decide nothing does not keep SPUs from another one.
KV_AWAY_MS = 10_000
KV_LOST_MS = 30_000
#: After that, SPUs count as unknown for longer than the time between two questions to the KV.
KV_GRACE_MS = round(2_000 * (PATIENCE_S + PROBE_S))
#: The periodic pass adds this many keys at a time, when fewer than that wait or it has waited too
#: long, so that other events do not queue behind all of them.
RESYNC_SLICE = 256
RESYNC_PATIENCE_S = 1.0

#: Makes a provisioner, which calls back with the name of an SPU whose state changed, and gets the
#: secrets of SPUs, the private addresses of all SCs that run, and whether this one leads.
MakeProvisioner = Callable[
    [Callable[[str], None], SecretIssuer, Callable[[], tuple[str, ...]], Callable[[], bool]],
    Provisioner,
]

log = get_logger(__name__)


class Controller:
    """One SC that leads, over a mirror. ``holds`` says whether it may rely on its lease now;
    ``claims`` are the buckets of streams that it works for, None for all."""

    def __init__(
        self,
        mirror: Mirror,
        leadership: Leadership,
        *,
        grace_ms: int = GRACE_MS,
        resync_s: float = RESYNC_S,
        provisioner: MakeProvisioner | None = None,
        require_secrets: bool = False,
        holds: Callable[[], bool] = lambda: True,
        claims: BucketClaims | None = None,
    ) -> None:
        self.mirror = mirror
        mirror.cluster_uid = leadership.cluster_uid
        #: Whether the lease of this SC, if there is one, may be relied on now.
        self._holds = holds
        self.metrics = mirror.metrics
        self.kv = kv = mirror.kv
        self.keys = mirror.keys
        self.feed = mirror.feed
        self.reader = mirror.reader
        self.kv_health = mirror.kv_health
        self.clock_ms = clock_ms = mirror.clock_ms
        self._sessions: dict[int, SessionState] = {}
        self._resync_s = resync_s
        self._grace_ms = grace_ms
        #: The end of this leadership, and why.
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._why_over = ""
        self._kv_lost = False
        self.connections = ConnectionManager(
            self,
            self._named(leadership),
            heartbeat_ms=HEARTBEAT_MS,
            misses=MISSES,
            controllers=self._addresses,
        )
        self.secrets = SpuSecrets(kv, self.keys)
        self._require_secrets = require_secrets
        self._provisioner = None
        if provisioner is not None:
            self._provisioner = provisioner(
                self._provisioning_changed, self.secrets, self._addresses, lambda: self.leads
            )
        self.view = View(
            mirror.store,
            sessions=self._sessions,
            registered=self.connections.registered,
            refusals=self.connections.refusals,
            grace_until_ms=clock_ms() + grace_ms,
            provisioning=self._provisioner.provisioning if self._provisioner else None,
            incarnation=leadership.stamp.incarnation,
            recovering=leadership.identity.recovering,
            buckets=Buckets(leadership.identity.buckets) if claims is None else claims.buckets,
        )
        self.recoveries = Recoveries(
            kv,
            self.keys,
            leadership,
            self.view,
            registered=self.connections.registered.values,
            entered=self._enter_recovery,
            over=lambda: self._look_at_everything("recovered"),
        )
        self.queue = WorkQueue()
        #: Held while replicas are placed, and while an SPU is removed.
        self.placing = asyncio.Lock()
        self.records = RecordReader(kv, self.keys, is_fixed)
        self.dispatcher = MetadataDispatcher(
            self.view, self._sessions, self.queue.add, now_ms=self.now_ms
        )
        self._unfollow = [
            mirror.notice_office(self._notice_office),
            self.feed.follow(self.dispatcher.changed),
            self.feed.listen(self.recoveries.note_election),
        ]
        self.statistics = Board(self.view.store)
        self.view.numbers = self.statistics.of_leader
        self.view.size = self.statistics.partition
        self.pipelines = PipelineBoard(self.view.store, clock_ms())
        self.seconds = Seconds(clock_ms, self._close_second)
        self._unfollow += [
            self.feed.listen(self._note_for_statistics),
            self.feed.listen(self.pipelines.note),
        ]
        if claims is not None:
            self._unfollow.append(claims.listen(self._look_at_streams))
        self._spus = SpuUpdater(
            self._send,
            leadership.stamp,
            self.dispatcher.told_everything,
            self.dispatcher.refused,
            self.dispatcher.not_deleted,
        )
        guard = None if claims is None else claims.guard
        fence = LeaderFence(self.keys, lambda: self.leadership, guard)
        self._loop = ControllerLoop(
            self.view,
            self.queue,
            write=KvUpdater(kv, self.keys, fence).carry_out,
            sessions=self,
            applied=self.feed.applied,
            metrics=self.metrics,
            placing=self.placing,
            records=self.records.read,
            now_ms=self.now_ms,
        )

    @classmethod
    async def acquire(
        cls,
        kv: KV,
        cluster: str,
        *,
        grace_ms: int = GRACE_MS,
        provisioner: MakeProvisioner | None = None,
        require_secrets: bool = False,
        buckets: int | None = None,
    ) -> Self:
        """Acquire the leadership over a KV that only one SC uses, and load the mirror. With
        ``require_secrets`` an SPU that has no secret yet is turned away. ``buckets``: see
        `sc.leadership.acquire`."""
        mirror = Mirror(kv, cluster)
        leadership = await acquire(kv, mirror.keys, buckets)
        await mirror.load()
        controller = cls(
            mirror,
            leadership,
            grace_ms=grace_ms,
            provisioner=provisioner,
            require_secrets=require_secrets,
        )
        await controller.begin()
        return controller

    async def begin(self) -> None:
        """Look at everything that the mirror shows, and wait for SPUs."""
        # Another SC may have taken over while the mirror was loaded.
        self._notice_office(self.keys.current_office, self.mirror.office)
        self._notice_office(self.keys.leader, self.mirror.leader)
        self._look_at_everything("list")
        for partition in self.view.store.objects(Partition):
            self.statistics.changed(partition)
        self._await_spus(self._grace_ms)
        self.pipelines.begin(self.clock_ms())
        if self._provisioner is not None:
            await self._provisioner.adopt()
        if self.queue.idle:
            self.queue.worked_off.set()
        leadership = self.leadership
        log.info(
            "in office",
            cluster=self.keys.cluster,
            uid=leadership.cluster_uid,
            office=leadership.stamp.office,
        )

    async def run_alone(self) -> None:
        """Follow the KV and reconcile, until cancelled. Raises an ExceptionGroup of FencedError
        when another SC leads."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.mirror.run(), name="mirror")
                group.create_task(self.run(), name="controller")
        finally:
            await self.close()

    async def run(self) -> None:
        """Reconcile until cancelled. Raises an ExceptionGroup of FencedError when this leadership
        is over."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._loop.run(), name="controllers")
                group.create_task(self._repair(), name="repair")
                group.create_task(self._watch_own_lag(), name="lag")
                group.create_task(self.recoveries.run(self._resync_s), name="recovery")
                group.create_task(self._watch_kv(), name="kv health")
                group.create_task(self.seconds.run(), name="statistics")
                group.create_task(self.until_over(), name="leadership")
        finally:
            self.end("the SC is stopping")
            await self._spus.close()
            if self._provisioner is not None:
                self._provisioner.end()

    async def close(self) -> None:
        """Wait for what is still under way after `run`: processes of SPUs that are being stopped.
        Another SC may lead meanwhile."""
        if self._provisioner is not None:
            await self._provisioner.close()

    @property
    def leadership(self) -> Leadership:
        """What this SC leads as now: a recovery changes it."""
        return self.recoveries.leadership

    @property
    def leads(self) -> bool:
        """Whether it may still speak for the cluster. An SC that was stopped and goes on asks this
        before it says anything."""
        if not self._ended.done() and not self._holds():
            log.error("the lease was not renewed in time, this SC leads no more")
            self.end(LEASE_OVER)
        return not self._ended.done()

    def _check_leads(self) -> None:
        """Raise UnreachableError if it may say nothing more."""
        if not self.leads:
            raise UnreachableError(self._why_over)

    def end(self, why: str) -> None:
        """Say and decide nothing more, from this turn of the event loop on. May be called again."""
        if self._ended.done():
            return
        self._why_over = why
        self._ended.set_exception(FencedError(why))
        # Whoever ends it need not wait for it.
        self._ended.exception()
        for unfollow in self._unfollow:
            unfollow()
        self.queue.close()
        self.connections.close()
        self.seconds.stop(why)

    async def until_over(self) -> None:
        """Wait until this leadership is over. Raises FencedError then."""
        # A task that is cancelled would cancel what it waits for.
        await asyncio.shield(self._ended)

    def _notice_office(self, key: str, found: KeyValue | None) -> None:
        """Look at what the KV says of who leads, before what comes with it is mirrored."""
        if self.leadership.ended_by(key, found):
            log.warning("this SC leads no more", key=key)
            self.end(REPLACED if key == self.keys.current_office else LEASE_OVER)
        elif found is not None and found.value == self.leadership.holder.encode():
            self.recoveries.named(found.mod_revision)
        elif key.startswith(self.keys.scs) and self.leads:
            self.connections.controllers_changed()

    def _await_spus(self, grace_ms: int) -> None:
        """Start the time in which SPUs may reconnect, and reconcile them first."""
        self.view.grace_until_ms = self.now_ms() + grace_ms
        for spu in reversed(self.view.store.objects(Spu)):
            self.queue.hasten(Key("Spu", spu.name))

    def now_ms(self) -> int:
        """The time that controllers get as ``now_ms``.

        It is asked for before something is decided. If the SC lags then, it may be to blame for
        what it did not hear, so this is the place to notice that.
        """
        now_ms = self.clock_ms()
        self.view.observe(now_ms)
        return now_ms

    async def _watch_own_lag(self) -> None:
        while True:
            self.view.suspicions.tick(self.now_ms())
            await asyncio.sleep(TICK_MS / 1000)

    @property
    def ready(self) -> bool:
        """Whether every object was reconciled since the start: statuses are up to date."""
        return self.queue.worked_off.is_set()

    @property
    def session_count(self) -> int:
        """How many SPUs are connected now."""
        return len(self._sessions)

    def as_now(self, obj: Object) -> Object:
        """An object as users see it: what runners of pipelines report is not all in the KV."""
        if not isinstance(obj, Pipeline):
            return obj
        return self.pipelines.shown(obj, self.clock_ms())

    # -- SessionUpdater: what controllers ask of sessions -----------------------------------

    def carry_out(self, action: SessionAction | ProvisionAction) -> None:
        """Register, unregister, start or end an SPU, or queue a message for it."""
        match action:
            case ProvisionSpu() | EndSpu():
                if self._provisioner is not None:
                    self._provisioner.carry_out(action)
            case RegisterSpu(spu):
                self.connections.register(spu.name, spu.spec.spu_id)
                self.queue.add(Key("Spu", spu.name), new_cause("register"))
            case UnregisterSpu(name, _):
                self.connections.unregister(name)
            case _:
                self._spus.carry_out(action)

    def _addresses(self) -> tuple[str, ...]:
        """Private addresses of all SCs that run."""
        return tuple(one.private for one in self.mirror.controllers.values())

    def _provisioning_changed(self, name: str) -> None:
        self._look_at_spu(name, new_cause("provisioner"))

    def _look_at_spu(self, name: str, cause: str) -> None:
        """Reconcile an SPU, and its group, whose status says what keeps its SPUs from running."""
        self.queue.add(Key("Spu", name), cause)
        spu = self.view.store.get(Spu, name)
        if spu is not None and spu.spec.group is not None:
            self.queue.add(Key("SpuGroup", spu.spec.group), cause)

    # -- SessionEvents: what the connection manager says ------------------------------------

    async def authenticate(
        self, spu_id: int, exchange: Exchange | None, proof: str | None
    ) -> str | None:
        """See `SpuSecrets.authenticate`."""
        found = await self.secrets.authenticate(spu_id, exchange, proof)
        if found is None and self._require_secrets:
            raise UnauthorizedError(
                f"SPU {spu_id} has not proven itself, and requireSpuSecrets is set; make a secret"
                " for it: runnel spu secret NAME"
            )
        return found

    async def check(self, hello: Hello, *, proven: bool) -> None:
        """See `Recoveries.check`."""
        await self.recoveries.check(hello, proven=proven)
        self._check_leads()

    def refused(self, spu_id: int) -> None:
        for name, registered in self.connections.registered.items():
            if registered == spu_id:
                self._look_at_spu(name, new_cause("refusal"))

    def opened(self, generation: int, hello: Hello) -> None:
        spu = self.view.store.spu(hello.spu_id)
        if spu is not None and spu.spec.group is not None:
            # The reason of its group may be that this SPU was turned away.
            self.queue.add(Key("SpuGroup", spu.spec.group), current_cause())
        self._spus.opened(hello.spu_id, generation)
        self.statistics.opened(hello.spu_id)
        self.dispatcher.opened(generation, hello)

    def closed(
        self, spu_id: int, generation: int, reason: str, end: SessionEnd, quiet: int
    ) -> None:
        self._spus.closed(spu_id, generation)
        self.dispatcher.closed(spu_id, generation, end, quiet)
        self.statistics.away(spu_id)

    def reported(self, spu_id: int, generation: int, report: Report) -> None:
        self.dispatcher.reported(spu_id, generation, report)
        if report.obstacles is not None:
            self.statistics.seen_otherwise(spu_id)

    def asked(self, spu_id: int, generation: int, ask: SpuRequest) -> None:
        for change in ask.lrs:
            log.info("asked for other live replicas", spu=spu_id, uid=change.uid, why=change.reason)
        for election in ask.elections:
            log.info("asked for an election", spu=spu_id, uid=election.uid, why=election.reason)
        self.dispatcher.asked(spu_id, generation, ask)

    def told(self, spu_id: int, statistics: Statistics) -> None:
        self.statistics.told(spu_id, statistics, self.clock_ms())

    async def asked_peers(
        self, spu_id: int, generation: int, asked: FindPeers, *, proven: bool
    ) -> None:
        """Tell an SPU where others listen; one that has proven itself gets keys, too."""
        peers = self.view.store.peers(asked.spu_ids)
        if proven:
            keys = await self.secrets.pair_keys(spu_id, [peer.spu_id for peer in peers])
            peers = tuple(peer.model_copy(update={"key": keys.get(peer.spu_id)}) for peer in peers)
        self._spus.tell_peers(spu_id, generation, peers)

    # -- recovery from a restored KV ----------------------------------------------------------

    def _named(self, leadership: Leadership) -> ClusterIdentity:
        return ClusterIdentity(self.keys.cluster, leadership.cluster_uid, leadership.stamp)

    def _enter_recovery(self) -> None:
        self.records.clear()
        self.view.grace_until_ms = self.now_ms() + self._grace_ms
        self._spus.stamp = self.leadership.stamp
        self._end_sessions("the cluster recovers from a restored KV")
        self._look_at_everything("recovery")

    def _end_sessions(self, why: str) -> None:
        """SPUs come back to the leadership of now."""
        self.connections.become(self._named(self.leadership), why)

    # -- what else happens beside the loop ----------------------------------------------------

    def _close_second(self, second: int) -> None:
        self.statistics.close_second(second)
        self.pipelines.close_second(self.statistics.version, self.clock_ms())

    def _note_for_statistics(self, change: Change) -> None:
        if not isinstance(change, ObjectChanged):
            return
        old, new = change.old, change.new
        if old is not None and (new is None or new.uid != old.uid):
            self.statistics.forget(old)
        if isinstance(new, Partition):
            self.statistics.changed(new)

    async def _watch_kv(self) -> None:
        """End all sessions when the KV has been away for `KV_LOST_MS`, until it is back."""
        while True:
            lost = self.kv_health.away_ms >= KV_LOST_MS
            if lost or self._kv_lost:
                # SPUs cannot come back before the KV does. That says nothing about them.
                grace_ms = self._grace_ms + KV_GRACE_MS
                self.view.grace_until_ms = self.now_ms() + grace_ms
            if lost and not self._kv_lost:
                log.error("the KV is away, ending all sessions", why=self.kv_health.why)
                self._end_sessions("the SC does not reach its KV")
            if self._kv_lost and not lost:
                log.warning("the KV is back")
                self._look_at_everything("kv")
            self._kv_lost = lost
            await asyncio.sleep(PROBE_S)

    def _look_at_everything(self, why: str) -> None:
        cause = new_cause(why)
        for kind, names in self.view.store.names().items():
            for name in names:
                for key in keys_of(kind, name):
                    self.queue.add(key, cause)

    def _look_at_streams(self, buckets: frozenset[int]) -> None:
        """Look at the streams of buckets that this SC works for from now on."""
        cause = new_cause("bucket")
        for stream in self.view.store.objects(Stream):
            if self.view.buckets.bucket_of(stream.uid) in buckets:
                self.queue.add(Key("Stream", stream.name), cause)

    async def _send(self, spu_id: int, message: Message) -> None:
        self._check_leads()
        with self.metrics.session_request(message.type):
            await self.connections.request(spu_id, message)

    async def _remove_strays(self) -> None:
        """Remove ids and tombstones of SPUs that somebody removed by hand, unless they changed.
        During a recovery they stay: nobody knows who removed the SPUs."""
        if self.view.recovering:
            return
        for key, (revision, owner) in self.reader.strays.items():
            with suppress(RunnelError):
                # The SPU may have been registered again since the listing.
                guards = [
                    *self.leadership.guards,
                    ModRevisionIs(key, revision),
                    ModRevisionIs(owner, 0),
                ]
                result = await self.kv.txn(guards, [Delete(key)])
                log.warning("removed what an SPU left behind", key=key, done=result.succeeded)

    async def repair(self) -> None:
        """Compare KV and mirror, remove leftovers of removed SPUs, and reconcile every key."""
        await self.reader.repair()
        await self._remove_strays()
        cause = new_cause("resync")
        for kind, names in self.view.store.names().items():
            for start in range(0, len(names), RESYNC_SLICE):
                await self._make_room()
                for name in names[start : start + RESYNC_SLICE]:
                    for key in keys_of(kind, name):
                        self.queue.add(key, cause)

    async def _make_room(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(RESYNC_PATIENCE_S):
                await self.queue.shrunk_to(RESYNC_SLICE)

    async def _repair(self) -> None:
        """Reconcile everything from time to time, whatever events said."""
        while True:
            await asyncio.sleep(self._resync_s)
            try:
                await self.repair()
            except FencedError:
                raise
            except RunnelError as error:
                log.warning("repair failed, trying again later", why=error.message)
            except Exception as error:
                # The SC continues to serve users.
                log.error("repair failed, trying again later", exc_info=error)
