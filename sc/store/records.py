"""Records that controllers read when they need them: what they ask for, and what was found. Pure.

The mirror holds what is alive. What a stream remembers (epochs, sizes, requests) grows with its
history, stays in the KV, and is read on demand: a controller that lacks a record asks for it
(`NotReadError` becomes the one action `sc.controllers.actions.Read`), and is called again with what
was found. All records of one pass are from one revision of the KV.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GetRecord:
    """One record by its path."""

    path: str


@dataclass(frozen=True, slots=True)
class ListRecords:
    """The first ``limit`` records whose path begins with ``prefix``; with ``through``, none whose
    path goes on with a later text than that."""

    prefix: str
    limit: int
    through: str | None = None


Want = GetRecord | ListRecords


@dataclass(frozen=True, slots=True)
class Record:
    """A record and the revision of the KV at which it was last written."""

    path: str
    value: bytes
    revision: int


class NotReadError(Exception):
    """A pass needs records that were not read yet."""

    def __init__(self, wants: tuple[Want, ...]) -> None:
        super().__init__(f"{len(wants)} records are not read yet")
        self.wants = wants


@dataclass(frozen=True, slots=True)
class Records:
    """What was read in a pass. ``revision``: of the KV, for all of it; ``at_ms``: when the pass
    began, in milliseconds since 1970."""

    revision: int
    at_ms: int
    found: Mapping[Want, tuple[Record, ...]]

    @property
    def newest(self) -> int:
        """The highest revision at which one of the records was written; 0 without any."""
        return max((record.revision for some in self.found.values() for record in some), default=0)

    def with_found(self, more: Mapping[Want, tuple[Record, ...]]) -> Records:
        return Records(self.revision, self.at_ms, {**self.found, **more})


def need(records: Records | None, *wants: Want) -> None:
    """Raises NotReadError unless all of these were read: so that they are read together."""
    found = records.found if records is not None else {}
    if missing := tuple(want for want in wants if want not in found):
        raise NotReadError(missing)


def get(records: Records | None, path: str) -> Record | None:
    """A record, or None if there is none. Raises NotReadError."""
    some = listed(records, GetRecord(path))
    return some[0] if some else None


def listed(records: Records | None, want: Want) -> tuple[Record, ...]:
    """What was found, in the order of the paths. Raises NotReadError."""
    if records is None or (some := records.found.get(want)) is None:
        raise NotReadError((want,))
    return some
