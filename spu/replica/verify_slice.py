"""Verifies a replica slice by slice while it serves, and takes it out of service if it is damaged.

The caller decides how much is read at once, and how long it pauses. Neighbours:
`spu.server.verifications` (for clients), `spu.host.scrubber` (all replicas, now and then),
`spu.storage.verification`.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor

from schemas.errors import OverloadedError
from spu.replica.replica import Replica
from spu.storage.durable import is_shortage
from spu.storage.segment import Damage
from spu.storage.verification import Verification


async def verify_slice(
    replica: Replica, verification: Verification, threads: Executor, max_bytes: int
) -> None:
    """Verify about ``max_bytes`` more in one of ``threads``.

    Damage makes the replica unfit, and ends the verification with a problem. Raises OverloadedError
    if the process is short of descriptors or memory, and the errors with which the replica refuses
    reads.
    """
    log, _end = replica.verifiable()
    try:
        await asyncio.get_running_loop().run_in_executor(
            threads, verification.advance, log, max_bytes
        )
    except (Damage, OSError) as error:
        if is_shortage(error):
            raise OverloadedError(f"the SPU is short of resources: {error}") from error
        # If the log is being replaced, the error says nothing about it: this raises then.
        replica.verifiable()
        verification.fail(error)
        replica.damaged(error)
