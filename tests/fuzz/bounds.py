"""How much memory a target may take, given the length of its input.

Python's memory is measured by tracemalloc, Arrow's by its own pool. Both bounds follow from what
is documented: small structures for every byte that was sent, buffers of `FRAME_LIMIT`, and what
one batch may hold when its buffers are decompressed.
"""

from __future__ import annotations

import tracemalloc
from typing import Final

import pyarrow as pa

from schemas.wire.batch import MAX_DECODED_BYTES
from tests.fuzz.law import Rejected, Target

#: What any input may take: buffers, directories, exceptions with their texts.
_ALWAYS_BYTES: Final = 1 << 20
#: Python objects for one byte of input: an empty object in JSON takes three bytes there.
_FOR_A_BYTE: Final = 64
#: Decompressed buffers, and one copy where small batches are put together.
_ARROW_BYTES: Final = 2 * MAX_DECODED_BYTES + (1 << 20)


def within_bounds(target: Target, data: bytes) -> bool:
    """Run a target on ``data``. Was the input accepted? AssertionError where it took too much."""
    arrow_before = pa.default_memory_pool().max_memory()
    tracemalloc.start()
    try:
        accepted = _accepted(target, data)
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    allowed = _ALWAYS_BYTES + _FOR_A_BYTE * len(data)
    assert peak <= allowed, f"{peak} bytes of Python's memory, {allowed} are allowed"
    arrow = pa.default_memory_pool().max_memory()
    assert arrow <= max(arrow_before, _ARROW_BYTES), f"{arrow} bytes of Arrow's memory"
    return accepted


def _accepted(target: Target, data: bytes) -> bool:
    try:
        target(data)
    except Rejected:
        return False
    return True
