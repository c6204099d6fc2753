"""Where the leader tells the other SCs what it hears, for as long as it leads.

Neighbours: `sc.sharing.telling` says what is new, `sc.sharing.listening` is the other end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from aiohttp import hdrs, web

from sc.sharing.telling import Teller
from sc.store.view import View
from schemas.control.facts import TELL_S

#: Connections that are told at the same time: each costs a look at every segment.
MOST_LISTENERS: Final = 8


class Leading(Protocol):
    """An SC while it leads."""

    @property
    def view(self) -> View:
        """What it knows."""

    @property
    def leads(self) -> bool:
        """Whether it may still speak for the cluster."""

    @property
    def clock_ms(self) -> Callable[[], int]:
        """The clock of its view."""

    async def until_over(self) -> None:
        """Wait until it leads no more. Raises FencedError then."""


class FactsPort:
    """Tells other SCs on the private port, while this one leads."""

    def __init__(self) -> None:
        #: This SC, while it leads.
        self.leading: Leading | None = None
        self._listeners = 0

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """The aiohttp handler."""
        if hdrs.ORIGIN in request.headers:
            raise web.HTTPForbidden(text="this port is for SCs and SPUs, not for web pages\n")
        leading = self.leading
        if leading is None or not leading.leads:
            raise web.HTTPServiceUnavailable(text="this SC does not lead\n")
        if self._listeners >= MOST_LISTENERS:
            raise web.HTTPServiceUnavailable(text="too many listen here already\n")
        self._listeners += 1
        try:
            return await self._tell(request, leading)
        finally:
            self._listeners -= 1

    async def _tell(self, request: web.Request, leading: Leading) -> web.StreamResponse:
        response = web.StreamResponse(headers={hdrs.CONTENT_TYPE: "application/x-ndjson"})
        await response.prepare(request)
        teller = Teller(leading.view)
        over = asyncio.ensure_future(leading.until_over())
        try:
            while leading.leads:
                for message in teller.news(leading.clock_ms()):
                    await response.write(message.encode())
                    # Sessions come first: very many segments take long.
                    await asyncio.sleep(0)
                await asyncio.wait([over], timeout=TELL_S)
        except ConnectionError:
            # The listener is gone.
            pass
        finally:
            over.cancel()
            await asyncio.gather(over, return_exceptions=True)
        return response
