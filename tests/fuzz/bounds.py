"""How much memory and time a target may take, given the length of its input.

Python's memory is measured by tracemalloc, Arrow's by its own pool. Both bounds follow from what
is documented: small structures for every byte that was sent, buffers of `FRAME_LIMIT`, and what
one batch may hold when its buffers are decompressed. Time is that of the processor, which a loaded
machine does not add to. What takes longer would hold an event loop, and all who wait for it.
"""

from __future__ import annotations

import time
import tracemalloc
from typing import Final

import pyarrow as pa

from schemas.wire.payload import MAX_DECODED_BYTES
from tests.fuzz.law import Rejected, Target

#: What any input may take: buffers, directories, exceptions with their texts.
_ALWAYS_BYTES: Final = 1 << 20
#: Python objects for one byte of input: an empty object in JSON takes three bytes there.
_FOR_A_BYTE: Final = 64
#: A loaded machine adds to processor time as well: caches are cold, garbage is collected late.
_ATTEMPTS: Final = 3
#: Any input may take this much: loops, files and objects are made anew for each.
_ALWAYS_S: Final = 0.25
#: For a byte more: 1 ms for a KiB.
_FOR_A_BYTE_S: Final = 0.001 / 1024
#: For a byte of what no event loop reads in one step (YAML, directories), or reads in steps of a
#: byte here.
_OFFLINE_FOR_A_BYTE_S: Final = 20 * _FOR_A_BYTE_S
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


def in_time(target: Target, data: bytes, *, offline: bool = False) -> bool:
    """Run a target on ``data``. Was the input accepted? AssertionError where it took too long, each
    of `_ATTEMPTS` times. ``offline``: no event loop does that work in one step."""
    rate = _OFFLINE_FOR_A_BYTE_S if offline else _FOR_A_BYTE_S
    allowed_s = _ALWAYS_S + rate * len(data)
    taken_s = []
    for _ in range(_ATTEMPTS):
        began = time.process_time()
        accepted = _accepted(target, data)
        taken_s.append(time.process_time() - began)
        if taken_s[-1] <= allowed_s:
            return accepted
    best_s = min(taken_s)
    raise AssertionError(f"{best_s:.3f} s of processor time, {allowed_s:.3f} s are allowed")


def _accepted(target: Target, data: bytes) -> bool:
    try:
        target(data)
    except Rejected:
        return False
    return True
