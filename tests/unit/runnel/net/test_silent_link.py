"""When a client gives up a connection: what the kernel said and whether anything came → what to
do."""

from __future__ import annotations

import pytest

from runnel.net.silent_link import LOST_AFTER, Link, SilentLink
from schemas.wire.tcp_info import Unacknowledged

Look = tuple[bool, Unacknowledged | None]

NOTHING, SENT = Unacknowledged(0, 0), Unacknowledged(2, 0)
AGAIN = Unacknowledged(2, LOST_AFTER - 1)
GONE = Unacknowledged(1, LOST_AFTER)
K, P, L = Link.KEEP, Link.PROBE, Link.LOST


@pytest.mark.parametrize(
    ("looks", "verdicts"),
    [
        pytest.param([(True, NOTHING)] * 3, [K, K, K], id="given-answers-then-kept"),
        pytest.param([(True, AGAIN)] * 3, [K, K, K], id="given-some-loss-then-kept"),
        pytest.param(
            [(False, SENT)] * 5, [K] * 5, id="given-bytes-on-their-way-then-kept-however-slow"
        ),
        pytest.param(
            [(False, NOTHING)] * 4, [K, P, P, P], id="given-silence-then-asked-and-never-given-up"
        ),
        pytest.param(
            [(False, NOTHING), (True, NOTHING), (False, NOTHING)],
            [K, K, K],
            id="given-a-word-between-then-silence-begins-anew",
        ),
        pytest.param([(False, GONE)], [L], id="given-no-acknowledgement-then-given-up"),
        pytest.param([(True, GONE)], [L], id="given-one-direction-only-then-given-up"),
        pytest.param([(False, None)] * 9, [K] * 9, id="given-a-kernel-that-says-nothing-then-kept"),
    ],
)
def test_verdicts(looks: list[Look], verdicts: list[Link]) -> None:
    link = SilentLink()
    assert [link.look(heard=heard, unacknowledged=said) for heard, said in looks] == verdicts
