"""Reading with several replicas: who is asked, whose answer counts, and that nothing is skipped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

import runnel
from runnel import aio
from runnel.consume import fetcher, reader, readers
from runnel.consume.speculation import Speculation, SpeculationPolicy
from runnel.net import routing
from runnel.records.offset_and_term import OffsetAndTerm
from schemas.errors import (
    CorruptBatchError,
    DivergedError,
    NotFoundError,
    NotLeaderError,
    NotReadyError,
    OffsetOutOfRangeError,
    RunnelError,
)
from schemas.ids import Term
from schemas.wire.record_requests import FetchFlags
from tests.unit.runnel.conftest import World
from tests.unit.runnel.fake_sc import FakeSc
from tests.unit.runnel.fake_spu import FakeLog, FakeSpu, Step
from tests.unit.runnel.records.test_cursor import batch

TERM = 1 << 16
#: One batch fills one answer, as the least that is fetched is 64 KiB.
PADDING = 100_000
#: Answers are overdue after a millisecond; the budget is no matter unless a test says so.
HASTY = SpeculationPolicy(
    first_ms=1, least_ms=1, most_ms=1, jitter=0, percent=100, burst=100, enough=1_000
)


@dataclass
class Replicated:
    """``leader`` is SPU 1, ``follower`` SPU 2 with a replica of the same batches."""

    sc: FakeSc
    leader: FakeSpu
    follower: FakeSpu
    cluster: aio.Cluster

    def log(self, spu: FakeSpu) -> FakeLog:
        return spu.logs[self.sc.uids["orders"][0]]

    def fill(self, count: int, *, replicated: int | None = None) -> None:
        """Batches of one record each, in rising terms; the follower holds some of them."""
        log = self.log(self.leader)
        for index in range(log.end, log.end + count):
            log.put(batch(index, 1, padding=PADDING), TERM * (1 + index))
        self.log(self.follower).follow(log, replicated)

    def consumer(self, stop: int | None = None, **settings: bool | int) -> aio.Consumer:
        return self.cluster.consumer(
            "orders",
            "earliest",
            None if stop is None else {0: stop},
            settings=aio.ConsumerSettings(read_ahead_bytes=1, **{"max_wait_ms": 5, **settings}),  # type: ignore[arg-type]
        )


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "Speculation", lambda: Speculation(HASTY))


@pytest.fixture
async def replicated(world: World) -> AsyncIterator[Replicated]:
    follower = FakeSpu()
    follower.leads = False
    await follower.start()
    world.sc.add_topic("orders")
    world.sc.term = Term(TERM)
    world.sc.replicas = [
        (1, ("127.0.0.1", world.spu.port), True),
        (2, ("127.0.0.1", follower.port), True),
    ]
    yield Replicated(world.sc, world.spu, follower, world.cluster)
    await follower.stop()


async def offsets(reading: aio.Consumer) -> list[int]:
    async with asyncio.timeout(20), reading:
        return [record.offset async for record in reading]


async def until_fetched(spu: FakeSpu, count: int) -> None:
    async with asyncio.timeout(10):
        while spu.fetches < count:  # noqa: ASYNC110 - state of the fake, not an event
            await asyncio.sleep(0)


LEADER_STEPS: list[list[Step | RunnelError]] = [
    [Step.OK, Step.OK],
    [Step.SILENCE, Step.OK],
    [Step.SILENCE, Step.SILENCE],
    [Step.DROP, Step.SILENCE],
    [NotLeaderError("moved"), Step.DROP],
    [Step.OK, NotReadyError("not yet")],
]
FOLLOWER_STEPS: list[list[Step | RunnelError]] = [
    [Step.OK],
    [Step.SILENCE],
    [Step.DROP],
    [NotLeaderError("an SPU that knows no followers' reads")],
    [NotFoundError("not here any more")],
    [OffsetOutOfRangeError("below my log start")],
    [DivergedError("mine is longer", diverged_at=1)],
]


def named(steps: object) -> str:
    assert isinstance(steps, list)
    return "-".join(s.name if isinstance(s, Step) else s.code.name for s in steps)


@pytest.mark.parametrize("follower_reads", [False, True], ids=["leader-first", "follower-first"])
@pytest.mark.parametrize("held", [3, 6], ids=["given-a-follower-that-lags", "given-all-replicated"])
@pytest.mark.parametrize("leads", LEADER_STEPS, ids=named)
@pytest.mark.parametrize("follows", FOLLOWER_STEPS, ids=named)
async def test_whoever_answers_all_is_read_once_and_in_order(
    replicated: Replicated,
    leads: list[Step | RunnelError],
    follows: list[Step | RunnelError],
    held: int,
    follower_reads: bool,
) -> None:
    replicated.fill(6, replicated=held)
    leader, follower = replicated.leader, replicated.follower
    leader.fetch_script.extend([Step.OK, *leads])
    follower.fetch_script.extend([*follows, Step.OK, *follows])
    reading = asyncio.create_task(offsets(replicated.consumer(6, follower_reads=follower_reads)))
    silent = [s for s in (*leads, *follows) if s is Step.SILENCE]
    if silent:
        # Late answers come while others are taken.
        await until_fetched(leader, 2 if not follower_reads else 0)
        for _ in range(50):
            await asyncio.sleep(0)
        leader.may_speak.set()
        follower.may_speak.set()
    assert await reading == list(range(6))


async def test_given_a_leader_that_hangs_then_the_rest_is_read_from_the_follower(
    replicated: Replicated,
) -> None:
    replicated.fill(8)
    replicated.leader.fetch_script.extend([Step.OK] + [Step.SILENCE] * 100)
    assert await offsets(replicated.consumer(8)) == list(range(8))
    # One request hangs; the leader is not asked for each record again.
    assert replicated.leader.fetches <= 2


async def test_given_a_leader_that_answers_late_then_it_is_asked_first_again(
    replicated: Replicated,
) -> None:
    replicated.fill(3)
    replicated.leader.fetch_script.extend([Step.OK, Step.SILENCE])
    async with replicated.consumer() as reading:
        records = aiter(reading)
        async with asyncio.timeout(10):
            assert [(await anext(records)).offset for _ in range(3)] == [0, 1, 2]
            replicated.leader.may_speak.set()
            asked = replicated.leader.fetches
            await until_fetched(replicated.leader, asked + 3)
            replicated.fill(4)
            assert [(await anext(records)).offset for _ in range(4)] == [3, 4, 5, 6]


async def test_given_fetches_then_they_tell_what_was_read_and_only_followers_get_the_flag(
    replicated: Replicated,
) -> None:
    replicated.fill(5)
    replicated.leader.fetch_script.extend([Step.OK, Step.OK, Step.SILENCE])
    assert await offsets(replicated.consumer(5)) == list(range(5))
    for spu in (replicated.leader, replicated.follower):
        assert spu.fetched
        for asked in spu.fetched:
            # The batch before offset n was of term n.
            assert asked.term == asked.offset * TERM
            follows = spu is replicated.follower
            told = FetchFlags.FOLLOWER_OK if follows else FetchFlags.COMMITTED_BELOW
            assert asked.flags == told


async def test_given_a_long_poll_that_is_overdue_then_the_follower_tells_what_came(
    replicated: Replicated,
) -> None:
    replicated.fill(1)
    replicated.leader.fetch_script.extend([Step.OK, Step.SILENCE])
    async with replicated.consumer() as reading:
        records = aiter(reading)
        async with asyncio.timeout(10):
            assert (await anext(records)).offset == 0
            await until_fetched(replicated.leader, 2)
            replicated.fill(1)
            assert (await anext(records)).offset == 1
    assert replicated.follower.fetches >= 1


async def test_given_a_follower_with_nothing_then_that_is_no_answer(
    replicated: Replicated,
) -> None:
    replicated.fill(2, replicated=1)
    replicated.leader.fetch_script.extend([Step.OK, Step.SILENCE])
    async with replicated.consumer() as reading:
        records = aiter(reading)
        async with asyncio.timeout(10):
            assert (await anext(records)).offset == 0
            waiting = asyncio.ensure_future(anext(records))
            while not replicated.follower.fetches_answered:  # noqa: ASYNC110 - state of the fake
                await asyncio.sleep(0)
            for _ in range(200):
                await asyncio.sleep(0)
            assert not waiting.done()
            replicated.leader.may_speak.set()
            assert (await waiting).offset == 1
    asked = [asked.offset for asked in replicated.leader.fetched]
    assert asked.count(1) == 1, "its first answer was waited for"


@pytest.mark.parametrize(
    "quiet",
    [
        pytest.param("option", id="given-speculative-reads-off"),
        pytest.param("replicas", id="given-no-replicas"),
        pytest.param("lagging", id="given-a-replica-that-is-not-live"),
        pytest.param("budget", id="given-no-budget"),
    ],
)
async def test_the_leader_alone_is_asked(
    replicated: Replicated, quiet: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    replicated.fill(4)
    if quiet == "replicas":
        replicated.sc.replicas = []
    if quiet == "lagging":
        replicated.sc.replicas[1] = (2, ("127.0.0.1", replicated.follower.port), False)
    if quiet == "budget":
        poor = SpeculationPolicy(first_ms=1, least_ms=1, most_ms=1, percent=0, burst=0)
        monkeypatch.setattr(readers, "Speculation", lambda: Speculation(poor))
    replicated.leader.fetch_script.extend([Step.OK, Step.SILENCE])
    reading = asyncio.create_task(
        offsets(replicated.consumer(4, speculative_reads=quiet != "option"))
    )
    await until_fetched(replicated.leader, 2)
    for _ in range(200):
        await asyncio.sleep(0)
    assert not reading.done()
    replicated.leader.may_speak.set()
    assert await reading == list(range(4))
    assert replicated.follower.fetches == 0


async def test_given_a_burst_of_two_then_no_third_second_request(
    replicated: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = SpeculationPolicy(first_ms=100, most_ms=100, percent=0, burst=2)
    monkeypatch.setattr(readers, "Speculation", lambda: Speculation(policy))
    replicated.fill(2, replicated=1)
    replicated.leader.fetch_script.extend([Step.OK, Step.SILENCE])
    replicated.sc.replicas += [
        (spu, ("127.0.0.1", replicated.follower.port), True) for spu in (3, 4, 5)
    ]
    async with replicated.consumer(max_wait_ms=60_000) as reading:
        records = aiter(reading)
        async with asyncio.timeout(10):
            assert (await anext(records)).offset == 0
            await until_fetched(replicated.follower, 2)
            for _ in range(500):
                await asyncio.sleep(0)
            assert replicated.follower.fetches == 2
            replicated.leader.may_speak.set()
            assert (await anext(records)).offset == 1


async def test_given_reads_then_the_consumer_learns_how_long_they_take_and_earns_its_budget(
    replicated: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No read of this test is so slow that the other replica is asked too, and the budget spent.
    policy = SpeculationPolicy(least_ms=30_000, first_ms=60_000, most_ms=60_000, enough=4, burst=1)
    learning = Speculation(policy)
    monkeypatch.setattr(readers, "Speculation", lambda: learning)
    replicated.fill(14)
    assert learning.take()
    assert not learning.take()
    assert learning.delay_ms(0.0) == 60_000
    assert await offsets(replicated.consumer(14)) == list(range(14))
    assert learning.delay_ms(0.0) < 60_000
    assert learning.take()


async def test_given_follower_reads_then_the_leader_is_spared(replicated: Replicated) -> None:
    replicated.fill(6)
    assert await offsets(
        replicated.consumer(6, follower_reads=True, speculative_reads=False)
    ) == list(range(6))
    assert replicated.leader.fetches == 0
    assert replicated.follower.fetches == 6


async def test_given_follower_reads_alone_then_an_overdue_follower_is_waited_for(
    replicated: Replicated,
) -> None:
    replicated.fill(2)
    replicated.follower.fetch_script.append(Step.SILENCE)
    settings = {"follower_reads": True, "speculative_reads": False}
    reading = asyncio.create_task(offsets(replicated.consumer(2, **settings)))
    await until_fetched(replicated.follower, 1)
    for _ in range(200):
        await asyncio.sleep(0)
    assert replicated.leader.fetches == 0
    replicated.follower.may_speak.set()
    assert await reading == [0, 1]


async def test_given_follower_reads_and_a_follower_that_lags_then_it_is_left_alone_for_a_while(
    replicated: Replicated,
) -> None:
    replicated.fill(6, replicated=3)
    assert await offsets(
        replicated.consumer(6, follower_reads=True, speculative_reads=False)
    ) == list(range(6))
    assert replicated.follower.fetches == 4
    assert replicated.leader.fetches == 3


async def test_given_follower_reads_and_a_damaged_follower_then_the_leaders_records_are_taken(
    replicated: Replicated,
) -> None:
    replicated.fill(6)
    replicated.log(replicated.follower).batches[3][-1] ^= 1
    assert await offsets(
        replicated.consumer(6, follower_reads=True, speculative_reads=False)
    ) == list(range(6))
    plain = [one for one in replicated.follower.fetched if FetchFlags.VERIFIED not in one.flags]
    assert len(plain) == 4
    assert replicated.leader.fetches == 3


async def test_given_follower_reads_and_a_follower_that_sends_what_is_not_committed_then_not_taken(
    replicated: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    replicated.fill(3)
    replicated.log(replicated.follower).confirmed = 0
    monkeypatch.setattr(FakeLog, "visible", lambda log: log.end)
    assert await offsets(
        replicated.consumer(3, follower_reads=True, speculative_reads=False)
    ) == list(range(3))
    assert [asked.offset for asked in replicated.leader.fetched] == [1, 2]


async def test_given_no_leader_then_what_is_known_is_read_from_the_follower_and_no_more(
    replicated: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetcher, "_LEADERLESS_S", 0.0)
    replicated.fill(4)
    async with replicated.consumer(give_up_ms=200) as reading:
        records = aiter(reading)
        async with asyncio.timeout(10):
            assert (await anext(records)).offset == 0
            replicated.sc.endpoints = [None]
            await replicated.leader.stop()
            assert [(await anext(records)).offset for _ in range(3)] == [1, 2, 3]
            with pytest.raises(runnel.DeadlineExceededError, match="no SPU is online"):
                await anext(records)
    assert {asked.offset for asked in replicated.follower.fetched} <= {0, 1, 2, 3}


async def test_given_a_dead_leader_that_the_sc_still_names_then_the_follower_is_read_for_nothing(
    replicated: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the place of a request that failed, so no budget is needed."""
    poor = SpeculationPolicy(first_ms=1, least_ms=1, most_ms=1, percent=0, burst=0)
    monkeypatch.setattr(readers, "Speculation", lambda: Speculation(poor))
    replicated.fill(4)
    async with replicated.consumer() as reading:
        records = aiter(reading)
        async with asyncio.timeout(10):
            assert (await anext(records)).offset == 0
            await replicated.leader.stop()
            assert [(await anext(records)).offset for _ in range(3)] == [1, 2, 3]


async def test_given_a_divergence_then_it_is_told_with_its_place_and_told_again(
    replicated: Replicated,
) -> None:
    replicated.fill(3)
    replicated.sc.term = Term(3 * TERM)
    diverged = DivergedError("SPU 1 led from offset 2 on in another term", diverged_at=2)
    replicated.leader.fetch_script.extend([Step.OK, Step.OK, Step.OK, diverged])
    reading = replicated.consumer()
    records = aiter(reading)
    async with asyncio.timeout(20):
        got = [(await anext(records)).offset for _ in range(3)]
        with pytest.raises(
            DivergedError,
            match=r"orders/0: the log no longer holds the records that were read before offset 3:"
            r" it may differ from offset 2 on: .* went back in time .*"
            r" continue from offset 2\. SPU 1 led",
        ) as raised:
            await anext(records)
    assert got == [0, 1, 2]
    assert raised.value.diverged_at == 2
    assert raised.value.details == {
        "divergedAt": 2, "topic": "orders", "partition": 0, "offset": 3,
    }  # fmt: skip
    with pytest.raises(DivergedError):
        await anext(aiter(reading))
    await reading.close()


@pytest.mark.parametrize(
    "refusal",
    [
        DivergedError("it lacks what its successor committed", diverged_at=1),
        OffsetOutOfRangeError("offset 3 is above the end of its log, 1"),
    ],
    ids=["given-diverged", "given-above-the-end"],
)
async def test_given_a_deposed_leader_that_knows_less_then_its_successor_is_asked(
    replicated: Replicated, refusal: RunnelError
) -> None:
    replicated.fill(3)
    deposed, successor = replicated.leader, replicated.follower
    deposed.fetch_script.extend([Step.OK, Step.OK, Step.OK])
    async with replicated.consumer(speculative_reads=False) as reading:
        records = aiter(reading)
        async with asyncio.timeout(10):
            assert [(await anext(records)).offset for _ in range(3)] == [0, 1, 2]
            # The SC says so to those who ask; the reader has no reason to ask yet.
            replicated.sc.term = Term(9 * TERM)
            replicated.sc.endpoints = [("127.0.0.1", successor.port)]
            successor.leads = True
            log = replicated.log(deposed)
            log.confirmed = 0
            replicated.log(successor).put(batch(3, 1), 9 * TERM)
            deposed.fetch_script.clear()
            deposed.fetch_script.extend([refusal] * 3)
            assert (await anext(records)).offset == 3


@pytest.mark.parametrize("catches_up", [True, False])
async def test_given_an_sc_that_is_behind_what_was_read_then_it_is_not_believed_for_long(
    replicated: Replicated, monkeypatch: pytest.MonkeyPatch, catches_up: bool
) -> None:
    monkeypatch.setattr(reader, "BEHIND_PAUSE_S", 0.01)
    replicated.fill(3)
    deposed, successor = replicated.leader, replicated.follower
    deposed.fetch_script.extend([Step.OK, Step.OK, Step.OK])
    lost = DivergedError("it lacks what its successor committed", diverged_at=1)
    give_up_ms = 30_000 if catches_up else 100
    async with replicated.consumer(speculative_reads=False, give_up_ms=give_up_ms) as reading:
        records = aiter(reading)
        async with asyncio.timeout(10):
            assert [(await anext(records)).offset for _ in range(3)] == [0, 1, 2]
            deposed.fetch_script.clear()
            deposed.fetch_script.extend([lost] * 1_000)
            if not catches_up:
                with pytest.raises(DivergedError, match="no longer holds the records"):
                    await anext(records)
                return
            following = asyncio.ensure_future(anext(records))
            await asyncio.sleep(0.1)
            assert not following.done()
            replicated.sc.term = Term(9 * TERM)
            replicated.sc.endpoints = [("127.0.0.1", successor.port)]
            successor.leads = True
            replicated.log(successor).put(batch(3, 1), 9 * TERM)
            assert (await following).offset == 3


async def test_given_a_deposed_leader_that_lacks_what_was_read_then_its_successor_is_asked(
    replicated: Replicated,
) -> None:
    replicated.fill(3)
    read = {0: OffsetAndTerm(3, 3 * TERM)}
    (found,) = (await replicated.cluster.offsets("orders", read=read)).values()
    assert (found.latest, found.diverged_at) == (3, None)
    # The SC says so to those who ask; the client has no reason to ask yet.
    replicated.sc.term = Term(9 * TERM)
    replicated.sc.endpoints = [("127.0.0.1", replicated.follower.port)]
    replicated.follower.leads = True
    replicated.log(replicated.follower).put(batch(3, 1), 9 * TERM)
    replicated.log(replicated.leader).go_back(1)
    (found,) = (await replicated.cluster.offsets("orders", read=read)).values()
    assert (found.latest, found.diverged_at) == (4, None)


async def test_given_a_silent_leader_that_was_replaced_then_its_successor_is_asked(
    replicated: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routing, "_PATIENCE_S", 0.005)
    replicated.fill(3)
    replicated.leader.fetch_script.extend([Step.OK] + [Step.SILENCE] * 100)
    async with replicated.consumer() as reading:
        records = aiter(reading)
        async with asyncio.timeout(10):
            assert [(await anext(records)).offset for _ in range(3)] == [0, 1, 2]
            replicated.sc.term = Term(2 * TERM)
            replicated.sc.endpoints = [("127.0.0.1", replicated.follower.port)]
            replicated.follower.leads = True
            before = len(replicated.follower.fetched)
            while not any(  # noqa: ASYNC110 - state of the fake, not an event
                asked.flags == FetchFlags.COMMITTED_BELOW
                for asked in replicated.follower.fetched[before:]
            ):
                await asyncio.sleep(0)


def test_the_settings_are_the_same_in_both_facades() -> None:
    assert runnel.ConsumerSettings is aio.ConsumerSettings
    settings = runnel.ConsumerSettings()
    assert (settings.speculative_reads, settings.follower_reads) == (True, False)


def damage(log: FakeLog, index: int) -> None:
    log.batches[index] = bytearray(log.batches[index])
    log.batches[index][-1] ^= 1


@pytest.mark.parametrize("speculative_reads", [True, False])
async def test_given_damage_on_the_leader_then_it_is_told_and_the_reader_meets_no_error(
    replicated: Replicated, speculative_reads: bool
) -> None:
    replicated.fill(6)
    leader, follower = replicated.leader, replicated.follower
    damage(replicated.log(leader), 2)
    leader.finds_damage = True

    def elect() -> None:
        leader.leads, follower.leads = False, True
        replicated.sc.endpoints = [("127.0.0.1", follower.port)]
        replicated.sc.term = Term(2 * TERM)

    leader.found_damage = elect
    consumer = replicated.consumer(6, speculative_reads=speculative_reads)
    assert await offsets(consumer) == [*range(6)]
    told = [one for one in leader.fetched if FetchFlags.VERIFIED in one.flags]
    assert [one.offset for one in told] == [2]


async def test_given_damage_on_a_follower_then_it_is_told_and_read_no_more(
    replicated: Replicated,
) -> None:
    replicated.fill(6)
    leader, follower = replicated.leader, replicated.follower
    damage(replicated.log(follower), 2)
    follower.finds_damage = True
    told_of_damage = asyncio.Event()
    follower.found_damage = told_of_damage.set
    assert await offsets(replicated.consumer(6, follower_reads=True)) == [*range(6)]
    await told_of_damage.wait()
    told = [one for one in follower.fetched if FetchFlags.VERIFIED in one.flags]
    assert [(one.offset, FetchFlags.FOLLOWER_OK in one.flags) for one in told] == [(2, True)]
    assert not any(FetchFlags.VERIFIED in one.flags for one in leader.fetched)


async def test_given_damage_in_transit_then_what_the_leader_verified_is_read(
    replicated: Replicated,
) -> None:
    replicated.fill(6)
    log = replicated.log(replicated.leader)
    damage(log, 2)
    # It is whole on the leader's disk.
    replicated.leader.found_damage = lambda: damage(log, 2)
    consumer = replicated.consumer(6, speculative_reads=False)
    assert await offsets(consumer) == [*range(6)]


async def test_given_a_leader_that_does_not_verify_then_the_reader_is_told_of_the_damage(
    replicated: Replicated,
) -> None:
    replicated.fill(6)
    damage(replicated.log(replicated.leader), 2)
    with pytest.raises(CorruptBatchError, match="orders/0 at offset 2"):
        await offsets(replicated.consumer(6, speculative_reads=False))


async def test_given_damage_on_the_only_replica_then_the_reader_is_told_at_once(
    replicated: Replicated,
) -> None:
    replicated.fill(6)
    replicated.sc.replicas = []
    damage(replicated.log(replicated.leader), 2)
    replicated.leader.finds_damage = True
    with pytest.raises(CorruptBatchError, match="orders/0 at offset 2"):
        await offsets(replicated.consumer(6))
    assert FetchFlags.VERIFIED in replicated.leader.fetched[-1].flags
