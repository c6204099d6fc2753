"""A small world for exhaustive exploration: every order of events that can be, one at a time.

One partition on a few SPUs. Messages are a set that only grows, so that each is delivered late,
often, or never. Disks lose what is not synced when an SPU crashes. The SC suspects whom it likes:
it elects any member of the live replica set and drops any other, as long as the rules of its own
compare-and-swap hold. Promises and cuts are durable at once, or, in a ``slow`` world, whenever it
pleases the disk.

A world is immutable and hashable; `moves` gives every next move with the way to the world after it,
and `check` raises `ViolationError` where something is wrong that must never be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple

from schemas.ids import election_term, next_election
from spu.replication.core import step
from spu.replication.events import (
    AppendControl,
    AskLrs,
    Committed,
    CutLog,
    DropPrefix,
    Failed,
    Input,
    LeadNow,
    Learned,
    LinkDown,
    LinkUp,
    Output,
    Promised,
    Push,
    Pushed,
    Rebuild,
    Rebuilt,
    Received,
    Record,
    Repair,
    Resume,
    Send,
    Store,
    Synced,
    Tick,
    Truncated,
    WantStorage,
    Wrote,
)
from spu.replication.history import History, extended
from spu.replication.messages import Append, Batch, Message
from spu.replication.state import (
    REPLICA_LAG_TIME_MS,
    LogView,
    Member,
    Members,
    Promise,
    ReplicaState,
    recovered,
)

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


@dataclass(frozen=True, slots=True)
class Disk:
    """What a crash leaves: the promise, and the log up to ``synced`` batches. A ``broken`` one
    syncs nothing any more, whatever it says."""

    promise: Promise
    batches: tuple[Batch, ...] = ()
    synced: int = 0
    start: int = 0
    broken: bool = False

    @property
    def leo(self) -> int:
        return self.batches[-1].end if self.batches else self.start


@dataclass(frozen=True, slots=True)
class Node:
    """One SPU: its disk, its state in memory, and what is on its way to the disk."""

    disk: Disk
    state: ReplicaState
    promises: tuple[Promise, ...] = ()
    cuts: tuple[CutLog | Rebuild, ...] = ()
    pushes: tuple[Pushed, ...] = ()


#: How likely moves are in random walks: faults seldom, so that something has happened before.
WEIGHTS: Final = {
    "receives": 10.0,
    "syncs": 4.0,
    "has promised": 4.0,
    "has cut": 2.0,
    "has pushed": 4.0,
    "learns": 2.0,
    "is to lead": 2.0,
    "the SC is asked": 2.0,
    "appends": 1.0,
    "attaches": 0.5,
    "waits": 0.3,
    "crashes": 0.3,
    "loses its disk": 0.1,
    "fails": 0.2,
    "the SC elects": 0.4,
    "the SC drops": 0.2,
}

#: What happened, and to what.
Move = tuple[object, ...]


class Mail(NamedTuple):
    sender: int
    to: int
    message: Message


class Asked(NamedTuple):
    """A request for another live replica set, on its way to the SC."""

    sender: int
    request: AskLrs


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of what may happen."""

    elections: int = 1
    records: int = 1
    crashes: int = 0
    shrinks: int = 0
    attaches: int = 1
    lags: int = 0
    wipes: int = 0
    failures: int = 0


@dataclass(frozen=True, slots=True)
class World:
    """Everything there is. ``committed`` is what any leader ever called committed, by offset."""

    nodes: tuple[Node, ...]
    kv: tuple[Revision, ...]
    min_in_sync: int
    left: Limits
    mail: frozenset[Mail] = frozenset()
    asked: frozenset[Asked] = frozenset()
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
        promise = Promise(member.storage)
        nodes.append(Node(Disk(promise), ReplicaState(member.spu, "b0", promise)))
    world = World(tuple(nodes), (first,), min_in_sync, limits, storages=spus, slow=slow)
    for spu in range(spus):
        for peer in range(spus):
            if peer != spu:
                world = feed(world, spu, LinkUp(peer))
        world = feed(world, spu, _learned(world, first))
    return feed(world, 0, _lead(world, first))


def feed(world: World, spu: int, event: Input, now_ms: int = 0) -> World:
    """One input to one replica, and everything that follows at once."""
    node = world.nodes[spu]
    state, outputs = step(node.state, event, now_ms)
    world = _with(world, spu, replace(node, state=state))
    for output in outputs:
        world = _carry_out(world, spu, output, now_ms)
    return world


def _carry_out(world: World, spu: int, output: Output, now_ms: int) -> World:
    node = world.nodes[spu]
    disk = node.disk
    match output:
        case Record(promise):
            world = _with(world, spu, replace(node, promises=(*node.promises, promise)))
            return world if world.slow else _promise(world, spu, now_ms)
        case AppendControl(term):
            batch = Batch(disk.leo, disk.leo + 1, term, CONTROL)
            return _append(world, spu, (batch,))
        case Store(batches):
            return _append(world, spu, batches)
        case CutLog() | Rebuild():
            world = _with(world, spu, replace(node, cuts=(*node.cuts, output)))
            return world if world.slow else _cut(world, spu, now_ms)
        case WantStorage():
            if Member(spu, disk.promise.storage) in world.now.lrs:
                raise ViolationError(f"SPU {spu} gives up its seat, the KV has {world.now}")
            world = replace(world, storages=world.storages + 1)
            return feed(world, spu, Repair(f"s{world.storages}"), now_ms)
        case Push(to, term, number, boot, start, lac, log_start):
            batches = tuple(batch for batch in disk.batches if batch.base >= start)[:1]
            append = Append(term, number, boot, batches, lac, log_start)
            pushes = (*node.pushes, Pushed(to, number, batches[-1].end))
            world = _with(world, spu, replace(node, pushes=pushes))
            world = replace(world, mail=world.mail | {Mail(spu, to, append)})
            return world if world.slow else _pushed(world, spu, now_ms)
        case Send(to, message):
            return replace(world, mail=world.mail | {Mail(spu, to, message)})
        case AskLrs():
            return replace(world, asked=world.asked | {Asked(spu, output)})
        case Committed(lac):
            return _commit(world, spu, lac)
        case DropPrefix():
            raise AssertionError("nothing is truncated here")
        case _:
            return world


def _promise(world: World, spu: int, now_ms: int = 0) -> World:
    """The oldest promise that was on its way is durable."""
    node = world.nodes[spu]
    promise, *later = node.promises
    disk = replace(node.disk, promise=promise)
    world = _with(world, spu, replace(node, disk=disk, promises=tuple(later)))
    return feed(world, spu, Promised(promise), now_ms)


def _cut(world: World, spu: int, now_ms: int = 0) -> World:
    """The oldest cut that was on its way is done."""
    node = world.nodes[spu]
    (cut, *later), disk = node.cuts, node.disk
    event: Input
    if isinstance(cut, CutLog):
        kept = tuple(batch for batch in disk.batches if batch.end <= cut.leo)
        disk = replace(disk, batches=kept, synced=min(disk.synced, len(kept)))
        event = Truncated()
    else:
        disk = replace(disk, batches=(), synced=0, start=cut.start, broken=False)
        event = Rebuilt(cut.storage)
    world = _with(world, spu, replace(node, disk=disk, cuts=tuple(later)))
    return feed(world, spu, event, now_ms)


def _pushed(world: World, spu: int, now_ms: int = 0) -> World:
    """The oldest push has left."""
    node = world.nodes[spu]
    pushed, *later = node.pushes
    world = _with(world, spu, replace(node, pushes=tuple(later)))
    return feed(world, spu, pushed, now_ms)


def _append(world: World, spu: int, batches: tuple[Batch, ...]) -> World:
    node = world.nodes[spu]
    if node.cuts:
        raise ViolationError(f"SPU {spu} appends {batches} while its log is being cut")
    disk = replace(node.disk, batches=(*node.disk.batches, *batches))
    return _with(world, spu, replace(node, disk=disk))


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
    return replace(world, committed=mine)


def moves(world: World) -> Iterator[tuple[Move, Callable[[], World]]]:
    """What may happen next, and how to come to the world after it."""
    left = world.left
    for mail in world.mail:
        yield ("receives", mail), partial(feed, world, mail.to, Received(mail.sender, mail.message))
    for spu, node in enumerate(world.nodes):
        unsynced = node.disk.synced < len(node.disk.batches)
        if unsynced and not node.cuts and node.state.newest.unfit is None:
            yield ("syncs", spu), partial(_sync, world, spu)
        for revision in world.kv:
            if revision.revision > node.state.newest.revision:
                told = partial(feed, world, spu, _learned(world, revision))
                yield ("learns", spu, revision), told
            if revision.leader == spu:
                yield (
                    ("is to lead", spu, revision),
                    partial(feed, world, spu, _lead(world, revision)),
                )
        if node.promises:
            yield ("has promised", spu), partial(_promise, world, spu)
        if node.cuts:
            yield ("has cut", spu), partial(_cut, world, spu)
        if node.pushes:
            yield ("has pushed", spu), partial(_pushed, world, spu)
        if left.crashes:
            # What an fsync failed for is not read back after a crash.
            most = node.disk.synced if node.disk.broken else len(node.disk.batches)
            for kept in range(node.disk.synced, most + 1):
                yield ("crashes", spu, kept), partial(_crash, world, spu, kept)
        if left.wipes:
            yield ("loses its disk", spu), partial(_wipe, world, spu)
        if left.failures and node.disk.promise.unfit is None:
            yield ("fails", spu), partial(_fail, world, spu)
        if node.state.leading is not None:
            yield from _leading_moves(world, spu)
    for asked in world.asked:
        yield ("the SC is asked", asked), partial(_answer, world, asked)
    yield from _suspicions(world)


def _leading_moves(world: World, spu: int) -> Iterator[tuple[Move, Callable[[], World]]]:
    left = world.left
    if left.records:
        yield ("appends", spu), partial(_write, world, spu)
    if left.lags:
        less = replace(world, left=replace(left, lags=left.lags - 1))
        yield ("waits", spu), partial(feed, less, spu, Tick(), REPLICA_LAG_TIME_MS)
    if left.attaches:
        less = replace(world, left=replace(left, attaches=left.attaches - 1))
        for peer in range(len(world.nodes)):
            if peer != spu:
                yield ("attaches", spu, peer), partial(feed, less, spu, LinkUp(peer))


def _fail(world: World, spu: int) -> World:
    node = world.nodes[spu]
    left = replace(world.left, failures=world.left.failures - 1)
    broken = replace(node, disk=replace(node.disk, broken=True))
    world = _with(replace(world, left=left), spu, broken)
    return feed(world, spu, Failed("an fsync failed"))


def _sync(world: World, spu: int) -> World:
    node = world.nodes[spu]
    if node.state.newest.unfit is not None or node.cuts:
        return world
    synced = node.disk.synced if node.disk.broken else len(node.disk.batches)
    disk = replace(node.disk, synced=synced)
    return feed(_with(world, spu, replace(node, disk=disk)), spu, Synced(disk.leo))


def _learned(world: World, known: Revision) -> Learned:
    replicas = tuple(range(len(world.nodes)))
    return Learned(known.revision, known.term, known.leader, known.lrs, replicas, world.min_in_sync)


def _lead(world: World, known: Revision) -> LeadNow:
    replicas = tuple(range(len(world.nodes)))
    return LeadNow(known.revision, known.term, known.lrs, replicas, world.min_in_sync)


def _write(world: World, spu: int) -> World:
    node = world.nodes[spu]
    assert node.state.leading is not None
    number = world.left.records
    world = replace(world, left=replace(world.left, records=number - 1))
    leo = node.disk.leo
    batch = Batch(leo, leo + 1, node.state.leading.term, b"record %d" % number)
    world = _append(world, spu, (batch,))
    return feed(world, spu, Wrote(leo + 1))


def _crash(world: World, spu: int, kept: int) -> World:
    """The process ends, and starts again with as much as the disk happens to have."""
    world = replace(world, left=replace(world.left, crashes=world.left.crashes - 1))
    disk = world.nodes[spu].disk
    disk = replace(disk, batches=disk.batches[:kept], broken=False)
    # What it had persisted of the last add confirmed comes back with it.
    return _start(world, spu, recovered_disk(disk), world.nodes[spu].state.durable_lac)


def recovered_disk(disk: Disk) -> Disk:
    """Recovery makes durable what it keeps."""
    return replace(disk, synced=len(disk.batches))


def _wipe(world: World, spu: int) -> World:
    """The disk is replaced by an empty one: another storage id, and no promises."""
    left = replace(world.left, wipes=world.left.wipes - 1)
    world = replace(world, left=left, storages=world.storages + 1)
    return _start(world, spu, Disk(Promise(fresh_storage(world, spu))), -1)


def fresh_storage(world: World, spu: int) -> str:
    """A storage id that was never used."""
    return f"s{world.storages}"


def _start(world: World, spu: int, disk: Disk, lac: int) -> World:
    history: History = ()
    for batch in disk.batches:
        history = extended(history, batch.term, batch.base)
    log = LogView(disk.start, disk.leo, disk.leo, history)
    world = replace(world, boots=world.boots + 1)
    state = recovered(spu, f"b{world.boots}", disk.promise, log, lac)
    world = feed(_with(world, spu, Node(disk, state)), spu, Resume())
    for peer in range(len(world.nodes)):
        if peer != spu:
            world = feed(world, spu, LinkUp(peer))
            world = feed(feed(world, peer, LinkDown(spu)), peer, LinkUp(spu))
    return world


def _answer(world: World, asked: Asked) -> World:
    """The SC's compare-and-swap: a request that is current is answered with a write."""
    if not is_current(world, asked):
        return world
    new = world.now._replace(revision=world.now.revision + 1, lrs=answered(world, asked))
    return replace(world, kv=(*world.kv, new))


def is_current(world: World, asked: Asked) -> bool:
    """Only the leader of now is heard, about the revision of now."""
    now, request = world.now, asked.request
    same = request.revision == now.revision and election_term(request.term) == now.term
    return same and asked.sender == now.leader


def answered(world: World, asked: Asked) -> Members:
    """The set that was asked for; the one that is where the leader would drop out."""
    kept = any(member.spu == world.now.leader for member in asked.request.lrs)
    return asked.request.lrs if kept else world.now.lrs


def seen_by_election(world: World) -> Revision:
    """What the SC knows when it elects; its compare-and-swap sees to it that this is the newest."""
    return world.now


def _suspicions(world: World) -> Iterator[tuple[Move, Callable[[], World]]]:
    now, left = world.now, world.left
    if left.elections:
        less = replace(world, left=replace(left, elections=left.elections - 1))
        known = seen_by_election(world)
        for member in known.lrs:
            if member.spu == now.leader or not _is_fit(world, member):
                continue
            for lrs in subsets(known.lrs, member, world.min_in_sync):
                new = Revision(now.revision + 1, next_election(now.term), member.spu, lrs)
                yield ("the SC elects", new), partial(_decide, less, new)
    if left.shrinks:
        less = replace(world, left=replace(left, shrinks=left.shrinks - 1))
        for member in now.lrs:
            if member.spu != now.leader and len(now.lrs) > world.min_in_sync:
                lrs = tuple(m for m in now.lrs if m != member)
                new = now._replace(revision=now.revision + 1, lrs=lrs)
                yield ("the SC drops", member), partial(_decide, less, new)


def _decide(world: World, new: Revision) -> World:
    return replace(world, kv=(*world.kv, new))


def _is_fit(world: World, member: Member) -> bool:
    promise = world.nodes[member.spu].disk.promise
    return promise.storage == member.storage and promise.unfit is None


def subsets(lrs: Members, leader: Member, least: int) -> Iterator[Members]:
    """The set as it is, and without any one of the others."""
    yield lrs
    for member in lrs:
        if member != leader and len(lrs) > least:
            yield tuple(m for m in lrs if m != member)


def check(world: World) -> None:
    """Raise ViolationError where a rule does not hold."""
    now = world.now
    leaders: dict[int, int] = {}
    written: dict[tuple[int, int], Batch] = {}
    for spu, node in enumerate(world.nodes):
        state, disk = node.state, node.disk
        steady = state.log_is_steady and not node.cuts
        # That the union survives is seen by what commits need, below.
        promised = replace(state.promise, pending=disk.promise.pending) == disk.promise
        if (steady and state.log.leo != disk.leo) or not promised:
            raise ViolationError(f"SPU {spu} believes {state}, and has {disk}")
        if state.leading is not None:
            if (other := leaders.setdefault(state.leading.term, spu)) != spu:
                raise ViolationError(f"SPUs {other} and {spu} lead in term {state.leading.term}")
            here = election_term(state.leading.term) == now.term
            if here and not state.promise.required >= set(now.lrs):
                raise ViolationError(f"SPU {spu} commits with {state.promise}, the KV has {now}")
        for batch in disk.batches:
            if written.setdefault((batch.term, batch.base), batch) != batch:
                raise ViolationError(f"{batch} and {written[batch.term, batch.base]} in one term")
        committed = tuple(b for b in disk.batches if b.end <= state.lac + 1)
        if committed != world.committed[: len(committed)]:
            raise ViolationError(f"SPU {spu} shows {committed}, committed is {world.committed}")
    for member in now.lrs:
        disk = world.nodes[member.spu].disk
        if disk.promise.storage != member.storage:
            continue
        durable = disk.batches[: disk.synced]
        if durable[: len(world.committed)] != world.committed:
            raise ViolationError(f"{member} is live with {durable}, committed is {world.committed}")


def _with(world: World, spu: int, node: Node) -> World:
    nodes = world.nodes
    return replace(world, nodes=(*nodes[:spu], node, *nodes[spu + 1 :]))


#: So many rounds of half a second bring every partition back that can come back.
HEAL_ROUNDS: Final = 80
_ROUND_MS: Final = 500


def heal(world: World, *, links_break: bool) -> World:
    """No more faults: what was sent arrives, disks work, and the SC does what it must. Or all
    connections break first, and are made anew.

    Gives the world in which all replicas are live, fit and alike, and everything is committed;
    raises ViolationError where it does not come to that in time. A partition whose live replicas
    all lost their disks stays as it is, whether that is in their journals already or not.
    """
    if not any(
        _is_fit(world, member) and not world.nodes[member.spu].disk.broken
        for member in world.now.lrs
    ):
        return world
    now_ms = REPLICA_LAG_TIME_MS
    if links_break:
        world = replace(world, mail=frozenset(), asked=frozenset())
    for spu in range(len(world.nodes)):
        for peer in range(len(world.nodes)):
            if peer != spu and links_break:
                world = feed(feed(world, spu, LinkDown(peer), now_ms), spu, LinkUp(peer), now_ms)
    for _ in range(HEAL_ROUNDS):
        if _is_whole(world):
            return world
        world = _round(world, now_ms)
        check(world)
        now_ms += _ROUND_MS
    raise ViolationError(f"it does not come back: {world}")


def _round(world: World, now_ms: int) -> World:
    world = _govern(world)
    now = world.now
    for spu, node in enumerate(world.nodes):
        world = feed(world, spu, _learned(world, now), now_ms)
        if now.leader == spu and node.state.leading is None:
            world = feed(world, spu, _lead(world, now), now_ms)
        world = feed(world, spu, Tick(), now_ms)
    for turn in range(12):
        arriving = sorted(world.mail, key=repr)
        world = replace(world, mail=frozenset())
        for mail in arriving:
            world = feed(world, mail.to, Received(mail.sender, mail.message), now_ms)
        for spu in range(len(world.nodes)):
            while world.nodes[spu].promises:
                world = _promise(world, spu, now_ms)
            while world.nodes[spu].cuts:
                world = _cut(world, spu, now_ms)
            while world.nodes[spu].pushes:
                world = _pushed(world, spu, now_ms)
        check(world)
        # Seldom, so that what was said of unsynced records has time to do harm.
        for spu in range(len(world.nodes)) if turn % 4 == 3 else ():
            world = _sync(world, spu)
    for asked in sorted(world.asked, key=repr):
        world = _answer(world, asked)
    return replace(world, asked=frozenset())


def _govern(world: World) -> World:
    """Another leader where the one there is cannot lead."""
    now = world.now
    fit = [member for member in now.lrs if _is_fit(world, member)]
    if any(member.spu == now.leader for member in fit) or not fit:
        return world
    logs = {member: world.nodes[member.spu].state.log for member in fit}
    best = max(fit, key=lambda member: (logs[member].last_term, logs[member].leo, -member.spu))
    new = Revision(now.revision + 1, next_election(now.term), best.spu, tuple(fit))
    return replace(world, kv=(*world.kv, new))


def _is_whole(world: World) -> bool:
    members = {Member(node.state.spu, node.disk.promise.storage) for node in world.nodes}
    leading = world.nodes[world.now.leader].state
    return (
        set(world.now.lrs) == members
        and leading.is_serving
        and leading.lac + 1 == leading.log.leo
        and all(node.state.promise.unfit is None for node in world.nodes)
        and len({node.disk.batches for node in world.nodes}) == 1
        and len({node.state.lac for node in world.nodes}) == 1
    )
