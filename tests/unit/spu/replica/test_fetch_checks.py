"""Which fetches a replica answers, where its log begins for them, and who waits above its end."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import pytest

from schemas.errors import DivergedError, InvalidRequestError, OffsetOutOfRangeError, RunnelError
from schemas.wire.record_requests import EARLIEST, NO_FLAGS, FetchFlags, FetchRequest
from spu.replica.fetch_checks import require_agreement
from spu.replication.history import TermStart
from spu.replication.state import Following, HardState, Leading, LogView, ReplicaState
from tests.unit.spu.builders import TERM, UID, Spu, batch_of, fetch_request, produce, until

#: Offsets 0 to 5, of one term.
LOG = LogView(0, 6, 6, (TermStart(TERM, 0),))
HARD_STATE = HardState("a", TERM)
SERVING = ReplicaState(0, "boot", HARD_STATE, LOG, 5, leading=Leading(TERM, 5, 0, 6))
STARTING = ReplicaState(0, "boot", HARD_STATE, LOG, 3, leading=Leading(TERM, 5, 0, 6))
PROVING = ReplicaState(0, "boot", HARD_STATE, LOG, 5, leading=Leading(TERM, 5, 0, 6, proving=True))
FOLLOWER = ReplicaState(0, "boot", HARD_STATE, LOG, 5, following=Following(1, TERM, 1))
KNOWN = FetchFlags.COMMITTED_BELOW


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


@pytest.mark.parametrize(
    ("state", "offset", "term", "flags", "error"),
    [
        pytest.param(SERVING, 6, 0, KNOWN, None, id="given-the-end-then-it-waits"),
        pytest.param(SERVING, 7, 0, KNOWN, OffsetOutOfRangeError, id="given-above-the-end"),
        pytest.param(SERVING, 7, 0, NO_FLAGS, None, id="given-no-flag-then-it-waits"),
        pytest.param(STARTING, 7, 0, KNOWN, None, id="given-a-new-leader-then-it-waits"),
        pytest.param(PROVING, 7, 0, KNOWN, None, id="given-an-unproven-leader-then-it-waits"),
        pytest.param(FOLLOWER, 7, 0, KNOWN, None, id="given-a-follower-then-it-waits"),
        pytest.param(SERVING, 7, TERM, KNOWN, DivergedError, id="given-a-term-then-diverged"),
        pytest.param(STARTING, 7, TERM, KNOWN, None, id="given-a-term-and-a-new-leader"),
        pytest.param(SERVING, -1, 0, KNOWN, InvalidRequestError, id="given-a-negative-offset"),
    ],
)
def test_readers_above_the_end(
    state: ReplicaState,
    offset: int,
    term: int,
    flags: FetchFlags,
    error: type[RunnelError] | None,
) -> None:
    request = FetchRequest(UID, offset, 1, 1, 0, term, flags)
    raised: AbstractContextManager[object] = pytest.raises(error) if error else nullcontext()
    with raised:
        require_agreement("orders-0", state, request)
