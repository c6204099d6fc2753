"""Corners: small worlds in the middle of a story, where a rule decides what comes next.

A walk comes here seldom. So a corner is told move by move, what was sent before is forgotten, and
then every order of the events that are left is tried (`tests.sim.explore.exhaust`): all of them,
because hardly any limit is left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from schemas.ids import next_election
from spu.replication.events import LinkDown, Received
from spu.replication.messages import AppendAck, Attach, Message, Truncate
from spu.replication.state import Member
from tests.sim.small_world.moves import moves, restarted
from tests.sim.small_world.world import (
    Limits,
    Mail,
    World,
    begin,
    feed,
    learned,
    told_to_lead,
    with_node,
)

NOTHING: Final = Limits(elections=0, records=0, attaches=0)


def delivered(world: World) -> World:
    """Everything that is on its way arrives."""
    for mail in sorted(world.mail, key=repr):
        world = feed(world, mail.to, Received(mail.sender, mail.message))
    return world


def chosen(world: World, *moved: str) -> World:
    """Moves are made, one after the other, each named by how it begins."""
    for move in moved:
        (come,) = (come for option, come in moves(world) if repr(option).startswith(move))
        world = come()
    return world


def replicated(world: World) -> World:
    """Everything arrives, and what follows from it, until followers have all there is."""
    for _ in range(8):
        world = delivered(world)
    return world


def committed(world: World) -> World:
    """All SPUs sync what they have, and all hear what is committed by that."""
    for _ in range(2):
        world = replicated(world)
        for spu in range(len(world.nodes)):
            options = {repr(move): come for move, come in moves(world)}
            if (come := options.get(f"('syncs', {spu})")) is not None:
                world = come()
    return silent(replicated(world))


def silent(world: World) -> World:
    """What was sent, and what the SC was asked, is lost."""
    return replace(world, mail=frozenset(), asked=frozenset())


def keeping(world: World, *kinds: type[Message]) -> World:
    """What was sent is lost, but for messages of these kinds."""
    kept = frozenset(mail for mail in world.mail if isinstance(mail.message, kinds))
    return replace(silent(world), mail=kept)


def without_sc(world: World, *spus: int) -> World:
    """The SC does not reach these SPUs."""
    for spu in spus:
        world = with_node(world, spu, replace(world.nodes[spu], since=1_000))
    return world


def from_here(world: World, limits: Limits = NOTHING) -> World:
    """What may still happen."""
    return replace(world, left=limits)


def led_by(world: World, spu: int, *live: int, unclean: bool = False) -> World:
    """The SC elects SPU ``spu``, which begins to lead; the others have not heard yet."""
    now = world.now
    lrs = tuple(Member(i, world.nodes[i].disk.hard_state.storage) for i in live)
    term = next_election(now.term)
    new = now._replace(
        revision=now.revision + 1,
        term=term,
        leader=spu,
        lrs=lrs,
        unclean_term=term if unclean else now.unclean_term,
    )
    world = replace(world, kv=(*world.kv, new))
    return told(feed(world, spu, told_to_lead(world, new)), spu)


def told(world: World, *spus: int) -> World:
    """SPUs learn what the KV holds."""
    for spu in spus:
        world = feed(world, spu, learned(world, world.now))
    return world


def diverged(*, slow: bool = False) -> World:
    """SPU 1 led, and has a record that SPU 0 has not; now SPU 0 leads, and is to cut it."""
    world = replace(committed(begin(2, 1, NOTHING)), slow=slow)
    world = silent(led_by(world, 1, 0, 1))
    return led_by(world, 0, 0, 1)


def cut_once() -> World:
    """SPU 1 was cut, and has what SPU 0 wrote instead, and has committed with it. SPU 1 has not
    heard of that; the order to cut arrives again."""
    world = diverged()
    sent: frozenset[Mail] = frozenset()
    for _ in range(6):
        sent |= world.mail
        world = delivered(world)
    world = chosen(silent(world), "('syncs', 0", "('syncs', 1")
    world = delivered(keeping(world, AppendAck))
    assert [node.state.lac for node in world.nodes] == [1, 0]
    return keeping(replace(world, mail=sent), Attach, Truncate)


def cut_once_and_restarted() -> World:
    """The same, but SPU 1 has restarted."""
    world = chosen(from_here(cut_once(), replace(NOTHING, crashes=1)), "('crashes', 1, 2")
    return from_here(world)


def cut_once_and_attached_again() -> World:
    """The same, and SPU 0 has begun another attachment."""
    world = from_here(cut_once(), replace(NOTHING, attaches=1))
    return chosen(world, "('attaches', 0, 1")


def cut_slowly() -> World:
    """SPU 1 is about to be cut, its disk is slow, and it is attached again meanwhile."""
    world = diverged()
    for _ in range(2):
        world = delivered(world)
    world = delivered(replace(keeping(world, Truncate), slow=True))
    assert world.nodes[1].cuts
    world = from_here(silent(world), replace(NOTHING, attaches=1))
    return without_sc(chosen(world, "('attaches', 0, 1"), 0, 1)


def alone(world: World) -> World:
    """SPU 0 leads alone: SPU 1, which it does not reach, leaves the live replica set."""
    world = from_here(feed(world, 0, LinkDown(1)), replace(NOTHING, shrinks=1))
    world = chosen(world, "('the SC drops', Member(spu=1", "('learns', 0")
    return from_here(silent(world))


def appended(world: World) -> World:
    """SPU 0 appends a record, and has it on its disk."""
    world = chosen(from_here(world, replace(NOTHING, records=1)), "('appends', 0", "('syncs', 0")
    return from_here(world)


def behind() -> World:
    """SPU 0 has committed a record that SPU 1, which is not live, does not have."""
    world = appended(alone(committed(begin(2, 1, NOTHING))))
    assert world.nodes[0].state.lac == 1
    return silent(world)


def behind_and_attached() -> World:
    """The same, and SPU 1 is attached again."""
    world = from_here(behind(), replace(NOTHING, attaches=1))
    return chosen(world, "('attaches', 0, 1")


def behind_and_slow() -> World:
    """The same; SPU 1 has received the record, hears that it is committed, and has not synced."""
    world = behind_and_attached()
    for _ in range(4):
        world = delivered(world)
    assert (world.nodes[1].disk.synced, world.nodes[1].state.lac) == (1, 1)
    return without_sc(from_here(silent(world), replace(NOTHING, crashes=1)), 0, 1)


def behind_a_restart() -> World:
    """SPU 0 restarts beside SPU 1, which is not live and lacks a committed record. The SC is
    away."""
    world = from_here(behind(), replace(NOTHING, crashes=1))
    return without_sc(from_here(chosen(world, "('crashes', 0, 2")), 0, 1)


def taken_over() -> World:
    """SPUs 0 and 2 have committed a record that SPU 1 lacks. SPU 2 takes over from SPU 0, and has
    not heard of that commit."""
    world = appended(alone(committed(begin(3, 1, NOTHING))))
    world = chosen(delivered(world), "('syncs', 2")
    world = silent(delivered(world))
    assert [node.state.lac for node in world.nodes] == [1, 0, 0]
    assert [node.disk.leo for node in world.nodes] == [2, 1, 2]
    world = led_by(world, 2, 2)
    world = replace(world, mail=frozenset(mail for mail in world.mail if mail.to == 1))
    return without_sc(world, 0, 1, 2)


def granted_late() -> World:
    """SPU 1 joins: SPU 0 has asked for that, and restarts before it has an answer."""
    world = alone(committed(begin(2, 1, NOTHING)))
    world = chosen(from_here(world, replace(NOTHING, attaches=1)), "('attaches', 0, 1")
    world = replicated(appended(replicated(world)))
    assert world.asked
    world = from_here(replace(world, mail=frozenset()), replace(NOTHING, crashes=1))
    return without_sc(from_here(chosen(world, "('crashes', 0, 2")), 1)


def copied(world: World, spu: int) -> World:
    """The disk of SPU ``spu`` is copied."""
    return chosen(from_here(world, replace(NOTHING, restores=1)), f"('is copied', {spu}")


def put_back(world: World, spu: int) -> World:
    """The copy of a disk replaces it, and the process starts."""
    backup = world.nodes[spu].backup
    assert backup is not None
    return from_here(restarted(world, spu, backup))


def old_and_alone() -> World:
    """SPU 0 is the only live replica, and its disk goes back in time; SPU 1 knows of a record that
    is committed. Time stands still, so that SPU 0 waits for what SPU 1 says."""
    world = copied(committed(begin(2, 1, NOTHING)), 0)
    world = alone(committed(appended(world)))
    assert world.nodes[1].state.lac == 1
    return from_here(put_back(world, 0), replace(NOTHING, records=1))


def old_about_others() -> World:
    """The disk of SPU 0 goes back to when SPU 1 was not live. Its log is whole."""
    world = copied(alone(committed(begin(2, 1, NOTHING))), 0)
    now = world.now
    world = replace(world, kv=(*world.kv, now._replace(revision=3, lrs=world.kv[0].lrs)))
    world = silent(told(world, 0, 1))
    return without_sc(put_back(world, 0), 0, 1)


def taken_away() -> World:
    """SPU 1 has committed a record alone. Then SPU 0, which lacks it, was elected uncleanly."""
    world = silent(led_by(committed(begin(2, 1, NOTHING)), 1, 1))
    world = silent(chosen(world, "('syncs', 1"))
    assert world.nodes[1].state.lac == 1
    world = replace(world, committed=world.committed[:1])
    return led_by(world, 0, 0, unclean=True)


def below_the_minimum() -> World:
    """SPU 1 has failed and left the live replica set, and two replicas are needed."""
    world = from_here(committed(begin(2, 2, NOTHING)), replace(NOTHING, failures=1, records=1))
    world = delivered(chosen(world, "('fails', 1"))
    world = chosen(world, "('the SC is asked'", "('learns', 0", "('appends', 0")
    assert [member.spu for member in world.nodes[0].state.required] == [0]
    return without_sc(from_here(silent(world)), 1)


def failed() -> World:
    """SPU 1, which is live, has failed, and SPU 0 attaches it again."""
    world = from_here(committed(begin(2, 1, NOTHING)), replace(NOTHING, failures=1, attaches=1))
    return without_sc(from_here(chosen(world, "('fails', 1", "('attaches', 0, 1")), 0, 1)


CORNERS: Final[dict[str, Callable[[], World]]] = {
    "a follower is cut": diverged,
    "a follower was cut": cut_once,
    "a follower was cut and restarts": cut_once_and_restarted,
    "a follower was cut and is attached again": cut_once_and_attached_again,
    "a follower is cut slowly": cut_slowly,
    "a follower is behind": behind_and_attached,
    "a follower is behind and may restart": behind_and_slow,
    "a leader restarts beside one that is behind": behind_a_restart,
    "a leader restarts before its request is answered": granted_late,
    "a leader takes over before it hears of a commit": taken_over,
    "an old disk is alone": old_and_alone,
    "an old disk knows older live replicas": old_about_others,
    "an unclean election takes a record away": taken_away,
    "a live replica fails": failed,
    "a replica fails that the minimum needs": below_the_minimum,
}
