"""Calls of the SC's REST API: JSON in and out, errors rebuilt, several SCs tried in turn."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Self, TypeVar

import aiohttp
import pydantic

from runnel.admin.sse import EventParser, ServerEvent
from runnel.net.address import Address, parse_addresses
from schemas.control.assignments import Assignments
from schemas.errors import ProtocolError, RunnelError, UnreachableError, error_from
from schemas.objects.metadata import Object

REQUEST_TIMEOUT_S: Final = 30.0
CONNECT_TIMEOUT_S: Final = 5.0
#: An SC sends something every 15 s; a stream that is silent for longer than this is broken.
STREAM_SILENCE_S: Final = 40.0
#: Who writes, unless the caller says so: stored beside each object and shown in its history.
DEFAULT_BY: Final = "runnel-python"
_JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"

Kind = TypeVar("Kind", bound=Object)


class ScClient:
    """One HTTP session to the SCs of a cluster; the one that answered last is asked first.

    ``by`` is who writes, as histories and conflicts name them.
    """

    def __init__(self, addresses: tuple[Address, ...], by: str | None = None) -> None:
        self._addresses = list(addresses)
        self.by = _header(by or DEFAULT_BY)
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S, sock_connect=CONNECT_TIMEOUT_S),
            headers={"X-Runnel-By": self.by},
        )

    @classmethod
    def parse(cls, text: str, by: str | None = None) -> Self:
        """From ``host:port[,host:port…]``. Raises InvalidRequestError."""
        return cls(parse_addresses(text), by)

    @property
    def address(self) -> Address:
        """The SC that is asked first."""
        return self._addresses[0]

    async def close(self) -> None:
        await self._session.close()

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = _JSON,
    ) -> Any:
        """The JSON of an answer. Raises the error that the SC sent, or UnreachableError."""
        failure: UnreachableError | None = None
        data = None if body is None else json.dumps(body).encode()
        for address in tuple(self._addresses):
            try:
                answer = await self._call_one(address, method, path, query, data, content_type)
            except UnreachableError as error:
                failure = failure or error
                if method == "POST":
                    # It may have been done: asking another SC could do it twice.
                    break
                continue
            self._prefer(address)
            return answer
        raise failure or UnreachableError("no address of an SC is known")

    async def assignments(self, topic: str) -> Assignments:
        """Where the partitions of a topic are led; an unknown topic is absent.

        What a later SC says besides is left out. Raises ProtocolError for what no SC sends.
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
        self, path: str, query: Mapping[str, str]
    ) -> AsyncGenerator[ServerEvent, None]:
        """Server-sent events, until the SC ends the stream.

        Raises the error that the SC sent instead, UnreachableError when none answers, when the
        connection breaks, or when nothing comes for `STREAM_SILENCE_S`.
        """
        failure: UnreachableError | None = None
        for address in tuple(self._addresses):
            opened = False
            try:
                async for event in self._stream_one(address, path, query):
                    opened = True
                    self._prefer(address)
                    yield event
                return
            except UnreachableError as error:
                failure = failure or error
                if opened:
                    # The caller knows where it was, and begins again there.
                    raise
        raise failure or UnreachableError("no address of an SC is known")

    def _prefer(self, address: Address) -> None:
        if address != self._addresses[0]:
            self._addresses.remove(address)
            self._addresses.insert(0, address)

    async def _call_one(
        self,
        address: Address,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        data: bytes | None,
        content_type: str,
    ) -> Any:
        headers = {} if data is None else {"Content-Type": content_type}
        with _asking(address):
            async with self._session.request(
                method, f"http://{address}{path}", params=query, data=data, headers=headers
            ) as response:
                if response.status >= 400:
                    raise await _refusal(response, address)
                return await response.json()

    async def _stream_one(
        self, address: Address, path: str, query: Mapping[str, str]
    ) -> AsyncGenerator[ServerEvent, None]:
        patience = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=STREAM_SILENCE_S
        )
        parser = EventParser()
        with _asking(address):
            async with self._session.get(
                f"http://{address}{path}", params=query, timeout=patience
            ) as response:
                if response.status >= 400:
                    raise await _refusal(response, address)
                async for chunk in response.content.iter_any():
                    for event in parser.feed(chunk):
                        yield event


def parse_answer(cls: type[Kind], answer: Any) -> Kind:
    """An object that an SC sent. Raises RunnelError where the SC knows fields that we do not."""
    try:
        obj = cls.model_validate(answer)
        with understood(f"a {cls.kind_name()}"):
            # It is read where there is nobody to tell.
            _ = obj.revision
        return obj
    except pydantic.ValidationError as error:
        raise RunnelError(
            f"the SC sent a {cls.kind_name()} that this client does not understand; install"
            f" the client of the cluster's version. {error.errors()[0]['loc']}:"
            f" {error.errors()[0]['msg']}"
        ) from error


@contextmanager
def understood(what: str) -> Iterator[None]:
    """What is of another form than an SC sends ``what`` in, as RunnelError that says so."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        raise RunnelError(
            f"the SC sent {what} that this client does not understand; install the client of the"
            f" cluster's version. {type(error).__name__}: {error}"
        ) from error


def _header(text: str) -> str:
    """Text as a header can carry it: printable ASCII, not too long."""
    return "".join(c if c.isascii() and c.isprintable() else "?" for c in text)[:200]


@contextmanager
def _asking(address: Address) -> Iterator[None]:
    """What goes wrong on the way to an SC, as UnreachableError that says why."""
    try:
        yield
    except TimeoutError:
        raise _unreachable(address, "no answer in time") from None
    except aiohttp.ClientConnectorDNSError as error:
        raise _unreachable(address, f"host {address.host!r} is not known") from error
    except aiohttp.ClientConnectorError as error:
        raise _unreachable(address, os.strerror(error.errno or 0).lower()) from error
    except (aiohttp.ClientPayloadError, ConnectionError) as error:
        raise _unreachable(address, "the connection broke") from error
    except RecursionError:
        # Without its cause: that one is a thousand frames long.
        raise _unreachable(address, "its answer is nested too deep") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise _unreachable(address, str(error) or type(error).__name__) from error


def _unreachable(address: Address, why: str) -> UnreachableError:
    return UnreachableError(
        f"no SC answers at {address} ({why}); is the cluster running? runnel cluster status"
    )


async def _refusal(response: aiohttp.ClientResponse, address: Address) -> RunnelError:
    try:
        answer = await response.json(content_type=None)
        return error_from(
            str(answer["code"]), str(answer["message"]), dict(answer.get("details") or {})
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return RunnelError(
            f"{address} answered HTTP {response.status} {response.reason or ''} without saying"
            " why; is this the public port of an SC? If so, its log says more"
        )
