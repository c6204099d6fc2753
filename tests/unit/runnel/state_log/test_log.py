"""State logs against a scripted SPU: two writers, lost answers, leaders that change, truncation."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from runnel.state_log.conditional_append import record_batch
from runnel.state_log.fold import LEAST_SNAPSHOT_BYTES, Entry
from runnel.state_log.log import StateLog, now_us
from schemas.errors import (
    CorruptBatchError,
    DeadlineExceededError,
    FencedError,
    InvalidRequestError,
    NotEnoughReplicasError,
    RunnelError,
    UnsupportedError,
)
from schemas.wire.batch import build_control
from schemas.wire.payload import decode_records
from tests.polling import eventually
from tests.unit.runnel.conftest import World
from tests.unit.runnel.fake_spu import Step
from tests.unit.runnel.state_log.test_fold import Words

TOPIC = "_state"
LONG_S = 20.0

Log = StateLog[list[str], str]


@pytest.fixture
async def open_log(world: World) -> Callable[[], Log]:
    """Clients of one state log, whose truncation is at once."""
    world.sc.add_topic(TOPIC)
    world.log(TOPIC).put(build_control("term", 0))
    ids = itertools.count()

    async def truncate(before: int) -> None:
        world.log(TOPIC).start = before

    route = await world.cluster._route(TOPIC)
    return lambda: StateLog(route, 0, Words(), truncate, lambda: f"id{next(ids)}")


async def say(log: Log, word: str) -> list[str]:
    return list(await log.update(lambda _state: [word], LONG_S))


async def test_given_two_writers_then_each_decides_on_what_the_other_wrote(
    open_log: Callable[[], Log],
) -> None:
    one, two = open_log(), open_log()
    assert await say(one, "a") == ["a"]
    assert await say(two, "b") == ["a", "b"]
    seen: list[list[str]] = []

    def decide(state: list[str]) -> list[str]:
        seen.append(list(state))
        return [] if "b" in state else ["c"]

    # The first decision is on what it knew, and does not come to stand.
    assert await one.update(decide, LONG_S) == ["a", "b"]
    assert seen == [["a"], ["a", "b"]]


async def test_given_a_decision_that_is_refused_then_nothing_is_written(
    open_log: Callable[[], Log],
) -> None:
    log = open_log()

    def refuse(_state: list[str]) -> list[str]:
        raise FencedError("no")

    with pytest.raises(FencedError):
        await log.update(refuse, LONG_S)
    assert await log.read(LONG_S) == []


@pytest.mark.parametrize(
    "mishaps",
    [
        pytest.param([Step.APPEND_THEN_DROP], id="given-a-lost-answer-then-once"),
        pytest.param([Step.APPEND_THEN_NOT_READY], id="given-a-change-then-once"),
        pytest.param([Step.DROP, Step.DROP], id="given-a-lost-request-then-once"),
        pytest.param([NotEnoughReplicasError("few")], id="given-few-replicas-then-once"),
        pytest.param([Step.DROP, Step.APPEND_THEN_DROP], id="given-both-then-once"),
    ],
)
async def test_unknown_outcomes(
    world: World, open_log: Callable[[], Log], mishaps: list[Step]
) -> None:
    log = open_log()
    await say(log, "a")
    world.spu.produce_script.extend(mishaps)
    assert await say(log, "b") == ["a", "b"]
    assert await open_log().read(LONG_S) == ["a", "b"]


async def test_given_a_new_leader_then_its_control_record_is_stepped_over(
    world: World, open_log: Callable[[], Log]
) -> None:
    log = open_log()
    await say(log, "a")
    world.spu.produce_script.append(Step.DROP)
    world.log(TOPIC).put(build_control("term", 0))
    assert await say(log, "b") == ["a", "b"]


async def test_given_no_answer_until_the_end_then_the_outcome_is_unknown(
    world: World, open_log: Callable[[], Log]
) -> None:
    log = open_log()
    await say(log, "a")
    world.spu.produce_script.extend([Step.APPEND_THEN_DROP, *[Step.DROP] * 50])
    with pytest.raises(DeadlineExceededError) as got:
        await log.update(lambda _state: ["b"], 0.1)
    assert got.value.details["outcomeUnknown"] is True
    world.spu.produce_script.clear()
    # What became of it is seen by whoever comes next.
    assert await say(log, "c") == ["a", "b", "c"]


async def test_given_others_that_are_always_first_then_it_gives_up(
    world: World, open_log: Callable[[], Log]
) -> None:
    log = open_log()
    await say(log, "a")

    def decide(_state: list[str]) -> list[str]:
        # Just before what is decided arrives.
        world.log(TOPIC).put(build_control("term", 0))
        return ["b"]

    with pytest.raises(DeadlineExceededError, match="others were first") as got:
        await log.update(decide, 0.05)
    assert got.value.details["outcomeUnknown"] is False
    assert await say(log, "c") == ["a", "c"]


async def test_given_much_then_a_snapshot_and_readers_begin_there(
    world: World, open_log: Callable[[], Log]
) -> None:
    log, behind = open_log(), open_log()
    await say(behind, "a")
    long = "x" * LEAST_SNAPSHOT_BYTES
    assert await say(log, long) == ["a", long]
    await log.close()
    assert world.log(TOPIC).start == 3
    entry = Entry.unpack(decode_records(world.log(TOPIC).batches[3]).column("value")[0].as_py())
    assert entry.is_snapshot
    assert await open_log().read(LONG_S) == ["a", long]
    # One whose position was truncated.
    assert await say(behind, "b") == ["a", long, "b"]
    assert await say(log, "c") == ["a", long, "b", "c"]


async def test_given_reading_that_fails_on_the_way_then_nobody_decides_on_a_part(
    world: World, open_log: Callable[[], Log]
) -> None:
    log, behind = open_log(), open_log()
    await say(behind, "a")
    long = "x" * LEAST_SNAPSHOT_BYTES
    await say(log, long)
    await log.close()
    # It is told that its place was truncated, and then nothing any more.
    world.spu.fetch_script.extend([Step.OK, *[Step.DROP] * 1000])
    with pytest.raises(DeadlineExceededError) as got:
        await behind.update(lambda _state: ["b"], 0.1)
    assert got.value.details["outcomeUnknown"] is True
    world.spu.fetch_script.clear()
    seen: list[list[str]] = []

    def decide(state: list[str]) -> list[str]:
        seen.append(list(state))
        return ["b"]

    await behind.update(decide, LONG_S)
    assert seen == [["a", long]]


@pytest.mark.parametrize(
    "word",
    [
        pytest.param(7, id="given-what-reading-refuses"),
        pytest.param("\ud800", id="given-what-is-no-utf-8"),
        pytest.param(b"x", id="given-what-is-no-json"),
    ],
)
async def test_given_updates_that_could_not_be_read_then_nothing_is_written(
    world: World, open_log: Callable[[], Log], word: Any
) -> None:
    log = open_log()
    await say(log, "a")
    end = world.log(TOPIC).end
    with pytest.raises(InvalidRequestError, match="nothing was written to the state log"):
        await say(log, word)
    assert world.log(TOPIC).end == end
    assert await say(log, "b") == ["a", "b"]


async def test_given_a_snapshot_that_could_not_be_read_then_the_log_is_kept(
    world: World, open_log: Callable[[], Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log()
    monkeypatch.setattr(Words, "pack_state", lambda _self, state: len(state))
    await say(log, "x" * LEAST_SNAPSHOT_BYTES)
    await say(log, "b")
    await log.close()
    assert world.log(TOPIC).start == 0
    assert (await open_log().read(LONG_S))[1:] == ["b"]


async def test_given_a_truncation_that_fails_then_updates_do_not(
    world: World, open_log: Callable[[], Log]
) -> None:
    route = await world.cluster._route(TOPIC)
    tried = asyncio.Event()

    async def fail(_before: int) -> None:
        tried.set()
        raise NotEnoughReplicasError("no SC")

    ids = itertools.count(100)
    log: Log = StateLog(route, 0, Words(), fail, lambda: f"id{next(ids)}")
    await say(log, "x" * LEAST_SNAPSHOT_BYTES)
    await eventually(tried.is_set)
    assert (await say(log, "b"))[1:] == ["b"]
    assert world.log(TOPIC).start == 0


async def test_given_a_log_that_was_cut_without_a_snapshot_then_an_error(
    world: World, open_log: Callable[[], Log]
) -> None:
    await say(open_log(), "a")
    await say(open_log(), "b")
    world.log(TOPIC).start = 2
    with pytest.raises(CorruptBatchError, match="without a snapshot"):
        await open_log().read(LONG_S)


async def test_given_a_leader_whose_batches_are_damaged_then_the_next_one_is_read(
    world: World, open_log: Callable[[], Log]
) -> None:
    await say(open_log(), "a")
    log, spu = world.log(TOPIC), world.spu
    log.batches[-1][-1] ^= 1
    spu.finds_damage = True

    def elect() -> None:
        # Another leader has it whole.
        log.batches[-1][-1] ^= 1
        spu.finds_damage, spu.found_damage = False, lambda: None

    def found() -> None:
        # After the refusal.
        asyncio.get_running_loop().call_soon(elect)

    spu.found_damage = found
    assert await open_log().read(LONG_S) == ["a"]


async def test_given_many_writers_at_once_then_every_word_stands_once(
    open_log: Callable[[], Log],
) -> None:
    words = [f"{writer}.{n}" for writer in range(4) for n in range(10)]

    async def write(writer: int) -> None:
        log = open_log()
        for n in range(10):
            await say(log, f"{writer}.{n}")

    await asyncio.gather(*map(write, range(4)))
    found = await open_log().read(LONG_S)
    assert sorted(found) == sorted(words)


@pytest.mark.parametrize("known", [pytest.param(True, id="known"), pytest.param(False, id="new")])
@pytest.mark.parametrize(
    ("value", "error"),
    [
        pytest.param(b"hello", CorruptBatchError, id="given-no-entry"),
        pytest.param(
            b'{"format":1,"id":"x","updates":[{"say":"b"},{}]}',
            CorruptBatchError,
            id="given-half-an-entry",
        ),
        pytest.param(b'{"format":2,"id":"x"}', UnsupportedError, id="given-a-later-format"),
    ],
)
async def test_given_something_else_in_the_log_then_an_error_each_time(
    world: World,
    open_log: Callable[[], Log],
    known: bool,
    value: bytes,
    error: type[RunnelError],
) -> None:
    log = open_log()
    await say(log if known else open_log(), "a")
    world.log(TOPIC).put(record_batch(value, now_us()))
    for _ in range(2):
        with pytest.raises(error):
            await log.read(LONG_S)
        with pytest.raises(error):
            await say(log, "c")
