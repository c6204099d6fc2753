"""What an SPU of an earlier version is told of a partition with an archive, a seal, or limits of
its load."""

from __future__ import annotations

import pytest

from schemas.control.messages import (
    ARCHIVE_PROTOCOL,
    LATENCIES_PROTOCOL,
    LOAD_PROTOCOL,
    SEAL_PROTOCOL,
    AssignPartitions,
    Heartbeat,
    Message,
    Stamp,
)
from schemas.control.older_spus import for_protocol
from schemas.objects.load import LoadLimits, LoadUnit
from schemas.objects.quantities import Millis
from schemas.objects.topic import LogSettings, Retention
from tests.unit.spu.builders import assignment_of

STAMP = Stamp(revision=1, office="x")
LOG = LogSettings(retention=Retention(time=5_000, size=1 << 20, grace=7))
PLAIN = assignment_of(log=LOG)
COLD = assignment_of(log=LOG, archived_before=3)
SEALED = assignment_of(log=LOG, sealed=True)
COLD_AND_SEALED = assignment_of(log=LOG, archived_before=3, sealed=True)
KEPT = assignment_of(log=LogSettings(retention=Retention(time=None, grace=7)))
LIMITS = LoadLimits(unit=LoadUnit.EVENTS, target_rate=5, window=Millis(1_000))
MEASURED = assignment_of(log=LOG.model_copy(update={"load": LIMITS}), sealed=True)


def assigned(*assignments: object) -> AssignPartitions:
    return AssignPartitions(complete=True, assignments=assignments, stamp=STAMP)


@pytest.mark.parametrize(
    ("message", "protocol", "sent"),
    [
        pytest.param(
            assigned(COLD_AND_SEALED),
            SEAL_PROTOCOL,
            assigned(COLD_AND_SEALED),
            id="given-one-that-knows",
        ),
        pytest.param(
            assigned(MEASURED), LOAD_PROTOCOL, assigned(MEASURED), id="given-one-that-measures"
        ),
        pytest.param(
            assigned(MEASURED),
            SEAL_PROTOCOL,
            assigned(SEALED),
            id="given-one-that-measures-nothing-then-it-gets-no-limits",
        ),
        pytest.param(
            assigned(SEALED, COLD_AND_SEALED),
            ARCHIVE_PROTOCOL,
            assigned(PLAIN, COLD),
            id="given-one-that-knows-no-seal-then-it-is-not-told",
        ),
        pytest.param(
            assigned(COLD_AND_SEALED),
            LATENCIES_PROTOCOL,
            assigned(KEPT),
            id="given-one-that-knows-neither",
        ),
        pytest.param(
            assigned(PLAIN, COLD),
            LATENCIES_PROTOCOL,
            assigned(PLAIN, KEPT),
            id="given-an-older-one-then-it-keeps-all-records-of-that-partition",
        ),
        pytest.param(assigned(COLD), None, assigned(KEPT), id="given-no-protocol-then-as-older"),
        pytest.param(assigned(PLAIN), None, assigned(PLAIN), id="given-no-archive-then-as-it-is"),
        pytest.param(Heartbeat(), None, Heartbeat(), id="given-another-message-then-as-it-is"),
    ],
)
def test_for_protocol(message: Message, protocol: str | None, sent: Message) -> None:
    assert for_protocol(message, protocol) == sent
