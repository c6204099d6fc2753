"""Bodies of requests: received within bounds, parsed without holding the event loop.

A body is refused once it is larger than the limit, once it takes longer than `BODY_TIMEOUT_S`, or
while all bodies together hold more memory than `HELD_BODIES` of the largest ones would. One of more
than `LOOP_BYTES` is parsed and validated in a thread, so that heartbeats of SPUs flow meanwhile.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Final, TypeVar

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from sc.api.requests import read_media_type
from sc.api.responses import JSON
from schemas.errors import InvalidRequestError, OverloadedError
from schemas.objects.quantities import format_size, short

#: A larger body is parsed in a thread: this much takes about a millisecond.
LOOP_BYTES: Final = 64 << 10
#: Threads that parse. More would only take turns, since one at a time runs Python.
THREADS: Final = 2
BODY_TIMEOUT_S: Final = 30.0
HELD_BODIES: Final = 64

T = TypeVar("T")


class BodyError(InvalidRequestError):
    """A body that is not taken, and the status of HTTP that says so."""

    STATUS: ClassVar[int]


class MediaTypeError(BodyError):
    """A body of another media type than the route takes."""

    STATUS = 415


class BodyTooLargeError(BodyError):
    STATUS = 413


class BodyTooSlowError(BodyError):
    STATUS = 408


class Body:
    """A body that was received whole."""

    def __init__(self, data: bytearray, turns: asyncio.Semaphore) -> None:
        self._data = data
        self._turns = turns

    async def parse(self, parse: Callable[[Any], T]) -> T:
        """What ``parse`` makes of the JSON in the body. Raises InvalidRequestError."""
        return await self.run(lambda: parse(_read_json(self._data)))

    async def run(self, work: Callable[[], T]) -> T:
        """The result of ``work``, which takes as long as the body is large."""
        try:
            if len(self._data) <= LOOP_BYTES:
                return work()
            async with self._turns:
                return await asyncio.to_thread(work)
        except RecursionError:
            # Without the cause, whose traceback has a thousand frames.
            raise InvalidRequestError("the body is nested too deeply") from None


class Bodies:
    """Receives the bodies of one server, of at most ``limit`` bytes each."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        #: Bytes of bodies that are being received or worked on.
        self.held_bytes = 0
        self._turns = asyncio.Semaphore(THREADS)

    async def parsed(self, request: web.Request, parse: Callable[[Any], T]) -> T:
        """What ``parse`` makes of the JSON in a request's body. Raises InvalidRequestError."""
        async with self.received(request, JSON) as body:
            return await body.parse(parse)

    @asynccontextmanager
    async def received(self, request: web.Request, media_type: str) -> AsyncIterator[Body]:
        """The body of a request. Raises BodyError, OverloadedError."""
        found = read_media_type(request.headers.get("Content-Type"))
        if found != media_type:
            # This protects users, too: a page of another site may send forms and plain text
            # unasked.
            raise MediaTypeError(f"send the body as Content-Type: {media_type}, not {short(found)}")
        data = bytearray()
        try:
            await self._receive(request, data)
            yield Body(data, self._turns)
        finally:
            self.held_bytes -= len(data)

    async def _receive(self, request: web.Request, data: bytearray) -> None:
        if (request.content_length or 0) > self._limit:
            raise self._too_large()
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                # Memory follows what has arrived, not what is announced.
                while piece := await request.content.readany():
                    data += piece
                    self.held_bytes += len(piece)
                    if len(data) > self._limit:
                        raise self._too_large()
                    if self.held_bytes > HELD_BODIES * self._limit:
                        raise OverloadedError(
                            "this SC receives as many bodies as it has room for; try again"
                        )
        except TimeoutError:
            raise BodyTooSlowError(f"the body did not arrive within {BODY_TIMEOUT_S:g} s") from None
        except (web.RequestPayloadError, HttpProcessingError) as error:
            # Without the cause, which repeats what was sent.
            raise InvalidRequestError(f"the body cannot be read: {type(error).__name__}") from None

    def _too_large(self) -> BodyTooLargeError:
        return BodyTooLargeError(f"the body is larger than {format_size(self._limit)}")


def _read_json(body: bytearray) -> Any:
    """Raises InvalidRequestError."""
    try:
        data = json.loads(body)
        # JSON can spell half of a surrogate pair, which no file and no terminal can hold.
        json.dumps(data, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        before = error.object[max(0, error.start - 40) : error.start]
        raise InvalidRequestError(
            f"the body holds half of a surrogate pair, which is no character, after: {before}"
        ) from error
    except ValueError as error:
        raise InvalidRequestError(f"the body is not JSON: {error}") from error
    return data
