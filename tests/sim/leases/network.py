"""The KV as one SC reaches it: requests and answers take time, or are lost."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from schemas.errors import RunnelError, UnreachableError
from tests.sim.leases.loops import VirtualLoop

if TYPE_CHECKING:
    from tests.sim.leases.sc import SimSc
    from tests.sim.leases.world import World

#: After so long a request counts as lost, by the clock of who sent it.
LOST_S: Final = 3.0


def done_at_once(work: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine gives that waits for nothing. Raises what it raises."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("a KV in memory waits for nothing")


class RemoteKV:
    """The requests of one SC; of a `KV`, what an SC needs to lead."""

    def __init__(self, world: World, sc: SimSc, loop: VirtualLoop) -> None:
        self._world = world
        self._sc = sc
        self._loop = loop
        #: Whether the process is gone.
        self.is_closed = False

    def __getattr__(self, name: str) -> Any:
        async def request(*args: Any, **options: Any) -> Any:
            return await self._ask(name, args, options)

        return request

    async def _ask(self, name: str, args: Any, options: Any) -> Any:
        if self.is_closed:
            raise UnreachableError("this process is gone")
        answered: asyncio.Future[Any] = self._loop.create_future()
        delay_s = self._world.delay_s(self._sc.name)
        self._world.after(delay_s, self._arrive, name, args, options, answered)
        lost = self._loop.call_later(LOST_S, self._lose, answered)
        try:
            return await answered
        finally:
            lost.cancel()

    def _arrive(self, name: str, args: Any, options: Any, answered: asyncio.Future[Any]) -> None:
        world = self._world
        if not world.reaches(self._sc.name):
            return
        world.expire_leases()
        try:
            result: Any = done_at_once(getattr(world.kv, name)(*args, **options))
        except RunnelError as error:
            result = error
        world.executed(self._sc, name, args, result)
        if world.reaches(self._sc.name):
            world.after(world.delay_s(self._sc.name), self._answer, answered, result)

    def _answer(self, answered: asyncio.Future[Any], result: Any) -> None:
        if not self.is_closed:
            # The process takes it when it runs.
            self._loop.call_soon(self._take, answered, result)

    @staticmethod
    def _take(answered: asyncio.Future[Any], result: Any) -> None:
        if answered.done():
            return
        if isinstance(result, RunnelError):
            answered.set_exception(result)
        else:
            answered.set_result(result)

    @staticmethod
    def _lose(answered: asyncio.Future[Any]) -> None:
        if not answered.done():
            answered.set_exception(UnreachableError("no answer"))
