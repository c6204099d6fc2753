"""Recoveries from a restored KV: how an SC that leads begins, finds again and ends them.

If an SPU has seen a state that the KV does not have, the KV was restored from a backup
(`sc.restored_kv`), unless something else speaks as that SPU. Within bounds the SC believes it, and
recovers; beyond them it turns the SPU away until an operator says `recover`. To recover means:
without a turn of the event loop in between, stamp, guard and view change to those of a new
incarnation, and all sessions end: SPUs reconnect, get their assignments, and report. The recovery
is over when every partition has had an election in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final

from sc.dispatch.kv_updater import written_at
from sc.kv.interface import KV
from sc.leadership import Leadership, Recovery, begin_recovery, end_recovery, read_back
from sc.restored_kv import Divergence, divergence, next_incarnation, refusal
from sc.store.codec import CONTROLLERS
from sc.store.local_store import Change, ObjectChanged
from sc.store.view import View
from schemas.causality import current_cause
from schemas.control.messages import Hello
from schemas.daemon.logs import get_logger
from schemas.errors import ConflictError, RetryableError, StorageFailedError
from schemas.objects.keys import ClusterKeys

#: Seconds until the leadership is looked at again that could not be read.
_AGAIN_S: Final = 1.0

log = get_logger(__name__)


class Recoveries:
    """The recoveries of one leadership, which it has: each begins a tenure of its own.

    ``registered`` gives the ids of the SPUs that may connect. ``entered`` is called in the turn in
    which the leadership and the view have changed to those of a new incarnation, ``over`` when
    the recovery is; both look at everything.
    """

    def __init__(
        self,
        kv: KV,
        keys: ClusterKeys,
        leadership: Leadership,
        view: View,
        *,
        registered: Callable[[], Collection[int]],
        entered: Callable[[], None],
        over: Callable[[], None],
    ) -> None:
        self.leadership = leadership
        self._kv, self._keys, self._view = kv, keys, view
        self._registered = registered
        self._entered, self._over = entered, over
        #: Held while a recovery begins or ends.
        self._changing = asyncio.Lock()
        self._elected = asyncio.Event()
        self._divergent: dict[int, Divergence] = {}
        #: The last revision at which the KV named this SC as the one that leads.
        self._office_seen = leadership.guard.revision

    @property
    def divergent(self) -> tuple[Divergence, ...]:
        """What the SC turned SPUs away for, because only an operator may begin the recovery."""
        registered = self._registered()
        return tuple(self._divergent[spu] for spu in sorted(self._divergent) if spu in registered)

    async def check(self, hello: Hello, *, proven: bool) -> None:
        """Begin a recovery if the SPU has seen a state that the KV does not have. Raises
        ConflictError if only an operator may begin it."""
        if await self._divergence(hello) is not None:
            async with self._changing:
                while (found := await self._divergence(hello)) is not None:
                    why_not = refusal(
                        found, self._view.incarnation, self._since_last_ms(), proven=proven
                    )
                    if why_not is not None:
                        self._divergent[hello.spu_id] = found
                        raise ConflictError(why_not)
                    await self._begin(found, CONTROLLERS)
        self._divergent.pop(hello.spu_id, None)

    async def recover(self, spu_id: int, by: str, *, dry_run: bool = False) -> None:
        """Begin the recovery for which the SC turned this SPU away, on behalf of an operator.

        Raises ConflictError if it turned the SPU away for no such reason.
        """
        async with self._changing:
            found = next((one for one in self.divergent if one.spu_id == spu_id), None)
            ours = self.leadership.stamp.incarnation
            if found is None or found.incarnation <= ours:
                raise ConflictError(
                    f"the SC has not turned SPU {spu_id} away because of a restored KV: there is"
                    " nothing to recover from; see: runnel cluster check"
                )
            if not dry_run:
                await self._begin(found, by)
                self._divergent.clear()

    def named(self, revision: int) -> None:
        """The KV names this SC as the one that leads, at this revision."""
        self._office_seen = max(self._office_seen, revision)
        if self._office_seen > self.leadership.guard.revision:
            # A recovery that this SC has begun. Its answer is on its way, or was lost.
            self._elected.set()

    def note_election(self, change: Change) -> None:
        """Look again whether every partition has had its election, if one may have."""
        if self._view.recovering and isinstance(change, ObjectChanged):
            self._elected.set()

    async def run(self, look_again_s: float) -> None:
        """End each recovery when every partition has had an election in it, until cancelled."""
        while True:
            async with self._changing:
                try:
                    await self._find_lost()
                except RetryableError as error:
                    log.warning("the leadership cannot be read", why=error.message)
                    self._look_again_soon()
                view = self._view
                if view.recovering and not view.store.elected_before(view.incarnation):
                    await self._end()
            with suppress(TimeoutError):
                async with asyncio.timeout(look_again_s):
                    await self._elected.wait()
            self._elected.clear()

    def _look_again_soon(self) -> None:
        asyncio.get_running_loop().call_later(_AGAIN_S, self._elected.set)

    async def _divergence(self, hello: Hello) -> Divergence | None:
        revision = await self._kv.revision()
        why = divergence(hello, revision, self.leadership, self._view.store)
        if why is None:
            return None
        return Divergence(hello.spu_id, why, next_incarnation(hello, self.leadership))

    def _since_last_ms(self) -> int | None:
        """Since an SC last began a recovery by itself, by the wall clock: another SC may have. What
        an operator began, or restored, does not count."""
        last = self.leadership.identity.recovery
        if last is None or last.by != CONTROLLERS:
            return None
        return (datetime.now(UTC) - datetime.fromisoformat(last.at)) // timedelta(milliseconds=1)

    async def _begin(self, found: Divergence, by: str) -> None:
        """Begin a new incarnation of the cluster. Raises RunnelError if the KV does not answer; the
        SPU tries again."""
        recovery = Recovery(by, written_at(), found.why, current_cause())
        leadership = await begin_recovery(
            self._kv, self._keys, self.leadership, found.incarnation, recovery
        )
        self._enter(leadership, found.why, by)

    def _enter(self, leadership: Leadership, why: str, by: str) -> None:
        """Go on in the incarnation that the KV has, from one turn of the event loop to the next."""
        self.leadership = leadership
        incarnation = leadership.stamp.incarnation
        log.error(
            "the KV was restored from a backup, recovering", why=why, incarnation=incarnation, by=by
        )
        self._view.incarnation, self._view.recovering = incarnation, True
        self._view.settled.clear()
        self._entered()
        self._elected.set()

    async def _find_lost(self) -> None:
        """Go on in a recovery that this SC began without getting an answer: without this, each of
        its writes would compare a leadership that is over."""
        if self._office_seen <= self.leadership.guard.revision:
            return
        leadership = await read_back(self._kv, self._keys, self.leadership)
        if leadership is not self.leadership:
            begun = leadership.identity.recovery
            self._enter(
                leadership,
                begun.why if begun is not None else "-",
                begun.by if begun is not None else CONTROLLERS,
            )

    async def _end(self) -> None:
        try:
            self.leadership = await end_recovery(self._kv, self._keys, self.leadership)
        except (RetryableError, StorageFailedError) as error:
            log.warning("the recovery cannot be ended yet", why=error.message)
            self._look_again_soon()
            return
        self._view.recovering = False
        log.warning("the cluster has recovered", incarnation=self._view.incarnation)
        self._over()
