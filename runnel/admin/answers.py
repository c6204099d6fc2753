"""The SC's answers about objects, as values: applied, history, replicas, bounds, its identity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from schemas.objects.metadata import Object


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """What `Cluster.apply` did, and the object afterwards; for a dry run, what both would be."""

    change: Literal["created", "configured", "unchanged"]
    object: Object
    dry_run: bool = False

    def __str__(self) -> str:
        tried = " (dry run)" if self.dry_run else ""
        return f"{self.object.kind.lower()}/{self.object.name} {self.change}{tried}"


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One write of an object.

    ``at`` is its time (ISO 8601, UTC), ``by`` the writer, ``cause`` the causality id, as in logs.
    ``changed`` are the fields that differ from the write before, as paths.
    """

    revision: int
    at: str | None
    by: str | None
    cause: str | None
    generation: int
    resolution: str | None
    reason: str | None
    changed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """One replica of a partition, as its SPU has last reported it; fields not reported are None.

    ``live``: it is in the live replica set. ``next_offset`` is where its log ended then, as
    far as it is as durable as the topic asks for: a replica that catches up reports every second.
    """

    spu: int
    live: bool
    role: str | None
    fit: bool | None
    log_start: int | None
    next_offset: int | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class DivergentSpu:
    """An SPU that the SC turns away, because it has seen more than the KV holds.

    ``why`` says what it has seen. If the KV was restored from a backup, a recovery from this SPU
    begins ``incarnation``.
    """

    spu: int
    why: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class History:
    """The last writes of an object, the newest first.

    ``complete``: they reach back to its creation. Otherwise the KV has forgotten older ones, or the
    caller asked for fewer.
    """

    entries: tuple[HistoryEntry, ...]
    complete: bool


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """The bounds of one partition: ``earliest`` is the first offset that its log holds, ``latest``
    the one after the last committed record; ``size_bytes`` as stored.

    ``archived`` is the first offset in the archive of the topic, None if nothing is in one, and
    ``archived_bytes`` the size of its files: readers begin at `first`. ``term`` is that of the last
    committed record, 0 if it is not known. ``diverged_at``: from this offset on, the log may hold
    other records than the asker has read; None if it has read nothing else, or said nothing of it.
    """

    partition: int
    earliest: int
    latest: int
    size_bytes: int
    archived: int | None = None
    archived_bytes: int = 0
    term: int = 0
    diverged_at: int | None = None

    @property
    def first(self) -> int:
        """The first offset that readers get, from the archive or the log."""
        return self.earliest if self.archived is None else min(self.archived, self.earliest)


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """The identity of the cluster."""

    cluster: str
    cluster_uid: str
    version: str
    dashboard: str | None = None


def parse_history_entry(item: Mapping[str, Any]) -> HistoryEntry:
    """One item of the SC's answer. Raises KeyError, TypeError or ValueError where it is none."""
    return HistoryEntry(
        revision=int(item["revision"]),
        at=text_or_none(item.get("at")),
        by=text_or_none(item.get("by")),
        cause=text_or_none(item.get("cause")),
        generation=number_or_none(item.get("generation")) or 0,
        resolution=text_or_none(item.get("resolution")),
        reason=text_or_none(item.get("reason")),
        changed=tuple(map(str, item.get("changed") or ())),
    )


def parse_replica(item: Mapping[str, Any]) -> ReplicaState:
    """One item of the SC's answer. Raises as `parse_history_entry`."""
    fit = item.get("fit")
    return ReplicaState(
        spu=int(item["spu"]),
        live=bool(item["live"]),
        role=text_or_none(item.get("role")),
        fit=None if fit is None else bool(fit),
        log_start=number_or_none(item.get("logStart")),
        next_offset=number_or_none(item.get("nextOffset")),
        reason=text_or_none(item.get("reason")),
    )


def parse_divergent(item: Mapping[str, Any]) -> DivergentSpu:
    """One item of the SC's answer. Raises as `parse_history_entry`."""
    return DivergentSpu(
        spu=int(item["spu"]), why=str(item["why"]), incarnation=int(item["incarnation"])
    )


def text_or_none(value: Any) -> str | None:
    return None if value is None else str(value)


def number_or_none(value: Any) -> int | None:
    return None if value is None else int(value)
