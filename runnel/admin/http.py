"""Calls of the SC's REST API over one HTTP session, and its streams of events.

Neighbours: `runnel.admin.calls` tries several SCs in turn and reads what they answer.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import aiohttp
import pydantic
from aiohttp import AddrInfoType
from yarl import URL

from runnel.admin.calls import (
    AWAY_S,
    BY_HEADER,
    HEALTH,
    REQUEST_TIMEOUT_S,
    SAFE,
    SILENT_S,
    UNKNOWN_FIELDS,
    WARNING_HEADER,
    Presence,
    ScCalls,
    none_answers,
    not_an_sc,
    refusal,
    unreachable,
)
from runnel.admin.sse import EventParser, ServerEvent
from runnel.fork import OpenedIn
from runnel.net.address import Address
from schemas.control.assignments import Assignments
from schemas.errors import NotReadyError, ProtocolError, UnreachableError
from schemas.wire.dialling import CONNECT_S
from schemas.wire.keepalive import SILENT, be_patient

#: An SC sends something every 15 s; a stream that is silent for longer than this is broken.
STREAM_SILENCE_S: Final = 40.0
NO_CONTENT: Final = 204
_ASK_AGAIN_S: Final = 0.2
MERGE_PATCH: Final = "application/merge-patch+json"


class ScClient(ScCalls):
    """One HTTP session to the SCs of a cluster."""

    def __init__(self, addresses: tuple[Address, ...], by: str | None = None) -> None:
        super().__init__(addresses, by)
        self._opened_in = OpenedIn()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(socket_factory=_new_socket),
            timeout=aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S, sock_connect=CONNECT_S),
            headers={BY_HEADER: self.by, **UNKNOWN_FIELDS},
            middlewares=(_once,),
        )

    async def close(self) -> None:
        if self._opened_in.is_this:
            await self._session.close()

    async def cluster_of_leader(self) -> dict[str, Any]:
        """What the SC that leads says about the cluster. Where none is elected in the time that an
        election takes, what another one knows: ``office`` is null then, and ``officeUnknown`` says
        why."""
        deadline_s = time.monotonic() + self.not_ready_s
        while True:
            answer: dict[str, Any] = await self.call("GET", "/v1/cluster")
            if answer.get("office") is not None or time.monotonic() > deadline_s:
                return answer
            # It may be the only one that does not know.
            self._ask_last(self.address)
            await asyncio.sleep(_ASK_AGAIN_S)

    async def assignments(self, topic: str) -> Assignments:
        """The leaders of a topic's partitions; an unknown topic is absent.

        Fields that a later version of the SC adds are left out. Raises ProtocolError for an answer
        that no SC sends.
        """
        answer = await self.call("GET", "/v1/assignments", query={"topic": topic})
        try:
            return Assignments.model_validate(answer, extra="ignore")
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            raise ProtocolError(
                f"the SC's answer about {topic!r} cannot be understood; is the client older than"
                f" the cluster? {first['loc']}: {first['msg']}"
            ) from error

    async def stream(
        self, path: str, query: Mapping[str, str | Sequence[str]]
    ) -> AsyncGenerator[ServerEvent, None]:
        """Server-sent events, until the SC ends the stream.

        Raises the error that the SC sent instead, UnreachableError when none answers, when the
        connection breaks, or when nothing comes for `STREAM_SILENCE_S`.
        """
        failures = list[UnreachableError]()
        deferred: NotReadyError | None = None
        for address in await self._in_turn():
            if deferred is not None and await self._look_at(address) is not Presence.THERE:
                continue
            opened = False
            try:
                async for event in self._stream_one(address, path, query):
                    opened = True
                    self._prefer(address)
                    yield event
                return
            except UnreachableError as error:
                failures.append(error)
                if opened:
                    # The caller knows its position, and begins again there.
                    raise
            except NotReadyError as error:
                self._defer(address, error)
                deferred = deferred or error
        raise deferred or none_answers(failures)

    async def _call_one(
        self,
        address: Address,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        data: bytes | None,
        content_type: str,
    ) -> Any:
        self._opened_in.require()
        headers = {} if data is None else {"Content-Type": content_type}
        with _asking(address):
            async with self._session.request(
                method,
                URL(f"http://{address}{path}", encoded=True),
                params=query,
                data=data,
                headers=headers,
            ) as response:
                if response.status >= 400:
                    raise refusal(address, response.status, response.reason, await response.read())
                answer = None if response.status == NO_CONTENT else await response.json()
                self.warn(method, response.headers.getall(WARNING_HEADER, ()))
                return answer

    async def _look_at(self, address: Address) -> Presence:
        self._opened_in.require()
        patience = aiohttp.ClientTimeout(
            total=AWAY_S + SILENT_S, sock_connect=AWAY_S, sock_read=SILENT_S
        )
        try:
            async with self._session.get(f"http://{address}{HEALTH}", timeout=patience):
                return Presence.THERE
        except aiohttp.ConnectionTimeoutError:
            return Presence.AWAY
        except TimeoutError:
            return Presence.SILENT
        except (aiohttp.ClientConnectionError, OSError):
            return Presence.GONE
        except (aiohttp.ClientError, ValueError):
            # It is no SC: the call itself says so.
            return Presence.THERE

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def _stream_one(
        self, address: Address, path: str, query: Mapping[str, str | Sequence[str]]
    ) -> AsyncGenerator[ServerEvent, None]:
        patience = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_S, sock_read=STREAM_SILENCE_S
        )
        self._opened_in.require()
        parser = EventParser()
        with _asking(address):
            async with self._session.get(
                f"http://{address}{path}", params=query, timeout=patience
            ) as response:
                if response.status >= 400:
                    raise refusal(address, response.status, response.reason, await response.read())
                async for chunk in response.content.iter_any():
                    for event in parser.feed(chunk):
                        yield event


class _BrokenError(aiohttp.ClientError):
    """The SC broke the connection after it was sent what changes something."""


async def _once(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Send what changes something once: aiohttp sends PUT and DELETE again by itself when the
    connection breaks."""
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        if request.method in SAFE:
            raise
        raise _BrokenError from error


def _new_socket(info: AddrInfoType) -> socket.socket:
    """A socket that breaks soon when the network no longer carries to the SC: a request that waits
    for an answer then fails, and the next one gets a connection that works."""
    family, kind, protocol, _, _ = info
    made = socket.socket(family, kind, protocol)
    be_patient(made, SILENT)
    return made


@contextmanager
def _asking(address: Address) -> Iterator[None]:
    """Turns network errors on the way to an SC into UnreachableError with the reason, and
    without the calls of the libraries between: they say no more."""
    try:
        yield
    except aiohttp.ConnectionTimeoutError:
        raise unreachable(address, "no answer in time", connected=False) from None
    except TimeoutError:
        raise unreachable(address, "no answer in time") from None
    except aiohttp.ClientConnectorDNSError:
        why = f"host {address.host!r} is not known"
        raise unreachable(address, why, connected=False) from None
    except aiohttp.ClientConnectorError as error:
        why = os.strerror(error.errno or 0).lower()
        raise unreachable(address, why, connected=False) from None
    except (aiohttp.ClientResponseError, aiohttp.http_exceptions.HttpProcessingError):
        raise not_an_sc(address, "it does not speak HTTP") from None
    except (aiohttp.ClientPayloadError, ConnectionError, _BrokenError):
        raise unreachable(address, "the connection broke") from None
    except RecursionError:
        # Without its cause: that one is a thousand frames long.
        raise unreachable(address, "its answer is nested too deep") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise unreachable(address, str(error) or type(error).__name__) from None
