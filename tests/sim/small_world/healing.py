"""What a small world comes to once nothing goes wrong any more: everything that was promised."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from spu.replication.events import LinkDown, LinkUp, Received, Tick
from spu.replication.state import REPLICA_LAG_TIME_MS, Member
from tests.sim.small_world.membership import (
    assign,
    connect,
    delete,
    is_left_out,
    leave_out,
    looks,
)
from tests.sim.small_world.moves import answer, elected, is_fit, sync
from tests.sim.small_world.world import (
    Asked,
    Grave,
    ViolationError,
    World,
    check,
    feed,
    finish_cut,
    finish_promise,
    finish_push,
    reported,
    told_to_lead,
)

#: So many rounds of half a second bring every partition back that can come back.
HEAL_ROUNDS: Final = 80
ROUND_MS: Final = 500


def heal(world: World, *, links_break: bool) -> World:
    """No more faults: what was sent arrives, disks work, and the SC does what it must. Or all
    connections break first, and are made anew.

    Gives the world in which all replicas are live, fit and alike, and everything is committed;
    raises ViolationError where it does not come to that in time. A partition whose live replicas
    all lost their disks stays as it is, whether that is in their journals already or not.
    """
    if _is_lost(world):
        return world
    now_ms = REPLICA_LAG_TIME_MS
    if links_break:
        world = replace(world, mail=frozenset(), asked=frozenset())
    for spu in range(len(world.nodes)):
        for peer in range(len(world.nodes)):
            if peer != spu and links_break:
                world = feed(feed(world, spu, LinkDown(peer), now_ms), spu, LinkUp(peer), now_ms)
    for _ in range(HEAL_ROUNDS):
        if _is_whole(world) or (_went_back(world) and _is_lost(world)):
            return world
        world = round_of(world, now_ms)
        check(world)
        now_ms += ROUND_MS
    raise ViolationError(f"it does not come back: {world}")


def _is_lost(world: World) -> bool:
    """Whether no live replica is fit, or will be found to be."""
    return not any(
        is_fit(world, member) and not world.nodes[member.spu].disk.broken
        for member in world.now.lrs
    )


def _went_back(world: World) -> bool:
    return any(node.old for node in world.nodes)


def round_of(world: World, now_ms: int, *, away: int | None = None) -> World:
    """All that was sent arrives, and what follows from it; all is synced; the SC does what it must.
    Requests for other live replicas are answered at the end. The SC does not reach SPU ``away``."""
    world = _moved(world, away) if world.moves else _govern(world)
    now = world.now
    for spu in range(len(world.nodes)):
        if spu in now.holders and spu != away:
            world = assign(world, spu, now, now_ms)
        node = world.nodes[spu]
        if now.leader == spu and node.state.leading is None:
            world = feed(world, spu, told_to_lead(world, now), now_ms)
        world = feed(world, spu, Tick(), now_ms)
    for turn in range(12):
        arriving = sorted(world.mail, key=repr)
        world = replace(world, mail=frozenset())
        for mail in arriving:
            world = feed(world, mail.to, Received(mail.sender, mail.message), now_ms)
        for spu in range(len(world.nodes)):
            while world.nodes[spu].promises:
                world = finish_promise(world, spu, now_ms)
            while world.nodes[spu].cuts:
                world = finish_cut(world, spu, now_ms)
            while world.nodes[spu].pushes:
                world = finish_push(world, spu, now_ms)
        check(world)
        # Seldom, so that what was said of unsynced records has time to do harm.
        for spu in range(len(world.nodes)) if turn % 4 == 3 else ():
            world = sync(world, spu)
    for asked in sorted(world.asked, key=repr):
        world = _looked(world, asked) if world.moves else answer(world, asked)
    return replace(world, asked=frozenset())


def _moved(world: World, away: int | None) -> World:
    """Everybody is connected and reports, the SC takes a step, and what is to go goes."""
    for spu, node in enumerate(world.nodes):
        if spu == away:
            continue
        world = connect(world, spu) if node.session is None else reported(world, spu)
        if is_left_out(node, spu, world.now):
            world = leave_out(world, spu)
    world = _looked(world, None)
    check(world)
    for spu in range(len(world.nodes)):
        for kind in ("is to delete", "the SC forgets", "the SC buries"):
            for move, come in looks(world):
                if move[0] == kind and isinstance(move[1], Grave) and move[1].spu == spu:
                    world = come()
                    break
        if world.nodes[spu].order is not None:
            world = delete(world, spu)
    return world


def _looked(world: World, asked: Asked | None) -> World:
    """The SC looks at the partition, and at what its leader asks for."""
    return next((come() for move, come in looks(world) if move == ("the SC looks", asked)), world)


def _govern(world: World) -> World:
    """Another leader where the one there is cannot lead; it stays live if it is fit."""
    now = world.now
    live = [member for member in now.lrs if is_fit(world, member)]
    # A leader may ask for another one, if there is any.
    asked = (now.leader, now.term) in world.elections
    able = [member for member in live if not (asked and member.spu == now.leader)]
    if any(member.spu == now.leader for member in able) or not able:
        return world
    logs = {member: world.nodes[member.spu].state.log for member in able}
    best = max(able, key=lambda member: (logs[member].last_term, logs[member].leo, -member.spu))
    new = elected(now, best.spu, tuple(live))
    return replace(world, kv=(*world.kv, new))


def _is_whole(world: World) -> bool:
    now = world.now
    nodes = [world.nodes[spu] for spu in now.replicas]
    members = {Member(node.state.spu, node.disk.hard_state.storage) for node in nodes}
    leading = world.nodes[now.leader].state
    held = {spu for spu, node in enumerate(world.nodes) if node.held}
    if now.joining or now.leaving or world.graves or held != set(now.replicas):
        return False
    return (
        set(now.lrs) == members
        and leading.is_serving
        and leading.lac + 1 == leading.log.leo
        and all(node.state.hard_state.unfit is None for node in nodes)
        and len({node.disk.batches for node in nodes}) == 1
        and len({node.state.lac for node in nodes}) == 1
    )
