"""Everything with one causality id: log lines of all daemons, and changes of objects.

The SC lists the last changes of all objects. Of the objects that these or the lines name, the
history is read as well: it reaches back as far as the KV does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from runnel.admin.client import Admin
from runnel.admin.http import ScClient
from runnel.logs.daemons import LogLine, Wanted, line_time, read_logs
from runnel.logs.events import ObjectEvent, list_events
from schemas.daemon.log_ring import MAX_ANSWER_LINES
from schemas.errors import NotFoundError
from schemas.objects.kinds import BY_KIND

#: Most objects whose history is read, and most writes of each that are looked at.
_MOST_OBJECTS: Final = 50
_MOST_WRITES: Final = 100
_MOST_EVENTS: Final = 2_000
_OBJECT: Final = re.compile(r"([A-Z][A-Za-z]*)/(\S+)")
#: Objects that others belong to.
_OUTERMOST: Final = frozenset({"topic", "spugroup", "stream", "scope", "pipeline"})


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One line of a log, or one change of an object (then ``process`` is ``sc``)."""

    at: datetime
    process: str
    object: str | None
    what: LogLine | ObjectEvent

    @property
    def depth(self) -> int:
        """How far it is indented: what belongs to an object stands below it, and what an SPU does
        for it below that."""
        if self.process != "sc":
            return 2
        return 0 if self.object is None or self.object.split("/")[0] in _OUTERMOST else 1

    def to_json(self) -> dict[str, Any]:
        """The step as ``-o json`` prints it."""
        what = self.what
        named = {"change": what.to_json()} if isinstance(what, ObjectEvent) else {"line": what}
        return {
            "at": self.at.isoformat().replace("+00:00", "Z"),
            "process": self.process,
            "object": self.object,
            **named,
        }


@dataclass(frozen=True, slots=True)
class Trace:
    """The steps in the order of their times. ``away`` says by name why a daemon did not answer."""

    steps: tuple[TraceStep, ...]
    away: dict[str, str]
    notes: tuple[str, ...]


async def trace(sc: ScClient, cause: str) -> Trace:
    """Gather what has a causality id. Raises UnreachableError if no SC answers."""
    admin = Admin(sc)
    gathered = await read_logs(sc, Wanted(cause=cause, limit=MAX_ANSWER_LINES))
    notes = list(gathered.notes)
    events: tuple[ObjectEvent, ...] = ()
    try:
        events = await list_events(sc, cause=cause, limit=_MOST_EVENTS)
    except NotFoundError:
        notes.append("the SC is of an earlier version, which lists no events")
    known = {(event.kind, event.name, event.revision) for event in events}
    found = list(events)
    for kind, name in list(_named(events, gathered.lines))[:_MOST_OBJECTS]:
        # It may be deleted.
        with suppress(NotFoundError):
            history = await admin.history(kind, name, _MOST_WRITES)
            found += [
                ObjectEvent(
                    kind=kind,
                    name=name,
                    change="modified",
                    revision=entry.revision,
                    at=entry.at,
                    by=entry.by,
                    cause=cause,
                    resolution=entry.resolution,
                    reason=entry.reason,
                    changed=entry.changed,
                )
                for entry in history.entries
                if entry.cause == cause and (kind, name, entry.revision) not in known
            ]
    steps = [
        TraceStep(line_time(line), _process(line), _object(line), line) for line in gathered.lines
    ]
    steps += [
        TraceStep(line_time({"timestamp": event.at}), "sc", event.object, event)
        for event in sorted(found, key=lambda event: event.revision)
    ]
    # A change comes before what was logged about it in the same millisecond.
    steps.sort(key=lambda step: (_millisecond(step.at), not isinstance(step.what, ObjectEvent)))
    return Trace(tuple(steps), gathered.away, tuple(notes))


def _named(events: Iterable[ObjectEvent], lines: Iterable[LogLine]) -> dict[tuple[str, str], None]:
    """Objects that events or lines name, each once."""
    found = {(event.kind, event.name): None for event in events}
    for line in lines:
        match = _OBJECT.fullmatch(str(line.get("object", "")))
        if match is not None and match[1] in BY_KIND:
            found[match[1], match[2]] = None
    return found


def _process(line: LogLine) -> str:
    return str(line.get("process", "-"))


def _object(line: LogLine) -> str | None:
    match = _OBJECT.fullmatch(str(line.get("object", "")))
    if match is not None:
        return f"{match[1].lower()}/{match[2]}"
    partition = line.get("partition")
    return None if partition is None else f"partition/{partition}"


def _millisecond(time: datetime) -> datetime:
    return time.astimezone(UTC).replace(microsecond=time.microsecond // 1000 * 1000)
