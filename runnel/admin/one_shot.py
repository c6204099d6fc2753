"""Calls an SC with one blocking HTTP request each: for a command that asks little and ends.

Such a command would spend most of its processor time on importing a client that can do more. Only
plain answers of an SC are read here. Whatever else answers, such as a proxy that redirects or
compresses, is asked again by the client that can do more: so both understand and refuse the same.

Neighbours: `runnel.admin.reads` builds the requests, `runnel.admin.http` is the transport of a
client that stays connected.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import threading
import time
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlencode

from runnel.admin.calls import (
    AWAY_S,
    BY_HEADER,
    HEALTH,
    JSON,
    REQUEST_TIMEOUT_S,
    SAFE,
    SILENT_S,
    UNKNOWN_FIELDS,
    WARNING_HEADER,
    Presence,
    ScCalls,
    not_an_sc,
    refusal,
    unreachable,
)
from runnel.admin.reads import ObjectReads, Selector
from runnel.contexts import default_sc
from runnel.net.address import Address
from schemas.objects.metadata import Object

if TYPE_CHECKING:
    from runnel.admin.blocking import BlockingAdmin

T = TypeVar("T")
_PIECE_BYTES: Final = 1 << 16
_CONNECT_TIMEOUT_S: Final = 5.0


class OneShotReads:
    """`runnel.admin.reads.ObjectReads`, blocking, with a connection for every call."""

    def __init__(self, address: str | None = None, by: str | None = None) -> None:
        """Arguments as of `runnel.connect`. It sends nothing before the first call."""
        self._address = default_sc() if address is None else address
        self._by = by
        self._reads = ObjectReads(_BlockingCalls.parse(self._address, by))

    def get(self, kind: str, name: str) -> Object:
        """One object. Raises NotFoundError that suggests the nearest name."""
        try:
            return _result(self._reads.get(kind, name))
        except _UnusualAnswerError:
            with self._administer() as connected:
                return connected.get(kind, name)

    def list(
        self, kind: str, selector: Selector | None = None, *, show_system: bool = False
    ) -> list[Object]:
        """All objects of a kind, or the selected ones: see `ObjectReads.list`."""
        try:
            return _result(self._reads.list(kind, selector, show_system=show_system))
        except _UnusualAnswerError:
            with self._administer() as connected:
                return connected.list(kind, selector, show_system=show_system)

    def _administer(self) -> AbstractContextManager[BlockingAdmin]:
        # Here, because it is rarely needed and takes long to import.
        from runnel.admin.blocking import administer

        return administer(self._address, self._by)


class OneShotCalls:
    """`ScCalls.call`, blocking, with a connection for every call: for an SC that no proxy is in
    front of, and for threads that call once in a while."""

    def __init__(self, address: str, by: str | None = None) -> None:
        """Arguments as of `ScCalls.parse`. It sends nothing before the first call."""
        self._calls = _BlockingCalls.parse(address, by)

    def call(self, method: str, path: str, *, body: Any = None, repeatable: bool = False) -> Any:
        """The JSON of an answer. Raises the error that the SC sent, or UnreachableError.
        ``repeatable``: as of `ScCalls.call`."""
        try:
            return _result(self._calls.call(method, path, body=body, repeatable=repeatable))
        except _UnusualAnswerError as error:
            why = "its answer is no plain JSON" if error.__cause__ is None else str(error.__cause__)
            raise not_an_sc(self._calls.address, why) from error


class _UnusualAnswerError(Exception):
    """An answer that is not read here."""


class _BlockingCalls(ScCalls):
    """Calls that block: they have returned before their result is awaited."""

    async def _call_one(
        self,
        address: Address,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        data: bytes | None,
        content_type: str,
    ) -> Any:
        headers = {BY_HEADER: self.by, **UNKNOWN_FIELDS}
        if data is not None:
            headers["Content-Type"] = content_type
        target = path + (f"?{urlencode(query)}" if query else "")
        connection = http.client.HTTPConnection(
            address.host, address.port, timeout=_CONNECT_TIMEOUT_S
        )
        with closing(connection), _asking(address, method):
            _connect(connection, address)
            with _ended_after(connection.sock, REQUEST_TIMEOUT_S):
                connection.request(method, target, data, headers)
                # It outlives the connection if the other end is to close that.
                with closing(connection.getresponse()) as response:
                    body = _body(response)
                    warnings = response.headers.get_all(WARNING_HEADER, [])
            if response.status >= 400:
                raise refusal(address, response.status, response.reason, body)
            self.warn(method, warnings)
            return json.loads(body)

    async def _look_at(self, address: Address) -> Presence:
        connection = http.client.HTTPConnection(address.host, address.port, timeout=AWAY_S)
        with closing(connection):
            try:
                connection.connect()
            except TimeoutError:
                return Presence.AWAY
            except OSError:
                return Presence.GONE
            except ValueError:
                # No name of a host is like that: the call itself says so.
                return Presence.THERE
            connection.sock.settimeout(SILENT_S)
            try:
                connection.request("GET", HEALTH, headers={BY_HEADER: self.by})
                connection.getresponse().close()
            except TimeoutError:
                return Presence.SILENT
            except OSError:
                return Presence.GONE
            except (http.client.HTTPException, ValueError):
                # It is no SC: the call itself says so.
                return Presence.THERE
        return Presence.THERE

    async def _pause(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - nothing else runs


def _body(response: http.client.HTTPResponse) -> bytes:
    """The body of a plain answer, read in pieces: its length is only what the other end says.

    Raises _UnusualAnswerError for any other answer.
    """
    length = response.getheader("Content-Length", "0")
    if (
        not (response.status in (200, 201) or response.status >= 400)
        or response.headers.get_content_type() != JSON
        or response.getheader("Content-Encoding") is not None
        or not (length.isascii() and length.isdecimal())
    ):
        raise _UnusualAnswerError
    body = bytearray()
    while piece := response.read(_PIECE_BYTES):
        body += piece
    if response.length:
        raise _UnusualAnswerError
    return bytes(body)


def _connect(connection: http.client.HTTPConnection, address: Address) -> None:
    try:
        connection.connect()
    except TimeoutError:
        raise unreachable(address, "no answer in time", connected=False) from None
    except socket.gaierror as error:
        why = f"host {address.host!r} is not known"
        raise unreachable(address, why, connected=False) from error
    except OSError as error:
        why = os.strerror(error.errno or 0).lower()
        raise unreachable(address, why, connected=False) from error
    connection.sock.settimeout(REQUEST_TIMEOUT_S)


@contextmanager
def _ended_after(connected: socket.socket, seconds: float) -> Iterator[None]:
    """Shuts the socket down when the whole request has taken so long, and raises TimeoutError.

    The socket's own timeout bounds each read only: an SC that sends a byte now and then would hold
    the command for ever.
    """
    late = threading.Event()

    def end() -> None:
        late.set()
        with suppress(OSError):
            connected.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    except (http.client.HTTPException, OSError, _UnusualAnswerError):
        if late.is_set():
            raise TimeoutError from None
        raise
    finally:
        timer.cancel()
    if late.is_set():
        raise TimeoutError


@contextmanager
def _asking(address: Address, method: str) -> Iterator[None]:
    """Turns network errors on the way to an SC into UnreachableError with the reason, those of
    questions only where the client that can do more need not ask again."""
    try:
        yield
    except TimeoutError:
        raise unreachable(address, "no answer in time") from None
    except (ConnectionError, http.client.IncompleteRead) as error:
        if method in SAFE:
            raise _UnusualAnswerError from error
        raise unreachable(address, "the connection broke") from None
    except (http.client.HTTPException, OSError, ValueError, RecursionError) as error:
        raise _UnusualAnswerError from error


def _result(reading: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that awaits only `_BlockingCalls`, so never waits."""
    try:
        reading.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    reading.close()
    raise AssertionError("a blocking call has returned when it is waited for")
