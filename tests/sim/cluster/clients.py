"""Producers that retry until they are answered, and consumers that remember what they read.

A producer keeps a few batches on their way, numbers them, and sends all that were not answered
again, in order, over a new connection: requests of the old one may still arrive. Now and then it
begins a new epoch, as after a restart, and forgets what was not answered.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING

from schemas.errors import FencedError, NotReadyError, RunnelError
from schemas.wire.batch import NO_TRANSACTION, BatchHeader

if TYPE_CHECKING:
    from tests.sim.cluster.world import World

#: Batches on their way; a leader recognises five.
WINDOW = 4
TIMEOUT_US = 1_500_000
#: So often in a row the oldest batch that was not answered is refused because one before it is
#: missing, until it is clear that one that was answered is lost.
HOPELESS = 3


class Refusal(Enum):
    """Why a producer is not answered with an offset."""

    NOT_LEADER = "another leads"
    NOT_ENOUGH = "too few live replicas"
    NOT_READY = "an earlier batch is missing"
    FENCED = "another epoch has begun"
    FORGOTTEN = "appended long ago"
    SEALED = "the log takes no more records"

    @classmethod
    def of(cls, error: RunnelError) -> Refusal:
        """What an error of the producer table means."""
        if isinstance(error, NotReadyError):
            return cls.NOT_READY
        return cls.FENCED if isinstance(error, FencedError) else cls.FORGOTTEN


Answer = Callable[[int | None, Refusal | None], None]


def header_of(producer: int, epoch: int, sequence: int, count: int) -> BatchHeader:
    """The client's part of a batch; nobody looks at the rest here."""
    return BatchHeader(
        base_offset=0,
        term=0,
        length=0,
        codec=0,
        flags=0,
        schema_id=0,
        record_count=count,
        first_timestamp_us=0,
        last_timestamp_us=0,
        producer_id=producer,
        producer_epoch=epoch,
        sequence=sequence,
        first_transaction_id=NO_TRANSACTION,
        last_transaction_id=NO_TRANSACTION,
        client_crc=0,
        leader_crc=0,
    )


class Route:
    """A connection to an SPU: in order, and over once something on it was lost."""

    def __init__(self, spu: int) -> None:
        self.spu = spu
        self.broken = False
        self.last_us = 0


class SimProducer:
    """One producer of one partition."""

    def __init__(self, world: World, partition: str, number: int) -> None:
        self._world = world
        self.partition = partition
        self.number = number
        self._epoch = 0
        self._sequence = 0
        self._unanswered: dict[int, tuple[BatchHeader, bytes]] = {}
        self._route: Route | None = None
        self._resends = 0
        self._gaps = 0
        self.stopped = False

    @property
    def idle(self) -> bool:
        """Everything was answered."""
        return not self._unanswered

    def begin(self) -> None:
        """Make a batch now and then."""
        world = self._world
        if self.stopped:
            return
        if world.chance.random() < 0.01:
            self._begin_epoch()
        if len(self._unanswered) < WINDOW:
            self._make()
        world.clock.after(world.chance.randint(50_000, world.pace_us), self.begin)

    def _begin_epoch(self) -> None:
        """As after a restart: whether what was not answered was appended is not known."""
        self._world.count("given up", len(self._unanswered))
        self._epoch += 1
        self._sequence = self._gaps = 0
        self._unanswered.clear()
        self._route = None
        self._resends += 1

    def _make(self) -> None:
        world, sequence = self._world, self._sequence
        header = header_of(self.number, self._epoch, sequence, world.chance.randint(1, 3))
        data = b"%d.%d.%d" % (self.number, self._epoch, sequence)
        world.ledgers[self.partition].headers[data] = header
        self._sequence += 1
        self._unanswered[sequence] = (header, data)
        if self._route is None:
            self._resend()
            return
        if len(self._unanswered) == 1:
            self._look_again(TIMEOUT_US)
        self._send(self._route, header, data)

    def _resend(self) -> None:
        """Everything that was not answered, in order, to whoever leads by what the SC says."""
        world = self._world
        self._route = None
        if not self._unanswered:
            return
        self._look_again(TIMEOUT_US)
        partition = world.kv.partition(self.partition)
        leader = None if partition is None else partition.status.leader
        if leader is not None:
            route = self._route = Route(leader)
            for header, data in tuple(self._unanswered.values()):
                self._send(route, header, data)

    def _look_again(self, delay_us: int) -> None:
        """Send anew after a while, unless something happens before."""
        self._resends += 1
        self._world.clock.after(delay_us, self._timed_out, self._resends, self._epoch)

    def _timed_out(self, resends: int, epoch: int) -> None:
        if resends == self._resends and epoch == self._epoch:
            self._resend()

    def _send(self, route: Route, header: BatchHeader, data: bytes) -> None:
        world = self._world
        if route.broken or (world.faulty and world.chance.random() < 0.01):
            route.broken = True
            return
        delay = world.network.delay_us()
        if world.faulty and world.chance.random() < 0.005:
            delay += world.chance.randint(0, 3_000_000)
        route.last_us = max(route.last_us, world.clock.now_us + delay)
        world.clock.at(route.last_us, self._arrive, route, header, data)

    def _arrive(self, route: Route, header: BatchHeader, data: bytes) -> None:
        world = self._world
        spu = world.spus[route.spu]
        if not spu.is_up:
            return
        replica = spu.replicas.get(self.partition)

        def answer(base: int | None, refusal: Refusal | None) -> None:
            if world.faulty and world.chance.random() < 0.03:
                return
            delay = world.network.delay_us()
            world.clock.after(delay, self._answered, route, header, base, refusal)

        if replica is None:
            answer(None, Refusal.NOT_LEADER)
        else:
            replica.produce(header, data, answer)

    def _answered(
        self, route: Route, header: BatchHeader, base: int | None, refusal: Refusal | None
    ) -> None:
        if header.producer_epoch != self._epoch or header.sequence not in self._unanswered:
            return
        if base is not None:
            del self._unanswered[header.sequence]
            # There is progress: no reason to send anew.
            self._gaps = 0
            self._look_again(TIMEOUT_US)
        elif refusal in (Refusal.FORGOTTEN, Refusal.FENCED):
            # An error that its user sees; without this batch those after it are never taken.
            self._begin_epoch()
        elif refusal is Refusal.SEALED:
            # Its user is told; for what is on its way, the answer would be the same, or is lost.
            self._world.ledgers[self.partition].refuses(header)
            self._world.count("given up", len(self._unanswered))
            self._unanswered.clear()
            self.stopped = True
        elif route is self._route:
            if refusal is Refusal.NOT_READY and header.sequence == min(self._unanswered):
                self._gaps += 1
            if self._gaps == HOPELESS:
                self._begin_epoch()
                return
            self._route = None
            self._look_again(self._world.chance.randint(50_000, 400_000))


class SimConsumer:
    """Reads a partition from the leader, sometimes from others, sometimes from the beginning."""

    def __init__(self, world: World, partition: str) -> None:
        self._world = world
        self.partition = partition
        self._at = 0
        self.stopped = False

    def begin(self) -> None:
        """Read now and then."""
        world = self._world
        if self.stopped:
            return
        if world.chance.random() < 0.05:
            self._at = 0
        self._read()
        world.clock.after(world.chance.randint(100_000, 1_200_000), self.begin)

    def _read(self) -> None:
        world = self._world
        partition = world.kv.partition(self.partition)
        if partition is None or partition.status.leader is None:
            return
        spu_id = partition.status.leader
        if world.chance.random() < 0.35:
            spu_id = world.chance.choice(partition.spec.replicas)
        spu = world.spus[spu_id]
        replica = spu.replicas.get(self.partition)
        if not spu.is_up or replica is None or (found := replica.fetch(self._at)) is None:
            return
        self._at, batches = found
        if batches:
            world.ledgers[self.partition].reads(spu_id, batches)
            world.count("read", len(batches))
            self._at = batches[-1].end
