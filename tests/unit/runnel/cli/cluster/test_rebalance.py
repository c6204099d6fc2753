"""What ``runnel cluster rebalance`` says when all is done."""

from __future__ import annotations

import pytest

from runnel.cli.cluster.rebalance import _done
from schemas.objects.rebalance import RebalanceStatus

LED = "lead as equally many partitions as their replicas allow"
ASTRAY = "all is balanced, but 1 partition cannot be led by the preferred leader now"


@pytest.mark.parametrize(
    ("reason", "leaders", "said"),
    [
        pytest.param(
            "all is balanced",
            False,
            f"all is balanced: SPUs hold equally many replicas as far as these may move, and {LED}",
            id="given-replicas-too",
        ),
        pytest.param(
            "all is balanced",
            True,
            f"all is balanced: SPUs {LED}",
            id="given-leaders-then-nothing-of-replicas",
        ),
        pytest.param(ASTRAY, True, ASTRAY, id="given-some-that-are-not-led-at-home"),
    ],
)
def test_done(reason: str, leaders: bool, said: str) -> None:
    assert _done(RebalanceStatus(reason=reason), leaders=leaders) == said
