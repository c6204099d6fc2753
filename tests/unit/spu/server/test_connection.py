"""A client's connection whose transport does what uvloop's may do."""

from __future__ import annotations

import asyncio
from unittest.mock import Mock, create_autospec

import pytest

from schemas.daemon.log_ring import LogRing
from schemas.errors import ProtocolError
from schemas.wire.frame_budget import FrameBudget
from schemas.wire.protocol import Api, HelloRequest, pack_frame
from spu.net.admission import Admission
from spu.server.connection import Connection
from spu.server.counters import ListenerCounters
from spu.server.turns import Turns

HELLO = b"".join(pack_frame(Api.HELLO, 1, HelloRequest(1, 1).pack()))


@pytest.mark.parametrize("use", ["an-answer", "an-error", "a-pause"])
async def test_given_a_handle_that_is_closed_without_a_word_then_the_connection_is_over(
    use: str,
) -> None:
    loop, counters = asyncio.get_running_loop(), ListenerCounters()
    closed: list[Connection] = []
    connection = Connection(
        Mock(spu_id=1, cluster_uid="uid"),
        counters,
        Admission("the SPU", max_proven=1, max_unproven=1, max_per_address=1),
        FrameBudget(1 << 20),
        Turns(loop.call_soon, lambda: 0.0),
        closed.append,
        asyncio.Lock(),
        LogRing(1),
    )
    handle = create_autospec(asyncio.Transport, instance=True)
    handle.is_closing.return_value = False
    handle.get_extra_info.return_value = None
    for name in ("write", "writelines", "pause_reading", "resume_reading"):
        getattr(handle, name).side_effect = RuntimeError("the handler is closed")
    connection.connection_made(handle)
    match use:
        case "an-answer":
            connection.get_buffer(0)[: len(HELLO)] = HELLO
            connection.buffer_updated(len(HELLO))
        case "an-error":
            connection.end(ProtocolError("no HELLO came"))
        case "a-pause":
            connection.pause_writing()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (closed, counters.connections, counters.bytes_out) == ([connection], 0, 0)
    assert handle.abort.called, "if it is open, nobody else closes it"
    # Should it be told after all, nothing happens twice.
    connection.connection_lost(None)
    assert (len(closed), counters.connections) == (1, 0)
