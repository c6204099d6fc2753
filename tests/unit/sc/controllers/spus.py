"""What tests of the SPU controller share."""

from __future__ import annotations

from sc.controllers.actions import WriteStatus
from schemas.ids import Term
from schemas.objects.spu import Spu, SpuResolution, SpuStatus
from tests.unit.sc.builders import live, partition_of

NOW = 1_000
GRACE = 5_000
INIT_REASON = "registered; waiting for the SPU to connect"
UNKNOWN_REASON = "waiting for the SPU to connect again"
OFFLINE_REASON = "the SPU is not connected"

LED = partition_of("d", 0, (2,), leader=2, term=Term(1 << 16), lrs=(live(2),))
LEFT = "keeps a replica that is on other SPUs now: d-0"
GONE = partition_of("gone", 0, (1,))


def becomes(
    spu: Spu, resolution: SpuResolution, reason: str | None, *, drained: bool | None = None
) -> WriteStatus:
    status = SpuStatus(
        resolution=resolution,
        reason=reason,
        drained=drained,
        observed_generation=spu.generation,
    )
    return WriteStatus(spu, status)
