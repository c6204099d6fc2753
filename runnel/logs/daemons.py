"""Gathers log lines from the SC and all SPUs, in the order of their times.

Every daemon keeps its last lines in memory and is asked by itself, so lines of an SPU that has lost
its SC are there, too. A daemon that does not answer is named, and the others are shown without it.
Hosts whose clocks differ mix their lines accordingly.

Neighbour: `schemas.daemon.log_ring`, the daemons' side.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

from runnel.admin.calls import ScCalls, understood
from runnel.admin.client import Admin
from runnel.admin.http import ScClient
from runnel.net.connection import SpuConnection
from runnel.net.spus import connect_to
from schemas.daemon.log_options import LogLevel
from schemas.daemon.log_ring import DEFAULT_ANSWER_LINES, LogPosition
from schemas.errors import (
    InvalidRequestError,
    NotFoundError,
    ProtocolError,
    RunnelError,
    UnsupportedError,
)
from schemas.objects.spu import Spu
from schemas.wire.log_line_requests import ListLogLinesRequest, ListLogLinesResponse
from schemas.wire.protocol import Api

#: How many SPUs are asked at the same time.
_AT_ONCE: Final = 32
_TIMEOUT_S: Final = 10.0
#: The last second of the year 9999.
_MOST_US: Final = 253_402_300_799_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

LogLine = dict[str, Any]
"""A line as its daemon logged it: `timestamp`, `level`, `event`, `process`, `module`, `cause`, and
fields of its own."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which lines: from a time on, of a level or more severe ones, of one cause; of each daemon the
    newest ``limit`` of these."""

    since: datetime | None = None
    level: LogLevel = LogLevel.DEBUG
    cause: str | None = None
    limit: int = DEFAULT_ANSWER_LINES


@dataclass(frozen=True, slots=True)
class _Answer:
    lines: list[LogLine]
    next: LogPosition
    complete: bool
    kept_since: datetime | None


class _Source(Protocol):
    """One daemon."""

    name: str

    async def read(self, wanted: Wanted, after: LogPosition | None) -> _Answer: ...

    async def close(self) -> None: ...


@dataclass(slots=True)
class LogLines:
    """Lines of all daemons that answered, the oldest first.

    ``away`` says by name why a daemon did not answer, and ``notes`` what is missing of others.
    """

    lines: list[LogLine] = field(default_factory=list)
    away: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


class DaemonLogs:
    """The logs of the SC (unless ``sc`` is None) and of SPUs. Close it in the end."""

    def __init__(self, sc: ScCalls | None, spus: Sequence[Spu]) -> None:
        self._sources: list[_Source] = [] if sc is None else [_ScSource(sc)]
        self._sources += map(_SpuSource, spus)
        self._after: dict[str, LogPosition] = {}
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def read(self, wanted: Wanted) -> LogLines:
        """The lines that all daemons have; from the second call on, those that came since."""
        gathered = LogLines()
        await asyncio.gather(*(self._read(source, wanted, gathered) for source in self._sources))
        gathered.lines = sorted(gathered.lines, key=line_time)
        gathered.notes.sort()
        gathered.away = dict(sorted(gathered.away.items()))
        return gathered

    async def close(self) -> None:
        """End all connections."""
        await asyncio.gather(*(source.close() for source in self._sources))

    async def _read(self, source: _Source, wanted: Wanted, gathered: LogLines) -> None:
        after = self._after.get(source.name)
        async with self._slots:
            try:
                answer = await source.read(wanted, after)
            except InvalidRequestError:
                # The question is at fault, not the daemon.
                raise
            except RunnelError as error:
                gathered.away[source.name] = error.message
                return
        self._after[source.name] = answer.next
        gathered.lines += answer.lines
        if after is not None:
            # The rest comes with the next call.
            return
        if not answer.complete:
            gathered.notes.append(
                f"{source.name} has more lines than one answer holds; these are its newest ones"
            )
        since = wanted.since or _EPOCH
        if answer.kept_since is not None and answer.kept_since > since:
            gathered.notes.append(
                f"{source.name} keeps no lines from before {answer.kept_since.isoformat()}"
            )


async def read_logs(sc: ScClient, wanted: Wanted, spus: Sequence[str] = ()) -> LogLines:
    """Lines of the SC and all SPUs, or of these SPUs alone, by name or id. Raises NotFoundError for
    an unknown SPU, UnreachableError if no SC answers."""
    known = [obj for obj in await Admin(sc).list("spus") if isinstance(obj, Spu)]
    daemons = DaemonLogs(None if spus else sc, choose(known, spus))
    try:
        return await daemons.read(wanted)
    finally:
        await daemons.close()


def choose(spus: Sequence[Spu], names: Sequence[str]) -> list[Spu]:
    """SPUs by their names or ids, all of them if none is named. Raises NotFoundError."""
    if not names:
        return list(spus)
    found = []
    for name in names:
        chosen = [spu for spu in spus if name in (spu.name, str(spu.spec.spu_id))]
        if not chosen:
            known = ", ".join(spu.name for spu in spus) or "none is registered"
            raise NotFoundError(f"there is no SPU {name!r}; SPUs: {known}")
        found += [spu for spu in chosen if spu not in found]
    return found


def line_time(line: LogLine) -> datetime:
    """When a line was logged; the beginning of all times if it does not say."""
    try:
        found = datetime.fromisoformat(str(line.get("timestamp")))
    except ValueError:
        return _EPOCH
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


class _ScSource:
    """The SC that answers."""

    def __init__(self, sc: ScCalls) -> None:
        self.name = "sc"
        self._sc = sc

    async def read(self, wanted: Wanted, after: LogPosition | None) -> _Answer:
        query = {"level": str(wanted.level), "limit": str(wanted.limit)}
        if wanted.since is not None:
            query["since"] = wanted.since.isoformat()
        if wanted.cause is not None:
            query["cause"] = wanted.cause
        if after is not None:
            query["after"] = str(after)
        try:
            answer = await self._sc.call("GET", "/v1/logs", query=query)
        except NotFoundError as error:
            raise UnsupportedError(
                "the SC is of an earlier version, which does not give its log; upgrade it"
            ) from error
        with understood("its log lines"):
            kept = answer["keptSince"]
            return _Answer(
                [dict(line) for line in answer["lines"]],
                LogPosition.parse(answer["next"]),
                bool(answer["complete"]),
                None if kept is None else datetime.fromisoformat(kept),
            )

    async def close(self) -> None:
        """The caller's client stays open."""


class _SpuSource:
    """One SPU, over a connection that is kept for the next question."""

    def __init__(self, spu: Spu) -> None:
        self.name = f"spu-{spu.spec.spu_id}"
        self._spu = spu
        self._connection: SpuConnection | None = None

    async def read(self, wanted: Wanted, after: LogPosition | None) -> _Answer:
        if self._connection is None or not self._connection.usable:
            await self.close()
            self._connection = await connect_to(self._spu)
        request = ListLogLinesRequest(
            since_us=0 if wanted.since is None else max(0, _microseconds(wanted.since)),
            limit=wanted.limit,
            level=wanted.level.number,
            ring=0 if after is None else after.ring,
            after=0 if after is None else after.after,
        )
        cause = (wanted.cause or "").encode()
        try:
            response = await self._connection.request(
                Api.LIST_LOG_LINES, request.pack(), cause, timeout_s=_TIMEOUT_S
            )
        except UnsupportedError as error:
            raise UnsupportedError(
                f"SPU {self._spu.spec.spu_id} is of an earlier version, which does not give its"
                " log; upgrade it"
            ) from error
        bounds = ListLogLinesResponse.unpack(response.fixed)
        kept = bounds.kept_since_us
        return _Answer(
            _parsed(response.tail),
            LogPosition(bounds.ring, bounds.after),
            bool(bounds.complete),
            _EPOCH + timedelta(microseconds=min(kept, _MOST_US)) if kept else None,
        )

    async def close(self) -> None:
        if self._connection is not None:
            with suppress(RunnelError):
                await self._connection.close()
            self._connection = None


def _microseconds(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(microseconds=1)


def _parsed(tail: memoryview) -> list[LogLine]:
    """The lines in the tail of an answer. Raises ProtocolError."""
    try:
        lines = [json.loads(line) for line in bytes(tail).splitlines()]
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"log lines of an SPU do not parse: {error!r}") from error
    if not all(isinstance(line, dict) for line in lines):
        raise ProtocolError("a log line of an SPU is not a mapping")
    return lines
