"""An SPU's own log lines over its public port."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from schemas.daemon.log_ring import LogRing
from schemas.errors import InvalidRequestError
from schemas.wire.log_line_requests import ListLogLinesRequest, ListLogLinesResponse
from schemas.wire.protocol import Api
from tests.integration.spu.client import Client
from tests.integration.spu.served import serve
from tests.unit.spu.builders import open_spu

NOON = "2026-01-31T12:00:00Z"
NOON_US = 1_769_860_800_000_000


async def test_given_log_lines_then_a_client_reads_those_that_it_asks_for(tmp_path: Path) -> None:
    logs = LogRing(7)
    for number, level in enumerate(("info", "error", "warning")):
        line = {"timestamp": NOON, "level": level, "event": f"e{number}", "cause": f"api-{number}"}
        logs.append(line, json.dumps(line))
    spu = await open_spu(tmp_path)
    async with serve(spu, logs=logs) as served, await Client.connect(served.port) as client:

        async def asked(tail: bytes = b"", **fields: int) -> tuple[ListLogLinesResponse, list[str]]:
            query = {"since_us": 0, "limit": 10, "level": 10, **fields}
            fixed, lines = await client.call(
                Api.LIST_LOG_LINES, 5, ListLogLinesRequest(**query).pack(), tail
            )
            response = ListLogLinesResponse.unpack(fixed)
            return response, [json.loads(line)["event"] for line in bytes(lines).splitlines()]

        everything = ListLogLinesResponse(7, 3, 0, 1)
        assert await asked() == (everything, ["e0", "e1", "e2"])
        assert (await asked(level=25))[1] == ["e1", "e2"]
        assert (await asked(b"api-1"))[1] == ["e1"]
        assert await asked(limit=1) == (replace(everything, complete=0), ["e2"])
        assert await asked(ring=7, after=3) == (everything, [])
        assert (await asked(since_us=NOON_US + 1))[1] == []
        for fields, tail in (({"level": 51}, b""), ({}, b"x" * 2_000)):
            with pytest.raises(InvalidRequestError):
                await asked(tail, **fields)
        assert (await asked())[1], "the connection lives"
