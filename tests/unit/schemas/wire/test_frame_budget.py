"""The memory of all frames: bounded, never stuck, and given back."""

from __future__ import annotations

from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from schemas.wire.frame_budget import FrameBudget

LIMIT = 100


def test_given_a_full_budget_then_one_goes_on_and_the_others_wait_for_it() -> None:
    budget = FrameBudget(LIMIT)
    woken: list[int] = []
    claims = [budget.claim(partial(woken.append, number)) for number in range(3)]
    assert claims[0].grow_to(60)
    assert claims[1].grow_to(60)
    assert not claims[2].grow_to(60)
    assert not claims[0].grow_to(90)
    assert claims[1].grow_to(90)
    assert budget.used_bytes == 150
    claims[1].release()
    assert woken == [2, 0]
    assert claims[2].grow_to(40)
    assert claims[0].grow_to(90)


def test_given_a_claim_that_waits_then_its_end_forgets_it() -> None:
    budget = FrameBudget(LIMIT)
    woken: list[int] = []
    first, second = budget.claim(lambda: None), budget.claim(lambda: woken.append(1))
    assert first.grow_to(LIMIT + 1)
    assert not second.grow_to(1)
    second.release()
    first.release()
    assert woken == []
    assert budget.used_bytes == 0


steps = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 60)), max_size=60)


@given(steps=steps)
def test_law_one_can_always_grow_and_only_one_goes_beyond_the_limit(
    steps: list[tuple[int, int]],
) -> None:
    budget = FrameBudget(LIMIT)
    claims = [budget.claim(lambda: None) for _ in range(5)]
    for number, size in steps:
        if size == 0:
            claims[number].release()
        elif size > claims[number].bytes:
            claims[number].grow_to(size)
        assert budget.used_bytes == sum(claim.bytes for claim in claims)
        assert budget.used_bytes <= LIMIT + max(claim.bytes for claim in claims)
    assert any(claim.grow_to(claim.bytes + 1) for claim in claims)
