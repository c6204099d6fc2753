"""What of a read is in files of archives, and what is left to the logs. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from runnel import ArchivedTopic, OffsetAndTerm
from spark_io.options.places import TERMS, UIDS
from spark_io.plan.slices import LogSlice

#: Where nothing has diverged.
NOWHERE: Final[Mapping[tuple[str, int], int]] = {}


@dataclass(frozen=True, slots=True)
class FilePart:
    """Offsets from ``start`` to below ``stop`` of one file of a partition; ``whole``: these are all
    that it has. ``cut``: what it has from ``stop`` on is in other files or the log as well, with
    other records."""

    topic: str
    partition: int
    path: str
    start: int
    stop: int
    whole: bool
    cut: bool = False


def divide(
    slices: Sequence[LogSlice],
    archives: Mapping[str, ArchivedTopic],
    diverged: Mapping[tuple[str, int], int] = NOWHERE,
) -> tuple[list[FilePart], list[LogSlice]]:
    """The files to read, and the slices that are left, one for each that was given, empty where
    files hold all of it. Archives are by the name of the topic. ``diverged``: by topic and
    partition, from where on the log may hold other records than the files, which count then.

    Files are taken as far as they follow each other without a gap: what a gap means, the log says.
    """
    files: list[FilePart] = []
    rest: list[LogSlice] = []
    for piece in slices:
        archive = archives.get(piece.topic)
        if archive is None or archive.place.uid != piece.topic_uid or piece.is_empty:
            rest.append(piece)
            continue
        at, term = piece.start, piece.start_term
        end = min(piece.end, diverged.get((piece.topic, piece.partition), piece.end))
        known = archive.listed.partition(piece.partition)
        for file in known.covering(piece.start, end):
            if max(file.base, known.removed_before) > at:
                break
            stop = min(file.until, end)
            path = str(archive.place.file(piece.partition, file.name))
            whole = (at, stop) == (file.base, file.end)
            cut = stop < min(file.end, piece.end)
            files.append(FilePart(piece.topic, piece.partition, path, at, stop, whole, cut))
            at, term = stop, file.term if stop == file.end else 0
        # The first record of a time is found exactly: see `runnel.Cluster.offsets_at`.
        begins_at = piece.begins_at if at == piece.start else None
        rest.append(replace(piece, start=at, begins_at=begins_at, start_term=term))
    return files, rest


def last_files(
    slices: Sequence[LogSlice], archives: Mapping[str, ArchivedTopic]
) -> dict[str, dict[int, OffsetAndTerm]]:
    """By topic and partition where the last file ends that `divide` may read, with the term of its
    last batch: what the log must hold as well, if it reaches back so far."""
    found: dict[str, dict[int, OffsetAndTerm]] = {}
    for piece in slices:
        archive = archives.get(piece.topic)
        if archive is None or archive.place.uid != piece.topic_uid or piece.is_empty:
            continue
        files = archive.listed.partition(piece.partition).covering(piece.start, piece.end)
        if files and files[-1].until == files[-1].end:
            at = OffsetAndTerm(files[-1].end, files[-1].term)
            found.setdefault(piece.topic, {})[piece.partition] = at
    return found


def rest_options(rest: Sequence[LogSlice]) -> dict[str, str]:
    """The options of a read of exactly these slices."""
    partitions: dict[str, list[int]] = {}
    starting: dict[str, dict[str, int]] = {}
    ending: dict[str, dict[str, int]] = {}
    uids: dict[str, str] = {}
    starting_terms: dict[str, dict[str, int]] = {}
    ending_terms: dict[str, dict[str, int]] = {}
    for piece in rest:
        partitions.setdefault(piece.topic, []).append(piece.partition)
        starting.setdefault(piece.topic, {})[str(piece.partition)] = piece.start
        ending.setdefault(piece.topic, {})[str(piece.partition)] = piece.end
        uids[piece.topic] = piece.topic_uid
        if piece.start_term:
            starting_terms.setdefault(piece.topic, {})[str(piece.partition)] = piece.start_term
        if piece.end_term:
            ending_terms.setdefault(piece.topic, {})[str(piece.partition)] = piece.end_term
    return {
        "assign": json.dumps(partitions),
        "startingOffsets": json.dumps({**starting, TERMS: starting_terms, UIDS: uids}),
        "endingOffsets": json.dumps({**ending, TERMS: ending_terms, UIDS: uids}),
    }


def spark_path(path: str) -> str:
    """A path of this host as Spark takes it, which reads patterns in paths."""
    escaped = "".join(f"\\{char}" if char in r"\{}[]*?" else char for char in path)
    return f"file:{escaped}"
