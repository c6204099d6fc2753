"""Memory is used again when nobody looks at it, and not before."""

from __future__ import annotations

import pyarrow as pa
import pytest

from runnel.short_circuit.buffers import Buffers

SIZE = 1 << 20


def address(view: memoryview) -> int:
    return int(pa.py_buffer(view).address)


def test_given_a_buffer_that_was_let_go_then_it_is_used_again() -> None:
    buffers = Buffers()
    first = buffers.take(SIZE)
    place = address(first)
    del first
    assert address(buffers.take(SIZE - 7)) == place


@pytest.mark.parametrize("hold", [memoryview, pa.py_buffer, lambda view: view[3:5]])
def test_given_a_buffer_that_somebody_looks_at_then_it_is_left_alone(hold) -> None:  # type: ignore[no-untyped-def]
    buffers = Buffers()
    first = buffers.take(SIZE)
    place = address(first)
    holder = hold(first)
    del first
    second = buffers.take(SIZE)
    assert address(second) != place
    del holder
    assert address(buffers.take(SIZE)) == place


def test_given_a_larger_wish_then_another_buffer() -> None:
    buffers = Buffers()
    place = address(buffers.take(SIZE))
    larger = buffers.take(SIZE + 1)
    assert len(larger) == SIZE + 1
    assert address(larger) != place


def test_given_many_that_are_kept_then_all_differ() -> None:
    buffers = Buffers()
    kept = [buffers.take(SIZE) for _ in range(30)]
    assert len({address(view) for view in kept}) == 30
