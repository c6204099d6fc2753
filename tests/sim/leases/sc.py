"""One process of an SC: the real node, over a mirror that is late and a controller that writes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from sc.election.node import Node
from sc.kv.interface import KeyValue, Put
from sc.leadership import Leadership
from schemas.control.controllers import ControllerEntry
from schemas.errors import FencedError, RunnelError
from schemas.objects.keys import ClusterKeys
from tests.sim.leases.loops import VirtualLoop
from tests.sim.leases.network import RemoteKV

if TYPE_CHECKING:
    from tests.sim.leases.world import World

KEYS: Final = ClusterKeys("c")
#: What the leading SC writes.
WRITES: Final = "/writes"


class LateMirror:
    """What an SC sees of the KV: the office, as it was a while ago."""

    def __init__(self, kv: Any, loop: VirtualLoop, chance: random.Random) -> None:
        self.kv = kv
        self.keys = KEYS
        self.leader: KeyValue | None = None
        self.controllers: dict[str, ControllerEntry] = {}
        self.kv_health = SimpleNamespace(away_ms=0)
        self.feed = self
        self.reader = self
        self._loop = loop
        self._chance = chance
        self._notice: Callable[[str, KeyValue | None], None] = lambda _key, _found: None

    def clock_ms(self) -> int:
        return int(self._loop.time() * 1000)

    @property
    def leader_entry(self) -> ControllerEntry | None:
        return None if self.leader is None else ControllerEntry.decode(self.leader.value)

    def notice_office(self, notice: Callable[[str, KeyValue | None], None]) -> None:
        self._notice = notice

    async def applied(self, _revision: int) -> None:
        """The mirror shows its own election later; a leader need not wait for that here."""

    async def repair(self) -> None:
        return

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._chance.uniform(0.01, 0.3))
            try:
                found = await self.kv.get(KEYS.leader)
            except RunnelError:
                continue
            if found != self.leader:
                self.leader = found
                self._notice(KEYS.leader, found)


class Writer:
    """What leads: it asks before each write whether it may, as `sc.controller` does."""

    def __init__(
        self, sc: SimSc, leadership: Leadership, holds: Callable[[], bool], _claims: object
    ) -> None:
        self.leadership = leadership
        self._sc = sc
        self._holds = holds
        self._over: str | None = None

    @property
    def leads(self) -> bool:
        if not self.would_write:
            self.end("the lease was not renewed in time")
        return self._over is None

    @property
    def would_write(self) -> bool:
        """Whether it would do what a leader may, if it ran now."""
        return self._over is None and self._holds()

    def end(self, why: str) -> None:
        self._over = self._over or why

    async def begin(self) -> None:
        return

    async def close(self) -> None:
        return

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._sc.chance.uniform(0.02, 0.4))
            if not self.leads:
                raise FencedError(str(self._over))
            try:
                result = await self._sc.kv.txn(
                    self.leadership.guards, [Put(WRITES, self._sc.name.encode())]
                )
            except RunnelError:
                continue
            if not result.succeeded:
                raise FencedError("another SC has taken over")


class SimSc:
    """A process. ``number`` tells the processes of one name apart; ``speed``: of its clock."""

    def __init__(
        self, world: World, name: str, number: int, predecessor: str | None, speed: float
    ) -> None:
        self.name = name
        self.chance = random.Random(f"{world.seed} {name} {number}")
        self.instance = f"{name}.{number}"
        began_s = self.chance.uniform(0, 1_000)
        self.speed = speed
        self._began_s, self._at_s = began_s, world.now_s
        self._world = world
        self.loop = VirtualLoop(self._clock)
        self.kv: Any = RemoteKV(world, self, self.loop)
        me = ControllerEntry(
            name=name, public="p", private="q", version="1", since="now", instance=self.instance
        )
        mirror: Any = LateMirror(self.kv, self.loop, self.chance)
        mirror.controllers = {one: me.model_copy(update={"name": one}) for one in world.names}
        make: Any = partial(Writer, self)
        self.node = Node(
            mirror,
            me,
            make,
            lambda _controller: None,
            lease_ms=world.lease_ms,
            predecessor=predecessor,
        )
        #: Until when it stands still, in the world's time.
        self.frozen_until_s = 0.0
        self._run = self.loop.create_task(self.node.run())

    def _clock(self) -> float:
        return self._began_s + (self._world.now_s - self._at_s) * self.speed

    @property
    def writer(self) -> Writer | None:
        found: Any = self.node.controller
        return found if isinstance(found, Writer) else None

    def next_due_s(self) -> float | None:
        """When it has something to do, in the world's time."""
        due = self.loop.next_due()
        if due is None:
            return None
        at_s = self._at_s + (due - self._began_s) / self.speed
        return max(at_s, self.frozen_until_s)

    def stop(self) -> None:
        """End the process as SIGTERM does: it gives its lease back, if that goes quickly."""
        self.loop.call_soon(self._run.cancel)

    def close(self) -> None:
        """The process is gone: nothing that it might still do has an effect."""
        self.kv.is_closed = True
        self._run.cancel()
        self.loop.turn()
        self.loop.close()

    def check(self) -> None:
        """Raise what ended the process, if it was not asked to end."""
        if self._run.done() and not self._run.cancelled() and self._run.exception() is not None:
            raise AssertionError(f"{self.name} failed") from self._run.exception()
