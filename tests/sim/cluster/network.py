"""Connections between SPUs, and who reaches whom.

A connection keeps order; one that breaks takes with it what was on its way, or lets it arrive late,
when there is a newer connection already. In stormy weather single messages get lost, arrive twice
or overtake others on a connection that lives, until the storm is over. The SC is node 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from spu.replication.messages import Message
from tests.sim.cluster.clock import Clock

SC = 0


class Peer(Protocol):
    """An SPU, as the network sees it."""

    @property
    def is_up(self) -> bool: ...

    def link_up(self, peer: int) -> None: ...

    def link_down(self, peer: int) -> None: ...

    def receive(self, sender: int, partition: str, message: Message) -> None: ...


@dataclass(slots=True)
class Connection:
    """One connection of a pair: open until one end finds it broken."""

    pair: tuple[int, int]
    open: bool = True
    disturbed: bool = False
    up: set[int] = field(default_factory=set)
    last_us: dict[int, int] = field(default_factory=dict)


class Network:
    """All SPUs, connected pairwise as far as they reach each other."""

    def __init__(self, clock: Clock, chance: Random) -> None:
        self._clock = clock
        self._chance = chance
        self.nodes: dict[int, Peer] = {}
        self.blocked: set[tuple[int, int]] = set()
        self.storm = False
        self.lossy = True
        self.slow_us = 0
        self._connections: dict[tuple[int, int], Connection] = {}
        self._dialing: set[tuple[int, int]] = set()

    def reaches(self, a: int, b: int) -> bool:
        """Whether messages go both ways."""
        return (a, b) not in self.blocked and (b, a) not in self.blocked

    def delay_us(self) -> int:
        """How long a message takes."""
        chance = self._chance.random()
        delay = 200 + int(chance * 1_500)
        if self._chance.random() < 0.02:
            delay += int(chance * 80_000)
        return delay + (int(chance * self.slow_us) if self.slow_us else 0)

    # -- connections ------------------------------------------------------------------------

    def dial(self, a: int, b: int) -> None:
        """Connect a pair sooner or later, if it is not."""
        pair = (min(a, b), max(a, b))
        if pair not in self._dialing and pair not in self._connections:
            self._dialing.add(pair)
            self._clock.after(self._chance.randint(2_000, 300_000), self._dialed, pair)

    def _dialed(self, pair: tuple[int, int]) -> None:
        self._dialing.discard(pair)
        a, b = pair
        if pair in self._connections or not (self.nodes[a].is_up and self.nodes[b].is_up):
            return
        if not self.reaches(a, b):
            self.dial(a, b)
            return
        self._connections[pair] = Connection(pair, up={a, b})
        self.nodes[a].link_up(b)
        self.nodes[b].link_up(a)

    def cut(self, a: int, b: int, *, both: bool) -> None:
        """Nothing comes from ``a`` to ``b`` any more, and back only if not ``both``."""
        self.blocked.add((a, b))
        if both:
            self.blocked.add((b, a))
        self.break_connection(a, b)

    def heal(self, a: int, b: int) -> None:
        self.blocked -= {(a, b), (b, a)}

    def break_connection(self, a: int, b: int) -> None:
        """The ends find out one after the other, in the time of a few heartbeats."""
        connection = self._connections.get((min(a, b), max(a, b)))
        if connection is not None:
            for end in connection.pair:
                delay = self._chance.randint(100_000, 1_000_000)
                self._clock.after(delay, self._found_broken, connection, end)

    def died(self, spu: int, *, silently: bool) -> None:
        """A process is gone. Its host tells the others, unless it is gone as well."""
        for pair, connection in tuple(self._connections.items()):
            if spu in pair:
                connection.open = False
                connection.up.discard(spu)
                (peer,) = set(pair) - {spu}
                low, high = (300_000, 1_200_000) if silently else (500, 50_000)
                delay = self._chance.randint(low, high)
                self._clock.after(delay, self._found_broken, connection, peer)

    def _found_broken(self, connection: Connection, end: int) -> None:
        connection.open = False
        if end in connection.up:
            connection.up.discard(end)
            self.nodes[end].link_down(next(i for i in connection.pair if i != end))
        if not connection.up and self._connections.get(connection.pair) is connection:
            del self._connections[connection.pair]
            self.dial(*connection.pair)

    def calm_down(self) -> None:
        """The storm is over. A connection that did not keep order breaks."""
        self.storm = False
        for connection in tuple(self._connections.values()):
            if connection.disturbed:
                self.break_connection(*connection.pair)

    # -- messages ---------------------------------------------------------------------------

    def send(self, sender: int, to: int, partition: str, message: Message) -> None:
        """Send over the connection there is; without one it is lost."""
        connection = self._connections.get((sender, to) if sender < to else (to, sender))
        if connection is None or sender not in connection.up:
            return
        now, chance = self._clock.now_us, self._chance
        arrives = now + self.delay_us()
        if self.storm:
            luck = chance.random()
            if luck < 0.25:
                connection.disturbed = True
            if luck < 0.06:
                return
            if luck < 0.12:
                again = now + chance.randint(1_000, 3_000_000)
                self._clock.at(again, self._arrive, connection, sender, to, partition, message)
            if luck < 0.25:
                late = arrives + chance.randint(0, 400_000)
                self._clock.at(late, self._arrive, connection, sender, to, partition, message)
                return
        arrives = max(arrives, connection.last_us.get(to, 0))
        connection.last_us[to] = arrives
        self._clock.at(arrives, self._arrive, connection, sender, to, partition, message)

    def _arrive(
        self, connection: Connection, sender: int, to: int, partition: str, message: Message
    ) -> None:
        if (sender, to) in self.blocked:
            return
        if not connection.open:
            # Read from the broken connection late, or never.
            if self.lossy and self._chance.random() < 0.3:
                late = self._chance.randint(0, 2_000_000)
                self._clock.after(late, self._deliver, sender, to, partition, message)
            return
        self._deliver(sender, to, partition, message)

    def _deliver(self, sender: int, to: int, partition: str, message: Message) -> None:
        if (sender, to) not in self.blocked:
            self.nodes[to].receive(sender, partition, message)
