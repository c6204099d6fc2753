"""A process that appends until it is killed, and says what was acknowledged.

``python -m tests.integration.spu.appending_child DIR fsync|replicated`` prints one line for
every acknowledged batch: its base offset and the fill byte of its payload.
"""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from pathlib import Path

from schemas.control.messages import ReplicaRole
from schemas.daemon.logs import configure_logs
from schemas.errors import RunnelError
from schemas.objects.topic import Durability
from schemas.wire.record_requests import ProduceResponse
from tests.unit.spu.builders import (
    assignment_of,
    batch_of,
    open_spu,
    produce_request,
    settings_of,
    until,
)


def say(number: int, answer: ProduceResponse | RunnelError) -> None:
    if isinstance(answer, ProduceResponse):
        print(answer.base_offset, number % 256, flush=True)


async def main(directory: Path, durability: Durability) -> None:
    configure_logs("appending-child")
    log = settings_of(segment=200_000, durability=durability)
    spu = await open_spu(directory, assignment_of(log=log))
    if spu.replica.role is not ReplicaRole.LEADER:
        await spu.lead()
    await until(lambda: spu.replica.is_serving)
    number = 0
    while True:
        for _ in range(4):
            batch = batch_of(1, bytes([number % 256]) * (1 + number * 37 % 9_000))
            spu.replica.produce(produce_request(), memoryview(batch), partial(say, number))
            number += 1
        await asyncio.sleep(0)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Durability(sys.argv[2])))
