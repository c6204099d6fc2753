"""Memory to receive into: writable, of the size asked for, and resident only where written."""

from __future__ import annotations

import subprocess
import sys

import pytest

from schemas.wire.memory import unfilled

_MIB = 1 << 20
PROGRAM = f"""
from schemas.wire.memory import unfilled

def resident():
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * 4096

before = resident()
memory = unfilled(64 * {_MIB})
assert resident() - before < {_MIB}, "resident before it was written"
memory[: 8 * {_MIB}] = bytes(8 * {_MIB})
assert resident() - before >= 8 * {_MIB}
"""


@pytest.mark.parametrize("size", [0, 1, 4096, 1 << 14, (1 << 17) + 1])
def test_it_is_writable_and_of_that_size(size: int) -> None:
    memory = unfilled(size)
    assert (len(memory), memory.format, memory.readonly) == (size, "B", False)
    memory[:] = b"x" * size
    assert memory == b"x" * size
    other = unfilled(size)
    other[:] = b"y" * size
    assert memory == b"x" * size


def test_only_what_is_written_becomes_resident() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)
