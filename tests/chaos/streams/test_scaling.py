"""A stream is scaled 1 → 8 → 2, and truncated behind its readers, while SPUs and the SC are killed:
nothing is lost, nothing comes twice, and each key is read in the order in which it was written."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.chaos.replication.spus import SPUS, Fleet
from tests.chaos.streams.clients import ENDS_S, Place, Reading, Writing, until_done
from tests.e2e.conftest import Command

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(900)]

NAME: Final = "shop/orders"
WRITERS: Final = 2


def _kill_an_spu(fleet: Fleet, number: int) -> Callable[[], None]:
    victim = number % SPUS
    fleet.kill_spu(victim)
    return lambda: fleet.start_spu(victim)


def _freeze_an_spu(fleet: Fleet, number: int) -> Callable[[], None]:
    victim = number % SPUS
    fleet.freeze(victim)
    return lambda: fleet.thaw(victim)


def _kill_the_sc(fleet: Fleet, _number: int) -> Callable[[], None]:
    fleet.kill_sc()
    fleet.start_sc()
    return lambda: None


def _nothing(_fleet: Fleet, _number: int) -> Callable[[], None]:
    return lambda: None


#: What comes in the middle of each scale, and to how many segments that goes.
COURSE: Final = (
    (8, _nothing),
    (2, _kill_the_sc),
    (8, _kill_an_spu),
    (1, _freeze_an_spu),
    (5, _kill_the_sc),
    (2, _kill_an_spu),
)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """Its SC keeps objects in SQLite; `test_shared` has SCs that come and go over etcd."""
    fleet = Fleet(Command(tmp_path / "home"))
    fleet.home.mkdir(parents=True)
    yield fleet
    fleet.stop()


def test_given_faults_while_a_stream_is_scaled_then_each_key_is_read_once_and_in_order(
    fleet: Fleet,
) -> None:
    fleet.start()
    command = fleet.command
    command("create", "scope", "shop")
    command("create", "stream", NAME, "--replication-factor", str(SPUS))
    writing = [Writing(fleet.address, NAME, f"w{n}") for n in range(WRITERS)]
    reading = [Reading(fleet.address, NAME, resumes=resumes) for resumes in (False, True)]
    before: dict[str, int] = {}
    for thread in (*writing, *reading):
        thread.start()
    for number, (segments, begin) in enumerate(COURSE):
        time.sleep(1.0)
        done: list[int] = []
        place = _place_behind(fleet, writing, reading)
        before = place.read

        def scale(segments: int = segments, done: list[int] = done, cut: str = place.cut) -> None:
            until_done(command, "scale", NAME, "--segments", str(segments))
            until_done(command, "truncate", NAME, "--before", cut, "--yes")
            done.append(segments)

        scaling = threading.Thread(target=scale, daemon=True)
        scaling.start()
        time.sleep(0.1)
        end = begin(fleet, number)
        time.sleep(2.0)
        end()
        scaling.join(ENDS_S)
        assert done == [segments], (
            f"not scaled to {segments}: {command('describe', 'stream', NAME)}"
        )
        fleet.until(fleet.is_complete, "all SPUs are online")
    for one in writing:
        one.stopped.set()
    for one in writing:
        one.join(ENDS_S)
        assert not one.is_alive()
        assert not one.failed
        assert sum(one.sent.values()) > 1_000
    command("stream", "seal", NAME, "--yes", "--timeout", "80s")
    wanted = {key: list(range(count)) for one in writing for key, count in one.sent.items()}
    for one_reading in reading:
        one_reading.join(ENDS_S)
        assert not one_reading.is_alive(), "a reader does not end with its stream"
        assert not one_reading.failed
        wrong = {key for key, numbers in wanted.items() if one_reading.read[key] != numbers}
        assert not wrong
    late = Reading(fleet.address, NAME)
    late.run()
    left = {key: numbers[before.get(key, 0) :] for key, numbers in wanted.items()}
    assert any(before.values())
    assert late.read == left, "and one that begins after the end reads what was not truncated"


def _place_behind(fleet: Fleet, writing: list[Writing], reading: list[Reading]) -> Place:
    """A new position of one reader, which the other one has passed."""
    ahead, resuming = reading
    seen = resuming.place

    threads: list[Writing | Reading] = [*writing, *reading]

    def goes_on() -> bool:
        assert not [error for one in threads for error in one.failed]
        assert all(one.is_alive() for one in threads)
        return resuming.place is not seen

    fleet.until(goes_on, "it has resumed")
    place = resuming.place
    assert place is not None
    fleet.until(lambda: goes_on() and ahead.has(place.read), "both have read up to there")
    return place
