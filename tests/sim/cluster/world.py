"""A whole cluster from one seed: how it is laid out, how it lives, and how it heals.

After the faults everything that can come back has to: each partition with a fit live replica is
online, all its replicas are live, alike and committed, and every producer is answered, within a
bounded time. What a partition lost with all its live replicas is told apart.
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

from sc.controllers.recovery import RESTORED
from sc.leadership import Leadership
from schemas.control.messages import Hello, ReplicaReport, Tombstone
from schemas.ids import election_term
from schemas.objects.metadata import Object, Status
from schemas.objects.partition import (
    DesiredState,
    Partition,
    PartitionResolution,
    PartitionStatus,
)
from schemas.objects.spu import Spu
from schemas.objects.topic import Durability
from spu.replication.events import Input, Output
from tests.sim.cluster.clients import SimConsumer, SimProducer
from tests.sim.cluster.clock import Clock
from tests.sim.cluster.faults import Faults, has_old_disks
from tests.sim.cluster.kv import Kv
from tests.sim.cluster.layout import Layout, cautious, drawn
from tests.sim.cluster.ledger import Ledger, ViolationError, is_fit
from tests.sim.cluster.network import SC, Network
from tests.sim.cluster.sc import SimSc
from tests.sim.cluster.spu import SimSpu

#: Within which virtual time everything comes back once nothing goes wrong any more.
HEAL_US = 90_000_000
STORY = 60


class FailureError(AssertionError):
    """A seed that shows a violation, with the last of what happened to the partition."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a seed. ``virtual_ms`` is how long the cluster lived."""

    seed: int
    virtual_ms: int
    counts: Counter[str]
    digest: str


@dataclass(slots=True)
class Told:
    """One event of a partition, for the story of a failure."""

    now_us: int
    who: str
    what: object
    outputs: tuple[Output, ...] = field(default=())

    def __str__(self) -> str:
        lines = [f"{self.now_us / 1000:10.1f} ms  {self.who}: {self.what}"]
        lines += [f"{'':>21}-> {output}" for output in self.outputs]
        return "\n".join(lines)


class World:
    """Everything there is. Without a layout the seed decides that, too."""

    def __init__(self, seed: int, layout: Layout | None = None) -> None:
        self.seed = seed
        self.chance = chance = Random(seed)
        self.clock = Clock()
        self.counts: Counter[str] = Counter()
        self.faulty = True
        self.kv = Kv("c1")
        self.network = Network(self.clock, chance)
        self.durability: dict[str, Durability] = {}
        self.ledgers: dict[str, Ledger] = {}
        self.stories: dict[str, deque[Told]] = {}
        self.pace_us = chance.choice((600_000, 1_500_000))
        self._kept = chance.choice((2, 15, 15, 1_000))
        self._numbers = 0
        if layout is None:
            layout = drawn(chance)
            layout = cautious(layout) if has_old_disks(seed) else layout
        for plan in layout.partitions:
            self.durability[plan.name] = plan.durability
            self.ledgers[plan.name] = Ledger(plan.name, {})
            self.stories[plan.name] = deque(maxlen=STORY)
        self._names = {found.uid: found.name for found in layout.objects()}
        for found in layout.objects():
            self.kv.put(found)
        self.spus = {spu_id: SimSpu(self, spu_id) for spu_id in layout.spus}
        self.network.nodes.update(self.spus)
        self.sc = SimSc(self)
        self.producers = [
            SimProducer(self, name, 100 * number + i)
            for number, name in enumerate(self.ledgers, 1)
            for i in range(1, 1 + chance.randint(1, 2))
        ]
        self.consumers = [SimConsumer(self, name) for name in self.ledgers]
        self._clients = [client.begin for client in self.producers]
        self._clients += [client.begin for client in self.consumers]

    # -- what the parts tell ----------------------------------------------------------------

    def next_number(self) -> int:
        """A number that was not given before."""
        self._numbers += 1
        return self._numbers

    def count(self, what: str, by: int = 1) -> None:
        self.counts[what] += by

    def traced(self, partition: str, spu: int, event: Input, outputs: tuple[Output, ...]) -> None:
        """A replica has made a step."""
        self.counts["steps"] += 1
        told = Told(self.clock.now_us, f"SPU {spu}", event, outputs)
        self.stories[partition].append(told)

    def noted(self, what: str, partition: str | None = None) -> None:
        """Something else has happened, to a partition or to all of them."""
        for name, story in self.stories.items():
            if partition in (None, name):
                story.append(Told(self.clock.now_us, "world", what))

    def moved(self, before: Partition, graves: tuple[Tombstone, ...]) -> None:
        """A move has ended: nothing that is to be deleted is live."""
        self.count("moves that ended")
        self.noted(f"the move ends, {[(t.spu_id, t.storage_id) for t in graves]} go", before.name)
        if (after := self.kv.partition(before.name)) is not None:
            self.ledgers[before.name].is_held(before, after)
        for member in before.status.lrs:
            if any(
                t.spu_id == member.spu_id and t.storage_id in (None, member.storage_id)
                for t in graves
            ):
                raise ViolationError(f"{before.name}: a live replica is to be deleted: {member}")

    def is_told(self, spu: int, leadership: Leadership) -> None:
        """An SC gives an order: nobody else leads by then."""
        if leadership.guard.revision != self.kv.office:
            name = next(iter(self.ledgers))
            raise ViolationError(f"{name}: SPU {spu} is told something by an SC that leads no more")

    def heard(self, spu: int, reports: Iterable[ReplicaReport]) -> None:
        """An SC has heard what an SPU says of its replicas."""
        for report in reports:
            self.ledgers[self._names[report.uid]].hears(spu, report)

    def decided(self, before: Object, status: Status) -> None:
        """An SC is about to write another status."""
        if isinstance(before, Partition) and isinstance(status, PartitionStatus):
            self.ledgers[before.name].decides(before.status, status)

    def partition_written(self, before: Partition) -> None:
        """The KV has a new status of a partition: check what that demands."""
        found = self.kv.partition(before.name)
        if found is None:
            raise AssertionError("what was just written is there")
        new = found
        old, status = before.status, found.status
        if status.leader != old.leader:
            self.count("leader changes")
        if status.lrs != old.lrs:
            self.count("live set changes")
        self.noted(
            f"KV {found.revision}: {status.resolution}, leader {status.leader}, term"
            f" {status.term >> 16}, live {[tuple(m.model_dump().values()) for m in status.lrs]},"
            f" {status.reason}",
            new.name,
        )
        ledger = self.ledgers[new.name]
        ledger.moves_on(before, found)
        if status.leader is not None and status.unclean_term == status.term > old.term:
            relies_on_memory = self.durability[new.name] is Durability.REPLICATED
            if relies_on_memory and ledger.lost_with_memory(
                status.leader, {member.spu_id for member in old.lrs} or {*ledger.holders}
            ):
                self.count("batches lost, excused", ledger.retracts(status.leader, status.term))
        ledger.members_hold_all(found)
        if status.sealed_offset is not None and status.sealed_offset != old.sealed_offset:
            ledger.is_sealed(status.sealed_offset)
            self.count("sealed")
        for spu in self.spus.values():
            replica = spu.replicas.get(new.name)
            if replica is not None and replica.state is not None:
                ledger.leads_rightly(spu.id, replica.state, found)

    def arrives(self, spu: int, sc: SimSc, attempt: int, hello: Hello) -> None:
        """The hello of an SPU is at the door of the SC that it went to, if that is still there."""
        if sc is self.sc and self.network.reaches(spu, SC):
            self.sc.admit(attempt, hello)

    # -- life -------------------------------------------------------------------------------

    def run(self) -> Result:
        """Live, with faults, then heal. Raises FailureError."""
        try:
            for spu in self.spus.values():
                spu.start()
            for begin in self._clients:
                self.clock.after(self.chance.randint(0, 1_000_000), begin)
            self.clock.after(5_000_000, self._retain)
            faults = Faults(self)
            faults.plan()
            self.clock.run_until(faults.end_us)
            self.faulty = False
            faults.heal()
            self._heal()
            faults.sum_up()
        except ViolationError as error:
            raise FailureError(self._story(str(error))) from error
        except Exception as error:
            raise FailureError(self._story(repr(error))) from error
        return Result(self.seed, self.clock.now_ms, self.counts, self._digest())

    def _retain(self) -> None:
        """Leaders drop what is old: of some lives, all but the newest."""
        if not self.faulty:
            return
        for name in self.ledgers:
            for spu in self.spus.values():
                replica = spu.replicas.get(name)
                if replica is not None and self.chance.random() < 0.3:
                    bases = replica.disk.bases
                    if len(bases) > self._kept:
                        replica.retain(bases[-self._kept])
        self.clock.after(self.chance.randint(500_000, 5_000_000), self._retain)

    def _heal(self) -> None:
        for producer in self.producers:
            producer.stopped = True
        for consumer in self.consumers:
            consumer.stopped = True
        end_us, why = self.clock.now_us + HEAL_US, {}
        while True:
            self.clock.run_until(self.clock.now_us + 500_000)
            why = {name: reason for name in self.ledgers if (reason := self._missing(name))}
            if not why:
                break
            if self.clock.now_us > end_us:
                name = next(iter(why))
                raise ViolationError(f"{name}: does not come back: {why[name]}")
        for name, ledger in self.ledgers.items():
            self.count("partitions")
            ledger.keys_are_right()
            if self._is_stranded(name):
                lost = len(ledger.committed) - ledger.survivors()
                self.count("partitions without a fit live replica")
                self.count("batches lost, excused", lost)

    def _is_stranded(self, name: str) -> bool:
        """Whether no live replica is fit: nothing but an operator brings it back."""
        partition, holders = self.kv.partition(name), self.ledgers[name].holders
        if partition is None:
            return False
        lost = partition.status.leader is None and RESTORED in partition.metadata.annotations
        if lost or self.ledgers[name].kv_is_behind:
            # Nobody knows who was live: all replicas are needed.
            disks = [holder.disk for holder in holders.values()]
            return any(disk.hard_state.unfit or disk.damage for disk in disks)
        return not any(
            m.spu_id in holders and is_fit(holders[m.spu_id].disk, m.storage_id)
            for m in partition.status.lrs
        )

    def _missing(self, name: str) -> str | None:
        """What stands against calling a partition whole."""
        partition, ledger = self.kv.partition(name), self.ledgers[name]
        if self._is_stranded(name):
            return None
        if partition is None or partition.status.leader is None:
            return "nobody leads it"
        status = partition.status
        sealed = partition.spec.desired is DesiredState.SEALED
        wanted = PartitionResolution.SEALED if sealed else PartitionResolution.ONLINE
        if status.resolution is not wanted or status.sealed_offset != ledger.sealed:
            return (
                f"it is {status.resolution} at {status.sealed_offset}, not {wanted} at"
                f" {ledger.sealed}: {status.reason}"
            )
        if partition.spec.moves:
            return f"it moves: {status.reason}"
        live = {m.spu_id for m in status.lrs}
        if absent := set(partition.spec.replicas) - live:
            return f"SPUs {sorted(absent)} are not live: {status.reason}"
        for spu_id in partition.spec.replicas:
            replica = self.spus[spu_id].replicas.get(name)
            state = None if replica is None else replica.state
            if state is None or state.hard_state.unfit is not None:
                return f"SPU {spu_id} does not serve: {state}"
            leading = state.leading
            if spu_id == status.leader and (
                leading is None or election_term(leading.term) != status.term
            ):
                return f"SPU {spu_id} does not lead"
            if state.lac + 1 != ledger.end:
                return f"SPU {spu_id} knows {state.lac}, committed is {ledger.end - 1}"
        for producer in self.producers:
            if producer.partition == name and not producer.idle:
                return f"producer {producer.number} is not answered"
        for spu_id in sorted(ledger.holders.keys() - set(partition.spec.replicas)):
            # A restored KV may have forgotten it: then the SPU's status names it.
            said = self._said(spu_id)
            if not self.counts["recoveries"] or not ("on other SPUs" in said and name in said):
                return f"SPU {spu_id} keeps a replica that has left: {said}"
            self.count("replicas left behind")
        return ledger.all_alike(partition.spec.replicas)

    def _said(self, spu_id: int) -> str:
        """The reason in the status of an SPU."""
        spus = (found for found in self.kv.objects() if isinstance(found, Spu))
        return next(spu.status.reason or "" for spu in spus if spu.spec.spu_id == spu_id)

    # -- what is told of it -----------------------------------------------------------------

    def _story(self, why: str) -> str:
        partition = why.split(":", 1)[0]
        story = self.stories.get(partition, next(iter(self.stories.values())))
        lines = [str(told) for told in story]
        again = f"python -m tests.sim.cluster --seeds 1 --seed {self.seed}"
        return "\n".join(
            [f"seed {self.seed}", *lines, f"seed {self.seed}: {why}", f"again: {again}"]
        )

    def _digest(self) -> str:
        """What tells two lives apart, in any process."""
        seen = hashlib.sha256()
        for name, ledger in self.ledgers.items():
            seen.update(repr((name, ledger.committed, sorted(ledger.acknowledged))).encode())
            for spu in self.spus.values():
                if (replica := spu.replicas.get(name)) is not None:
                    seen.update(repr((replica.state, replica.disk)).encode())
        for written in self.kv.history:
            seen.update(repr(written).encode())
        seen.update(repr((sorted(self.counts.items()), self.clock.calls)).encode())
        seen.update(repr(self.chance.random()).encode())
        return seen.hexdigest()


def run(seed: int) -> Result:
    """One life of a cluster. Raises FailureError."""
    return World(seed).run()
