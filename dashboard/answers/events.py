"""Changes of objects, log lines, and all that one causality id has led to."""

from __future__ import annotations

from typing import Any, Final

from dashboard.answers.cluster import SharedCluster
from runnel.admin.http import ScClient
from runnel.logs.daemons import DaemonLogs, Wanted, choose
from runnel.logs.events import list_events
from runnel.logs.trace import trace
from schemas.daemon.log_options import LogLevel
from schemas.objects.spu import Spu

MOST_EVENTS: Final = 500
MOST_LINES: Final = 200


async def events(sc: ScClient, about: str | None, cause: str | None) -> dict[str, Any]:
    """The newest events, the newest last."""
    found = await list_events(sc, about=about, cause=cause, limit=MOST_EVENTS)
    return {"events": [event.to_json() for event in found]}


async def traced(sc: ScClient, cause: str) -> dict[str, Any]:
    """The steps that have a causality id, in the order of their times."""
    found = await trace(sc, cause)
    return {
        "steps": [{**step.to_json(), "depth": step.depth} for step in found.steps],
        "away": found.away,
        "notes": found.notes,
    }


async def log_lines(
    shared: SharedCluster, sc: ScClient, daemon: str, level: LogLevel
) -> dict[str, Any]:
    """The last log lines of the SC (``sc``) or of an SPU."""
    if daemon == "sc":
        logs = DaemonLogs(sc, ())
    else:
        cluster = await shared.get()
        spus = [obj for obj in await cluster.list("spus") if isinstance(obj, Spu)]
        logs = DaemonLogs(None, choose(spus, [daemon]))
    try:
        found = await logs.read(Wanted(level=level, limit=MOST_LINES))
    finally:
        await logs.close()
    return {"lines": found.lines[-MOST_LINES:], "away": found.away, "notes": found.notes}
