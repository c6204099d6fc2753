"""The heartbeat monitor: counted in its own ticks."""

from __future__ import annotations

import pytest

from connection_manager.heartbeat import HeartbeatMonitor


@pytest.mark.parametrize(
    ("misses", "events", "alive"),
    [
        pytest.param(3, "t", True, id="given-first-tick-then-alive"),
        pytest.param(3, "ttt", True, id="given-as-many-silent-ticks-as-allowed-then-alive"),
        pytest.param(3, "tttt", False, id="given-one-more-silent-tick-then-dead"),
        pytest.param(3, "ttthtttht", True, id="given-a-word-in-time-then-counted-anew"),
        pytest.param(3, "hhhtttt", False, id="given-many-words-then-they-do-not-add-up"),
        pytest.param(3, "tttht", True, id="given-own-long-stall-then-one-tick-and-no-blame"),
        pytest.param(1, "tt", False, id="given-one-miss-allowed-then-the-second-is-dead"),
        pytest.param(0, "t", False, id="given-no-miss-allowed-then-the-first-is-dead"),
    ],
)
def test_monitor(misses: int, events: str, alive: bool) -> None:
    """``t`` is a tick, ``h`` something heard; the last tick decides."""
    monitor, verdict = HeartbeatMonitor(misses), True
    for event in events:
        if event == "h":
            monitor.heard()
        else:
            verdict = monitor.tick()
    assert verdict is alive
