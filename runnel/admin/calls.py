"""Shared by all clients of the SC's REST API: trying SCs in turn, parsing answers and errors.

No I/O here. `ScCalls` is finished by a transport: `runnel.admin.http` for a client that stays
connected, `runnel.admin.one_shot` for a command that reads once and ends.
"""

from __future__ import annotations

import json
import logging
import math
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Any, Final, Self, TypeVar
from urllib.parse import quote

import pydantic

from runnel.net.address import Address, parse_addresses
from runnel.utf8 import as_utf8
from schemas.errors import (
    DeadlineExceededError,
    InvalidRequestError,
    NotReadyError,
    RunnelError,
    UnreachableError,
    error_from,
)
from schemas.model import Model
from schemas.objects.kinds import SCOPED, full_name
from schemas.objects.metadata import Object

REQUEST_TIMEOUT_S: Final = 30.0
#: The default name of the writer: stored beside each object and shown in its history.
DEFAULT_BY: Final = "runnel-python"
#: The header that names the writer.
BY_HEADER: Final = "X-Runnel-By"
#: The header by which this client says that it passes over unknown fields of a status.
UNKNOWN_FIELDS: Final = {"X-Runnel-Unknown-Fields": "ignore"}
JSON: Final = "application/json"
#: The detail of an error that says when to ask again: nothing was done.
RETRY_AFTER: Final = "retryAfterMs"
#: The detail of an error of an SC that may be the only one that does not know the answer, as where
#: it alone is cut off from the KV: nothing was done.
ASK_ANOTHER: Final = "askAnother"
#: What every SC answers at once, whether it is well or not.
HEALTH: Final = "/health"
#: Of several SCs, one that does not answer this so long after it was connected to is asked last:
#: where a process stands still, its kernel accepts connections all the same.
SILENT_S: Final = 1.5
#: The network carries nothing to an address that cannot be connected to within this time.
AWAY_S: Final = 1.5
#: For so long an SC that has answered is taken to be there.
FRESH_S: Final = 1.0
#: How long a call waits for an SC to be elected (twice the time of a lease, and more), or for
#: anything else that an SC says to ask again for.
NOT_READY_S: Final = 15.0
#: How long a call waits before it says what it waits for.
SILENT_WAIT_S: Final = 3.0
_NUMBER: Final = re.compile(r"\d+")
#: How long after an answer that did not come a repeatable request is sent again.
UNKNOWN_S: Final = 0.5
#: Methods of requests that change nothing.
SAFE: Final = frozenset({"GET"})
#: The header with what the SC warns of, once for each warning.
WARNING_HEADER: Final = "Warning"


class Presence(Enum):
    """What there is at the address of an SC."""

    THERE = "something answers"
    SILENT = "something listens, and does not answer"
    AWAY = "nothing comes back from there"
    GONE = "nobody listens"


OnWarning = Callable[[str], None]
"""Takes what the SC warns of in an object that it has accepted: a sentence that begins with the
path of a field."""

_WARNING: Final = re.compile(r'299 [^ ]+ "((?:[^"\\]|\\.)*)"')
_log = logging.getLogger("runnel")

Kind = TypeVar("Kind", bound=Object)


class ScCalls(ABC):
    """Calls to the SCs of a cluster; the one that answered last is asked first.

    ``by`` is the writer's name, as histories and conflicts show it. Warnings of the SC, and what a
    call waits for that takes long, go to the log ``runnel``, unless `on_warning` is set.
    """

    def __init__(self, addresses: tuple[Address, ...], by: str | None = None) -> None:
        self._addresses = list(addresses)
        self.on_warning: OnWarning = _log.warning
        #: How long a call waits while an SC says that it would have to wait.
        self.not_ready_s = NOT_READY_S
        self.by = _header(by or DEFAULT_BY)
        #: What the last answer to a question warned of, without its numbers.
        self._warned: set[str] = set()
        #: When it was said last what calls wait for, on the monotonic clock.
        self._told_of_wait_s = -math.inf
        #: When the SC that is asked first has answered last, on the monotonic clock.
        self._answered_s = -FRESH_S

    def warn(self, method: str, headers: Iterable[str]) -> None:
        """Pass on what an answer warns of. What answers to questions repeat is passed on once, also
        if it now says of how many seconds: a client may ask the same every moment."""
        found = [(_NUMBER.sub("#", text), text) for text in parse_warnings(headers)]
        told = self._warned if method == "GET" else set()
        for kind, text in found:
            if kind not in told:
                self.on_warning(text)
        if method == "GET":
            self._warned = {kind for kind, _ in found}

    @classmethod
    def parse(cls, text: str, by: str | None = None) -> Self:
        """From ``host:port[,host:port…]``. Raises InvalidRequestError."""
        return cls(parse_addresses(text), by)

    @property
    def address(self) -> Address:
        """The SC that is asked first."""
        return self._addresses[0]

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = JSON,
        repeatable: bool = False,
    ) -> Any:
        """The JSON of an answer, None if it has none. Waits while no SC leads, or a stream is being
        created, at most for `NOT_READY_S`. Raises the error that the SC sent, or UnreachableError.

        ``path`` is percent-encoded, as `object_path` gives it. A question is asked of one SC after
        the other. Whatever else an SC was sent and did not answer may have been carried out, and
        no other SC gets it then: somebody may have made the object anew, or have written it, since.
        ``repeatable``: the same request twice is as good as once, so it is sent again if it is not
        known whether the first one was carried out, as when the SC that led stands still.
        """
        data = None if body is None else json.dumps(body).encode()
        began_s = time.monotonic()
        deadline_s = began_s + self.not_ready_s
        unknown: RunnelError | None = None
        while True:
            try:
                return await self._call_any(method, path, query, data, content_type)
            except NotReadyError as error:
                # Nothing was done, and what is missing comes by itself.
                wait_ms = error.details.get(RETRY_AFTER)
                if not isinstance(wait_ms, int) or time.monotonic() > deadline_s:
                    if unknown is not None:
                        # Nothing but the last time.
                        raise unknown from error
                    raise
                self._tell_of_wait(error.message, began_s)
                await self._pause(wait_ms / 1000)
            except (UnreachableError, DeadlineExceededError) as error:
                if not repeatable or (unknown is None and isinstance(error, NotConnectedError)):
                    raise
                if unknown is None:
                    # The first answer that did not come may have taken longer than that.
                    unknown, deadline_s = error, time.monotonic() + self.not_ready_s
                if time.monotonic() > deadline_s:
                    raise unknown from error
                await self._pause(UNKNOWN_S)

    async def _call_any(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        data: bytes | None,
        content_type: str,
    ) -> Any:
        failures = list[UnreachableError]()
        deferred: NotReadyError | None = None
        for address in await self._in_turn():
            if deferred is not None and await self._look_at(address) is not Presence.THERE:
                continue
            try:
                answer = await self._call_one(address, method, path, query, data, content_type)
            except UnreachableError as error:
                failures.append(error)
                self._answered_s = -FRESH_S
                if method not in SAFE and not isinstance(error, NotConnectedError):
                    # The SC may have carried it out: asking another SC could do it twice.
                    raise none_answers(failures, written=True) from error
                continue
            except NotReadyError as error:
                self._defer(address, error)
                deferred = deferred or error
                continue
            self._prefer(address)
            return answer
        raise deferred or none_answers(failures)

    @abstractmethod
    async def _call_one(
        self,
        address: Address,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        data: bytes | None,
        content_type: str,
    ) -> Any:
        """The JSON of the answer of one SC. Raises as `call` does."""

    @abstractmethod
    async def _look_at(self, address: Address) -> Presence:
        """Whether something answers `HEALTH` at the address, however it does, within `SILENT_S` of
        the connection, which may take `AWAY_S`."""

    @abstractmethod
    async def _pause(self, seconds: float) -> None:
        """Let time pass."""

    async def _in_turn(self) -> tuple[Address, ...]:
        """The SCs in the order in which they are to be asked: those that do not answer at all come
        last. Which ones these are is only looked up until one answers. Raises NotConnectedError if
        none does within `NOT_READY_S`: what is sent to a process that stands still may be done
        whenever that goes on. Raises it at once if the network carries to none of them: whoever
        knows an answer from before goes on with that.
        """
        known = tuple(self._addresses)
        if len(known) < 2 or time.monotonic() - self._answered_s < FRESH_S:
            return known
        began_s = time.monotonic()
        deadline_s = began_s + self.not_ready_s
        where = ", ".join(map(str, known))
        while True:
            round_began_s = time.monotonic()
            found: set[Presence] = set()
            for number, address in enumerate(known):
                found.add(seen := await self._look_at(address))
                if seen is Presence.THERE:
                    return (*known[number:], *known[:number])
            if found == {Presence.GONE}:
                # Each says why.
                return known
            now_s = time.monotonic()
            next_ends_s = now_s + UNKNOWN_S + (now_s - round_began_s)
            if Presence.SILENT not in found or next_ends_s > deadline_s:
                raise NotConnectedError(
                    f"no SC answers at {where}, so nothing was sent; is the cluster running? runnel"
                    " cluster status"
                )
            self._tell_of_wait(f"no SC answers at {where}", began_s)
            await self._pause(UNKNOWN_S)

    def _tell_of_wait(self, why: str, began_s: float) -> None:
        now_s = time.monotonic()
        if now_s - began_s >= SILENT_WAIT_S and now_s - self._told_of_wait_s >= NOT_READY_S:
            self._told_of_wait_s = now_s
            self.on_warning(f"still trying: {why}")

    def _defer(self, address: Address, error: NotReadyError) -> None:
        """Ask an SC last from now on that may be the only one that does not know the answer. Raises
        its error if it is not."""
        if not error.details.get(ASK_ANOTHER):
            raise error
        self._ask_last(address)

    def _ask_last(self, address: Address) -> None:
        self._addresses.remove(address)
        self._addresses.append(address)
        # Of the one that is first now nothing is known.
        self._answered_s = -FRESH_S

    def _prefer(self, address: Address) -> None:
        self._answered_s = time.monotonic()
        if address != self._addresses[0]:
            self._addresses.remove(address)
            self._addresses.insert(0, address)


def parse_warnings(headers: Iterable[str]) -> list[str]:
    """The sentences in headers `WARNING_HEADER`; others than an SC's are left out."""
    found = (_WARNING.fullmatch(value) for value in headers)
    return [re.sub(r"\\(.)", r"\1", match[1]) for match in found if match is not None]


def object_path(cls: type[Object], name: str, below: str = "") -> str:
    """The path of an object, or of something ``below`` it, whatever characters the name has.

    A name that no object can have must not turn into a path, a query or the name of another one.
    """
    scope, slash, rest = full_name(cls, name).partition("/")
    parts = (scope, rest) if slash and cls in SCOPED else (name,)
    what = f"name of a {cls.kind_name().lower()}"
    if not all(parts):
        raise InvalidRequestError(f"{what}: {name!r} is empty, or a part of it is")
    named = (quote(as_utf8(what, part), safe="") for part in parts)
    path = "/".join((cls.PLURAL, *named))
    return f"/v1/{path}" + (f"/{below}" if below else "")


def parse_answer(cls: type[Kind], answer: Any) -> Kind:
    """An object that an SC sent. Fields of its status that a later version added are left out.
    Raises RunnelError where it has other fields that we do not know: they would be lost when it is
    sent back."""
    try:
        obj = cls.model_validate(_without_news(cls, answer))
        with understood(f"a {cls.kind_name()}"):
            # The warnings have no reader here.
            _ = obj.revision
        return obj
    except pydantic.ValidationError as error:
        raise RunnelError(
            f"the SC sent a {cls.kind_name()} that this client does not understand; install"
            f" the client of the cluster's version. {error.errors()[0]['loc']}:"
            f" {error.errors()[0]['msg']}"
        ) from error


def _without_news(cls: type[Object], answer: Any) -> Any:
    """An answer without the fields of the status that this version does not know."""
    status = answer.get("status") if isinstance(answer, dict) else None
    model = cls.model_fields["status"].annotation
    if not isinstance(status, dict) or not isinstance(model, type(Model)):
        return answer
    known = {field.alias or name for name, field in model.model_fields.items()}
    return {**answer, "status": {name: status[name] for name in status if name in known}}


@contextmanager
def understood(what: str) -> Iterator[None]:
    """The RunnelError for an answer that does not have the form in which an SC sends ``what``."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        raise RunnelError(
            f"the SC sent {what} that this client does not understand; install the client of the"
            f" cluster's version. {type(error).__name__}: {error}"
        ) from error


class NotConnectedError(UnreachableError):
    """There was no connection to the SC: nothing was sent."""


def unreachable(address: Address, why: str, *, connected: bool = True) -> UnreachableError:
    """The error for something at the address that does not answer like an SC; a NotConnectedError
    if it was never connected to."""
    kind = UnreachableError if connected else NotConnectedError
    return kind(_no_answer(f"{address} ({why})"), address=str(address), why=why)


def none_answers(
    failures: Sequence[UnreachableError], *, written: bool = False
) -> UnreachableError:
    """The error for SCs of which none answered, with what is wrong at each address; the first one
    if that was not `unreachable`. A NotConnectedError only if nothing was sent to any of them.
    ``written``: the last one was sent what changes something."""
    if len(failures) < 2 and not written:
        return failures[0] if failures else UnreachableError("no address of an SC is known")
    found = dict[str, list[str]]()
    for failure in failures:
        if (why := failure.details.get("why")) is not None:
            found.setdefault(why, []).append(failure.details["address"])
    where = ", ".join(f"{' and '.join(at)} ({why})" for why, at in found.items())
    message = _unknown_outcome(where) if written else _no_answer(where)
    sent = any(not isinstance(failure, NotConnectedError) for failure in failures)
    kind = UnreachableError if sent else NotConnectedError
    return kind(message if "why" in failures[0].details else failures[0].message)


def _no_answer(where: str) -> str:
    return f"no SC answers at {where}; is the cluster running? runnel cluster status"


def _unknown_outcome(where: str) -> str:
    return (
        f"no SC answers at {where}, and whether this was done is not known: look with runnel get or"
        " describe, then repeat it if it was not"
    )


def refusal(address: Address, status: int, reason: str | None, body: bytes) -> RunnelError:
    """The error that an SC sent, from an answer whose status is 400 or more."""
    try:
        answer = json.loads(body)
        return error_from(
            str(answer["code"]), str(answer["message"]), dict(answer.get("details") or {})
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        if status == 404:
            # An SC says what it does not find.
            return not_an_sc(address, "it has no such page")
        return RunnelError(
            f"{address} answered HTTP {status} {reason or ''} without saying"
            " why; is this the public port of an SC? If so, its log says more"
        )


def not_an_sc(address: Address, why: str) -> UnreachableError:
    """The error for an address where something else answers: a port of an SPU, for example."""
    return UnreachableError(
        f"{address} is not the public port of an SC ({why}); for a cluster on this machine, runnel"
        " cluster status shows its ports"
    )


def _header(text: str) -> str:
    """Text in a form that a header can carry: printable ASCII, not too long."""
    return "".join(c if c.isascii() and c.isprintable() else "?" for c in text)[:200]
