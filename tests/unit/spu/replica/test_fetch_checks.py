"""Which fetches a replica answers, and where its log begins for them."""

from __future__ import annotations

import pytest

from schemas.errors import InvalidRequestError, OffsetOutOfRangeError
from schemas.wire.record_requests import EARLIEST
from tests.unit.spu.builders import Spu, batch_of, fetch_request, produce, until


async def test_given_offsets_then_fetch_says_what_there_is(spu: Spu) -> None:
    replica = await spu.serve()
    await produce(replica, batch_of(4))
    assert replica.fetch(fetch_request(3)).enough
    beyond = replica.fetch(fetch_request(50))
    assert (len(beyond.data), beyond.enough) == (0, False)
    with pytest.raises(InvalidRequestError):
        replica.fetch(fetch_request(-1))
    replica._log.truncate_prefix(1)
    replica.tick(spu.now_us)
    await until(lambda: replica.log_start == 1)
    with pytest.raises(OffsetOutOfRangeError, match="first available offset is 1"):
        replica.fetch(fetch_request(0))
    bounds = replica.offsets.list_offsets(EARLIEST)
    assert (bounds.offset, bounds.log_start, bounds.lac) == (1, 1, 4)
    assert bounds.size_bytes == replica.size_bytes > 0
