"""The SCs that an SPU knows: those of its configuration, and those that an SC has named.

What was heard is kept in a file of the log directory: the hosts of all SCs of the configuration may
be replaced, one after the other, while the SPU is away for a part of that time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from schemas.daemon.logs import get_logger
from spu.storage.durable import replace_file

FILE: Final = "controllers.json"
#: Of a list that is longer, the rest is left out.
MOST: Final = 32

log = get_logger(__name__)


class KnownControllers:
    """Private addresses of SCs. ``directory``: the SPU's log directory."""

    def __init__(self, configured: Iterable[str], directory: Path) -> None:
        self._configured = tuple(configured)
        self._file = directory / FILE
        self._heard = self._read()

    def addresses(self) -> tuple[str, ...]:
        """All of them, those of the configuration first."""
        return tuple(dict.fromkeys((*self._configured, *self._heard)))

    def hear(self, named: Iterable[str]) -> None:
        """An SC has named the SCs that run. Blocks on the disk if that is news; what cannot be
        written is forgotten with the process."""
        found = tuple(named)[:MOST]
        if not found or set(found) == set(self._heard):
            return
        self._heard = found
        try:
            replace_file(self._file, json.dumps(found).encode())
        except OSError as error:
            log.warning("the addresses of the SCs were not kept", file=str(self._file), why=error)

    def _read(self) -> tuple[str, ...]:
        try:
            found = json.loads(self._file.read_bytes())
        except (OSError, ValueError, RecursionError):
            return ()
        if not isinstance(found, list):
            return ()
        return tuple(one for one in found if isinstance(one, str))[:MOST]
