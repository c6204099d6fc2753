"""What may happen next in a small world, and how to come to the world after it.

The rules of the SC are functions of their own, so that `tests.sim.mutants` can break them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from schemas.ids import election_term, next_election
from spu.replication.events import (
    Appended,
    Failed,
    Flushed,
    LinkDown,
    LinkUp,
    Received,
    Resume,
    Tick,
)
from spu.replication.history import History, extended
from spu.replication.messages import Batch
from spu.replication.state import (
    REPLICA_LAG_TIME_MS,
    HardState,
    LogView,
    Member,
    Members,
    recovered,
)
from tests.sim.explore import Move
from tests.sim.small_world import membership
from tests.sim.small_world.membership import assign
from tests.sim.small_world.world import (
    Asked,
    Backup,
    Disk,
    Node,
    Revision,
    ViolationError,
    World,
    appended,
    feed,
    finish_cut,
    finish_promise,
    finish_push,
    told_to_lead,
    with_node,
)

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
    "is copied": 0.3,
    "goes back in time": 0.3,
    "the SC elects": 0.4,
    "the SC drops": 0.2,
    "connects": 2.0,
    "reports": 3.0,
    "loses its session": 0.2,
    "is wanted on": 0.5,
    "the SC looks": 3.0,
    "is left out": 1.0,
    "is to delete": 2.0,
    "deletes": 2.0,
    "the SC forgets": 1.0,
    "the SC buries": 1.0,
}


def moves(world: World) -> Iterator[tuple[Move, Callable[[], World]]]:
    """What may happen next, and how to come to the world after it."""
    left = world.left
    for mail in world.mail:
        yield ("receives", mail), partial(feed, world, mail.to, Received(mail.sender, mail.message))
    for spu, node in enumerate(world.nodes):
        unsynced = node.disk.synced < len(node.disk.batches)
        if unsynced and not node.cuts and node.state.newest.unfit is None:
            yield ("syncs", spu), partial(sync, world, spu)
        for revision in world.kv:
            if revision.revision < node.since:
                continue
            if spu not in revision.holders:
                continue
            news = revision.revision - node.state.newest.revision
            if news > 0 or (news == 0 and not (node.state.confirmed and node.assigned)):
                yield ("learns", spu, revision), partial(assign, world, spu, revision)
            if revision.leader == spu and node.held:
                yield (
                    ("is to lead", spu, revision),
                    partial(feed, world, spu, told_to_lead(world, revision)),
                )
        if node.promises:
            yield ("has promised", spu), partial(finish_promise, world, spu)
        if node.cuts:
            yield ("has cut", spu), partial(finish_cut, world, spu)
        if node.pushes:
            yield ("has pushed", spu), partial(finish_push, world, spu)
        if left.crashes and node.held:
            # What an fsync failed for is not read back after a crash.
            most = node.disk.synced if node.disk.broken else len(node.disk.batches)
            for kept in range(node.disk.synced, most + 1):
                yield ("crashes", spu, kept), partial(_crash, world, spu, kept)
                if left.forgets:
                    crash = partial(_crash, world, spu, kept, forgets=True)
                    yield ("crashes", spu, kept, "and forgets"), crash
        if left.wipes and node.held:
            yield ("loses its disk", spu), partial(_wipe, world, spu)
        if left.restores and Backup(node.disk, node.state.durable_lac) != node.backup:
            yield ("is copied", spu), partial(_copy, world, spu)
        if left.restores and node.backup is not None and _others_hold_all(world, spu):
            yield ("goes back in time", spu), partial(_go_back, world, spu, node.backup)
        if left.failures and node.held and node.disk.hard_state.unfit is None:
            yield ("fails", spu), partial(_fail, world, spu)
        if node.state.leading is not None:
            yield from _leading_moves(world, spu)
    if world.moves:
        yield from membership.moves(world)
    else:
        for asked in world.asked:
            yield ("the SC is asked", asked), partial(answer, world, asked)
    yield from _suspicions(world)


def _leading_moves(world: World, spu: int) -> Iterator[tuple[Move, Callable[[], World]]]:
    left = world.left
    if left.records and world.nodes[spu].state.may_append:
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
    world = with_node(replace(world, left=left), spu, broken)
    return feed(world, spu, Failed("an fsync failed"))


def sync(world: World, spu: int) -> World:
    """The log of an SPU is durable, if its disk is not broken; the replica hears that it is."""
    node = world.nodes[spu]
    if node.state.newest.unfit is not None or node.cuts:
        return world
    synced = node.disk.synced if node.disk.broken else len(node.disk.batches)
    disk = replace(node.disk, synced=synced)
    return feed(with_node(world, spu, replace(node, disk=disk)), spu, Flushed(disk.leo))


def _write(world: World, spu: int) -> World:
    node = world.nodes[spu]
    assert node.state.leading is not None
    number = world.left.records
    world = replace(world, left=replace(world.left, records=number - 1))
    leo = node.disk.leo
    batch = Batch(leo, leo + 1, node.state.leading.term, b"record %d" % number)
    world = appended(world, spu, (batch,))
    return feed(world, spu, Appended(leo + 1))


def _crash(world: World, spu: int, kept: int, *, forgets: bool = False) -> World:
    """The process ends, and starts again with as much as the disk happens to have."""
    world = replace(world, left=replace(world.left, crashes=world.left.crashes - 1))
    disk = world.nodes[spu].disk
    disk = replace(disk, batches=disk.batches[:kept], broken=False)
    # What it had persisted of the last add confirmed comes back with it.
    lac = disk.start - 1 if forgets else world.nodes[spu].state.durable_lac
    if lac >= disk.leo:
        raise ViolationError(
            f"SPU {spu} starts with {lac} as committed, its log ends at {disk.leo}"
        )
    return _start(world, spu, recovered_disk(disk), lac)


def recovered_disk(disk: Disk) -> Disk:
    """Recovery makes durable what it keeps."""
    return replace(disk, synced=len(disk.batches))


def _wipe(world: World, spu: int) -> World:
    """The disk is replaced by an empty one: another storage id, and no promises."""
    left = replace(world.left, wipes=world.left.wipes - 1)
    if world.moves:
        return membership.wiped(replace(world, left=left), spu)
    world = replace(world, left=left, storages=world.storages + 1)
    return _start(world, spu, Disk(HardState(fresh_storage(world, spu))), -1, fresh=True)


def _copy(world: World, spu: int) -> World:
    node = world.nodes[spu]
    # The next process reads the copy as it would the disk after a crash.
    kept = node.disk.batches[: node.disk.synced]
    disk = replace(node.disk, batches=kept, broken=False)
    return with_node(world, spu, replace(node, backup=Backup(disk, node.state.durable_lac)))


def _others_hold_all(world: World, spu: int) -> bool:
    """Whether another fit live replica keeps what is committed, so that it may be found again."""
    return holds_all(world, tuple(m for m in world.now.lrs if m.spu != spu))


def holds_all(world: World, lrs: Members) -> bool:
    """Whether one of these is fit, and no old disk without what is committed. A partition that has
    only such ones in its live replica set loses records, and nobody can see it."""
    return any(is_fit(world, m) and not world.nodes[m.spu].old for m in lrs)


def _go_back(world: World, spu: int, backup: Backup) -> World:
    """The copy of the disk is put back, and the process starts with it."""
    left = replace(world.left, restores=world.left.restores - 1)
    return restarted(replace(world, left=left), spu, backup)


def restarted(world: World, spu: int, backup: Backup) -> World:
    """The process of SPU ``spu`` starts with a copy of its disk."""
    return _start(world, spu, backup.disk, backup.lac, old=True)


def fresh_storage(world: World, spu: int) -> str:
    """A storage id that was never used."""
    return f"s{world.storages}"


def _start(
    world: World, spu: int, disk: Disk, lac: int, *, fresh: bool = False, old: bool = False
) -> World:
    before = world.nodes[spu]
    history: History = ()
    for batch in disk.batches:
        history = extended(history, batch.term, batch.base)
    log = LogView(disk.start, disk.leo, disk.leo, history)
    world = replace(world, boots=world.boots + 1)
    state = recovered(spu, f"b{world.boots}", disk.hard_state, log, lac)
    node = Node(
        disk,
        replace(state, proven=fresh),
        backup=before.backup,
        old=old or (before.old and not fresh),
        since=world.now.revision if old else before.since,
        assigned=before.assigned,
    )
    world = feed(with_node(world, spu, node), spu, Resume())
    for peer in range(len(world.nodes)):
        if peer != spu:
            world = feed(world, spu, LinkUp(peer))
            world = feed(feed(world, peer, LinkDown(spu)), peer, LinkUp(spu))
    return world


def answer(world: World, asked: Asked) -> World:
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
            if member.spu == now.leader or not is_fit(world, member):
                continue
            for lrs in subsets(known.lrs, member, world.min_in_sync):
                new = elected(now, member.spu, lrs)
                if left_without(world, lrs):
                    continue
                yield ("the SC elects", new), partial(_decide, less, new)
    if left.shrinks:
        less = replace(world, left=replace(left, shrinks=left.shrinks - 1))
        for member in now.lrs:
            if member.spu != now.leader and len(now.lrs) > world.min_in_sync:
                lrs = tuple(m for m in now.lrs if m != member)
                new = now._replace(revision=now.revision + 1, lrs=lrs)
                if left_without(world, lrs):
                    continue
                yield ("the SC drops", member), partial(_decide, less, new)


def left_without(world: World, lrs: Members) -> bool:
    """Whether only old disks would be left live: what then happens is not promised to be found."""
    return any(node.old for node in world.nodes) and not holds_all(world, lrs)


def elected(now: Revision, leader: int, lrs: Members) -> Revision:
    """The revision that comes of an election."""
    term = next_election(now.term)
    return now._replace(revision=now.revision + 1, term=term, leader=leader, lrs=lrs)


def _decide(world: World, new: Revision) -> World:
    return replace(world, kv=(*world.kv, new))


def is_fit(world: World, member: Member) -> bool:
    """Whether an SPU has the storage that is meant, and nothing on it that failed."""
    hard_state = world.nodes[member.spu].disk.hard_state
    return hard_state.storage == member.storage and hard_state.unfit is None


def subsets(lrs: Members, leader: Member, least: int) -> Iterator[Members]:
    """The set as it is, and without any one of the others."""
    yield lrs
    for member in lrs:
        if member != leader and len(lrs) > least:
            yield tuple(m for m in lrs if m != member)
