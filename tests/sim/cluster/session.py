"""A session between an SPU and the SC: ordered both ways, over when either end finds it broken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from schemas.control.messages import Message
from schemas.control.session_end import SessionEnd
from tests.sim.cluster.clock import Call
from tests.sim.cluster.network import SC

if TYPE_CHECKING:
    from tests.sim.cluster.sc import SimSc
    from tests.sim.cluster.world import World

#: In which time heartbeats that stay out are noticed: three of 250 ms each.
SUSPICION_US = (500_000, 1_000_000)
#: How long the code takes with which an SPU closes a session.
CODE_US = 1_000


class Session:
    """One generation of an SPU's sessions with an SC."""

    def __init__(self, world: World, sc: SimSc, spu: int, generation: int, instance: str) -> None:
        self.spu = spu
        self.generation = generation
        self.instance = instance
        self.open_at_sc = True
        self.open_at_spu = True
        self._world = world
        self._sc = sc
        self._to_sc_us = 0
        self._to_spu_us = 0

    def to_sc(self, message: Message) -> None:
        """The SPU sends something."""
        self._to_sc_us = max(self._to_sc_us, self._world.clock.now_us + self._delay_us())
        self._world.clock.at(self._to_sc_us, self._at_sc, message)

    def _at_sc(self, message: Message) -> None:
        if self.open_at_sc and (self.spu, SC) not in self._world.network.blocked:
            self._sc.told(self, message)

    def to_spu(self, message: Message) -> None:
        """The SC sends a request."""
        self._reaches_spu(self._at_spu, message)

    def welcome(self, call: Call, attempt: int) -> None:
        """The SC sends its welcome, before any request: ``call`` is called when it arrives. An SPU
        that has given up this connection by then ends it, and so reads no request."""
        self._reaches_spu(call, self, attempt)

    def _reaches_spu(self, call: Call, *args: Any) -> None:
        self._to_spu_us = max(self._to_spu_us, self._world.clock.now_us + self._delay_us())
        self._world.clock.at(self._to_spu_us, call, *args)

    def _at_spu(self, message: Message) -> None:
        if self.open_at_spu and (SC, self.spu) not in self._world.network.blocked:
            self._world.spus[self.spu].handle(self, message)

    def reply(self, message: Message, error: bool) -> None:
        """The SPU has done what it was asked, or refuses."""
        if self.open_at_spu and (self.spu, SC) not in self._world.network.blocked:
            # Behind the reports of what it did.
            self._to_sc_us = max(self._to_sc_us, self._world.clock.now_us + self._delay_us())
            self._world.clock.at(self._to_sc_us, self._sc.replied, self, message, error)

    def _delay_us(self) -> int:
        return self._world.network.delay_us()

    # -- its end ----------------------------------------------------------------------------

    def breaks(self) -> None:
        """Nothing comes through any more: both ends miss heartbeats."""
        clock, chance = self._world.clock, self._world.chance
        clock.after(chance.randint(*SUSPICION_US), self.end_at_sc, SessionEnd.SILENT)
        clock.after(chance.randint(*SUSPICION_US), self.leave)

    def leave(self) -> None:
        """The SPU misses the SC's heartbeats, and closes the session with a code that says so. If
        that does not get through, the SC misses heartbeats, too."""
        if self.open_at_spu:
            clock, chance = self._world.clock, self._world.chance
            if (self.spu, SC) in self._world.network.blocked:
                clock.after(chance.randint(*SUSPICION_US), self.end_at_sc, SessionEnd.SILENT)
            else:
                clock.after(CODE_US, self.end_at_sc, SessionEnd.CLOSED)
        self.end_at_spu()

    def died(self, node: int, *, silently: bool) -> None:
        """The process at one end is gone."""
        delay = self._world.chance.randint(*(SUSPICION_US if silently else (500, 50_000)))
        if node == SC:
            self.open_at_sc = False
            self._world.clock.after(delay, self.end_at_spu)
        else:
            self.open_at_spu = False
            end = SessionEnd.SILENT if silently else SessionEnd.LOST
            self._world.clock.after(delay, self.end_at_sc, end)

    def end_at_sc(self, end: SessionEnd) -> None:
        """The SC has found out."""
        if self.open_at_sc:
            self.open_at_sc = False
            self._sc.session_ended(self, end)

    def end_at_spu(self) -> None:
        """The SPU has found out."""
        if self.open_at_spu:
            self.open_at_spu = False
            self._world.spus[self.spu].session_ended(self)
