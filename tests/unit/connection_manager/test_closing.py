"""What an SPU says when it closes a connection."""

from __future__ import annotations

import pytest

from connection_manager.client import MAX_CLOSE_BYTES, closing


@pytest.mark.parametrize(
    ("why", "said"),
    [
        pytest.param("too old", "too old", id="given-a-short-reason-then-all-of-it"),
        pytest.param("x" * MAX_CLOSE_BYTES, "x" * MAX_CLOSE_BYTES, id="given-it-fits-then-all"),
        pytest.param(
            f"{'put another one there: ' * 5}runnel spu secret",
            f"{'put another one there: ' * 4}put… (its log says more)",
            id="given-too-much-then-cut-between-two-words",
        ),
        pytest.param(
            "é" * MAX_CLOSE_BYTES, f"{'é' * 50}… (its log says more)", id="given-one-word"
        ),
    ],
)
def test_reasons(why: str, said: str) -> None:
    assert closing(why).decode() == said
    assert len(closing(why)) <= MAX_CLOSE_BYTES
