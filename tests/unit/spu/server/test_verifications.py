"""A replica that is verified while it serves."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from spu.replication.messages import Attach, LogEnd
from spu.replication.wire import Damaged
from spu.storage.log import PartitionLog
from spu.storage.reader import LogReader
from tests.unit.spu.builders import (
    NOW_US,
    Spu,
    assignment_of,
    batch_of,
    new_uid,
    open_spu,
    produce,
    until,
)
from tests.unit.spu.other_spu import joined


async def pushed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Spu, Callable[[], Awaitable[None]]]:
    """A leader that has pushed six records; and what has it verify them, and waits for that."""
    spu = await open_spu(path, assignment_of(replicas=(0, 1)))
    other = await joined(spu, monkeypatch)
    replica = await spu.serve()
    attach = await other.hears(Attach)
    boot, storage = "00" * 8, str(new_uid())
    other.says(LogEnd(attach.term, attach.attach, boot, storage, 0, 0))
    for _ in range(5):
        await produce(replica, batch_of())
    await until(lambda: other.frames > 0)
    assert replica.leo == 6

    async def verified() -> None:
        other.says(Damaged(attach.term, attach.attach))
        await until(lambda: replica._verifying is not None and replica._verifying.done())

    return spu, verified


async def test_given_a_log_that_is_cut_while_it_is_verified_then_that_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spu, verified = await pushed(tmp_path, monkeypatch)
    reads, read = 0, PartitionLog.read

    def counted(log: PartitionLog, offset: int, *args: Any, **kwargs: Any) -> Any:
        nonlocal reads
        reads += 1
        if reads > 100:
            # The thread would never end otherwise.
            raise OSError(errno.EIO, "read again and again")
        if reads == 1:
            # Between two reads: all that it still has to verify is cut.
            log.truncate_suffix(2)
        return read(log, offset, *args, **kwargs)

    monkeypatch.setattr(PartitionLog, "read", counted)
    await verified()
    assert 1 <= reads <= 100
    assert spu.replica.fit
    await spu.replica.abandon()
    await spu.host.close()


@pytest.mark.parametrize(
    ("start", "fit"),
    [
        pytest.param(6, True, id="given-that-retention-takes-it-then-that-ends"),
        pytest.param(0, False, id="given-that-it-is-lost-then-unfit"),
    ],
)
async def test_a_file_that_goes_while_it_is_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: int, *, fit: bool
) -> None:
    spu, verified = await pushed(tmp_path, monkeypatch)
    log, read = spu.replica._log, LogReader.read

    def gone(reader: LogReader, *args: Any, **kwargs: Any) -> Any:
        # After it was found to hold what is to be read.
        log.log_start = start
        log.truncated.retire_files(log.segments, 60_000, NOW_US)
        return read(reader, *args, **kwargs)

    monkeypatch.setattr(LogReader, "read", gone)
    await verified()
    assert spu.replica.fit is fit
    await spu.replica.abandon()
    await spu.host.close()
