"""The work queue: its pure state by table and by random use, and its timers on an event loop."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sc.controllers.actions import Key
from sc.dispatch.work_queue import WorkQueue, WorkQueueState
from tests.laws import examples
from tests.polling import eventually

A, B, C = Key("Topic", "a"), Key("Topic", "b"), Key("Topic", "c")
KEYS = (A, B, C)


def state(
    waiting: dict[Key, str] | None = None,
    active: set[Key] | None = None,
    dirty: dict[Key, str] | None = None,
    urgent: set[Key] | None = None,
) -> WorkQueueState:
    return WorkQueueState(OrderedDict(waiting or {}), active or set(), dirty or {}, urgent or set())


@pytest.mark.parametrize(
    ("before", "key", "after"),
    [
        pytest.param(state(), A, state({A: "new"}), id="given-empty-then-waits"),
        pytest.param(
            state({A: "old"}), A, state({A: "new"}), id="given-waiting-then-once-with-newest-cause"
        ),
        pytest.param(
            state(active={A}), A, state(active={A}, dirty={A: "new"}), id="given-active-then-dirty"
        ),
        pytest.param(
            state(active={A}, dirty={A: "old"}),
            A,
            state(active={A}, dirty={A: "new"}),
            id="given-dirty-then-dirty-once-with-newest-cause",
        ),
        pytest.param(
            state({B: "b"}, active={A}),
            C,
            state({B: "b", C: "new"}, active={A}),
            id="given-others-then-behind-them",
        ),
    ],
)
def test_add(before: WorkQueueState, key: Key, after: WorkQueueState) -> None:
    before.add(key, "new")
    assert before == after


@pytest.mark.parametrize(
    ("before", "taken", "after"),
    [
        pytest.param(state(), None, state(), id="given-empty-then-none"),
        pytest.param(state(active={A}), None, state(active={A}), id="given-all-active-then-none"),
        pytest.param(
            state({B: "b", A: "a"}),
            (B, "b"),
            state({A: "a"}, active={B}),
            id="given-two-then-the-one-that-waits-longest",
        ),
    ],
)
def test_take(before: WorkQueueState, taken: tuple[Key, str] | None, after: WorkQueueState) -> None:
    assert before.take() == taken
    assert before == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(state(active={A}), state(), id="given-clean-then-gone"),
        pytest.param(
            state({B: "b"}, active={A}, dirty={A: "again"}),
            state({B: "b", A: "again"}),
            id="given-dirty-then-waits-behind-the-others",
        ),
        pytest.param(
            state(active={A, B}, dirty={B: "again"}),
            state(active={B}, dirty={B: "again"}),
            id="given-another-dirty-then-that-one-stays",
        ),
        pytest.param(
            state({B: "b"}, active={A}, dirty={A: "again"}, urgent={A}),
            state({A: "again", B: "b"}),
            id="given-urgent-then-before-the-others",
        ),
        pytest.param(
            state({B: "b"}, active={A}, urgent={A}),
            state({B: "b"}),
            id="given-urgent-and-clean-then-gone",
        ),
        pytest.param(state(), state(), id="given-never-taken-then-nothing"),
    ],
)
def test_done(before: WorkQueueState, after: WorkQueueState) -> None:
    before.done(A)
    assert before == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(state({B: "b", A: "a"}), state({A: "a", B: "b"}), id="waiting-then-first"),
        pytest.param(state(active={A}), state(active={A}, urgent={A}), id="active-then-urgent"),
        pytest.param(state({B: "b"}), state({B: "b"}), id="neither-then-nothing"),
    ],
)
def test_hasten(before: WorkQueueState, after: WorkQueueState) -> None:
    before.hasten(A)
    assert before == after


class QueueUse(RuleBasedStateMachine):
    """Workers and wishes in any order: no key twice at work, none forgotten."""

    def __init__(self) -> None:
        super().__init__()
        self.state = WorkQueueState()
        self.owed: dict[Key, str] = {}
        self.at_work: set[Key] = set()
        self.causes = 0

    @rule(key=st.sampled_from(KEYS))
    def add(self, key: Key) -> None:
        self.causes += 1
        self.owed[key] = f"cause-{self.causes}"
        self.state.add(key, self.owed[key])

    @rule()
    def take(self) -> None:
        found = self.state.take()
        if found is None:
            assert not set(self.owed) - self.at_work
            return
        key, cause = found
        assert key not in self.at_work
        assert self.owed.pop(key) == cause
        self.at_work.add(key)

    @precondition(lambda self: self.at_work)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.at_work)))
        self.at_work.discard(key)
        self.state.done(key)

    @invariant()
    def every_wish_is_kept_once(self) -> None:
        assert self.state.active == self.at_work
        assert not set(self.state.waiting) & set(self.state.dirty)
        assert self.state.waiting | self.state.dirty == self.owed
        assert set(self.state.dirty) <= self.at_work
        assert not set(self.state.waiting) & self.at_work

    def teardown(self) -> None:
        for key in sorted(self.at_work):
            self.state.done(key)
        rest = dict(iter(self.state.take, None))
        assert rest == self.owed


TestQueueUse = QueueUse.TestCase
TestQueueUse.settings = settings(max_examples=examples(15), stateful_step_count=30)


@pytest.fixture
async def queue() -> AsyncIterator[WorkQueue]:
    made = WorkQueue()
    yield made
    made.close()


async def test_given_waiting_worker_then_an_added_key_reaches_it(queue: WorkQueue) -> None:
    worker = asyncio.create_task(queue.take())
    await asyncio.sleep(0)
    assert not worker.done()
    queue.add(A, "why")
    assert await worker == (A, "why")


async def test_given_many_workers_then_each_key_reaches_one(queue: WorkQueue) -> None:
    workers = [asyncio.create_task(queue.take()) for _ in range(5)]
    await asyncio.sleep(0)
    for key in KEYS:
        queue.add(key, key.name)
    await eventually(lambda: sum(w.done() for w in workers) == len(KEYS))
    assert {w.result() for w in workers if w.done()} == {(k, k.name) for k in KEYS}
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)


async def test_given_dirty_key_then_handed_out_again_once_it_is_done(queue: WorkQueue) -> None:
    queue.add(A, "first")
    assert await queue.take() == (A, "first")
    queue.add(A, "second")
    queue.add(A, "third")
    again = asyncio.create_task(queue.take())
    await asyncio.sleep(0)
    assert not again.done()
    queue.done(A)
    assert await again == (A, "third")
    queue.done(A)
    assert queue.idle


async def test_given_cancelled_worker_then_no_key_is_lost(queue: WorkQueue) -> None:
    worker = asyncio.create_task(queue.take())
    await asyncio.sleep(0)
    queue.add(A, "why")
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)
    assert await queue.take() == (A, "why")


async def test_given_cancelled_worker_then_its_key_reaches_another(queue: WorkQueue) -> None:
    first, second = (asyncio.create_task(queue.take()) for _ in range(2))
    await asyncio.sleep(0)
    queue.add(A, "why")
    first.cancel()
    assert await second == (A, "why")
    await asyncio.gather(first, return_exceptions=True)


async def test_given_worker_cancelled_while_it_waits_then_the_next_gets_the_key(
    queue: WorkQueue,
) -> None:
    first, second = (asyncio.create_task(queue.take()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    queue.add(A, "why")
    assert await second == (A, "why")
    await asyncio.gather(first, return_exceptions=True)


async def test_given_hastened_key_then_next(queue: WorkQueue) -> None:
    for key in KEYS:
        queue.add(key, key.name)
    queue.hasten(C)
    assert await queue.take() == (C, "c")
    # One that is at work comes next, but only if there is new work.
    queue.hasten(C)
    assert await queue.take() == (A, "a")
    queue.add(C, "again")
    queue.done(C)
    assert await queue.take() == (C, "again")
    queue.add(C, "once more")
    queue.done(C)
    assert await queue.take() == (B, "b")


async def test_given_work_then_length_counts_waiting_and_active(queue: WorkQueue) -> None:
    assert (len(queue), queue.idle) == (0, True)
    queue.add(A, "")
    queue.add(B, "")
    await queue.take()
    assert (len(queue), queue.idle) == (2, False)


async def test_given_keys_then_shrunk_when_enough_are_done(queue: WorkQueue) -> None:
    for key in KEYS:
        queue.add(key, "")
    shrunk = asyncio.create_task(queue.shrunk_to(1))
    for done in (False, True):
        key, _cause = await queue.take()
        queue.done(key)
        for _ in range(3):
            await asyncio.sleep(0)
        assert shrunk.done() is done
    await shrunk


async def test_given_first_work_done_then_worked_off_and_for_good(queue: WorkQueue) -> None:
    queue.add(A, "")
    queue.add(B, "")
    for _ in range(2):
        key, _cause = await queue.take()
        assert not queue.worked_off.is_set()
        queue.done(key)
    assert queue.worked_off.is_set()
    queue.add(A, "")
    assert queue.worked_off.is_set()


async def test_given_first_work_that_failed_then_worked_off_after_its_retry(
    queue: WorkQueue,
) -> None:
    queue.add(A, "")
    queue.add(B, "")
    for retried in (True, False):
        key, _cause = await queue.take()
        if retried:
            queue.retry_after(key, "", 1.0)
        queue.done(key)
    assert queue.idle
    assert not queue.worked_off.is_set()
    key, _cause = await queue.take()
    queue.done(key)
    assert queue.worked_off.is_set()


class Clock:
    """The time of the running loop, moved by the test: timers fire without waiting."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        self._start, self.ahead_s = loop.time, 0.0
        monkeypatch.setattr(loop, "time", lambda: self._start() + self.ahead_s)

    async def pass_s(self, seconds: float) -> None:
        self.ahead_s += seconds
        for _ in range(3):
            await asyncio.sleep(0)


async def test_given_timer_then_its_key_comes_when_it_is_due(
    queue: WorkQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    queue.add_after(A, "later", 60_000)
    await clock.pass_s(59)
    assert queue.idle
    await clock.pass_s(2)
    assert await queue.take() == (A, "later")


@pytest.mark.parametrize(
    ("first_ms", "second_ms", "cause"),
    [
        pytest.param(60_000, 90_000, "first", id="given-earlier-timer-then-it-stands"),
        pytest.param(90_000, 60_000, "second", id="given-later-timer-then-replaced"),
    ],
)
async def test_two_timers_of_one_key(
    queue: WorkQueue,
    monkeypatch: pytest.MonkeyPatch,
    first_ms: float,
    second_ms: float,
    cause: str,
) -> None:
    clock = Clock(monkeypatch)
    queue.add_after(A, "first", first_ms)
    queue.add_after(A, "second", second_ms)
    await clock.pass_s(61)
    assert await queue.take() == (A, cause)
    queue.done(A)
    await clock.pass_s(60)
    assert queue.idle


async def test_given_fired_timer_then_a_new_one_can_be_set(
    queue: WorkQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    queue.add_after(A, "one", 1_000)
    await clock.pass_s(2)
    await queue.take()
    queue.done(A)
    queue.add_after(A, "two", 1_000)
    await clock.pass_s(2)
    assert await queue.take() == (A, "two")


async def test_given_time_in_the_past_then_at_once(queue: WorkQueue) -> None:
    queue.add_after(A, "late", -5)
    assert await queue.take() == (A, "late")


async def test_given_closed_queue_then_no_timer_fires(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    queue = WorkQueue()
    queue.add_after(A, "never", 1_000)
    queue.close()
    await clock.pass_s(5)
    assert queue.idle
