"""Batches, assignments and open logs for the tests of the SPU."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from schemas.control.messages import (
    Assignment,
    AssignPartitions,
    Lead,
    LeadPartitions,
    ReplicaReport,
    Stamp,
)
from schemas.errors import RunnelError
from schemas.ids import PartitionUid, StorageId, Term, make_term
from schemas.objects.partition import LiveReplica
from schemas.objects.topic import Durability, LogSettings, Retention, SegmentSettings
from schemas.wire.batch import (
    TRANSACTION_IDS_FLAG,
    BatchHeader,
    Buffer,
    build,
    read_header,
    split_batches,
)
from schemas.wire.record_requests import (
    NO_OFFSET,
    Acks,
    FetchRequest,
    ProduceRequest,
    ProduceResponse,
)
from spu.host.host import ReplicaHost
from spu.replica.replica import Replica
from spu.replication.events import RequestElection, RequestLrsChange
from spu.storage.checkpoint import Checkpoint, write_checkpoint
from spu.storage.file_pool import FilePool
from spu.storage.log import PartitionLog
from spu.storage.recovery import RecoveredLog, Recovery

CLUSTER = "3f1c1a52-0000-4000-8000-000000000001"
UID = PartitionUid("3f1c1a52-0000-4000-8000-0000000000aa")
STAMP = Stamp(revision=1, office="office")
NOW_US = 1_700_000_000_000_000
TERM = make_term(1, 1)
DEADLINE_S = 20.0


def batch_of(
    count: int = 1,
    payload: bytes = b"x" * 32,
    time_us: int = 1_000,
    ids: tuple[int, int] | None = None,
    **header: int,
) -> bytearray:
    """``ids``: the first and the last transaction id."""
    if ids is not None:
        header |= {
            "flags": TRANSACTION_IDS_FLAG,
            "first_transaction_id": ids[0],
            "last_transaction_id": ids[1],
        }
    return build(
        payload,
        record_count=count,
        first_timestamp_us=time_us,
        last_timestamp_us=time_us,
        **header,
    )


def settings_of(
    *,
    segment: int = 1 << 20,
    durability: Durability = Durability.FSYNC,
    retention: Retention | None = None,
    max_record_size: int = 1 << 20,
) -> LogSettings:
    return LogSettings(
        durability=durability,
        segment=SegmentSettings(size=segment),
        retention=retention or Retention(),
        max_record_size=max_record_size,
    )


def new_log_directory(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    write_checkpoint(path, Checkpoint())
    return path


@dataclass
class OpenLog:
    """A log with its files; `sync` runs a plan at once."""

    log: PartitionLog
    files: FilePool
    found: RecoveredLog

    def append(self, batch: bytearray, term: int = TERM, now_us: int = NOW_US) -> int:
        return self.log.append(batch, read_header(batch), term, now_us)

    def sync(self, *, lac: int | None = None, checkpoint: bool = False) -> None:
        plan = self.log.plan_sync(self.log.leo - 1 if lac is None else lac, checkpoint=checkpoint)
        plan.run()
        truncated, grace_ms = self.log.truncated, self.log.settings.retention.grace
        truncated.add(truncated.retire_files(self.log.synced(plan), grace_ms, NOW_US))

    def crash(self) -> None:
        """Go away as a killed process does: nothing more is written."""
        self.files.close()


def recover(path: Path, now_us: int = NOW_US) -> RecoveredLog:
    """The log in a directory, durable, as an SPU recovers it."""
    recovery = Recovery(path, now_us)
    recovery.read()
    recovery.make_durable()
    return recovery.log


def open_log(path: Path, settings: LogSettings | None = None) -> OpenLog:
    files = FilePool(16)
    found = recover(path)
    return OpenLog(PartitionLog(path, settings or settings_of(), files, found), files, found)


def headers(data: memoryview) -> list[BatchHeader]:
    found = []
    at = 0
    while at < len(data):
        found.append(read_header(data, at))
        at += found[-1].length
    return found


def batches_in(data: Buffer) -> list[memoryview]:
    """The batches that stand in ``data``, back to back."""
    return [batch for _, batch in split_batches(memoryview(data))]


def assignment_of(uid: PartitionUid = UID, *, revision: int = 5, **changes: Any) -> Assignment:
    values: dict[str, Any] = {
        "uid": uid,
        "name": "orders-0",
        "topic": "orders",
        "index": 0,
        "replicas": (1,),
        "log": settings_of(),
        "leader": 1,
        "term": TERM,
        "revision": revision,
    }
    return Assignment(**(values | changes))


def assign(*assignments: Assignment, complete: bool = False) -> AssignPartitions:
    return AssignPartitions(assignments=assignments, complete=complete, stamp=STAMP)


@dataclass
class FakeLink:
    """The way to an SC that nobody is at; keeps what was asked."""

    report: Callable[[ReplicaReport], None]
    asked: list[tuple[PartitionUid, RequestLrsChange | RequestElection]] = field(
        default_factory=list
    )
    sought: set[int] = field(default_factory=set)

    def ask(self, uid: PartitionUid, request: RequestLrsChange | RequestElection) -> None:
        self.asked.append((uid, request))

    def find_peers(self, spu_ids: Iterable[int]) -> None:
        self.sought.update(spu_ids)

    def obstacles_changed(self) -> None:
        return


@dataclass
class Spu:
    """A replica host with what it reported."""

    host: ReplicaHost
    link: FakeLink
    reports: list[ReplicaReport] = field(default_factory=list)
    now_us: int = NOW_US

    @property
    def replica(self) -> Replica:
        return self.host.replica(UID)

    def storage_id(self, uid: PartitionUid = UID) -> StorageId:
        return self.host.replica(uid).meta.storage_id

    async def lead(
        self, uid: PartitionUid = UID, term: Term = TERM, revision: int = 6, *others: LiveReplica
    ) -> None:
        me = LiveReplica(spu_id=self.host.spu_id, storage_id=self.storage_id(uid))
        lead = Lead(uid=uid, term=term, lrs=(me, *others), revision=revision)
        await self.host.lead(LeadPartitions(leads=(lead,), stamp=STAMP))

    async def serve(self, uid: PartitionUid = UID) -> Replica:
        """Lead, and wait for the own-term control record."""
        await self.lead(uid)
        replica = self.host.replica(uid)
        await until(lambda: replica.is_serving)
        return replica


async def open_spu(
    path: Path, *assignments: Assignment, spu_id: int = 1, open_files: int = 256
) -> Spu:
    spu: Spu

    def report(report: ReplicaReport) -> None:
        spu.reports.append(report)

    link = FakeLink(report)
    spu = Spu(ReplicaHost(path, spu_id, link, lambda: spu.now_us, open_files=open_files), link)
    await spu.host.open()
    await spu.host.join_cluster(CLUSTER)
    if assignments:
        await spu.host.assign(assign(*assignments))
    return spu


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - what is awaited is state, not an event
            await asyncio.sleep(0.001)


def produce_request(
    acks: Acks = Acks.COMMITTED, *, timeout_ms: int = 10_000, expected: int = NO_OFFSET
) -> ProduceRequest:
    return ProduceRequest(UID, acks, timeout_ms, expected)


async def produce(
    replica: Replica, batch: bytearray, request: ProduceRequest | None = None
) -> ProduceResponse:
    """Produce and wait for the answer; raises the error it carries."""
    answered: asyncio.Future[ProduceResponse | RunnelError] = (
        asyncio.get_running_loop().create_future()
    )
    replica.produce(request or produce_request(), memoryview(batch), answered.set_result)
    async with asyncio.timeout(DEADLINE_S):
        result = await answered
    if isinstance(result, RunnelError):
        raise result
    return result


def fetch_request(offset: int, *, max_bytes: int = 1 << 20) -> FetchRequest:
    return FetchRequest(UID, offset, max_bytes, 1, 0)


def new_uid() -> PartitionUid:
    return PartitionUid(str(uuid.uuid4()))
