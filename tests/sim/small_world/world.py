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
    """What the KV holds of the partition at one revision. ``replicas``, ``joining`` and ``leaving``
    are as in its spec, but never None."""

    revision: int
    term: int
    leader: int
    lrs: Members
    unclean_term: int = 0
    replicas: tuple[int, ...] = ()
    joining: tuple[int, ...] = ()
    leaving: tuple[int, ...] = ()

    @property
    def holders(self) -> tuple[int, ...]:
        return (*self.replicas, *self.leaving)


class Grave(NamedTuple):
    """A tombstone in the KV, and the revision that brought it."""

    spu: int
    storage: str | None
    revision: int


class Told(NamedTuple):
    """What an SPU reports of its replica."""

    storage: str
    fit: bool
    leads: bool
    term: int
    revision: int
    assigned: bool
    last_term: int
    leo: int


class Session(NamedTuple):
    """What the SC has heard in a session: of the replica, if there is one, and which deletion was
    done last."""

    told: Told | None = None
    deleted: Grave | None = None


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

    Where replicas move, an SPU may have no replica (``held``), and its replica may be stopped
    because a complete list left it out (``assigned``). ``session`` is None while the SC does not
    hear it. ``order`` is the deletion that it is to do, ``done`` the last that it did.
    """

    disk: Disk
    state: ReplicaState
    promises: tuple[HardState, ...] = ()
    cuts: tuple[TruncateLog | ResetLog, ...] = ()
    pushes: tuple[Pushed, ...] = ()
    backup: Backup | None = None
    old: bool = False
    since: int = 0
    held: bool = True
    assigned: bool = True
    session: Session | None = None
    order: Grave | None = None
    done: Grave | None = None


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
    persisted only now and then. ``wishes``: who is to hold the partition, one after the other.
    ``silences``: how many sessions with the SC may end."""

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
    wishes: tuple[tuple[int, ...], ...] = ()
    silences: int = 0


@dataclass(frozen=True, slots=True)
class World:
    """Everything there is. ``committed`` is what any leader ever called committed, by offset;
    ``elections`` are the SPUs that asked for another leader, with their terms.

    ``moves``: replicas may move, and the SC is the real one (`tests.sim.small_world.membership`),
    beside what it suspects. In a ``prompt`` world it hears at once what SPUs have to report.
    """

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
    moves: bool = False
    prompt: bool = False
    graves: frozenset[Grave] = frozenset()

    @property
    def now(self) -> Revision:
        return self.kv[-1]


def begin(spus: int, min_in_sync: int, limits: Limits, *, slow: bool = False) -> World:
    """A partition whose first leader has all others in its live replica set."""
    return _begun(tuple(range(spus)), spus, min_in_sync, limits, slow=slow)


def begin_with_moves(
    replicas: tuple[int, ...], spus: int, min_in_sync: int, limits: Limits, *, prompt: bool = False
) -> World:
    """The same with real controllers and more SPUs than replicas, which may move. SPU 0 leads."""
    return _begun(replicas, spus, min_in_sync, limits, moves=True, prompt=prompt)


def _begun(
    replicas: tuple[int, ...],
    spus: int,
    min_in_sync: int,
    limits: Limits,
    *,
    slow: bool = False,
    moves: bool = False,
    prompt: bool = False,
) -> World:
    members = tuple(Member(i, f"s{i}") for i in replicas)
    first = Revision(1, next_election(0), 0, members, replicas=replicas)
    nodes = []
    for spu in range(spus):
        hard_state = HardState(f"s{spu}")
        state = ReplicaState(spu, f"b0.{spu}", hard_state, proven=True)
        node = Node(Disk(hard_state), state, session=Session() if moves else None)
        nodes.append(node if spu in replicas else absent(spu, node))
    world = World(
        tuple(nodes),
        (first,),
        min_in_sync,
        limits,
        storages=spus,
        slow=slow,
        moves=moves,
        prompt=prompt,
    )
    for spu in replicas:
        for peer in range(spus):
            if peer != spu:
                world = feed(world, spu, LinkUp(peer))
        world = feed(world, spu, learned(world, first))
    return feed(world, 0, told_to_lead(world, first))


def absent(spu: int, node: Node) -> Node:
    """The SPU without a replica."""
    nothing = HardState("")
    return Node(
        Disk(nothing),
        ReplicaState(spu, "", nothing),
        since=node.since,
        held=False,
        session=node.session,
    )


def feed(world: World, spu: int, event: Input, now_ms: int = 0) -> World:
    """One input to one replica, and everything that follows at once; nothing where there is no
    replica."""
    node = world.nodes[spu]
    if not node.held:
        return world
    state, outputs = step(node.state, event, now_ms)
    world = with_node(world, spu, replace(node, state=state))
    for output in outputs:
        world = _carry_out(world, spu, output, now_ms)
    return reported(world, spu) if world.prompt else world


def reported(world: World, spu: int) -> World:
    """The SC hears what an SPU has to report, if there is a session."""
    node = world.nodes[spu]
    if node.session is None:
        return world
    return with_node(world, spu, replace(node, session=Session(report_of(node), node.done)))


def report_of(node: Node) -> Told | None:
    """What an SPU reports of its replica now; None where it has none."""
    if not node.held:
        return None
    state = node.state
    known, log = state.hard_state, state.log
    return Told(
        known.storage,
        state.newest.unfit is None,
        state.may_append,
        known.term,
        known.revision,
        node.assigned,
        log.last_term,
        log.leo,
    )


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
    return PartitionUpdated(
        known.revision,
        known.term,
        known.leader,
        known.lrs,
        known.holders,
        world.min_in_sync,
        unclean_term=known.unclean_term,
    )


def told_to_lead(world: World, known: Revision) -> Elected:
    """What the SC tells the leader of a revision."""
    unclean = known.unclean_term == known.term
    return Elected(
        known.revision, known.term, known.lrs, known.holders, world.min_in_sync, unclean=unclean
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
    if world.moves:
        _check_members(world)


def _check_members(world: World) -> None:
    """Who is live holds a replica, the leader among them; nothing that counts is to be deleted."""
    now = world.now
    live = {member.spu for member in now.lrs}
    if now.leader not in live or not live <= set(now.holders):
        raise ViolationError(f"not all that are live hold a replica: {now}")
    counted = set(now.lrs)
    for node in world.nodes:
        leading = node.state.leading
        if leading is not None and election_term(leading.term) == now.term:
            counted |= set(node.state.hard_state.lrs)
    for grave in world.graves:
        if any(grave.spu == m.spu and grave.storage in (None, m.storage) for m in counted):
            raise ViolationError(f"{grave}, and {sorted(counted)} count: {now}")


def is_behind(world: World, spu: int) -> bool:
    """Whether a disk that has gone back in time lacks something that is committed."""
    node = world.nodes[spu]
    durable = node.disk.batches[: node.disk.synced]
    return node.old and durable[: len(world.committed)] != world.committed


def with_node(world: World, spu: int, node: Node) -> World:
    """The world, but for one SPU."""
    nodes = world.nodes
    return replace(world, nodes=(*nodes[:spu], node, *nodes[spu + 1 :]))
