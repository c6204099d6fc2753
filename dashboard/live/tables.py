"""Rows by key that remember when they changed, so that a reader gets only what is new. Pure.

Every change of a table makes a new version. A reader says which version it has seen; nothing is
kept for it, so a slow reader costs no memory: it gets the changes of a longer time at once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

Row = Any
"""What JSON can say."""

#: So many deleted keys are remembered; a reader that has seen an older version gets everything.
REMEMBERED_KEYS: Final = 10_000
#: What a reader has seen that has seen nothing.
NOTHING: Final = -1


@dataclass(frozen=True, slots=True)
class Changes:
    """What is new: rows by key, keys that are gone. ``whole``: these rows are all there are."""

    version: int
    rows: Mapping[str, Row]
    gone: tuple[str, ...] = ()
    whole: bool = False

    def to_json(self) -> dict[str, Any]:
        return {"rows": self.rows, "gone": self.gone, "whole": self.whole}


class Table:
    """Rows by key."""

    def __init__(self) -> None:
        self._rows: dict[str, Row] = {}
        self._latest: Mapping[str, Row] | None = None
        self._changed: dict[str, int] = {}
        self._gone: OrderedDict[str, int] = OrderedDict()
        #: Keys that went in this version or earlier ones may be forgotten.
        self._forgotten = 0
        self.version = 0

    def __len__(self) -> int:
        return len(self._rows)

    def replace(self, rows: Mapping[str, Row]) -> bool:
        """These are all rows now. Gives whether that is a change; the first time it is. The same
        mapping as before means the same rows: nobody changes one that was given."""
        if rows is self._latest:
            return False
        self._latest = rows
        changed = {key: row for key, row in rows.items() if self._differs(key, row)}
        return self._change(changed, [key for key in self._rows if key not in rows])

    def _differs(self, key: str, row: Row) -> bool:
        if key not in self._rows:
            return True
        known = self._rows[key]
        return known is not row and bool(known != row)

    def _change(self, rows: Mapping[str, Row], gone: Iterable[str]) -> bool:
        gone = tuple(gone)
        if not rows and not gone and self.version:
            return False
        self.version += 1
        self._rows.update(rows)
        for key in rows:
            self._changed[key] = self.version
            self._gone.pop(key, None)
        for key in gone:
            del self._rows[key], self._changed[key]
            self._gone[key] = self.version
        while len(self._gone) > REMEMBERED_KEYS:
            _, self._forgotten = self._gone.popitem(last=False)
        return True

    def since(self, version: int) -> Changes | None:
        """What changed after a version; None if nothing did, or before the first `replace`."""
        if version == self.version or not self.version:
            return None
        if not self._forgotten <= version < self.version:
            return Changes(self.version, dict(self._rows), whole=True)
        return Changes(
            self.version,
            {key: self._rows[key] for key, at in self._changed.items() if at > version},
            tuple(key for key, at in self._gone.items() if at > version),
        )
