"""Reads objects with one blocking HTTP request each: for a command that reads once and ends.

Such a command would spend most of its processor time on importing a client that can do more.
Neighbours: `runnel.admin.reads` builds the requests, `runnel.admin.http` is the transport of a
client that stays connected.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import threading
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from runnel.admin.calls import (
    BY_HEADER,
    CONNECT_TIMEOUT_S,
    REQUEST_TIMEOUT_S,
    ScCalls,
    refusal,
    unreachable,
)
from runnel.admin.reads import ObjectReads, Selector
from runnel.net.address import Address
from runnel.profile import default_sc
from schemas.objects.metadata import Object

T = TypeVar("T")


class OneShotReads:
    """`runnel.admin.reads.ObjectReads`, blocking, with a connection for every call."""

    def __init__(self, address: str | None = None, by: str | None = None) -> None:
        """Arguments as of `runnel.connect`. It sends nothing before the first call."""
        calls = _BlockingCalls.parse(default_sc() if address is None else address, by)
        self._reads = ObjectReads(calls)

    def get(self, kind: str, name: str) -> Object:
        """One object. Raises NotFoundError that suggests the nearest name."""
        return _result(self._reads.get(kind, name))

    def list(self, kind: str, selector: Selector | None = None) -> list[Object]:
        """All objects of a kind, or the selected ones: see `ObjectReads.list`."""
        return _result(self._reads.list(kind, selector))


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
        headers = {BY_HEADER: self.by}
        if data is not None:
            headers["Content-Type"] = content_type
        target = quote(path) + (f"?{urlencode(query)}" if query else "")
        connection = http.client.HTTPConnection(
            address.host, address.port, timeout=CONNECT_TIMEOUT_S
        )
        with closing(connection), _asking(address):
            _connect(connection, address)
            with _ended_after(connection.sock, REQUEST_TIMEOUT_S):
                connection.request(method, target, data, headers)
                response = connection.getresponse()
                body = response.read()
            if response.status >= 400:
                raise refusal(address, response.status, response.reason, body)
            return json.loads(body)


def _connect(connection: http.client.HTTPConnection, address: Address) -> None:
    try:
        connection.connect()
    except TimeoutError:
        raise
    except socket.gaierror as error:
        raise unreachable(address, f"host {address.host!r} is not known") from error
    except OSError as error:
        raise unreachable(address, os.strerror(error.errno or 0).lower()) from error
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
    except (http.client.HTTPException, OSError):
        if late.is_set():
            raise TimeoutError from None
        raise
    finally:
        timer.cancel()
    if late.is_set():
        raise TimeoutError


@contextmanager
def _asking(address: Address) -> Iterator[None]:
    """Turns network errors on the way to an SC into UnreachableError with the reason."""
    try:
        yield
    except TimeoutError:
        raise unreachable(address, "no answer in time") from None
    except http.client.RemoteDisconnected as error:
        raise unreachable(address, "Server disconnected") from error
    except (http.client.IncompleteRead, ConnectionError) as error:
        raise unreachable(address, "the connection broke") from error
    except RecursionError:
        # Without its cause: that one is a thousand frames long.
        raise unreachable(address, "its answer is nested too deep") from None
    except (http.client.HTTPException, OSError, ValueError) as error:
        raise unreachable(address, str(error) or type(error).__name__) from error


def _result(reading: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that awaits only `_BlockingCalls`, so never waits."""
    try:
        reading.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    reading.close()
    raise AssertionError("a blocking call has returned when it is waited for")
