"""What there is in a small world, what one input to a replica leads to, and what must never be.

A world is immutable and hashable; `feed` gives the one after an input, and `check` raises
`ViolationError` where something is wrong that must never be.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from schemas.ids import election_term, next_election
from spu.replication.core import step
from spu.replication.events import (
    AdvanceLogStart,
    AppendBatches,
    AppendControl,
    AppendSeal,
    Committed,
    Elected,
    HardStatePersisted,
    Input,
    LinkUp,
    LogReset,
    LogTruncated,
    NewStorageId,
    Output,
    PartitionUpdated,
    PersistHardState,
    Push,
    Pushed,
    RequestElection,
    RequestLrsChange,
    ResetLog,
    Send,
    StorageIdChosen,
    TruncateLog,
)
from spu.replication.messages import Append, Batch, Message
from spu.replication.state import OLD, HardState, Member, Members, ReplicaState

#: One record each: what tells two logs apart is who wrote what where.
CONTROL = b"control"


class ViolationError(AssertionError):
    """Something that must never be. The message says what."""


class Revision(NamedTuple):
    """What the KV holds of the partition at one revision."""

    revision: int
    term: int
    leader: int
    lrs: Members
    unclean_term: int = 0


@dataclass(frozen=True, slots=True)
class Disk:
    """What a crash leaves: the promise, and the log up to ``synced`` batches. A ``broken`` one
    syncs nothing any more, whatever it says."""

    hard_state: HardState
    batches: tuple[Batch, ...] = ()
    synced: int = 0
    start: int = 0
    broken: bool = False

    @property
    def leo(self) -> int:
        return self.batches[-1].end if self.batches else self.start


class Backup(NamedTuple):
    """A copy of a disk, with the last add confirmed that was persisted there."""

    disk: Disk
    lac: int


@dataclass(frozen=True, slots=True)
class Node:
    """One SPU: its disk, its state in memory, and what is on its way to the disk.

    ``backup`` is a copy of the disk. ``old``: that copy has replaced the disk, and was not rebuilt
    since. ``since`` is the revision of the KV at that time: sessions of before are over.
    """

    disk: Disk
    state: ReplicaState
    promises: tuple[HardState, ...] = ()
    cuts: tuple[TruncateLog | ResetLog, ...] = ()
    pushes: tuple[Pushed, ...] = ()
    backup: Backup | None = None
    old: bool = False
    since: int = 0


class Mail(NamedTuple):
    sender: int
    to: int
    message: Message


class Asked(NamedTuple):
    """A request for another live replica set, on its way to the SC."""

    sender: int
    request: RequestLrsChange


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of what may happen. ``forgets``: a crash may lose the last add confirmed, which is
    persisted only now and then."""

    elections: int = 1
    records: int = 1
    crashes: int = 0
    shrinks: int = 0
    attaches: int = 1
    lags: int = 0
    wipes: int = 0
    failures: int = 0
    restores: int = 0
    forgets: bool = False


@dataclass(frozen=True, slots=True)
class World:
    """Everything there is. ``committed`` is what any leader ever called committed, by offset;
    ``elections`` are the SPUs that asked for another leader, with their terms."""

    nodes: tuple[Node, ...]
    kv: tuple[Revision, ...]
    min_in_sync: int
    left: Limits
    mail: frozenset[Mail] = frozenset()
    asked: frozenset[Asked] = frozenset()
    elections: frozenset[tuple[int, int]] = frozenset()
    committed: tuple[Batch, ...] = ()
    storages: int = 0
    boots: int = 0
    slow: bool = False

    @property
    def now(self) -> Revision:
        return self.kv[-1]


def begin(spus: int, min_in_sync: int, limits: Limits, *, slow: bool = False) -> World:
    """A partition whose first leader has all others in its live replica set."""
    members = tuple(Member(i, f"s{i}") for i in range(spus))
    first = Revision(1, next_election(0), 0, members)
    nodes = []
    for member in members:
        hard_state = HardState(member.storage)
        state = ReplicaState(member.spu, f"b0.{member.spu}", hard_state, proven=True)
        nodes.append(Node(Disk(hard_state), state))
    world = World(tuple(nodes), (first,), min_in_sync, limits, storages=spus, slow=slow)
    for spu in range(spus):
        for peer in range(spus):
            if peer != spu:
                world = feed(world, spu, LinkUp(peer))
        world = feed(world, spu, learned(world, first))
    return feed(world, 0, told_to_lead(world, first))


def feed(world: World, spu: int, event: Input, now_ms: int = 0) -> World:
    """One input to one replica, and everything that follows at once."""
    node = world.nodes[spu]
    state, outputs = step(node.state, event, now_ms)
    world = with_node(world, spu, replace(node, state=state))
    for output in outputs:
        world = _carry_out(world, spu, output, now_ms)
    return world


def _carry_out(world: World, spu: int, output: Output, now_ms: int) -> World:
    node = world.nodes[spu]
    disk = node.disk
    match output:
        case PersistHardState(hard_state):
            world = with_node(world, spu, replace(node, promises=(*node.promises, hard_state)))
            return world if world.slow else finish_promise(world, spu, now_ms)
        case AppendControl(term):
            batch = Batch(disk.leo, disk.leo + 1, term, CONTROL)
            return appended(world, spu, (batch,))
        case AppendSeal(term):
            batch = Batch(disk.leo, disk.leo + 1, term, CONTROL, seals=True)
            return appended(world, spu, (batch,))
        case AppendBatches(batches):
            return appended(world, spu, batches)
        case TruncateLog() | ResetLog():
            world = with_node(world, spu, replace(node, cuts=(*node.cuts, output)))
            return world if world.slow else finish_cut(world, spu, now_ms)
        case NewStorageId():
            if Member(spu, disk.hard_state.storage) in world.now.lrs:
                raise ViolationError(f"SPU {spu} gives up its seat, the KV has {world.now}")
            world = replace(world, storages=world.storages + 1)
            return feed(world, spu, StorageIdChosen(f"s{world.storages}"), now_ms)
        case Push(to, term, number, boot, start, lac, log_start):
            batches = tuple(batch for batch in disk.batches if batch.base >= start)[:1]
            append = Append(term, number, boot, batches, lac, log_start)
            pushes = (*node.pushes, Pushed(to, number, batches[-1].end))
            world = with_node(world, spu, replace(node, pushes=pushes))
            world = replace(world, mail=world.mail | {Mail(spu, to, append)})
            return world if world.slow else finish_push(world, spu, now_ms)
        case Send(to, message):
            return replace(world, mail=world.mail | {Mail(spu, to, message)})
        case RequestLrsChange():
            return replace(world, asked=world.asked | {Asked(spu, output)})
        case RequestElection(term):
            return replace(world, elections=world.elections | {(spu, election_term(term))})
        case Committed(lac):
            return _commit(world, spu, lac)
        case AdvanceLogStart():
            raise AssertionError("nothing is truncated here")
        case _:
            return world


def finish_promise(world: World, spu: int, now_ms: int = 0) -> World:
    """The oldest promise that was on its way is durable."""
    node = world.nodes[spu]
    hard_state, *later = node.promises
    disk = replace(node.disk, hard_state=hard_state)
    world = with_node(world, spu, replace(node, disk=disk, promises=tuple(later)))
    return feed(world, spu, HardStatePersisted(hard_state), now_ms)


def finish_cut(world: World, spu: int, now_ms: int = 0) -> World:
    """The oldest cut that was on its way is done."""
    node = world.nodes[spu]
    (cut, *later), disk = node.cuts, node.disk
    event: Input
    if isinstance(cut, TruncateLog):
        kept = tuple(batch for batch in disk.batches if batch.end <= cut.leo)
        disk = replace(disk, batches=kept, synced=min(disk.synced, len(kept)))
        event = LogTruncated()
    else:
        disk = replace(disk, batches=(), synced=0, start=cut.start, broken=False)
        event = LogReset(cut.storage)
        node = replace(node, old=False)
    world = with_node(world, spu, replace(node, disk=disk, cuts=tuple(later)))
    return feed(world, spu, event, now_ms)


def finish_push(world: World, spu: int, now_ms: int = 0) -> World:
    """The oldest push has left."""
    node = world.nodes[spu]
    pushed, *later = node.pushes
    world = with_node(world, spu, replace(node, pushes=tuple(later)))
    return feed(world, spu, pushed, now_ms)


def appended(world: World, spu: int, batches: tuple[Batch, ...]) -> World:
    """Batches are written to the end of a log, and not synced."""
    node = world.nodes[spu]
    if node.cuts:
        raise ViolationError(f"SPU {spu} appends {batches} while its log is being cut")
    disk = replace(node.disk, batches=(*node.disk.batches, *batches))
    return with_node(world, spu, replace(node, disk=disk))


def _commit(world: World, spu: int, lac: int) -> World:
    """What a replica calls committed is what everybody else called so, or new."""
    node = world.nodes[spu]
    mine = tuple(batch for batch in node.disk.batches if batch.end <= lac + 1)
    both = min(len(mine), len(world.committed))
    if mine[:both] != world.committed[:both]:
        raise ViolationError(
            f"SPU {spu} commits {mine}, and {world.committed} was committed before"
        )
    if len(mine) <= len(world.committed):
        return world
    if node.state.leading is None:
        raise ViolationError(f"SPU {spu} follows, and believes more committed than any leader")
    hard_state = node.state.hard_state
    for lrs in (hard_state.lrs, hard_state.pending):
        if lrs is not None and len(lrs) < world.min_in_sync:
            raise ViolationError(f"SPU {spu} commits {mine} with {lrs} alone")
    return replace(world, committed=mine)


def learned(world: World, known: Revision) -> PartitionUpdated:
    """What the SC tells every replica of a revision."""
    replicas = tuple(range(len(world.nodes)))
    return PartitionUpdated(
        known.revision,
        known.term,
        known.leader,
        known.lrs,
        replicas,
        world.min_in_sync,
        unclean_term=known.unclean_term,
    )


def told_to_lead(world: World, known: Revision) -> Elected:
    """What the SC tells the leader of a revision."""
    replicas = tuple(range(len(world.nodes)))
    unclean = known.unclean_term == known.term
    return Elected(
        known.revision, known.term, known.lrs, replicas, world.min_in_sync, unclean=unclean
    )


def check(world: World) -> None:
    """Raise ViolationError where a rule does not hold."""
    now = world.now
    leaders: dict[int, int] = {}
    written: dict[tuple[int, int], Batch] = {}
    for spu, node in enumerate(world.nodes):
        state, disk = node.state, node.disk
        steady = state.log_is_steady and not node.cuts
        # That the union survives is seen by what commits need, below.
        promised = replace(state.hard_state, pending=disk.hard_state.pending) == disk.hard_state
        if (steady and state.log.leo != disk.leo) or not promised:
            raise ViolationError(f"SPU {spu} believes {state}, and has {disk}")
        if state.leading is not None:
            if (other := leaders.setdefault(state.leading.term, spu)) != spu:
                raise ViolationError(f"SPUs {other} and {spu} lead in term {state.leading.term}")
            here = election_term(state.leading.term) == now.term
            unproven = state.leading.proving
            required = state.hard_state.required | state.witnesses
            if here and not unproven and not required >= set(now.lrs):
                raise ViolationError(f"SPU {spu} commits with {required}, the KV has {now}")
        if (state.newest.unfit or "").startswith(OLD) and not node.old:
            raise ViolationError(f"SPU {spu} takes its disk for an old one: {state.newest.unfit}")
        for batch in disk.batches:
            if written.setdefault((batch.term, batch.base), batch) != batch:
                raise ViolationError(f"{batch} and {written[batch.term, batch.base]} in one term")
        if state.log.last_term < now.unclean_term:
            # It may show what the unclean election took away: it has not heard of that yet.
            continue
        committed = tuple(b for b in disk.batches if b.end <= state.lac + 1)
        if committed != world.committed[: len(committed)]:
            raise ViolationError(f"SPU {spu} shows {committed}, committed is {world.committed}")
    for member in now.lrs:
        disk = world.nodes[member.spu].disk
        if disk.hard_state.storage != member.storage:
            continue
        durable = disk.batches[: disk.synced]
        if world.nodes[member.spu].old:
            # Nobody may know this yet. What is committed must be on other disks.
            continue
        if durable[: len(world.committed)] != world.committed:
            raise ViolationError(f"{member} is live with {durable}, committed is {world.committed}")


def is_behind(world: World, spu: int) -> bool:
    """Whether a disk that has gone back in time lacks something that is committed."""
    node = world.nodes[spu]
    durable = node.disk.batches[: node.disk.synced]
    return node.old and durable[: len(world.committed)] != world.committed


def with_node(world: World, spu: int, node: Node) -> World:
    """The world, but for one SPU."""
    nodes = world.nodes
    return replace(world, nodes=(*nodes[:spu], node, *nodes[spu + 1 :]))
