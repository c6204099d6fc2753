"""The files of archives: the state in ``_archive``, and its updates. Pure.

The archive of a partition is a chain of files: each begins where the one before ended, at the
*watermark*, below which everything was archived. Whoever adds a file says which watermark it was
written for, so two writers cannot both add one. Readers read only files that are listed here.

A gap in the chain says that the log began later when the file was written: records were removed
before they were archived. Control records leave gaps inside of a file as well.

Functions from the state to updates decide here what may happen, and raise an error for what may
not; `runnel.state_log.log` appends the updates if the state is still the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, assert_never

from runnel.state_log.fold import read_number, read_text
from schemas.errors import ConflictError, UnsupportedError

#: Records of a file without transaction ids have this as the largest one.
NO_ID: Final = -1
_MAX_TERM: Final = (1 << 64) - 1
_MAX_CRC: Final = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """Offsets from ``base`` to below ``end``: ``rows`` records in a file of ``size`` bytes.

    ``name`` is within the directory of the partition. ``until`` is where its records end for
    readers: at ``end``, or where the log was found to hold other records. ``first_us`` and
    ``last_us`` are the smallest and largest times of its records, in microseconds; ``last_id`` the
    largest transaction id, `NO_ID` if none has one. ``term`` is that of the last batch, ``crc`` the
    CRC-32 of the file.
    """

    name: str
    base: int
    end: int
    rows: int
    size: int
    first_us: int
    last_us: int
    last_id: int
    term: int
    crc: int
    until: int

    def pack(self) -> list[Any]:
        """As JSON."""
        return [
            *(self.name, self.base, self.end, self.rows, self.size, self.first_us, self.last_us),
            *(self.last_id, self.term, self.crc, self.until),
        ]

    @classmethod
    def unpack(cls, data: Any) -> ArchivedFile:
        """Raises ValueError or TypeError if it is none."""
        name, base, end, rows, size, first_us, last_us, last_id, term, crc, until = data
        found = cls(
            read_text(name),
            *(read_number(base), read_number(end), read_number(rows), read_number(size)),
            *(_signed(first_us), _signed(last_us), _signed(last_id)),
            *(read_number(term, _MAX_TERM), read_number(crc, _MAX_CRC), read_number(until)),
        )
        if "/" in found.name or found.name.startswith(".") or not found.base < found.end:
            raise ValueError(f"{data!r} is no file of an archive")
        return found


def _signed(value: Any) -> int:
    return -read_number(-value) if type(value) is int and value < 0 else read_number(value)


@dataclass(frozen=True, slots=True)
class PartitionArchive:
    """The archive of one partition.

    ``before``: the watermark, None before the first file. ``removed_before``: records below are
    gone for readers, by retention of the archive or by a truncation. ``diverged_at``: where the
    log was last found to hold other records than the archive, which was cut there.
    """

    files: tuple[ArchivedFile, ...] = ()
    before: int | None = None
    removed_before: int = 0
    diverged_at: int | None = None

    @property
    def first(self) -> int | None:
        """The first archived offset that readers get; None if there is none."""
        files = self.covering(0)
        return max(files[0].base, self.removed_before) if files else None

    @property
    def end(self) -> int:
        """Below it readers may find records in files; 0 if there are none."""
        return max((file.until for file in self.covering(0)), default=0)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def covering(self, start: int, stop: int | None = None) -> tuple[ArchivedFile, ...]:
        """The files with offsets from ``start`` to below ``stop``."""
        start = max(start, self.removed_before)
        return tuple(
            file
            for file in self.files
            if file.until > max(start, file.base) and (stop is None or file.base < stop)
        )


@dataclass(frozen=True, slots=True)
class TopicArchive:
    """The archives of a topic's partitions, by index. ``topic`` is its name."""

    topic: str
    partitions: Mapping[int, PartitionArchive] = field(default_factory=dict)

    def partition(self, index: int) -> PartitionArchive:
        """What is archived of a partition; nothing if nothing ever was."""
        return self.partitions.get(index, PartitionArchive())


#: Archives by the uid of the topic.
Archives = dict[str, TopicArchive]


@dataclass(frozen=True, slots=True)
class Added:
    """A file was added behind the watermark ``after``, None for the first one."""

    uid: str
    topic: str
    partition: int
    after: int | None
    file: ArchivedFile


@dataclass(frozen=True, slots=True)
class Removed:
    """Records below ``before`` are gone for readers; files without others may be deleted."""

    uid: str
    partition: int
    before: int


@dataclass(frozen=True, slots=True)
class Diverged:
    """The log holds other records than the archive from ``at`` on: they are archived anew."""

    uid: str
    partition: int
    at: int


Update = Added | Removed | Diverged


def add(state: Archives, added: Added) -> Sequence[Update]:
    """Add a file. Raises ConflictError if another writer was first."""
    known = _partition(state, added.uid, added.partition)
    if known.before != added.after:
        raise ConflictError(
            f"{added.topic}/{added.partition} was archived up to offset {known.before or 0} by"
            f" another run meanwhile, and this one began at {added.after or 0}; nothing is lost,"
            " the next run goes on from there"
        )
    if added.file.base < (known.before or 0):
        raise ValueError(f"{added.file} begins below the watermark {known.before}")
    return (added,)


def remove(state: Archives, uid: str, partition: int, before: int) -> Sequence[Update]:
    """Records below an offset go; nothing if they are gone already."""
    known = _partition(state, uid, partition)
    if before <= known.removed_before or known.before is None:
        return ()
    return (Removed(uid, partition, before),)


def cut(state: Archives, uid: str, partition: int, at: int) -> Sequence[Update]:
    """The log diverged from the archive at an offset; nothing if it ends there already."""
    before = _partition(state, uid, partition).before
    return () if before is None or before <= at else (Diverged(uid, partition, at),)


class ArchivesState:
    """`Archives` as a `runnel.state_log.fold.StateType`."""

    def empty(self) -> Archives:
        return {}

    def apply(self, state: Archives, update: Update) -> Archives:
        """The state after an update; ``state`` itself is changed."""
        known = _partition(state, update.uid, update.partition)
        match update:
            case Added(file=file):
                after = replace(known, files=(*known.files, file), before=file.end)
            case Removed(before=before):
                left = tuple(file for file in known.files if file.until > before)
                after = replace(known, files=left, removed_before=before)
            case Diverged(at=at):
                # What the log holds no more stays in files that readers leave out.
                left = tuple(
                    replace(file, until=min(file.until, max(file.base, at))) for file in known.files
                )
                after = replace(known, files=left, before=at, diverged_at=at)
            case _:
                assert_never(update)
        topic = state.get(update.uid, TopicArchive(""))
        name = update.topic if isinstance(update, Added) else topic.topic
        partitions = {**topic.partitions, update.partition: after}
        state[update.uid] = TopicArchive(name, partitions)
        return state

    def pack_state(self, state: Archives) -> Any:
        return [
            {
                "uid": uid,
                "topic": archive.topic,
                "partitions": [
                    [
                        *(index, one.before, one.removed_before, one.diverged_at),
                        [file.pack() for file in one.files],
                    ]
                    for index, one in archive.partitions.items()
                ],
            }
            for uid, archive in state.items()
        ]

    def read_state(self, data: Any) -> Archives:
        return {read_text(topic["uid"]): _read_topic(topic) for topic in data}

    def pack_update(self, update: Update) -> Any:
        place = {"uid": update.uid, "partition": update.partition}
        match update:
            case Added():
                more = {"topic": update.topic, "after": update.after, "file": update.file.pack()}
                return {"kind": "added", **place, **more}
            case Removed():
                return {"kind": "removed", **place, "before": update.before}
            case Diverged():
                return {"kind": "diverged", **place, "at": update.at}

    def read_update(self, data: Any) -> Update:
        uid, partition = read_text(data["uid"]), read_number(data["partition"])
        match data["kind"]:
            case "added":
                file = ArchivedFile.unpack(data["file"])
                topic, after = read_text(data["topic"]), _or_none(data["after"])
                return Added(uid, topic, partition, after, file)
            case "removed":
                return Removed(uid, partition, read_number(data["before"]))
            case "diverged":
                return Diverged(uid, partition, read_number(data["at"]))
            case kind:
                raise UnsupportedError(
                    f"updates of kind {kind!r} are not known to this client; upgrade it"
                )


def _partition(state: Archives, uid: str, index: int) -> PartitionArchive:
    found = state.get(uid)
    return PartitionArchive() if found is None else found.partition(index)


def _read_topic(data: Any) -> TopicArchive:
    return TopicArchive(read_text(data["topic"]), dict(_read_partitions(data["partitions"])))


def _read_partitions(data: Any) -> Iterator[tuple[int, PartitionArchive]]:
    for index, before, removed_before, diverged_at, files in data:
        found = tuple(map(ArchivedFile.unpack, files))
        yield (
            read_number(index),
            PartitionArchive(
                found, _or_none(before), read_number(removed_before), _or_none(diverged_at)
            ),
        )


def _or_none(value: Any) -> int | None:
    return None if value is None else read_number(value)
