"""``kill -9`` in the middle of appending: what was acknowledged is there, the torn tail is not."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from schemas.wire.batch import HEADER_SIZE, verify
from tests.unit.spu.builders import (
    UID,
    batch_of,
    fetch_request,
    headers,
    open_spu,
    produce,
    until,
)

ROOT = Path(__file__).parents[3]


async def append_and_kill(directory: Path, durability: str, lines: int) -> dict[int, int]:
    """Base offset and fill of all batches that were acknowledged before the kill."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.integration.spu.appending_child",
        str(directory),
        durability,
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    assert child.stdout is not None
    said = b""
    async with asyncio.timeout(60):
        while said.count(b"\n") < lines:
            piece = await child.stdout.read(1 << 16)
            assert piece, "the child ended by itself"
            said += piece
        child.send_signal(signal.SIGKILL)
        said += await child.stdout.read()
        await child.wait()
    acknowledged = {}
    for line in said.decode().splitlines():
        words = line.split()
        if len(words) == 2 and all(word.isdigit() for word in words):
            acknowledged[int(words[0])] = int(words[1])
    return acknowledged


@pytest.mark.parametrize("durability", ["fsync", "replicated"])
async def test_given_a_kill_while_appending_then_nothing_acknowledged_is_lost(
    tmp_path: Path, durability: str
) -> None:
    acknowledged: dict[int, int] = {}
    for lines in (150, 40):
        found = await append_and_kill(tmp_path, durability, lines)
        assert len(found) >= lines
        assert not found.keys() & acknowledged.keys()
        acknowledged |= found
    # A kill may fall between two writes; tear the tail for certain.
    last = max((tmp_path / "partitions" / UID).glob("*.log"))
    with last.open("ab") as file:
        file.write(batch_of()[:100])
    spu = await open_spu(tmp_path)
    replica = spu.replica
    assert replica.fit
    await until(lambda: replica.is_serving)
    assert replica.report().term & 0xFFFF == 2
    stored: dict[int, int] = {}
    offset = 0
    while offset <= replica.lac:
        data = replica.fetch(fetch_request(offset), wait=True).data
        at = 0
        for header in headers(data):
            batch = data[at : at + header.length]
            verify(batch)
            if not header.is_control:
                stored[header.base_offset] = batch[HEADER_SIZE]
            at += header.length
            assert header.base_offset == offset
            offset = header.next_offset
    assert acknowledged.items() <= stored.items()
    assert (await produce(replica, batch_of())).base_offset == offset
    await spu.host.close()
