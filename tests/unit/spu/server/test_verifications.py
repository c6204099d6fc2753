"""A replica that is verified while it serves."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from spu.replication.messages import Attach, LogEnd
from spu.replication.wire import Damaged
from spu.storage.log import PartitionLog
from tests.unit.spu.builders import assignment_of, batch_of, new_uid, open_spu, produce, until
from tests.unit.spu.other_spu import joined


async def test_given_a_log_that_is_cut_while_it_is_verified_then_that_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spu = await open_spu(tmp_path, assignment_of(replicas=(0, 1)))
    other = await joined(spu, monkeypatch)
    replica = await spu.serve()
    attach = await other.hears(Attach)
    boot, storage = "00" * 8, str(new_uid())
    other.says(LogEnd(attach.term, attach.attach, boot, storage, 0, 0))
    for _ in range(5):
        await produce(replica, batch_of())
    await until(lambda: other.frames > 0)
    sent, reads, read = replica.leo, 0, PartitionLog.read

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
    assert sent == 6
    other.says(Damaged(attach.term, attach.attach))
    await until(lambda: replica._verifying is not None and replica._verifying.done())
    assert 1 <= reads <= 100
    assert replica.fit
    await replica.abandon()
    await spu.host.close()
