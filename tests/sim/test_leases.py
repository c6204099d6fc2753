"""Several SCs in virtual time: one leads at most, and each way to break that is found."""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest

from tests.sim.leases.mutants import MUTANTS
from tests.sim.leases.world import FAULTS, ViolationError, run

#: A life that shows each of the deliberate bugs. Without the bug all is well in it.
FOUND: Final = dict.fromkeys(MUTANTS, 0) | {
    "the deadline leaves no margin": 1,
    "a write does not compare who holds the office": 1,
}
#: So many lives from that one on are tried: changes elsewhere move what happens in a life.
NEAR: Final = 30


def test_given_any_faults_then_at_most_one_sc_leads_and_in_the_end_one_does() -> None:
    for seed in range(6):
        run(seed)


@pytest.mark.slow
def test_more_lives_see_everything_that_can_happen() -> None:
    counts: Counter[str] = Counter()
    for seed in range(1_000, 1_060):
        counts.update(run(seed))
    assert {f"fault: {kind}" for kind in FAULTS} <= set(counts)
    assert min(counts["elections"], counts["leases ended"], counts["writes"]) > 60


@pytest.mark.parametrize("bug", MUTANTS)
def test_given_a_deliberate_bug_then_a_life_shows_it(bug: str) -> None:
    assert any(fails(seed, bug) for seed in range(FOUND[bug], FOUND[bug] + NEAR))


def fails(seed: int, bug: str) -> bool:
    """Whether a life with a deliberate bug shows a violation."""
    try:
        with MUTANTS[bug]():
            run(seed)
    except ViolationError:
        return True
    return False
