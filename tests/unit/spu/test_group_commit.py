"""Group commit on its own: one run at a time, and none after a failure."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from spu.group_commit import GroupCommit
from spu.storage import sync_plan
from tests.unit.spu.builders import NOW_US, batch_of, new_log_directory, open_log, until


async def test_given_a_failed_run_then_there_is_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[int] = []
    failures: list[BaseException] = []

    def fail(fd: int) -> None:
        runs.append(fd)
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(sync_plan, "sync_file", fail)
    opened = open_log(new_log_directory(tmp_path))
    with ThreadPoolExecutor(1) as executor:
        commit = GroupCommit(
            opened.log,
            executor,
            lac=lambda: -1,
            clock_us=lambda: NOW_US,
            synced=lambda: pytest.fail("nothing was synced"),
            failed=failures.append,
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
        )
        opened.append(batch_of())
        await commit.finish()
        assert synced == [1]
        opened.append(batch_of())
        commit.sync_now()
        await commit.quiet()
    assert synced == [1]
    opened.crash()
