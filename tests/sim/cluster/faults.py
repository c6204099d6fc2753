"""What goes wrong: kinds of faults at random times, and the end of all of them.

A fault that destroys a disk spares the last fit live replica of a partition: what is lost with all
disks is lost. A loss of power spares nobody. A disk goes back in time only where another fit live
replica has one that did not. Two cases are left out, which are not held (ADR 0045): a former leader
that leads on, or will after a start, and of whose end the copy does not know; and a copy of before
a move that leads, and will be answered only by replicas that have not heard of the move.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final

from sc.controllers.membership.begin import respecified
from schemas.ids import election_term
from schemas.objects.partition import DesiredState, Partition
from spu.replication.state import HardState
from tests.sim.cluster.ledger import is_fit
from tests.sim.cluster.network import SC
from tests.sim.cluster.sc import SimSc, restored

if TYPE_CHECKING:
    from tests.sim.cluster.spu import Copy, SimSpu
    from tests.sim.cluster.world import World

#: Kinds of faults, and how likely each is beside the others.
KINDS: Final = {
    "process crashes": 4,
    "power is lost": 4,
    "power is lost by all": 1,
    "disk is replaced": 2,
    "bits rot": 2,
    "fsync fails": 2,
    "disk is full": 1,
    "disk is slow": 2,
    "link is cut": 3,
    "link is cut one way": 3,
    "SPU is isolated from SPUs": 2,
    "SPU is isolated": 2,
    "session is cut": 3,
    "session is cut one way": 2,
    "link breaks": 2,
    "network is slow": 1,
    "network is stormy": 2,
    "SC crashes": 2,
    "SC is replaced": 1,
    "KV is slow": 1,
    "object is removed": 0.5,
    "KV is restored": 0.5,
}
#: Comes beside the others, in a quarter of the lives and by chances of its own: what happens in the
#: other lives does not depend on it.
STALLS: Final = "SC stalls"
#: The same, in a twentieth: an SC is cut off from the KV, or stands still, for longer than its
#: lease lasts. Some SPUs are with it still when another one leads.
SUCCESSIONS: Final = "another SC leads"
#: The same, in another quarter, where topics ask for two replicas and fsync: with less, an old disk
#: may come to be the only live one before anybody compares it with others.
OLD_DISKS: Final = "disk goes back in time"
#: The same, in the last quarter. No fault, but it comes among them.
SEALS: Final = "a topic is sealed"
#: In half of each of these lives.
MOVES: Final = "replicas are to move"
#: Terms and live replicas are known to the KV, and what was promised and stored to the disks: a
#: life loses one or the other.
DISKS: Final = {"disk is replaced", "bits rot", "fsync fails"}
KVS: Final = {"object is removed", "KV is restored"}
#: How long after its holder stops relying on a lease the KV ends it and another SC leads.
MARGIN_US: Final = (20_000, 400_000)
#: What moves are to meet in some lives.
BESIDE_MOVES: Final = (STALLS, SUCCESSIONS, OLD_DISKS, SEALS, "object is removed", "KV is restored")


def has_old_disks(seed: int) -> bool:
    """Whether disks go back in time in a life."""
    return seed % 4 == 2


def has_moves(seed: int) -> bool:
    """Whether replicas move in a life: in half of those with stalls, of those with old disks, of
    those with seals and of the others."""
    return seed % 8 >= 4


def has_successions(seed: int) -> bool:
    """Whether SCs lose their leases in a life: in a fifth of those with stalls, half of which have
    moves."""
    return seed % 20 == 15


class Faults:
    """The faults of one life: they begin after a calm second or two, and end at ``end_us``."""

    def __init__(self, world: World) -> None:
        self._world = world
        chance = world.chance
        self._stalls = Random(world.seed)
        self._copies = Random(world.seed)
        self._leases = Random(f"leases {world.seed}")
        self.end_us = chance.randint(12_000_000, 35_000_000)
        self._pause_us = chance.choice((400_000, 1_200_000, 3_000_000))
        # Some lives see only a few kinds, and more of them.
        kinds = list(KINDS)
        if chance.random() < 0.5:
            kinds = chance.sample(kinds, chance.randint(3, 9))
        calm_kv = has_old_disks(world.seed)
        spared = KVS if chance.random() < 0.6 or calm_kv else DISKS
        # A few kinds may all be among those that are spared.
        kept = [kind for kind in kinds if kind not in spared]
        self._kinds = kept or [kind for kind in KINDS if kind not in spared]
        self._weights = [KINDS[kind] for kind in self._kinds]
        self._removed: dict[str, Partition] = {}
        self._seals = Random(world.seed)
        self._to_seal: str | None = None
        self._moves = Random(world.seed)
        self._carry_out: dict[str, Callable[[], bool]] = {
            "process crashes": lambda: self._crash(power_fails=False),
            "power is lost": lambda: self._crash(power_fails=True),
            "power is lost by all": self._lose_all_power,
            "disk is replaced": self._replace_disk,
            "bits rot": self._rot,
            "fsync fails": self._fail_fsync,
            "disk is full": self._fill_disk,
            "disk is slow": self._slow_disk,
            "link is cut": lambda: self._cut(both=True),
            "link is cut one way": lambda: self._cut(both=False),
            "SPU is isolated from SPUs": lambda: self._isolate(sc=False),
            "SPU is isolated": lambda: self._isolate(sc=True),
            "session is cut": lambda: self._cut_session(both=True),
            "session is cut one way": lambda: self._cut_session(both=False),
            "link breaks": self._break,
            "network is slow": self._slow_network,
            "network is stormy": self._storm,
            "SC crashes": lambda: self._crash_sc(replaced=False),
            "SC is replaced": lambda: self._crash_sc(replaced=True),
            "KV is slow": self._slow_kv,
            "object is removed": self._remove_object,
            "KV is restored": self._restore_kv,
        }

    def plan(self) -> None:
        """Begin."""
        self._world.clock.after(self._world.chance.randint(1_000_000, 3_000_000), self._next)
        if self._world.seed % 4 == 3:
            self._stall_later()
        if has_successions(self._world.seed):
            self._succeed_later()
        if has_old_disks(self._world.seed):
            self._copy_later()
        if has_moves(self._world.seed):
            self._move_later()
        if self._world.seed % 4 == 1:
            after_us = self._seals.randint(2_000_000, self.end_us)
            self._world.clock.after(after_us, self._seal_some)

    def _next(self) -> None:
        world = self._world
        if not world.faulty:
            return
        (kind,) = world.chance.choices(self._kinds, self._weights)
        if self._carry_out[kind]():
            world.count(f"fault: {kind}")
        world.clock.after(world.chance.randint(10_000, 2 * self._pause_us), self._next)

    def _move_later(self) -> None:
        self._world.clock.after(self._moves.randint(300_000, 4_000_000), self._move)

    def _move(self) -> None:
        """Somebody wants other replicas, more or fewer; perhaps in the middle of a move."""
        world, chance = self._world, self._moves
        if not world.faulty:
            return
        name = chance.choice(list(world.ledgers))
        found = world.kv.partition(name)
        if found is not None and found.status.leader is not None and self._may_move(found):
            most = min(4, len(world.spus))
            size = chance.randint(min(found.spec.log.min_in_sync_replicas, most), most)
            replicas = tuple(chance.sample(sorted(world.spus), size))
            spec = respecified(found, replicas)
            added = set(replicas) - set(found.spec.holders)
            if spec != found.spec and not any(world.kv.has_grave(i, found.uid) for i in added):
                world.noted(f"it is to be on {replicas}", name)
                world.count(f"fault: {MOVES}")
                world.kv.put(found.model_copy(update={"spec": spec}))
        self._move_later()

    def _may_move(self, partition: Partition) -> bool:
        """Whether a move may begin: not before a recovery is over, as `sc.controllers.membership`
        has it, and where disks go back in time only of what has two replicas for each commit: a
        disk that is the only live one is not held (ADR 0045)."""
        world = self._world
        if world.kv.identity.recovering or world.ledgers[partition.name].kv_is_behind:
            return False
        return not has_old_disks(world.seed) or partition.spec.log.min_in_sync_replicas > 1

    def _seal_some(self) -> None:
        self._to_seal = self._seals.choice(list(self._world.ledgers))
        self._seal()

    def _seal(self) -> None:
        """What the controller of the topic does, also after a backup has taken that back."""
        world, name = self._world, self._to_seal
        if name is None:
            return
        found = world.kv.partition(name)
        if found is None:
            # It is made again as it was.
            world.clock.after(500_000, self._seal)
        elif found.spec.desired is not DesiredState.SEALED:
            world.noted("it is to be sealed", name)
            world.count(f"fault: {SEALS}")
            spec = found.spec.model_copy(update={"desired": DesiredState.SEALED})
            world.kv.put(found.model_copy(update={"spec": spec}))

    def sum_up(self) -> None:
        """Count what came in one life with moves."""
        counts = self._world.counts
        for kind in BESIDE_MOVES:
            if counts[f"fault: {MOVES}"] and counts[f"fault: {kind}"]:
                self._world.count(f"moves beside: {kind}")

    def heal(self) -> None:
        """Everything works from now on."""
        world = self._world
        world.noted("the faults end")
        network = world.network
        network.lossy = False
        network.calm_down()
        network.slow_us = 0
        network.blocked.clear()
        if not world.sc.is_up:
            world.sc = SimSc(world)
        world.sc.slow_us = 0
        self._bring_back()
        self._seal()
        for spu in world.spus.values():
            full = spu.disk_is_full or any(r.stopped for r in spu.replicas.values())
            spu.disk_is_full = spu.slow_disk = False
            if full and spu.is_up:
                spu.crash(power_fails=False)
            spu.start()

    # -- SPUs -------------------------------------------------------------------------------

    def _some_spu(self) -> SimSpu:
        return self._world.chance.choice(list(self._world.spus.values()))

    def _downtime_us(self) -> int:
        """Mostly short; sometimes longer than it takes to leave the live replica set."""
        chance = self._world.chance
        return chance.choice((50_000, 400_000, 2_000_000, 6_000_000, 14_000_000)) + chance.randint(
            0, 500_000
        )

    def _crash(self, *, power_fails: bool) -> bool:
        spu = self._some_spu()
        if not spu.is_up:
            return False
        self._world.noted(f"SPU {spu.id} {'loses power' if power_fails else 'crashes'}")
        spu.crash(power_fails=power_fails)
        self._world.clock.after(self._downtime_us(), spu.start)
        return True

    def _lose_all_power(self) -> bool:
        self._world.noted("all SPUs lose power")
        for spu in self._world.spus.values():
            spu.crash(power_fails=True)
            self._world.clock.after(self._downtime_us(), spu.start)
        return True

    def _may_lose(self, spu: SimSpu, names: list[str]) -> bool:
        """Whether every partition has another fit live replica."""
        for name in names:
            partition = self._world.kv.partition(name)
            if partition is None or self._is_beside_an_old_disk(spu, name):
                return False
            holders = self._world.ledgers[name].holders
            lrs = partition.status.lrs
            mine = any(m.spu_id == spu.id for m in lrs)
            others = any(
                m.spu_id != spu.id
                and m.spu_id in holders
                and is_fit(holders[m.spu_id].disk, m.storage_id)
                and not holders[m.spu_id].disk.broken
                for m in lrs
            )
            if (mine or not lrs) and not others:
                return False
        return True

    def _is_beside_an_old_disk(self, spu: SimSpu, name: str) -> bool:
        """Whether another replica's disk went back in time: one disk at a time is promised."""
        others = (other for other in self._world.spus.values() if other is not spu)
        return any(name in other.replicas and other.replicas[name].is_old for other in others)

    def _replace_disk(self) -> bool:
        spu = self._some_spu()
        if not self._may_lose(spu, list(spu.replicas)):
            return False
        self._world.noted(f"SPU {spu.id} loses its disk")
        spu.crash(power_fails=True)
        spu.lose_disk()
        self._world.clock.after(self._downtime_us(), spu.start)
        return True

    def _rot(self) -> bool:
        spu = self._some_spu()
        names = [name for name in spu.replicas if self._may_lose(spu, [name])]
        if not names:
            return False
        name = self._world.chance.choice(names)
        self._world.noted(f"bits rot on SPU {spu.id}", name)
        if spu.is_up and self._world.chance.random() < 0.3:
            spu.find_damage(name)
            return True
        spu.crash(power_fails=False)
        found = spu.replicas[name].disk.rot(self._world.chance)
        spu.replicas[name].ledger.shortened(spu.id)
        self._world.clock.after(self._downtime_us(), spu.start)
        return found

    def _fail_fsync(self) -> bool:
        spu = self._some_spu()
        names = [name for name in spu.replicas if self._may_lose(spu, [name])]
        if not spu.is_up or not names:
            return False
        name = self._world.chance.choice(names)
        self._world.noted(f"the next fsync on SPU {spu.id} fails", name)
        spu.fail_fsync(name)
        return True

    def _copy_later(self) -> None:
        self._world.clock.after(self._copies.randint(100_000, 4_000_000), self._copy)

    def _copy(self) -> None:
        """Somebody copies the files of an SPU, and puts them back after a while."""
        spu = self._copies.choice(list(self._world.spus.values()))
        age_us = self._copies.choice((100_000, 1_000_000, 3_000_000, 8_000_000))
        age_us += self._copies.randint(0, 500_000)
        self._world.clock.after(age_us, self._go_back, spu, spu.copied())
        self._copy_later()

    def _go_back(self, spu: SimSpu, copy: Copy) -> None:
        world = self._world
        if not world.faulty:
            return
        names = [
            name
            for name in spu.replicas
            if name in copy.disks
            and self._may_go_back(spu, name, copy.disks[name].hard_state)
            and self._is_contradicted(spu, name, copy.disks[name].hard_state)
        ]
        if not names:
            return
        for name in names:
            world.noted(f"the disk of SPU {spu.id} goes back in time", name)
        spu.crash(power_fails=False)
        spu.put_back(copy, names)
        world.count(f"fault: {OLD_DISKS}")
        downtime_us = self._copies.choice((20_000, 400_000, 3_000_000))
        world.clock.after(downtime_us + self._copies.randint(0, 200_000), spu.start)

    def _may_go_back(self, spu: SimSpu, name: str, copied: HardState) -> bool:
        """Whether the other live replicas have disks that did not go back, are not full and do not
        fail, and nobody leads on, or will after a start, in a term that is over and that the copy
        does not know to be. A copy may be of before a move: it knows another spec and other live
        replicas, or has the storage of a replica that was deleted."""
        world = self._world
        partition = world.kv.partition(name)
        if partition is None or partition.status.leader is None:
            return False
        others = [other for other in world.spus.values() if other is not spu]
        held = [other for other in others if name in other.replicas]
        if self._is_beside_an_old_disk(spu, name):
            return False
        if any(other.will_fail(name) or other.disk_is_full for other in held):
            return False
        terms = {other.replicas[name].leads_in for other in held} - {None, partition.status.term}
        if any(term is not None and term >= election_term(copied.term) for term in terms):
            return False
        live = {member.spu_id: member for member in partition.status.lrs if member.spu_id != spu.id}
        fit = {
            other.id
            for other in held
            if other.id in live
            and other.replicas[name].stopped is None
            and is_fit(other.replicas[name].disk, live[other.id].storage_id)
        }
        return bool(live) and fit == set(live)

    def _is_contradicted(self, spu: SimSpu, name: str, copied: HardState) -> bool:
        """Whether a copy does not lead, or knows the SPUs of all live replicas, or one that it
        knows will not answer, or knows of a later move. A leader with another disk that does not
        hear the SC is not held (ADR 0045)."""
        world = self._world
        partition = world.kv.partition(name)
        live = set() if partition is None else {m.spu_id for m in partition.status.lrs}
        known = {spu.id, *copied.replicas}
        if not copied.leading or live <= known:
            return True
        others = [world.spus[i] for i in known if i != spu.id]
        if not all(name in other.replicas for other in others):
            return True
        told = [other.replicas[name].disk.hard_state for other in others]
        latest = max(told, key=lambda state: state.version, default=copied)
        return latest.version > copied.version and not set(latest.replicas) <= known

    def _fill_disk(self) -> bool:
        spu = self._some_spu()
        if not spu.is_up or any(self._is_beside_an_old_disk(spu, name) for name in spu.replicas):
            return False
        self._world.noted(f"the disk of SPU {spu.id} is full")
        spu.disk_is_full = True
        self._world.clock.after(self._downtime_us(), self._empty_disk, spu, spu.life)
        return True

    def _empty_disk(self, spu: SimSpu, life: int) -> None:
        if spu.life == life and spu.is_up and self._world.faulty:
            spu.crash(power_fails=False)
            self._world.clock.after(200_000, spu.start)

    def _slow_disk(self) -> bool:
        spu = self._some_spu()
        spu.slow_disk = True
        self._world.clock.after(self._downtime_us(), setattr, spu, "slow_disk", False)
        return True

    # -- the network ------------------------------------------------------------------------

    def _two(self) -> tuple[int, int]:
        a, b = self._world.chance.sample(list(self._world.spus), 2)
        return a, b

    def _cut(self, *, both: bool) -> bool:
        a, b = self._two()
        self._world.noted(f"nothing comes from SPU {a} to SPU {b}{' and back' if both else ''}")
        self._world.network.cut(a, b, both=both)
        self._world.clock.after(self._downtime_us(), self._world.network.heal, a, b)
        return True

    def _isolate(self, *, sc: bool) -> bool:
        spu, network = self._some_spu(), self._world.network
        self._world.noted(f"SPU {spu.id} reaches no SPU{' and no SC' if sc else ''}")
        lasts_us = self._downtime_us()
        for peer in self._world.spus:
            if peer != spu.id:
                network.cut(spu.id, peer, both=True)
                self._world.clock.after(lasts_us, network.heal, spu.id, peer)
        if sc:
            self._block_session(spu.id, both=True, lasts_us=lasts_us)
        return True

    def _cut_session(self, *, both: bool) -> bool:
        self._block_session(self._some_spu().id, both=both, lasts_us=self._downtime_us())
        return True

    def _block_session(self, spu: int, *, both: bool, lasts_us: int) -> None:
        world = self._world
        world.noted(f"the session of SPU {spu} is cut{'' if both else ' one way'}")
        ways = [(spu, SC), (SC, spu)]
        world.network.blocked.update(ways if both else [world.chance.choice(ways)])
        session = world.sc.sessions.get(spu)
        if session is not None:
            session.breaks()
        world.clock.after(lasts_us, world.network.heal, spu, SC)

    def _break(self) -> bool:
        self._world.network.break_connection(*self._two())
        return True

    def _slow_network(self) -> bool:
        network = self._world.network
        network.slow_us = self._world.chance.randint(20_000, 700_000)
        self._world.clock.after(self._downtime_us(), setattr, network, "slow_us", 0)
        return True

    def _storm(self) -> bool:
        network = self._world.network
        network.storm = True
        self._world.clock.after(self._downtime_us(), network.calm_down)
        return True

    # -- the SC and its KV ------------------------------------------------------------------

    def _crash_sc(self, *, replaced: bool) -> bool:
        world = self._world
        if not world.sc.is_up:
            return False
        if replaced:
            # What it writes comes late, when another one is in office already.
            world.sc.slow_us = 4_000_000
            world.clock.after(world.chance.randint(50_000, 1_000_000), self._replace_sc, world.sc)
            return True
        world.noted("the SC crashes")
        world.sc.crash()
        world.clock.after(self._downtime_us(), self._start_sc)
        return True

    def _replace_sc(self, sc: SimSc) -> None:
        if sc is self._world.sc and sc.is_up:
            sc.crash()
            self._start_sc()

    def _start_sc(self) -> None:
        if not self._world.sc.is_up:
            self._world.sc = SimSc(self._world)
            self._world.noted("an SC takes office")

    def _stall_later(self) -> None:
        self._world.clock.after(self._stalls.randint(500_000, 8_000_000), self._stall_sc)

    def _stall_sc(self) -> None:
        world = self._world
        if not world.faulty:
            return
        lasts_us = self._stalls.choice((400_000, 800_000, 2_000_000, 6_000_000))
        world.noted(f"the SC stands still for {lasts_us / 1000:.0f} ms")
        if world.sc.stall(lasts_us):
            world.count(f"fault: {STALLS}")
        self._stall_later()

    def _succeed_later(self) -> None:
        self._world.clock.after(self._leases.randint(500_000, 8_000_000), self._lose_lease)

    def _lose_lease(self) -> None:
        """The SC renews its lease no more, and another one stands when the KV has ended it."""
        world, chance = self._world, self._leases
        if not world.faulty:
            return
        self._succeed_later()
        left_us = chance.randint(300_000, 1_500_000)
        is_cut_off = chance.random() < 0.5
        if not world.sc.is_up or world.sc.loses_its_lease:
            return
        if not is_cut_off and not world.sc.stall(left_us + chance.randint(0, 5_000_000)):
            return
        world.noted(f"the SC {'is cut off from the KV' if is_cut_off else 'stands still'}")
        world.sc.renews_no_more(left_us, is_cut_off=is_cut_off)
        ends_us = left_us + chance.randint(*MARGIN_US)
        world.clock.after(ends_us, self._succeed, world.sc)

    def _succeed(self, before: SimSc) -> None:
        world = self._world
        if world.sc is before:
            world.sc = SimSc(world)
            world.noted("another SC leads")
            world.count(f"fault: {SUCCESSIONS}")

    def _slow_kv(self) -> bool:
        sc = self._world.sc
        sc.slow_us = self._world.chance.randint(20_000, 1_000_000)
        self._world.clock.after(self._downtime_us(), setattr, sc, "slow_us", 0)
        return True

    def _restore_kv(self) -> bool:
        """The KV is replaced by a backup, older than what every SPU has seen: each of them shows
        that, so that nothing is decided by the backup."""
        world, kv = self._world, self._world.kv
        if not world.sc.is_up or kv.identity.recovering or self._removed:
            return False
        revision = kv.revision - world.chance.randint(1, 40)
        incarnation = kv.identity.incarnation
        partitions = [kv.partition(name) for name in world.ledgers]
        if any(p is None or p.status.leader is None for p in partitions):
            return False
        if not all(spu.has_seen(incarnation, revision) for spu in world.spus.values()):
            return False
        if not kv.can_restore(revision, len(world.spus) + len(world.ledgers)):
            return False
        world.noted(f"the KV is restored from a backup of revision {revision}")
        world.sc.crash()
        kv.restore(revision)
        for ledger in world.ledgers.values():
            ledger.kv_is_behind = True
        world.clock.after(self._downtime_us(), self._start_sc)
        return True

    def _remove_object(self) -> bool:
        """Somebody removes a partition's object; its topic's controller makes it again."""
        world = self._world
        name = world.chance.choice(list(world.ledgers))
        partition = world.kv.partition(name)
        if partition is None or partition.status.leader is None:
            return False
        world.noted("its object is removed", name)
        world.kv.remove(partition)
        self._removed[name] = restored(partition)
        world.clock.after(world.chance.randint(1_000, 2_000_000), self._bring_back)
        return True

    def _bring_back(self) -> None:
        for partition in self._removed.values():
            if self._world.kv.partition(partition.name) is None:
                self._world.kv.put(partition)
        self._removed.clear()
