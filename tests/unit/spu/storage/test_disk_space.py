"""How much room there is: the two bounds, the reserve, and when clients are let in again."""

from __future__ import annotations

import pytest

from spu.storage.disk_space import MAX_RESERVE_BYTES, Room, Space

MIB = 1 << 20
GIB = 1 << 30
DISK = 1000 * GIB


def space(used: int, limit: int | None = None, free: int = DISK, total: int = DISK) -> Space:
    return Space(used, limit, free, total)


@pytest.mark.parametrize(
    ("seen", "before", "room"),
    [
        pytest.param(space(0), Room.PLENTY, Room.PLENTY, id="given-nothing-then-plenty"),
        pytest.param(space(84, 100), Room.PLENTY, Room.PLENTY, id="given-84-of-100-then-plenty"),
        pytest.param(space(86, 100), Room.PLENTY, Room.SCARCE, id="given-86-of-100-then-scarce"),
        pytest.param(space(100, 100), Room.SCARCE, Room.NONE, id="given-all-then-none"),
        pytest.param(space(120, 100), Room.PLENTY, Room.NONE, id="given-more-than-all-then-none"),
        pytest.param(
            space(97, 100), Room.NONE, Room.NONE, id="given-none-then-a-bit-is-not-enough"
        ),
        pytest.param(space(97, 100), Room.SCARCE, Room.SCARCE, id="given-scarce-then-a-bit-is"),
        pytest.param(space(95, 100), Room.NONE, Room.SCARCE, id="given-none-then-more-is-enough"),
        pytest.param(space(10, 100), Room.NONE, Room.PLENTY, id="given-none-then-much-is-plenty"),
        pytest.param(
            space(1, None, free=MAX_RESERVE_BYTES),
            Room.PLENTY,
            Room.NONE,
            id="given-only-the-reserve-then-none",
        ),
        pytest.param(
            space(100 * GIB, None, free=10 * GIB),
            Room.PLENTY,
            Room.SCARCE,
            id="given-a-disk-nearly-full-then-scarce",
        ),
        pytest.param(
            space(1, None, free=2 * MAX_RESERVE_BYTES - 1),
            Room.PLENTY,
            Room.SCARCE,
            id="given-a-disk-that-others-fill-then-scarce",
        ),
        pytest.param(
            space(1, None, free=MAX_RESERVE_BYTES + 1),
            Room.NONE,
            Room.NONE,
            id="given-none-of-a-disk-then-a-bit-is-not-enough",
        ),
        pytest.param(
            space(1, 100 * GIB, free=MAX_RESERVE_BYTES),
            Room.PLENTY,
            Room.NONE,
            id="given-a-limit-that-the-disk-does-not-have-then-none",
        ),
    ],
)
def test_room(seen: Space, before: Room, room: Room) -> None:
    assert seen.room(before) is room


@pytest.mark.parametrize(
    ("seen", "exhausted"),
    [
        pytest.param(space(0), False, id="given-nothing-then-no"),
        pytest.param(space(100, 100), False, id="given-all-then-followers-go-on"),
        pytest.param(space(110, 100), False, id="given-a-tenth-more-then-followers-go-on"),
        pytest.param(space(111, 100), True, id="given-more-than-that-then-they-stop"),
        pytest.param(
            space(1, free=MAX_RESERVE_BYTES // 2), False, id="given-half-the-reserve-then-no"
        ),
        pytest.param(
            space(1, free=MAX_RESERVE_BYTES // 2 - 1), True, id="given-less-of-it-then-they-stop"
        ),
    ],
)
def test_exhaustion(seen: Space, exhausted: bool) -> None:
    assert seen.is_exhausted is exhausted


@pytest.mark.parametrize(
    ("seen", "available", "says"),
    [
        pytest.param(
            space(30, 100), 70, "replicas use 30 bytes", id="given-a-limit-then-what-is-left-of-it"
        ),
        pytest.param(
            space(130, 100),
            0,
            "replicas use 130 bytes of storage.size 100",
            id="given-too-much-then-0",
        ),
        pytest.param(
            space(5, None, free=70 * MIB, total=1000 * MIB),
            50 * MIB,
            "70.0 MiB of a disk of 1000.0 MiB are free, 20.0 MiB of them in reserve",
            id="given-a-small-disk-then-a-fiftieth-is-reserve",
        ),
        pytest.param(
            space(5, None, free=70 * MIB, total=100 * MIB),
            62 * MIB,
            "8.0 MiB of them in reserve",
            id="given-a-smaller-disk-then-8-mib-are",
        ),
        pytest.param(
            space(5, None, free=10 * MIB, total=16 * MIB),
            8 * MIB,
            "2.0 MiB of them in reserve",
            id="given-a-tiny-disk-then-an-eighth-is",
        ),
    ],
)
def test_available(seen: Space, available: int, says: str) -> None:
    assert seen.available == available
    assert says in seen.describe()
