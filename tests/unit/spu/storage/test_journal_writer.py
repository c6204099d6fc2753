"""Changes of the journal that arrive together share writes, in bounded numbers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from schemas.errors import StorageFailedError
from spu.replication.state import HardState
from spu.storage import journal as journal_module
from spu.storage.journal import Journal, JournalChange, JournalEntry
from spu.storage.journal_writer import MAX_SHARED, JournalWriter
from tests.unit.spu.builders import new_uid


def change() -> JournalChange:
    return JournalChange((JournalEntry(new_uid(), HardState("s")),))


async def test_given_very_many_changes_then_writes_are_bounded_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    append = Journal.append

    def counted(journal: Journal, changes: Iterable[JournalChange]) -> None:
        changes = tuple(changes)
        sizes.append(len(changes))
        append(journal, changes)

    monkeypatch.setattr(Journal, "append", counted)
    journal = Journal.open(tmp_path / "journal")
    changes = [change() for _ in range(2 * MAX_SHARED + 1)]
    told: list[int] = []

    def tell(number: int, _done: asyncio.Future[None]) -> None:
        told.append(number)

    with ThreadPoolExecutor(2) as threads:
        writer = JournalWriter(journal, threads)
        for number, one in enumerate(changes):
            written = writer.submit(one)
            written.add_done_callback(partial(tell, number))
        await written
        await asyncio.sleep(0)
        await writer.close()
    assert sizes == [MAX_SHARED, MAX_SHARED, 1]
    assert told == list(range(len(changes)))
    again = Journal.open(tmp_path / "journal")
    assert list(again.entries) == [one.entries[0].uid for one in changes]
    again.close()


async def test_given_a_write_that_has_just_ended_then_who_waited_hears_of_it_before_the_close(
    tmp_path: Path,
) -> None:
    told: list[bool] = []
    with ThreadPoolExecutor(1) as threads:
        writer = JournalWriter(Journal.open(tmp_path / "journal"), threads)
        written = writer.submit(change())
        written.add_done_callback(lambda _written: told.append(True))
        # One turn of the loop before those who wait.
        while not written.done():  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert told == []
        await writer.close()
        assert told == [True]


async def test_given_a_write_that_fails_then_those_behind_it_fail_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_fd: int) -> None:
        raise OSError(5, "Input/output error")

    journal = Journal.open(tmp_path / "journal")
    monkeypatch.setattr(journal_module, "sync_file", fail)
    with ThreadPoolExecutor(2) as threads:
        writer = JournalWriter(journal, threads)
        futures = [writer.submit(change()) for _ in range(2 * MAX_SHARED)]
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        await writer.close()
    assert all(isinstance(outcome, StorageFailedError) for outcome in outcomes)
