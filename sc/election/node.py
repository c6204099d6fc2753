"""One SC among several over one KV: it stands by, leads when it is elected, and stands by again.

The office is the key `ClusterKeys.leader`, attached to the lease of whoever holds it. The mirror
shows when nobody does; then every SC tries to write it, and one succeeds. That one is the leader
from the same transaction on (`sc.leadership.stand`), makes a `Controller`, and takes everything of
it down again when the lease ends, another SC leads, or it is asked to step down. The process goes
on as a standby: its mirror stays.

The office of an earlier process of this SC, which is known to have ended (`sc.election.names`), is
taken at once: a restart does not wait for the old lease.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from typing import Final

from sc.controller import Controller
from sc.election.keeper import LEASE_MS, LeaseKeeper
from sc.election.names import taken
from sc.election.turns import Turns
from sc.kv.interface import CreateRevisionIs, Delete, KeyValue, ModRevisionIs, Put
from sc.leadership import Claim, Leadership, stand
from sc.mirror import Mirror
from sc.sharing.claims import BucketClaims
from sc.sharing.sharer import Sharer
from schemas.control.controllers import (
    ControllerAnswer,
    ControllerEntry,
    ControllerRole,
    ControllersAnswer,
)
from schemas.daemon.logs import get_logger
from schemas.errors import ConflictError, FencedError, NotFoundError, RunnelError

#: How long an SC waits at most before it looks again whether it may stand.
LOOK_S: Final = 1.0
RETRY_S: Final = 0.2
#: What worked for a leadership that is over has so long to end, and is cancelled so often. Then the
#: SC goes on without it.
END_S: Final = 5.0
ENDINGS: Final = 3
#: How often a standby compares KV and mirror.
REPAIR_S: Final = 30.0

log = get_logger(__name__)

MakeController = Callable[[Leadership, Callable[[], bool], BucketClaims | None], Controller]
"""Makes what leads. The second argument says whether the lease may be relied on now, the third is
what it works for of streams; None: all."""


class Node:
    """This SC. ``make`` makes a controller for each leadership; ``leads`` is called with it when it
    has begun, and with None when it is over. ``predecessor``: the instance of an earlier process of
    this SC that has ended. If ``me`` says so, it works for its part of the streams all the time."""

    def __init__(
        self,
        mirror: Mirror,
        me: ControllerEntry,
        make: MakeController,
        leads: Callable[[Controller | None], None],
        *,
        buckets: int | None = None,
        lease_ms: int = LEASE_MS,
        predecessor: str | None = None,
    ) -> None:
        self._mirror = mirror
        self._me = me
        self._predecessor = predecessor
        self._lease_ms = lease_ms
        self._make = make
        self._leads = leads
        self._buckets = buckets
        self._turns = Turns()
        self._news = asyncio.Event()
        self.keeper = LeaseKeeper(mirror.kv, mirror.clock_ms, self._lease_changed, lease_ms)
        #: The lease by which this SC stood for election last.
        self._claimed = 0
        self._controller: Controller | None = None
        self._sharer = Sharer(mirror, me, self._lease, predecessor) if me.shares else None
        #: What the KV was told of this SC: on which lease, and whether it works for streams.
        self._registered = 0, False
        mirror.notice_office(self._noticed)

    @property
    def controller(self) -> Controller | None:
        """What leads here, if this SC leads."""
        return self._controller

    def controllers(self) -> ControllersAnswer:
        """All SCs that run."""
        held = self._mirror.leader_entry
        if self._mirror.kv_health.away_ms >= self._lease_ms:
            # Nobody can have renewed a lease.
            held = None
        found = self._mirror.controllers | {self._me.name: self._me}
        roles = dict.fromkeys(found, ControllerRole.STANDBY)
        if held is not None and held.name in found:
            roles[held.name] = ControllerRole.LEADER
        buckets = Counter(
            owner.value.decode(errors="replace") for owner in self._mirror.bucket_owners.values()
        )
        return ControllersAnswer(
            items=tuple(
                ControllerAnswer.of(found[name], roles[name], buckets[found[name].instance])
                for name in sorted(found)
            ),
            asked=self._me.name,
        )

    def step_down(self) -> None:
        """Let another SC lead. Raises ConflictError if there is none, or this one does not lead."""
        if self._controller is None:
            raise ConflictError(f"SC {self._me.name} does not lead")
        if not self._mirror.controllers.keys() - {self._me.name}:
            raise ConflictError(
                "no other SC runs, so nobody could lead; start another one first:"
                " runnel sc run -c sc.yaml on another host"
            )
        self._turns.stepped_down(self._mirror.clock_ms())
        self._controller.end(f"SC {self._me.name} steps down")

    async def run(self) -> None:
        """Follow the KV, and lead in turn, until cancelled; then give the office back."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._mirror.run(), name="mirror")
                group.create_task(self.keeper.run(), name="lease")
                group.create_task(self._register(), name="registration")
                group.create_task(self._lead_in_turn(), name="election")
                group.create_task(self._repair(), name="repair of a standby")
                if self._sharer is not None:
                    group.create_task(self._sharer.run(), name="share of streams")
        finally:
            await self.keeper.give_back()

    def _noticed(self, key: str, _found: KeyValue | None) -> None:
        if key == self._mirror.keys.leader or key == self._mirror.keys.sc(self._me.name):
            self._news.set()

    def _lease(self) -> int:
        """The lease, if this SC may rely on it now; else 0."""
        return self.keeper.lease if self.keeper.holds() else 0

    def _lease_changed(self) -> None:
        self._news.set()

    async def _something_happens(self, at_most_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(at_most_s):
                await self._news.wait()
        self._news.clear()

    # -- who runs -----------------------------------------------------------------------------

    async def _register(self) -> None:
        """Keep this SC in the list of those that run, on the lease of now. Raises ConflictError
        when another one has taken its name."""
        keys, kv = self._mirror.keys, self._mirror.kv
        shown = False
        while True:
            there = self._mirror.controllers.get(self._me.name)
            if there is not None and there.instance != self._me.instance and shown:
                raise taken(self._me.name, f"at {there.private}, since {there.since}")
            shown = there is not None and there.instance == self._me.instance
            lease = self.keeper.lease
            me = self._me
            if self._sharer is not None:
                me = me.model_copy(update={"shares": self._sharer.shares})
            if lease and (lease, me.shares) != self._registered:
                value = me.model_dump_json(by_alias=True).encode()
                with suppress(RunnelError):
                    await kv.txn([], [Put(keys.sc(me.name), value, lease)])
                    self._registered = lease, me.shares
                    if self._sharer is not None and not me.shares:
                        log.warning("leaves streams to others", why=self._sharer.trouble)
            await asyncio.sleep(RETRY_S)

    async def _repair(self) -> None:
        while True:
            await asyncio.sleep(REPAIR_S)
            if self._controller is None:
                try:
                    await self._mirror.reader.repair()
                except RunnelError as error:
                    log.warning("repair failed, trying again later", why=error.message)

    # -- the office ---------------------------------------------------------------------------

    async def _lead_in_turn(self) -> None:
        while True:
            leadership = await self._elected()
            # What takes long at the end of a leadership keeps no other SC from leading.
            async with AsyncExitStack() as last:
                try:
                    await self._lead_until_over(leadership, last)
                except asyncio.CancelledError:
                    # The process ends, and nobody renews the lease any more.
                    await self.keeper.give_back()
                    raise
                await self._release(leadership)

    async def _elected(self) -> Leadership:
        """Wait until this SC is elected."""
        free_since_ms: int | None = None
        stands_at_ms = 0
        while True:
            now_ms = self._mirror.clock_ms()
            if not self.keeper.holds() or self._is_held_by_another():
                free_since_ms = None
                await self._something_happens(LOOK_S)
                continue
            if free_since_ms is None:
                free_since_ms = now_ms
                stands_at_ms = self._turns.stands_at(now_ms, random.random())  # noqa: S311
            if now_ms < stands_at_ms:
                await self._something_happens((stands_at_ms - now_ms) / 1000)
                continue
            if (leadership := await self._stand()) is not None:
                return leadership
            free_since_ms = None
            await self._something_happens(RETRY_S)

    def _is_held_by_another(self) -> bool:
        if self._mirror.leader is None:
            return False
        held = self._mirror.leader_entry
        return held is None or held.instance not in (self._me.instance, self._predecessor)

    async def _stand(self) -> Leadership | None:
        keys, kv, old = self._mirror.keys, self._mirror.kv, self._mirror.leader
        self._claimed = self.keeper.lease
        claim = Claim(self._claimed, self._me.model_dump_json(by_alias=True).encode())
        try:
            if old is not None:
                # Of an earlier process of this SC, or of an attempt whose answer was lost.
                await kv.txn([ModRevisionIs(keys.leader, old.mod_revision)], [Delete(keys.leader)])
            return await stand(kv, keys, claim, self._buckets)
        except NotFoundError:
            # The lease has ended; the keeper takes another one.
            return None
        except ConflictError:
            # The cluster lives elsewhere, or has other buckets: an operator must do something.
            raise
        except RunnelError as error:
            log.warning("could not stand for election, trying again", why=error.message)
            return None

    async def _lead_until_over(self, leadership: Leadership, last: AsyncExitStack) -> None:
        """Lead until that is over. ``last`` closes the controller, when the office is free."""
        try:
            await self._mirror.feed.applied(leadership.stamp.revision)
        except RunnelError as error:
            log.warning("the mirror does not show the election", why=error.message)
            # Or it would take the office again and again, before anybody else sees it free.
            self._turns.lost(self._mirror.clock_ms())
            return
        sharer = self._sharer
        if sharer is not None:
            sharer.rest(True)
        claimed = self._claimed

        def holds() -> bool:
            # The keeper may have taken another lease meanwhile: the office went with this one.
            return self.keeper.lease == claimed and self.keeper.holds()

        controller = self._make(leadership, holds, None if sharer is None else sharer.claims)
        last.push_async_callback(controller.close)
        # In a task of its own: the end of a leadership must not hide that of the process.
        work = asyncio.create_task(self._lead(controller), name="controller")
        ending = asyncio.create_task(self._until_the_lease_ends(controller), name="lease deadline")
        try:
            await asyncio.wait([work, ending], return_when=asyncio.FIRST_COMPLETED)
            # It ends by itself, and says why.
            await asyncio.wait([work], timeout=END_S)
        finally:
            self._controller = None
            self._leads(None)
            if sharer is not None:
                sharer.rest(False)
            await _ended(work, ending)
        if not work.done() or work.cancelled():
            # It had to be cancelled. If it goes on, the guards in its writes keep it from changing
            # anything.
            self._turns.lost(self._mirror.clock_ms())
            log.warning("standing by", why="the leadership is over")
            return
        try:
            work.result()
        except* FencedError as group:
            now_ms = self._mirror.clock_ms()
            if now_ms >= self._turns.not_before_ms:
                self._turns.lost(now_ms)
            log.warning("standing by", why=_first(group).message)

    async def _lead(self, controller: Controller) -> None:
        await controller.begin()
        if not controller.leads:
            # It was given up while it began, and another one may lead here.
            raise FencedError("the leadership was over before it began")
        self._controller = controller
        self._leads(controller)
        await controller.run()

    async def _until_the_lease_ends(self, controller: Controller) -> None:
        while True:
            await asyncio.sleep(min(LOOK_S, max(1, self.keeper.left_ms) / 1000))
            if not controller.leads:
                return

    async def _release(self, leadership: Leadership) -> None:
        """Let go of the office: while the key is there, nobody else may lead."""
        held = leadership.held
        while held is not None:
            try:
                await self._mirror.kv.txn(
                    [CreateRevisionIs(held.key, held.revision)], [Delete(held.key)]
                )
            except RunnelError as error:
                log.warning("could not let go of the office, trying again", why=error.message)
                await asyncio.sleep(RETRY_S)
            else:
                return


async def _ended(*tasks: asyncio.Task[None]) -> None:
    """Cancel tasks, and again those that do not end, for a bounded time."""
    left = {*tasks}
    for _ in range(ENDINGS):
        for task in left:
            task.cancel()
        done, left = await asyncio.wait(left, timeout=END_S)
        for task in done:
            if not task.cancelled():
                # Whoever waits for them looks at it, unless the process ends.
                task.exception()
        if not left:
            return
        names = sorted(task.get_name() for task in left)
        log.error("what worked for a leadership that is over does not end", tasks=names)


def _first(group: BaseExceptionGroup[FencedError]) -> FencedError:
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    if not isinstance(found, FencedError):
        raise TypeError(found)
    return found
