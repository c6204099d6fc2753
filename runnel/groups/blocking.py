"""The blocking facades of a reader group and of its readers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Self

import pyarrow as pa

from runnel.consume.consumer import check_max_records
from runnel.consume.one_reader import OneReader
from runnel.consume.settings import ConsumerSettings
from runnel.groups import group, reader
from runnel.groups.cut import GroupCut
from runnel.groups.group import GroupInfo
from runnel.groups.sources import GroupStart
from runnel.loop_thread import ClosedError, LoopThread, blocking_form_of
from runnel.records.record import Record
from schemas.clock import boottime_s


class GroupReader:
    """Iterates over the records of the segments that it has; see `runnel.groups.reader`. Use it
    with ``with``, whose end gives the segments to others at once: a reader whose loop was left
    keeps them until its group or client is closed. One thread at a time reads from it; any may
    close it."""

    def __init__(self, thread: LoopThread, inner: reader.GroupReader) -> None:
        self._thread = thread
        self._inner = inner
        self._one = OneReader(f"reader {inner.name!r} of group {inner.group!r}")

    def __repr__(self) -> str:
        return repr(self._inner)

    @property
    def name(self) -> str:
        """Its name within the group."""
        return self._inner.name

    @property
    def group(self) -> str:
        """The name of its group."""
        return self._inner.group

    def segments(self) -> tuple[str, ...]:
        """The segments that it reads now."""
        return self._inner.segments()

    def position(self) -> GroupCut:
        """Up to where it has handed out records of the segments that it reads now, for display: a
        place of the whole group is a checkpoint."""
        return self._inner.position()

    @blocking_form_of(reader.GroupReader.commit)
    def commit(self) -> None:
        """Commit everything that was handed out, the record or batch in hand too."""
        with self._one:
            self._thread.call(self._inner.commit())

    def __iter__(self) -> Iterator[Record]:
        inner, member = self._inner, self._inner.member
        while True:
            with self._one:
                if (current := member.current) is not None:
                    records = current.state.records()
                    while True:
                        # As `is_due`: a call for each record would cost a tenth.
                        if member.attention or boottime_s() >= member.valid_until_s:
                            current.state.has_processed()
                            self._thread.call(member.attend())
                        if not current.live or (record := next(records, None)) is None:
                            break
                        yield record
                if not self._thread.call(inner.open_next(inner.timeout)):
                    return

    def poll(self, timeout: float | None = None) -> Record | None:
        """The next record; None when none came within ``timeout`` seconds, and at the end."""
        inner, member = self._inner, self._inner.member
        with self._one:
            current = member.current
            # Without a call to the client's thread, if there is nothing else to do.
            records = iter(()) if current is None or member.is_due else current.state.records()
            if (current is None or current.live) and (record := next(records, None)) is not None:
                return record
            return self._thread.call(inner.poll(timeout))

    def batches(self, *, max_records: int | None = None) -> Iterator[pa.RecordBatch]:
        """The records as Arrow record batches, as `Consumer.batches`; each is of one segment."""
        check_max_records(max_records)
        inner, member = self._inner, self._inner.member
        while True:
            with self._one:
                while (current := member.current) is not None:
                    current.state.has_processed()
                    if member.is_due:
                        self._thread.call(member.attend())
                    if not current.live or (rest := current.state.rest(max_records)) is None:
                        break
                    yield rest
                if not self._thread.call(inner.open_next(inner.timeout)):
                    return

    def close(self, *, commit: bool = True) -> None:
        """Leave the group: others take its segments. See `runnel.groups.reader.GroupReader.close`.
        May be called again."""
        with suppress(ClosedError):
            if self._thread.running:
                leave = partial(self._inner.member.begin_to_leave, commit=commit)
                self._thread.end(self._inner.close(commit=commit), leave)

    def __enter__(self) -> Self:
        try:
            self._thread.call(self._inner.start())
        except BaseException:
            # Its block, whose end would close it, does not begin.
            self.close(commit=False)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close(commit=error is None)


class ReaderGroup:
    """A group whose readers share segments; see `runnel.groups.group`."""

    def __init__(self, thread: LoopThread, inner: group.ReaderGroup) -> None:
        self._thread = thread
        self._inner = inner

    def __repr__(self) -> str:
        return repr(self._inner)

    @property
    def name(self) -> str:
        """Its name."""
        return self._inner.name

    @blocking_form_of(group.ReaderGroup.reader)
    def reader(
        self,
        name: str | None = None,
        *,
        timeout: float | None = None,
        settings: ConsumerSettings | None = None,
    ) -> GroupReader:
        """A reader, by default with a name of its own: ``for record in group.reader(): …``. Use
        ``with`` if the program goes on after the loop."""

        async def opened() -> reader.GroupReader:
            return self._inner.reader(name, timeout=timeout, settings=settings)

        return GroupReader(self._thread, self._thread.call(opened()))

    @blocking_form_of(group.ReaderGroup.checkpoint)
    def checkpoint(self, *, timeout: float = 60.0) -> GroupCut:
        """A place of the whole group, once all its readers have passed it. A reader passes it when
        its user asks for the next record, so another thread or process must be reading."""
        return self._thread.call(self._inner.checkpoint(timeout=timeout))

    @blocking_form_of(group.ReaderGroup.last_checkpoint)
    def last_checkpoint(self) -> GroupCut:
        """The newest checkpoint that is complete."""
        return self._thread.call(self._inner.last_checkpoint())

    @blocking_form_of(group.ReaderGroup.reset)
    def reset(self, to: GroupStart) -> None:
        """Go on from another place: "earliest", "latest", or a cut."""
        self._thread.call(self._inner.reset(to))

    @blocking_form_of(group.ReaderGroup.publish)
    def publish(self, cut: GroupCut | None = None) -> None:
        """Tell the streams of the group that it has read what lies before a place, by default its
        last checkpoint."""
        self._thread.call(self._inner.publish(cut))

    @blocking_form_of(group.ReaderGroup.offline)
    def offline(self, reader: str) -> None:
        """Say that a reader is gone: others take its segments at once."""
        self._thread.call(self._inner.offline(reader))

    @blocking_form_of(group.ReaderGroup.delete)
    def delete(self) -> None:
        """Delete the group with its positions."""
        self._thread.call(self._inner.delete())

    @blocking_form_of(group.ReaderGroup.describe)
    def describe(self) -> GroupInfo:
        """What the group is doing now."""
        return self._thread.call(self._inner.describe())

    def close(self) -> None:
        """Close the readers that were opened here."""
        with suppress(ClosedError):
            if self._thread.running:
                at_once = partial(self._inner.begin_to_close, commit=True)
                self._thread.end(self._inner.close(), at_once)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with suppress(ClosedError):
            if self._thread.running:
                at_once = partial(self._inner.begin_to_close, commit=error is None)
                self._thread.end(self._inner.__aexit__(kind, error, traceback), at_once)
