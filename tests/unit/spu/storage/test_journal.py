"""The journal: whole writes or none, and damage is never skipped."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import StorageFailedError
from schemas.ids import PartitionUid, Term
from schemas.objects.topic import LogSettings, Retention
from spu.replication.state import HardState, Member
from spu.storage import journal as journal_module
from spu.storage.durable import replace_file
from spu.storage.journal import Journal, JournalChange, JournalEntry, Seen
from tests.laws import examples
from tests.unit.spu.builders import STAMP, UID, assignment_of, new_uid

pytestmark = pytest.mark.usefixtures("no_waiting_for_the_disk")


def entry_of(uid: PartitionUid = UID, term: int = 1) -> JournalEntry:
    return JournalEntry(
        uid,
        HardState(
            "s",
            Term(term),
            revision=3,
            replicas=(1, 2),
            lrs=(Member(1, "s"),),
            min_in_sync=2,
            pending=(Member(1, "s"), Member(2, "t")),
            leading=True,
            incarnation=1,
        ),
        assignment=assignment_of(uid, log=LogSettings(retention=Retention(time=None))),
    )


def test_given_entries_then_they_read_back(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = Journal.open(path)
    other = new_uid()
    journal.append([JournalChange((entry_of(), entry_of(other)), seen=Seen(9, STAMP))])
    journal.append([JournalChange((entry_of(term=2),)), JournalChange(removed=(other,))])
    journal.close()
    again = Journal.open(path)
    assert again.entries == {UID: entry_of(term=2)}
    assert again.seen == Seen(9, STAMP)
    again.close()


def test_given_the_journal_of_an_older_version_then_only_its_owner_may_read_it(
    tmp_path: Path,
) -> None:
    """It holds the keys that SPUs share."""
    path = tmp_path / "journal"
    path.touch(0o644)
    journal = Journal.open(path)
    assert path.stat().st_mode & 0o777 == 0o600
    journal._rewrite()
    assert path.stat().st_mode & 0o777 == 0o600
    journal.close()


def test_given_a_tail_torn_anywhere_then_what_was_durable_stays(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = Journal.open(path)
    journal.append([JournalChange((entry_of(term=1),))])
    durable = path.stat().st_size
    journal.append([JournalChange((entry_of(term=2),))])
    journal.close()
    whole = path.read_bytes()
    for length in range(durable, len(whole)):
        path.write_bytes(whole[:length])
        torn = Journal.open(path)
        assert torn.entries[UID].hard_state.term == 1
        assert path.stat().st_size == durable
        torn.append([JournalChange((entry_of(term=3),))])
        torn.close()
        again = Journal.open(path)
        assert again.entries[UID].hard_state.term == 3
        again.close()


def test_given_what_a_killed_process_wrote_then_it_is_durable_before_anybody_relies_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal"
    with monkeypatch.context() as patch:
        patch.setattr(journal_module, "sync_file", Mock(side_effect=KeyboardInterrupt))
        killed = Journal(path, os.open(path, os.O_RDWR | os.O_CREAT))
        with pytest.raises(KeyboardInterrupt):
            killed.append([JournalChange((entry_of(),))])
        killed.close()
    sync = Mock()
    monkeypatch.setattr(journal_module, "sync_file", sync)
    journal = Journal.open(path)
    assert list(journal.entries.values()) == [entry_of()]
    sync.assert_called_once_with(journal._fd)
    journal.close()


def test_given_damage_before_valid_entries_then_open_refuses(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = Journal.open(path)
    for term in (1, 2):
        journal.append([JournalChange((entry_of(term=term),))])
    journal.close()
    data = bytearray(path.read_bytes())
    for position in (0, 5, 9, 40):
        damaged = bytearray(data)
        damaged[position] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(StorageFailedError, match="damaged at byte 0"):
            Journal.open(path)
        assert path.read_bytes() == damaged


def test_given_a_journal_that_grows_then_it_is_rewritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "_COMPACT_ABOVE_BYTES", 4_000)
    path = tmp_path / "journal"
    journal = Journal.open(path)
    journal.append([JournalChange(seen=Seen(4, STAMP))])
    for term in range(1, 60):
        journal.append([JournalChange((entry_of(term=term),))])
        assert path.stat().st_size < 8_000
    journal.close()
    again = Journal.open(path)
    assert again.entries[UID].hard_state.term == 59
    assert again.seen == Seen(4, STAMP)
    again.close()


def test_given_a_failed_fsync_then_the_journal_is_never_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal.open(tmp_path / "journal")

    def fail(_fd: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(journal_module, "sync_file", fail)
        with pytest.raises(StorageFailedError, match="Input/output error"):
            journal.append([JournalChange((entry_of(),))])
    with pytest.raises(StorageFailedError, match="must be restarted"):
        journal.append([JournalChange((entry_of(),))])
    journal.close()


class FullDisk:
    """Fails one kind of disk work of the journal with ENOSPC, having done some of it."""

    def __init__(self, patch: pytest.MonkeyPatch, work: str) -> None:
        done: Callable[..., None] = getattr(journal_module, work)

        def fail(*args: Any, **options: Any) -> None:
            if work == "write_all":
                fd, data, position = args
                os.pwrite(fd, memoryview(data)[: len(data) // 2], position)
            elif work == "replace_file":
                # Its new name is there, and nobody knows whether that is durable.
                done(*args, **options)
            raise OSError(errno.ENOSPC, "No space left on device")

        patch.setattr(journal_module, work, fail)


@pytest.mark.parametrize("work", ["write_all", "sync_file"])
def test_given_no_room_then_the_change_is_refused_and_later_ones_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    path = tmp_path / "journal"
    journal = Journal.open(path)
    journal.append([JournalChange((entry_of(term=1),), seen=Seen(4, STAMP))])
    replaced = Mock(wraps=replace_file)
    monkeypatch.setattr(journal_module, "replace_file", replaced)
    with monkeypatch.context() as patch:
        FullDisk(patch, work)
        many = tuple(entry_of(new_uid(), term=8) for _ in range(9))
        for _ in range(2):
            with pytest.raises(StorageFailedError, match="journal: No space left") as refused:
                journal.append([JournalChange((*many, entry_of(term=2)))])
            assert isinstance(refused.value.__cause__, OSError)
            assert list(journal.entries) == [UID]
            if work == "write_all":
                assert path.stat().st_size == journal._size
    journal.append([JournalChange((entry_of(term=3),))])
    # After a failed fsync, what the old file holds is unknown.
    assert replaced.call_count == (0 if work == "write_all" else 2)
    journal.close()
    again = Journal.open(path)
    assert again.entries == {UID: entry_of(term=3)}
    assert again.seen == Seen(4, STAMP)
    again.close()


@pytest.mark.parametrize("work", ["after-the-rename", "before-it"])
def test_given_no_room_to_rewrite_it_then_the_change_counts_and_the_journal_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    monkeypatch.setattr(journal_module, "_COMPACT_ABOVE_BYTES", 4_000)
    path = tmp_path / "journal"
    journal = Journal.open(path)
    with monkeypatch.context() as patch:
        if work == "after-the-rename":
            FullDisk(patch, "replace_file")
        else:
            full = OSError(errno.ENOSPC, "No space left on device")
            patch.setattr(journal_module, "replace_file", Mock(side_effect=full))
        term = 0
        while journal._size <= 4_000:
            term += 1
            journal.append([JournalChange((entry_of(term=term),))])
    for later in range(term + 1, term + 30):
        journal.append([JournalChange((entry_of(term=later),))])
        held = Journal.open(path)
        assert held.entries[UID].hard_state.term == later
        held.close()
    assert path.stat().st_size < 12_000
    journal.close()


@settings(max_examples=examples(8))
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 99)), min_size=1, max_size=12))
def test_law_the_last_entry_of_each_uid_wins(
    tmp_path_factory: pytest.TempPathFactory, writes: list[tuple[int, int]]
) -> None:
    uids = [PartitionUid(f"00000000-0000-4000-8000-00000000000{digit}") for digit in range(4)]
    path = tmp_path_factory.mktemp("journal") / "journal"
    journal = Journal.open(path)
    journal.append([JournalChange((entry_of(uids[which], term),)) for which, term in writes])
    journal.close()
    again = Journal.open(path)
    expected = {uids[which]: term for which, term in writes}
    assert {uid: entry.hard_state.term for uid, entry in again.entries.items()} == expected
    again.close()
