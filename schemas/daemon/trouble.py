"""What a daemon complained about last, from its log.

Neighbour: `schemas.daemon.logs` writes the lines. This module imports none of what that needs.
"""

from __future__ import annotations

import json
from pathlib import Path


def last_trouble(log: Path, begin: int = 0) -> str:
    """The last complaint of a daemon after a position in its log: a warning, an error, or text
    that is no log line, such as why it cannot run. Empty if there is none."""
    try:
        with log.open("rb") as file:
            file.seek(begin)
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    for line in reversed([line for line in text.splitlines() if line.strip()]):
        try:
            event = json.loads(line)
        except ValueError:
            return line
        if not isinstance(event, dict):
            return line
        if event.get("level") in ("warning", "error", "critical", "warn", "fatal"):
            # etcd says `msg` and `error`.
            what = event.get("event") or event.get("msg")
            keys = ("reason", "why", "exception", "error")
            why = next((event[key] for key in keys if event.get(key)), None)
            return f"{what}: {why}" if why else str(what)
    return ""
