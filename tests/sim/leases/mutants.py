"""Deliberate bugs of leases and elections: each breaks one rule, and some life must show it.

One rule has another one behind it: a deadline that counted from the answer of a renewal, not from
its sending, would be late by an attempt at most, and the margin is as long.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final
from unittest import mock

from sc import leadership
from sc.election import lease_clock, node
from sc.leadership import Leadership
from tests.sim.mutants import edited

Mutant = Callable[[], AbstractContextManager[Any]]

MUTANTS: Final[dict[str, Mutant]] = {
    "a lease counts until the KV has ended it": edited(
        lease_clock.LeaseClock, "holds", "now_ms < self.until_ms", "True"
    ),
    "the deadline leaves no margin": lambda: mock.patch.object(lease_clock, "MARGIN_MS", 0),
    "a write does not compare who holds the office": lambda: mock.patch.object(
        Leadership, "guards", property(lambda leads: (leads.guard, leads.entry))
    ),
    "an SC stands while another one leads": edited(
        leadership, "_acquire", "compares.append(CreateRevisionIs(keys.leader, 0))", "pass"
    ),
    "an SC takes the office of any other": edited(
        node.Node,
        "_is_held_by_another",
        "held.instance not in (self._me.instance, self._predecessor)",
        "False",
    ),
    "the office does not end with the lease": edited(
        leadership, "_acquire", "claim.value, claim.lease)", "claim.value)"
    ),
}
