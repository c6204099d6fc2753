"""What daemons did that no fault explains. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.chaos.whole.history import Ended, History
from tests.chaos.whole.plan import Kind

NO_ROOM: Final = "No space left on device"
"""What the last line of an SPU says that cannot run without room on its disk."""
DISK: Final = frozenset({Kind.SHORT_OF_ROOM.value, Kind.FULL.value})
NOTICED_S: Final = 10.0
"""So long after a disk has room again, an SPU that had found none may still be about to end."""


def wrong_ends(history: History) -> Iterator[str]:
    """Daemons that ended by themselves, though their disk was not full, or without saying so."""
    for ended in history.ended:
        if NO_ROOM not in ended.said or not _had_no_room(history, ended):
            yield f"{ended.daemon} ended by itself with {ended.code}: {ended.said}"


def _had_no_room(history: History, ended: Ended) -> bool:
    host = ended.daemon.partition("@")[2]
    return any(
        fault.begin_s <= ended.at_s <= fault.end_s + NOTICED_S
        for fault in history.faults
        if fault.kind in DISK and fault.host == host and fault.in_force
    )


def tracebacks(daemon: str, log: str) -> Iterator[str]:
    """That a daemon's log has them: no fault excuses one."""
    found = [line for line in log.splitlines() if "Traceback (most recent call last)" in line]
    if found:
        yield f"{daemon} logged {len(found)} tracebacks, the first one: {found[0][:500]}"
