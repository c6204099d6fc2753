"""A small world for the workflows of streams: a KV in memory, owners, and SPUs that obey.

An owner is an SC as far as streams are concerned: a mirror, the controllers, and the updater. It
acts one write at a time, so that a test can end it after each of them, and have another one go on.
All owners write under one guard here: what keeps two of them apart is the compare of each step.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from sc.controllers import reconcile
from sc.controllers.actions import (
    Action,
    Key,
    KvAction,
    MarkDeleting,
    Read,
    RemoveObject,
    RemovePartition,
    SendAssignment,
    Settle,
    Step,
    WakeAt,
    WriteStatus,
)
from sc.controllers.streams.records import (
    Accepted,
    Request,
    RequestKind,
    StateRecord,
    StreamPaths,
    decode,
    encode,
    epoch_of,
    is_fixed,
)
from sc.dispatch.fences import LeaderFence
from sc.dispatch.kv_updater import KvUpdater
from sc.dispatch.loop import ROUNDS
from sc.dispatch.records import RecordReader
from sc.kv.interface import KV, Op, Put, range_all
from sc.kv.memory import MemoryKV
from sc.leadership import Leadership, acquire
from sc.store.codec import decode_object, encode_object
from sc.store.local_store import LocalStore
from sc.store.records import GetRecord, Record, get
from sc.store.view import SessionState, View
from schemas.control.messages import ReplicaReport
from schemas.ids import PartitionUid, StorageId
from schemas.objects.keys import ClusterKeys
from schemas.objects.kinds import BY_KIND
from schemas.objects.metadata import Object
from schemas.objects.partition import DesiredState, Partition, PartitionResolution
from schemas.objects.stream import Scaling, Stream, StreamMetadata, StreamSpec, StreamState
from schemas.streams.cuts import StreamCut
from schemas.streams.epochs import Epoch, parse_segment
from tests.unit.sc.builders import spu_of

NAME = "shop/orders"
KEY = Key("Stream", NAME)
UID = "11111111-2222-3333-4444-555555555555"
MOST = 400
"""More writes than any of these workflows takes."""

T = TypeVar("T")


def run(of: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(of)


class Owner:
    """An SC that may act for all streams."""

    def __init__(self, kv: KV, keys: ClusterKeys, leadership: Leadership, spus: tuple[int, ...]):
        self.kv, self.keys = kv, keys
        #: How often a look asked for records, at most.
        self.most_rounds = 0
        self.store = LocalStore()
        sessions = {i: SessionState(i, 1, complete=True, seals=True) for i in spus}
        self.view = View(self.store, sessions)
        #: Milliseconds since 1970, and those of a clock that is never set.
        self.at_ms = 1_000
        self.now_ms = 0
        self.records = RecordReader(kv, keys, is_fixed, now_ms=lambda: self.at_ms)
        self._updater = KvUpdater(kv, keys, LeaderFence(keys, lambda: leadership))

    def report(self, spu_id: int, partition: Partition) -> None:
        """An SPU knows a partition as it is."""
        known = ReplicaReport(
            uid=PartitionUid(partition.uid),
            storage_id=StorageId("disk"),
            revision=partition.revision,
            incarnation=self.view.incarnation,
        )
        sessions = dict(self.view.sessions)
        sessions[spu_id] = replace(sessions[spu_id], reports={known.uid: known})
        self.view = replace(self.view, sessions=sessions)

    async def sync(self) -> None:
        """Bring the mirror in line with the KV."""
        objects: dict[str, set[str]] = {kind: set() for kind in BY_KIND}
        bells: set[str] = set()
        async for page in range_all(self.kv, self.keys.root):
            for kv in page.items:
                if (where := self.keys.parse_object(kv.key)) is not None:
                    obj, _ = decode_object(where[0], kv.value, kv.mod_revision)
                    objects[obj.kind].add(obj.name)
                    self.store.put(obj)
                elif (uid := self.keys.parse_bell(kv.key)) is not None:
                    bells.add(uid)
                    self.store.ring(uid, kv.mod_revision)
            self.store.revision = page.revision
        for kind, names in self.store.names().items():
            for name in set(names) - objects[kind]:
                self.store.remove(kind, name)
        for uid in self.store.bells().keys() - bells:
            self.store.remove_bell(uid)

    async def look(self, key: Key = KEY) -> tuple[Action, ...]:
        """What the controller asks for, by the mirror as it is."""
        view, records = self.view, None
        for number in range(ROUNDS):
            self.most_rounds = max(self.most_rounds, number)
            actions = reconcile(view, key, self.now_ms)
            assert actions == reconcile(view, key, self.now_ms), (
                "the same view gives the same actions"
            )
            match actions:
                case (Read(wants),):
                    records = await self.records.read(records, wants)
                    if records.newest > self.store.revision:
                        # The loop waits for that.
                        await self.sync()
                    view = self.view.with_records(records)
                case _:
                    return actions
        raise AssertionError(f"{key} wants records again and again: {wants}")

    async def carry_out(self, action: Action) -> bool:
        """Whether it was a write; one that lost raises ConflictError."""
        match action:
            case Settle(uid, settled):
                self.view.settled[uid] = settled
            case SendAssignment() | WakeAt():
                pass
            case Step() | WriteStatus() | MarkDeleting() | RemovePartition() | RemoveObject():
                await self.write(action)
                return True
            case _:
                raise AssertionError(f"unexpected {action}")
        return False

    async def write(self, action: KvAction) -> None:
        await self._updater.carry_out(action)

    async def partitions(self) -> list[Partition]:
        found: list[Partition] = []
        async for page in range_all(self.kv, self.keys.kind(Partition.PLURAL)):
            for kv in page.items:
                obj = decode_object(Partition.PLURAL, kv.value, kv.mod_revision)[0]
                assert isinstance(obj, Partition)
                found.append(obj)
        return found

    async def act(self) -> bool:
        """Look at everything with a fresh mirror, and make one write; False if none is due."""
        await self.sync()
        keys = [Key("Stream", s.name) for s in self.store.objects(Stream)]
        # Of partitions, only the end matters here: SPUs obey by themselves (`World.obey`).
        keys += [Key("Partition", p.name) for p in self.store.objects(Partition) if p.deleting]
        for key in keys:
            for action in await self.look(key):
                if await self.carry_out(action):
                    return True
        return False


class World:
    """The KV with one stream in it, and SPUs that do to partitions what they are told."""

    def __init__(self, kv: MemoryKV, leadership: Leadership, *, spus: tuple[int, ...] = (1, 2)):
        self.kv, self.leadership, self.spus = kv, leadership, spus
        self.keys = ClusterKeys("c")
        self.paths = StreamPaths(UID)
        #: Whether SPUs leave records where they are.
        self.away = False
        #: Whether no SPU leads anything new.
        self.leaderless = False
        self.owner = self.another()

    @classmethod
    async def begin(cls, *, segments: int = 1, spus: tuple[int, ...] = (1, 2)) -> World:
        kv = MemoryKV(clock=lambda: 0.0)
        world = cls(kv, await acquire(kv, ClusterKeys("c")), spus=spus)
        for spu_id in spus:
            await world.put(spu_of(spu_id))
        await world.put(stream_of(segments))
        return world

    def another(self) -> Owner:
        return Owner(self.kv, self.keys, self.leadership, self.spus)

    # -- the world outside of the SC --------------------------------------------------------

    async def put(self, obj: Object, *more: Op) -> None:
        key = self.keys.object(obj.PLURAL, obj.name)
        value = encode_object(obj, "test", by="test", at="2026-01-01T00:00:00.000Z")
        await self.kv.txn([], [Put(key, value), *more])

    async def obey(self) -> bool:
        """One SPU leads one partition that has no leader, seals one that is to be sealed, or
        removes records of one; False if all is done."""
        for partition in await self.partitions():
            status, before = partition.status, partition.spec.truncate_before or 0
            if status.leader is None and not self.leaderless:
                leads = {"leader": 1, "resolution": PartitionResolution.ONLINE}
                await self.put(partition.with_status(status.model_copy(update=leads)))
                return True
            if status.start_offset < before and not self.away:
                await self.put(
                    partition.with_status(status.model_copy(update={"start_offset": before}))
                )
                return True
            if partition.spec.desired is DesiredState.SEALED and status.sealed_offset is None:
                offset = 10 + (partition.spec.index or 0)
                sealed = status.model_copy(update={"sealed_offset": offset})
                await self.put(partition.with_status(sealed))
                return True
        return False

    async def submit(self, request: Request) -> None:
        """What the API writes for an accepted request."""
        accepted = await self.record(self.paths.accepted)
        waiting = decode(Accepted, accepted).waiting if accepted is not None else ()
        after = Accepted(waiting=(*waiting, request.id))
        await self.kv.txn(
            [],
            [
                Put(self.keys.record(self.paths.accepted), encode(after)),
                Put(self.keys.record(self.paths.request(request.id)), encode(request)),
                Put(self.keys.bell(UID), b"test"),
            ],
        )

    async def mark_deleting(self) -> None:
        """What the API writes for a deletion."""
        stream = await self.stream()
        assert stream is not None
        state = await self.state()
        ops: list[Op] = [Put(self.keys.bell(UID), b"test")]
        if state is not None:
            after = state.model_copy(
                update={"state": StreamState.DELETING, "steps": state.steps + 1}
            )
            ops.append(Put(self.keys.record(self.paths.state), encode(after)))
        await self.put(stream.with_metadata(deletion_timestamp="2026-01-01T00:00:00Z"), *ops)

    # -- what is in the KV ------------------------------------------------------------------

    async def stream(self) -> Stream | None:
        found = await self.kv.get(self.keys.object(Stream.PLURAL, NAME))
        if found is None:
            return None
        stream = decode_object(Stream.PLURAL, found.value, found.mod_revision)[0]
        assert isinstance(stream, Stream)
        return stream

    async def partitions(self) -> list[Partition]:
        return await self.owner.partitions()

    async def record(self, path: str) -> Record | None:
        return get(await self.owner.records.read(None, [GetRecord(path)]), path)

    async def state(self) -> StateRecord | None:
        found = await self.record(self.paths.state)
        return None if found is None else decode(StateRecord, found)

    async def epoch(self, number: int) -> Epoch:
        want = self.paths.epoch_want(number)
        found = await self.owner.records.read(None, [want])
        return epoch_of(number, found.found[want])

    async def everything(self) -> dict[str, Any]:
        """The whole KV up to times, causes and revisions: what two courses of events compare."""
        found: dict[str, Any] = {}
        for root in (self.keys.objects, self.keys.bells, self.keys.records, self.keys.tombstones):
            async for page in range_all(self.kv, root):
                for kv in page.items:
                    found[kv.key] = _comparable(kv.key, kv.value)
        return found

    # -- running ----------------------------------------------------------------------------

    async def settle(self, owner: Owner | None = None) -> int:
        """Let an owner and the SPUs act until nothing is due; gives the number of their writes."""
        for done in range(MOST):
            if not await self.move(owner or self.owner):
                return done
        raise AssertionError("it goes on and on")

    async def move(self, owner: Owner) -> bool:
        """One write of the owner, or of an SPU once the owner has none."""
        return await owner.act() or await self.obey()


def stream_of(segments: int = 1, **spec: Any) -> Stream:
    return Stream(
        metadata=StreamMetadata(
            name=NAME,
            uid=UID,
            generation=1,
            resource_version="1",
            creation_timestamp="2026-01-01T00:00:00Z",
        ),
        spec=StreamSpec(scaling=Scaling(min_segments=segments), **spec),
    )


def scale(seal: list[int], into: list[tuple[int, int]], name: str = "scale-1") -> Request:
    return Request(id=name, kind=RequestKind.SCALE, seal=tuple(seal), into=tuple(into))


def seal(name: str = "seal-1") -> Request:
    return Request(id=name, kind=RequestKind.SEAL)


def truncation(offsets: dict[str, int], name: str = "truncate-1", **other: str) -> Request:
    ids = {parse_segment(segment): offset for segment, offset in offsets.items()}
    cut = StreamCut(other.get("stream", NAME), other.get("uid", UID), ids)
    return Request(id=name, kind=RequestKind.TRUNCATE, cut=str(cut))


def _comparable(key: str, value: bytes) -> Any:
    if "/epochs/" in key or key.endswith("/plan"):
        return value
    if "/bells/" in key or not value:
        return None
    data = json.loads(value)
    for name in ("at", "cause", "by"):
        data.pop(name, None)
    if isinstance(metadata := data.get("metadata"), dict):
        metadata.pop("creationTimestamp", None)
        metadata.pop("deletionTimestamp", None)
    return data
