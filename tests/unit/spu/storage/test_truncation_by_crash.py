"""A cut, or a rebuild, that a crash meets: the log is the old one or the new one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from spu.storage import durable
from spu.storage.checkpoint import CHECKPOINT_NAME
from spu.storage.durable import read_document, write_document
from tests.unit.spu.builders import OpenLog, batch_of, new_log_directory, open_log
from tests.unit.spu.storage.crashes import every_crash
from tests.unit.spu.storage.short_logs import SIZE, SMALL, TERMS, fill, reopened, state_of

pytestmark = pytest.mark.usefixtures("no_waiting_for_the_disk")


def _cut_to(offset: int) -> Callable[[OpenLog], None]:
    return lambda opened: opened.log.truncate_suffix(offset)


def _rebuild(start: int, term: int) -> Callable[[OpenLog], None]:
    return lambda opened: opened.log.rebuild(start, term)


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(_cut_to(18), id="given-the-end"),
        pytest.param(_cut_to(16), id="given-the-last-segment"),
        pytest.param(_cut_to(12), id="given-the-beginning-of-the-last-segment"),
        pytest.param(_cut_to(8), id="given-a-completed-segment"),
        pytest.param(_cut_to(4), id="given-the-first-segment"),
        pytest.param(_rebuild(0, 0), id="given-a-rebuild-at-0"),
        pytest.param(_rebuild(6, 1), id="given-a-rebuild-at-a-segment"),
        pytest.param(_rebuild(9, 2), id="given-a-rebuild-in-a-batch"),
        pytest.param(_rebuild(40, 2), id="given-a-rebuild-beyond-the-end"),
    ],
)
@pytest.mark.parametrize("synced", [1, 9])
@pytest.mark.sampled
def test_given_a_crash_anywhere_then_the_log_is_the_old_one_or_the_new_one(
    tmp_path: Path, job: Callable[[OpenLog], None], synced: int
) -> None:
    path = new_log_directory(tmp_path / "log")
    opened = open_log(path, SMALL)
    fill(opened, TERMS[:synced], synced=synced, lac=min(3, synced * 2 - 1))
    fill(opened, TERMS[synced:])
    before = state_of(opened)
    opened.crash()

    def work(copy: Path) -> Callable[[], None]:
        opened = open_log(copy, SMALL)

        def run() -> None:
            try:
                job(opened)
            finally:
                opened.crash()

        return run

    done = open_log(new_log_directory(tmp_path / "done"), SMALL)
    fill(done, TERMS)
    job(done)
    after = state_of(done)
    done.crash()
    (tmp_path / "scratch").mkdir()
    seen = set()
    for crash in every_crash(path, tmp_path / "scratch", work):
        found = reopened(crash.path)
        assert found == after if crash.done else found in (before, after), crash.what
        assert not list(crash.path.glob("cut-*")), crash.what
        seen.add((found == after, crash.done))
        again = open_log(crash.path, SMALL)
        again.append(batch_of(3, b"z" * 50, producer_id=9), term=5)
        again.sync(checkpoint=True)
        longer = state_of(again)
        again.crash()
        assert reopened(crash.path) == longer, crash.what
    assert seen >= {(True, False), (True, True)}
    assert (False, False) in seen or before == after


@pytest.mark.sampled
def test_given_a_cut_of_what_was_never_synced_then_what_is_left_is_durable_before_it_is_said(
    tmp_path: Path,
) -> None:
    path = new_log_directory(tmp_path / "log")
    opened = open_log(path, SMALL)
    fill(opened, "11", synced=2)
    opened.crash()

    def work(copy: Path) -> Callable[[], None]:
        opened = open_log(copy, SMALL)

        def run() -> None:
            try:
                fill(opened, "123")
                opened.log.truncate_suffix(8)
            finally:
                opened.crash()

        return run

    states = []
    for terms in ("11", "111", "1112", "11123"):
        model = open_log(new_log_directory(tmp_path / terms), SMALL)
        fill(model, terms)
        states.append(state_of(model))
        model.crash()
    (tmp_path / "scratch").mkdir()
    for crash in every_crash(path, tmp_path / "scratch", work):
        found = reopened(crash.path)
        assert found == states[2] if crash.done else found in states, crash.what


class _Killed(Exception):  # noqa: N818 - the end of a process, not an error of it
    """The process ends before the name of its checkpoint is on the disk."""


def _truncate_prefix(opened: OpenLog) -> None:
    opened.log.truncate_prefix(8)
    opened.sync()


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(_cut_to(8), id="a-cut"),
        pytest.param(_rebuild(40, 2), id="a-rebuild"),
        pytest.param(_truncate_prefix, id="a-truncation-of-the-prefix"),
    ],
)
@pytest.mark.sampled
def test_given_a_process_that_is_killed_then_a_power_cut_in_recovery_leaves_the_old_or_the_new_log(
    tmp_path: Path, job: Callable[[OpenLog], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = new_log_directory(tmp_path / "log")
    opened = open_log(path, SMALL)
    fill(opened, TERMS, synced=9, lac=17)
    opened.sync(checkpoint=True)
    before = state_of(opened)
    opened.crash()

    def work(copy: Path) -> Callable[[], None]:
        opened = open_log(copy, SMALL)

        def run() -> None:
            with monkeypatch.context() as patch:
                patch.setattr(durable, "sync_log_directory", Mock(side_effect=_Killed))
                with pytest.raises(_Killed):
                    job(opened)
            reopened(copy)

        return run

    done = open_log(new_log_directory(tmp_path / "done"), SMALL)
    fill(done, TERMS, synced=9, lac=17)
    job(done)
    after = state_of(done)
    done.crash()
    (tmp_path / "scratch").mkdir()
    for crash in every_crash(path, tmp_path / "scratch", work):
        found = reopened(crash.path)
        assert found == after if crash.done else found in (before, after), crash.what


def test_given_a_cut_that_was_not_finished_and_less_log_than_it_left_then_unfit(
    tmp_path: Path,
) -> None:
    opened = open_log(new_log_directory(tmp_path), SMALL)
    fill(opened, TERMS)
    opened.log.truncate_suffix(10)
    opened.crash()
    checkpoint = read_document(tmp_path / CHECKPOINT_NAME)
    assert checkpoint is not None
    write_document(tmp_path / CHECKPOINT_NAME, checkpoint | {"cutAt": 2 * SIZE})
    last = tmp_path / f"{6:020d}.log"
    last.write_bytes(last.read_bytes()[: SIZE + 5])
    again = open_log(tmp_path, SMALL)
    assert (
        again.found.unfit
        == f"{last} at byte {SIZE + 5}: the log was cut at byte 256, the file is shorter"
    )
    assert last.stat().st_size == SIZE + 5
    again.crash()
    last.unlink()
    without = open_log(tmp_path, SMALL)
    assert without.found.unfit is not None
    assert not last.exists()
    without.crash()


def test_given_a_log_that_ends_below_what_was_committed_then_unfit(tmp_path: Path) -> None:
    opened = open_log(new_log_directory(tmp_path))
    fill(opened, "11", synced=2, lac=3)
    opened.crash()
    checkpoint = read_document(tmp_path / CHECKPOINT_NAME)
    assert checkpoint is not None
    write_document(tmp_path / CHECKPOINT_NAME, checkpoint | {"lac": 4})
    again = open_log(tmp_path)
    assert again.found.unfit == f"{tmp_path} ends at offset 4, but offset 4 was committed"
    again.crash()


def test_given_an_index_without_a_segment_then_it_is_removed(tmp_path: Path) -> None:
    opened = open_log(new_log_directory(tmp_path), SMALL)
    fill(opened, "1" * 12, synced=12)
    opened.crash()
    orphan = tmp_path / f"{24:020d}.index"
    orphan.write_bytes((tmp_path / f"{16:020d}.index").read_bytes())
    reopened(tmp_path)
    assert not orphan.exists()
    assert (tmp_path / f"{16:020d}.index").exists()
