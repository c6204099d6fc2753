"""Whether the KV answers the SC: it is asked for its revision once a second.

A KV that does not answer is *away* from the first question without an answer until the next answer.
A question waits for `PATIENCE_S`: if the SC stood still meanwhile, no more than that counts. A KV
that answers may still have no room for a write. It is not away: it serves reads, and SPUs stay.
A KV whose revision is lower than one that was seen has another past: the SC ends.
Neighbours: `sc.controller` asks, ends the sessions of SPUs when the KV is away for long, and tells
`/health`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sc.kv.interface import KV
from schemas.errors import ConflictError, RunnelError

PROBE_S = 1.0
#: How long one question waits for its answer.
PATIENCE_S = 5.0


def another_past(what: str) -> ConflictError:
    """The error of an SC whose KV has another past than it knows; ``what`` shows that."""
    return ConflictError(
        f"{what}: it was emptied or restored. This SC ends, to begin anew over what is there: start"
        " it again, unless a service manager does"
    )


class KvHealth:
    """Since when the KV is away, and why. ``now_ms`` gives milliseconds that only grow, ``seen``
    gives the revision that the SC has seen."""

    def __init__(self, kv: KV, now_ms: Callable[[], int], seen: Callable[[], int]) -> None:
        self._kv = kv
        self._now_ms = now_ms
        self._seen = seen
        self._away_since_ms: int | None = None
        #: When the KV was asked last of all questions that it has answered. If the SC stood still
        #: since, that counts here.
        self.answered_ms = now_ms()
        #: What the last question came to, if it had no answer.
        self.why = ""
        #: Why nothing can be written, although the KV answers; empty as far as is known.
        self.unwritable = ""

    @property
    def away_ms(self) -> int:
        """For how long the KV has not answered; 0 if it answers."""
        if self._away_since_ms is None:
            return 0
        return max(1, self._now_ms() - self._away_since_ms)

    @property
    def trouble(self) -> str | None:
        """Why the SC cannot write down what it learns, so that what objects say may be old; None
        while it can."""
        if self.unwritable:
            return self.unwritable
        if self._away_since_ms is None:
            return None
        return f"the SC has not reached its KV for {self.away_ms / 1000:.0f} s: {self.why}"

    async def probe(self) -> None:
        """Ask once. Raises ConflictError if the KV has gone back: an SC cannot go on over another
        past than it knows."""
        asked_ms, seen = self._now_ms(), self._seen()
        try:
            async with asyncio.timeout(PATIENCE_S):
                revision = await self._kv.revision()
        except TimeoutError:
            self._away(asked_ms, f"no answer within {PATIENCE_S:g} s")
        except RunnelError as error:
            self._away(asked_ms, error.message)
        else:
            if revision < seen:
                raise another_past(f"the KV is at revision {revision}, and this SC has seen {seen}")
            self._away_since_ms, self.why = None, ""
            self.answered_ms = asked_ms
            await self._check_writable()

    async def _check_writable(self) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._kv.check_writable()
        except TimeoutError:
            self.unwritable = f"the KV cannot say within {PATIENCE_S:g} s whether it can be written"
        except RunnelError as error:
            self.unwritable = error.message
        else:
            self.unwritable = ""

    def _away(self, asked_ms: int, why: str) -> None:
        self.why = why
        if self._away_since_ms is None:
            self._away_since_ms = max(asked_ms, self._now_ms() - round(PATIENCE_S * 1000))
