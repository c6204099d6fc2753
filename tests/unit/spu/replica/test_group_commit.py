"""Group commit on its own: one run at a time, and none after a failure."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from schemas.daemon.latency import LatencyHistogram
from spu.replica.group_commit import GroupCommit
from spu.storage import file_pool
from spu.storage.checkpoint import read_checkpoint
from tests.unit.spu.builders import NOW_US, batch_of, new_log_directory, open_log, until


async def test_given_a_failed_run_then_there_is_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[int] = []
    failures: list[BaseException] = []

    def fail(fd: int) -> None:
        runs.append(fd)
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(file_pool, "sync_log_file", fail)
    opened = open_log(new_log_directory(tmp_path))
    with ThreadPoolExecutor(1) as executor:
        commit = GroupCommit(
            opened.log,
            executor,
            lac=lambda: -1,
            clock_us=lambda: NOW_US,
            synced=lambda: pytest.fail("nothing was synced"),
            failed=failures.append,
            took=LatencyHistogram(),
        )
        opened.append(batch_of())
        commit.wake()
        await until(lambda: bool(failures))
        commit.sync_now()
        await commit.finish()
    assert len(runs) == len(failures) == 1
    assert opened.log.durable_leo == 0
    opened.crash()


async def test_given_a_finish_then_all_is_durable_and_nothing_runs_after_it(
    tmp_path: Path,
) -> None:
    opened = open_log(new_log_directory(tmp_path))
    synced: list[int] = []
    with ThreadPoolExecutor(1) as executor:
        commit = GroupCommit(
            opened.log,
            executor,
            lac=lambda: -1,
            clock_us=lambda: NOW_US,
            synced=lambda: synced.append(opened.log.durable_leo),
            failed=lambda error: pytest.fail(str(error)),
            took=LatencyHistogram(),
        )
        opened.append(batch_of())
        await commit.finish()
        assert synced == [1]
        opened.append(batch_of())
        commit.sync_now()
        await commit.quiet()
    assert synced == [1]
    opened.crash()


async def test_given_records_that_keep_coming_then_a_checkpoint_waits_for_one_run(
    tmp_path: Path,
) -> None:
    opened = open_log(new_log_directory(tmp_path))
    runs: list[int] = []

    def more() -> None:
        runs.append(opened.log.durable_leo)
        if len(runs) < 100:
            opened.append(batch_of())

    with ThreadPoolExecutor(1) as executor:
        commit = GroupCommit(
            opened.log,
            executor,
            lac=lambda: -1,
            clock_us=lambda: NOW_US,
            synced=more,
            failed=lambda error: pytest.fail(str(error)),
            took=LatencyHistogram(),
        )
        opened.append(batch_of())
        await commit.checkpoint()
        assert len(runs) < 100
        checkpoint = read_checkpoint(tmp_path)
        assert checkpoint is not None
        assert checkpoint.durable_leo == 1
        await commit.finish()
    opened.crash()
