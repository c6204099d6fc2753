"""What one replica does when its disk, its peer or an order of events is not what it hoped for."""

from __future__ import annotations

import asyncio
import errno
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from schemas.batch import Buffer, stamp
from schemas.errors import (
    NotEnoughReplicasError,
    NotFoundError,
    NotReadyError,
    RunnelError,
    StorageFailedError,
)
from schemas.ids import PartitionUid, Term, next_election
from schemas.messages import DeleteReplicas, ReplicaRole, Tombstone
from schemas.record_requests import FetchFlags, FetchRequest, ProduceResponse
from schemas.topic import Durability
from spu import replica as replica_module
from spu import replica_runner as runner_module
from spu.peer_connection import PeerConnection
from spu.replica import Replica
from spu.replica_runner import ReplicaRunner
from spu.replication.core import step
from spu.replication.events import Input, Synced, Tick, Wrote
from spu.replication.follower import Step
from spu.replication.messages import Append, Attach, Batch, Cut, Message, Position, Reset
from spu.replication.state import ReplicaState
from spu.replication.wire import Damaged
from spu.storage.data_dir import DataDir, PartitionMeta
from spu.storage.journal import JournalEntry
from spu.storage.log import PartitionLog
from spu.storage.space import Room
from tests.unit.spu.builders import (
    DEADLINE_S,
    STAMP,
    TERM,
    UID,
    Spu,
    assign,
    assignment_of,
    batch_of,
    new_uid,
    open_spu,
    produce,
    produce_request,
    settings_of,
    until,
)

MessageT = TypeVar("MessageT", bound=Message)
LATER = next_election(TERM)
NEVER = b"never committed"


@dataclass
class OtherSpu(PeerConnection):
    """SPU 0, which the test plays: what the host sends to it is kept, in order."""

    spu: Spu
    sent: list[Message] = field(default_factory=list)
    frames: int = 0
    cold: asyncio.Lock = field(default_factory=asyncio.Lock)

    def send(self, uid: PartitionUid, message: Message) -> None:
        self.sent.append(message)

    def push(self, push: Callable[[], None]) -> None:
        push()

    def write(self, frame: list[Buffer]) -> None:
        self.frames += 1

    async def taken(self) -> None:
        return

    def says(self, message: Message | Damaged) -> None:
        self.spu.host.links.peer_said(0, UID, message)

    async def hears(self, kind: type[MessageT]) -> MessageT:
        """The next message of this kind; those before it are passed over."""
        found: list[MessageT] = []

        def look() -> bool:
            while self.sent and not found:
                message = self.sent.pop(0)
                found.extend([message] if isinstance(message, kind) else [])
            return bool(found)

        await until(look)
        return found[0]

    async def leads(self, term: Term, attach: int = 1) -> Position:
        """Attach the host's replica in a term; gives what it answers."""
        self.says(Attach(term, attach))
        while (place := await self.hears(Position)).attach != attach or place.term != term:
            continue
        return place


async def joined(spu: Spu, monkeypatch: pytest.MonkeyPatch) -> OtherSpu:
    """Connect SPU 0 to the host."""
    other = OtherSpu(spu)
    monkeypatch.setattr(spu.host.links, "connection", lambda peer: other if peer == 0 else None)
    spu.host.links.peer_up(0)
    await until(lambda: spu.replica._runner.state.links == (0,))
    return other


def batches_of(*payloads: bytes, term: Term = TERM) -> tuple[Batch, ...]:
    """One record each, from offset 0 on, as a leader stamped them."""
    found = []
    for offset, payload in enumerate(payloads):
        data = batch_of(1, payload)
        stamp(data, offset, term)
        found.append(Batch(offset, offset + 1, term, data))
    return tuple(found)


async def follow(
    path: Path, monkeypatch: pytest.MonkeyPatch, durability: Durability = Durability.FSYNC
) -> tuple[Spu, OtherSpu, str]:
    """A follower of SPU 0 with five records, the first two committed; and what its boot is."""
    log = settings_of(durability=durability)
    spu = await open_spu(path, assignment_of(replicas=(0, 1), leader=0, log=log))
    other = await joined(spu, monkeypatch)
    place = await other.leads(TERM)
    records = batches_of(b"first", b"second", NEVER, NEVER, NEVER)
    other.says(Append(TERM, 1, place.boot, records, 1, 0))
    await until(lambda: (spu.replica.leo, spu.replica.lac) == (5, 1))
    return spu, other, place.boot


@contextmanager
def gate(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str
) -> Iterator[tuple[threading.Event, threading.Event]]:
    """Hold up a call that is made in a thread; gives what says that it came, and what lets it
    go on."""
    entered, opened = threading.Event(), threading.Event()
    before = getattr(owner, name)

    def held(*args: Any, **kwargs: Any) -> Any:
        entered.set()
        if not opened.wait(DEADLINE_S):
            raise AssertionError(f"nobody let {name} go on")
        return before(*args, **kwargs)

    monkeypatch.setattr(owner, name, held)
    try:
        yield entered, opened
    finally:
        # A failed test must not keep the thread.
        opened.set()


def follower_fetch(offset: int) -> FetchRequest:
    return FetchRequest(UID, offset, 1 << 20, 1, 0, 0, FetchFlags.FOLLOWER_OK)


def fetched(replica: Replica, request: FetchRequest) -> bytes:
    """What a reader is shown; nothing where it is refused."""
    try:
        return bytes(replica.fetch(request, wait=True).data)
    except RunnelError:
        return b""


@pytest.fixture
def inputs(monkeypatch: pytest.MonkeyPatch) -> list[Input]:
    """What cores are told from here on."""
    found: list[Input] = []

    def noted(state: ReplicaState, event: Input, now_ms: int) -> Step:
        found.append(event)
        return step(state, event, now_ms)

    monkeypatch.setattr(runner_module, "step", noted)
    return found


@pytest.mark.parametrize("durability", Durability)
async def test_given_many_batches_in_one_turn_then_the_core_is_told_once(
    tmp_path: Path, inputs: list[Input], durability: Durability
) -> None:
    spu = await open_spu(tmp_path, assignment_of(log=settings_of(durability=durability)))
    replica = await spu.serve()
    inputs.clear()
    end, answers = replica.leo, list[ProduceResponse | RunnelError]()
    for _ in range(20):
        replica.produce(produce_request(), memoryview(batch_of(1)), answers.append)
    assert inputs == []
    await until(lambda: len(answers) == 20)
    assert [event for event in inputs if isinstance(event, Wrote)] == [Wrote(end + 20)]
    assert [getattr(answer, "base_offset", answer) for answer in answers] == [*range(end, end + 20)]
    await spu.host.close()


async def test_given_an_event_in_the_turn_of_an_append_then_the_append_is_told_first(
    tmp_path: Path, inputs: list[Input]
) -> None:
    settings = settings_of(durability=Durability.REPLICATED)
    spu = await open_spu(tmp_path, assignment_of(log=settings))
    replica = await spu.serve()
    inputs.clear()
    answers: list[object] = []
    replica.produce(produce_request(), memoryview(batch_of(1)), answers.append)
    replica._runner.feed(Tick())
    assert inputs == [Wrote(replica.leo), Synced(replica.leo), Tick()]
    assert len(answers) == 1
    await spu.host.close()


@pytest.mark.parametrize("found", ["at-start", "when-assigned"])
async def test_given_damage_while_it_is_not_assigned_then_it_never_leads(
    tmp_path: Path, found: str
) -> None:
    spu = await open_spu(tmp_path, assignment_of())
    replica = await spu.serve()
    for _ in range(50):
        await produce(replica, batch_of())
    end = replica.leo
    await spu.host.assign(assign(complete=True))
    await spu.host.close()
    directory = tmp_path / "partitions" / UID
    segment = max(directory.glob("*.log"), key=lambda path: path.stat().st_size)
    with segment.open("r+b") as file:
        file.truncate(segment.stat().st_size // 2)
    if found == "when-assigned":
        # As a disk that is mounted late: it is not there yet when the SPU looks what it holds.
        shutil.move(directory, tmp_path / "elsewhere")
    again = await open_spu(tmp_path)
    if found == "when-assigned":
        shutil.move(tmp_path / "elsewhere", directory)
    await again.host.assign(assign(assignment_of(revision=50)))
    report = again.replica.report()
    assert (report.fit, report.role) == (False, ReplicaRole.STOPPED)
    assert report.reason is not None
    # What recovery left of it must not be taken for the log: its offsets were acknowledged.
    await again.lead(term=LATER, revision=60)
    assert again.replica.leo < end
    assert again.replica.role is ReplicaRole.STOPPED
    assert not again.replica.report().fit
    await again.host.close()


async def test_given_an_order_to_lead_before_the_assignment_of_its_revision_then_both_count(
    tmp_path: Path,
) -> None:
    spu = await open_spu(tmp_path, assignment_of(revision=5))
    await spu.lead(revision=6)
    log = settings_of(segment=1 << 16).model_copy(update={"min_in_sync_replicas": 2})
    newer = assignment_of(revision=6, replicas=(1, 2), log=log)
    await spu.host.assign(assign(newer, complete=True))
    assert spu.replica.settings.segment.size == 1 << 16
    assert spu.replica.peers == {2}
    assert spu.replica.role is ReplicaRole.LEADER
    # The minimum of that revision holds for what is produced now.
    with pytest.raises(NotEnoughReplicasError):
        await produce(spu.replica, batch_of())
    await spu.host.close()


async def test_given_an_entry_of_the_earlier_format_then_its_assignment_says_the_minimum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def earlier(entry: JournalEntry) -> str:
        new = {"incarnation", "replicas", "minInSync", "pending"}
        row = json.loads(to_json(entry))
        return json.dumps({key: value for key, value in row.items() if key not in new})

    to_json = JournalEntry.to_json
    with monkeypatch.context() as patch:
        patch.setattr(JournalEntry, "to_json", earlier)
        log = settings_of().model_copy(update={"min_in_sync_replicas": 2})
        spu = await open_spu(tmp_path, assignment_of(log=log, replicas=(1, 2)))
        await spu.lead()
        await spu.host.close()
    again = await open_spu(tmp_path)
    assert again.replica.role is ReplicaRole.LEADER
    assert again.replica.peers == {2}
    with pytest.raises(NotEnoughReplicasError):
        await produce(again.replica, batch_of())
    await again.host.close()


@pytest.mark.timeout(20)
async def test_given_a_full_disk_during_a_cut_then_it_is_halted_and_the_spu_can_be_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No fsync in the background: what is written now stays in the page cache.
    monkeypatch.setattr("spu.replica_host.TICK_S", 3_600.0)
    spu, other, boot = await follow(tmp_path, monkeypatch, Durability.REPLICATED)
    log = spu.replica._log
    await until(lambda: not log.needs_sync)
    other.says(Append(TERM, 1, boot, batches_of(*[NEVER] * 6)[5:], 1, 0))

    def full(log: PartitionLog, offset: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(PartitionLog, "truncate_suffix", full)
    assert (await other.leads(LATER)).leo == 6
    other.says(Cut(LATER, 1, boot, TERM, 3))
    await until(lambda: spu.replica.is_halted)
    assert "No space left" in str(spu.replica.report().reason)
    # There is still something that no fsync has seen, and nothing that could be synced.
    assert log.needs_sync
    await spu.host.close()


async def test_given_an_idle_log_then_it_gets_a_checkpoint_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spu.replica_host.TICK_S", 3_600.0)
    spu = await open_spu(tmp_path, assignment_of())
    log = (await spu.serve())._log

    async def checkpointed(after_s: int, room: Room = Room.PLENTY) -> bool:
        """Whether a record is in a checkpoint once the log is idle, so much later."""
        await produce(spu.replica, batch_of())
        assert not log.is_checkpointed
        spu.host.space.room = room
        spu.now_us += after_s * 1_000_000
        for _ in range(2):
            # The first finds that nothing is to be done, and the second that it is so still.
            spu.replica.tick(spu.now_us)
            await spu.replica._runner.commit.quiet()
        await until(lambda: spu.host._checkpoints._writing is None)
        return log.is_checkpointed

    assert await checkpointed(0)
    assert not await checkpointed(59)
    assert not await checkpointed(1, Room.NONE)
    assert await checkpointed(0)
    await spu.host.close()


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=["bad-disk", "full-disk"])
async def test_given_a_rebuild_that_fails_then_it_is_begun_anew_or_halted_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    spu, other, boot = await follow(tmp_path, monkeypatch)
    record, calls = DataDir.record_storage, 0

    def fails_once(directory: DataDir, meta: PartitionMeta) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise OSError(error, "it failed")
        record(directory, meta)

    monkeypatch.setattr(DataDir, "record_storage", fails_once)
    # It is unfit already when the rebuild fails: that must not hide the second trouble.
    spu.replica.damaged(OSError(errno.EIO, "a bad sector"))
    assert (await other.leads(TERM, 2)).unfit is not None
    other.says(Reset(TERM, 2, boot, 0, 0))
    await until(lambda: calls == 1)
    if error == errno.ENOSPC:
        await until(lambda: spu.replica.is_halted)
        assert "it failed" in str(spu.replica.report().reason)
    else:
        # The failure has ended that attachment; its leader attaches again.
        await until(lambda: spu.replica._runner.state.rebuild is None)
        before = spu.replica.report().storage_id
        assert (await other.leads(TERM, 3)).unfit is not None
        other.says(Reset(TERM, 3, boot, 0, 0))
        await until(lambda: spu.replica.fit)
        assert spu.replica.report().storage_id != before
        assert calls == 2
    await spu.host.close()


async def test_given_a_rebuild_that_began_then_the_old_log_is_shown_to_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spu, other, boot = await follow(tmp_path, monkeypatch)
    assert b"second" in fetched(spu.replica, follower_fetch(1))
    with gate(monkeypatch, PartitionLog, "rebuild") as (entered, opened):
        await other.leads(LATER)
        # The new log begins at 100: all before that is committed, but not what this one holds.
        other.says(Reset(LATER, 1, boot, 100, TERM))
        await until(entered.is_set)
        for offset in range(5):
            with pytest.raises(NotReadyError):
                spu.replica.fetch(follower_fetch(offset), wait=True)
        opened.set()
        await until(lambda: spu.replica.log_start == 100)
    assert fetched(spu.replica, follower_fetch(1)) == b""
    await spu.host.close()


async def test_given_a_fetch_in_a_thread_when_a_rebuild_begins_then_it_shows_nothing_uncommitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spu, other, boot = await follow(tmp_path, monkeypatch)
    replica = spu.replica
    with (
        ThreadPoolExecutor(1) as reader,
        gate(monkeypatch, replica_module, "require_agreement") as (reading, read_on),
        gate(monkeypatch, PartitionLog, "rebuild") as (rebuilding, rebuild),
    ):
        # It was found readable, and has not read the last add confirmed or the log yet.
        request = partial(fetched, replica, follower_fetch(1))
        answer = asyncio.get_running_loop().run_in_executor(reader, request)
        await until(reading.is_set)
        await other.leads(LATER)
        other.says(Reset(LATER, 1, boot, 100, TERM))
        await until(rebuilding.is_set)
        read_on.set()
        assert NEVER not in await answer
        rebuild.set()
        await until(lambda: replica.log_start == 100)
    await spu.host.close()


async def test_given_a_tombstone_of_the_storage_that_is_being_taken_then_it_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spu, other, boot = await follow(tmp_path, monkeypatch)
    before = spu.replica.report().storage_id
    with gate(monkeypatch, ReplicaRunner, "_rebuild") as (entered, opened):
        await other.leads(LATER)
        other.says(Reset(LATER, 1, boot, 100, TERM))
        await until(entered.is_set)
        # The SC knows the replica by what is reported, though the directory has the old id yet.
        reported = spu.replica.report().storage_id
        assert reported != before
        tombstone = Tombstone(uid=UID, spu_id=1, storage_id=reported)
        message = DeleteReplicas(tombstones=(tombstone,), stamp=STAMP)
        deletion = asyncio.create_task(spu.host.delete(message))
        # It is compared while there are two; then the work that is begun is waited for.
        await until(lambda: deletion.done() or "was deleted" in str(spu.replica.report().reason))
        opened.set()
        assert await deletion == [tombstone]
    with pytest.raises(NotFoundError):
        spu.host.replica(UID)
    assert not (tmp_path / "partitions" / UID).exists()
    await spu.host.close()


async def test_given_long_polls_on_a_follower_that_becomes_unfit_then_they_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spu, _, _ = await follow(tmp_path, monkeypatch)
    told: list[RunnelError | None] = []
    request = FetchRequest(UID, 2, 1 << 20, 1, 600_000, 0, FetchFlags.FOLLOWER_OK)
    spu.replica.when_more(request, 0, told.append)
    assert told == []
    spu.replica.damaged(OSError(errno.EIO, "a bad sector"))
    (error,) = told
    assert isinstance(error, StorageFailedError)
    await spu.host.close()


async def test_given_a_log_that_is_cut_while_it_is_verified_then_that_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spu = await open_spu(tmp_path, assignment_of(replicas=(0, 1)))
    other = await joined(spu, monkeypatch)
    replica = await spu.serve()
    attach = await other.hears(Attach)
    boot, storage = "00" * 8, str(new_uid())
    other.says(Position(attach.term, attach.attach, boot, storage, 0, 0))
    for _ in range(5):
        await produce(replica, batch_of())
    await until(lambda: other.frames > 0)
    sent, reads, read = replica.leo, 0, PartitionLog.read

    def counted(log: PartitionLog, offset: int, *args: Any, **kwargs: Any) -> Any:
        nonlocal reads
        reads += 1
        if reads > 100:
            # The thread would never end otherwise.
            raise OSError(errno.EIO, "read again and again")
        if reads == 1:
            # Between two reads: all that it still has to verify is cut.
            log.truncate_suffix(2)
        return read(log, offset, *args, **kwargs)

    monkeypatch.setattr(PartitionLog, "read", counted)
    assert sent == 6
    other.says(Damaged(attach.term, attach.attach))
    await until(lambda: replica._verifying is not None and replica._verifying.done())
    assert 1 <= reads <= 100
    assert replica.fit
    await replica.abandon()
    await spu.host.close()


async def test_given_a_replica_whose_tick_fails_then_time_goes_on_for_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spu.replica_host.TICK_S", 0.001)
    ticks: list[PartitionUid] = []

    def tick(replica: Replica, now_us: int) -> None:
        ticks.append(replica.meta.uid)
        if replica.meta.uid == UID:
            raise ValueError("a bug")

    monkeypatch.setattr(Replica, "tick", tick)
    other = new_uid()
    spu = await open_spu(tmp_path, assignment_of(), assignment_of(other))
    await until(lambda: ticks.count(other) >= 3)
    assert ticks.count(UID) >= 2
    await spu.host.close()


async def test_given_a_replica_that_fails_then_the_others_hear_of_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, PartitionUid]] = []

    def failing(what: str, replica: Replica, _: int) -> None:
        told.append((what, replica.meta.uid))
        if replica.meta.uid == UID:
            raise ValueError("a bug")

    monkeypatch.setattr(Replica, "linked", lambda *args: failing("up", *args))
    monkeypatch.setattr(Replica, "unlinked", lambda *args: failing("down", *args))
    other = new_uid()
    spu = await open_spu(tmp_path, *(assignment_of(uid, replicas=(0, 1)) for uid in (UID, other)))
    spu.host.links.peer_up(0)
    spu.host.links.peer_down(0)
    await until(lambda: len(told) == 4)
    assert told == [("up", UID), ("up", other), ("down", UID), ("down", other)]
    await spu.host.close()


async def test_given_many_replicas_then_others_have_their_turn_while_they_hear_of_a_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Heartbeats are due while thousands of replicas are told.
    monkeypatch.setattr("spu.replica_links.SLICE", 2)
    order: list[str] = []
    loop = asyncio.get_running_loop()

    def linked(replica: Replica, peer: int) -> None:
        order.append("told")
        loop.call_soon(order.append, "other")

    monkeypatch.setattr(Replica, "linked", linked)
    spu = await open_spu(tmp_path, *(assignment_of(new_uid()) for _ in range(6)))
    spu.host.links.peer_up(0)
    await until(lambda: order.count("other") == 6)
    assert order == ["told", "told", "other", "other"] * 3
    await spu.host.close()
