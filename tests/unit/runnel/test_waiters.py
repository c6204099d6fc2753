"""Threads that wait for others, and Ctrl-C at any point of a wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from itertools import islice
from typing import Any

import pytest

from runnel import loop_thread
from runnel.consume.chunk_queue import ChunkQueue
from runnel.loop_thread import LoopThread
from runnel.produce import send_buffer
from runnel.produce.delivery import Outcome
from runnel.waiters import Flag, Waiters
from schemas.errors import RunnelError
from tests.unit.runnel.interrupts import interrupted_everywhere
from tests.unit.runnel.produce.test_send_buffer import Bench

#: Of what has to end long before.
LONG_S = 20.0
#: More points than one round of a wait has.
POINTS = 200


def ends(call: Callable[[], object]) -> bool:
    """Does this call end, in another thread?"""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(LONG_S)
    return not thread.is_alive()


def test_given_waiters_then_all_that_wait_are_told() -> None:
    waiters = Waiters()
    found: list[bool] = []

    def wait() -> None:
        found.append(waiters.wait(lambda: False, None))

    threads = [threading.Thread(target=wait, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    while len(waiters) < len(threads):
        pass
    waiters.tell_all()
    for thread in threads:
        thread.join(LONG_S)
    assert (found, len(waiters)) == ([True] * 3, 0)


@pytest.mark.parametrize(
    ("is_there", "most_s", "found"),
    [
        pytest.param(True, None, True, id="given-it-is-there-then-nobody-waits"),
        pytest.param(False, 0.001, False, id="given-nothing-then-the-time-is-over"),
        pytest.param(False, -1.0, False, id="given-no-time"),
    ],
)
def test_waits_that_nobody_ends(is_there: bool, most_s: float | None, found: bool) -> None:
    waiters = Waiters()
    assert waiters.wait(lambda: is_there, most_s) is found
    assert len(waiters) == 0


@pytest.fixture
def thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopThread]:
    monkeypatch.setattr(loop_thread, "_LOOK_S", 0.001)
    thread = LoopThread("interrupted")
    yield thread
    thread.stop()


def test_given_ctrl_c_at_any_point_of_a_call_then_the_loop_serves_the_next_one(
    thread: LoopThread,
) -> None:
    async def work() -> int:
        await asyncio.sleep(0.01)
        return 5

    works: list[Coroutine[Any, Any, int]] = []

    def call() -> None:
        works.append(work())
        thread.call(works[-1])

    raised = list(interrupted_everywhere(call))
    assert len(raised) > 10
    assert {type(error) for error in raised} == {KeyboardInterrupt}
    assert thread.call(work()) == 5
    for one in works:
        # An interrupt may come before the loop knows of it.
        one.close()


@pytest.mark.parametrize(
    "use",
    [
        pytest.param(lambda outcome: outcome.result(0.001), id="given-its-result"),
        pytest.param(lambda outcome: outcome.exception(0.001), id="given-its-error"),
        pytest.param(lambda outcome: outcome.add_done_callback(id), id="given-a-callback"),
        pytest.param(lambda outcome: outcome.done(), id="given-a-look"),
        pytest.param(lambda outcome: outcome.cancel(), id="given-a-wait-that-is-given-up"),
        pytest.param(lambda outcome: outcome.cancelled(), id="given-a-look-at-that"),
        pytest.param(repr, id="given-its-text"),
    ],
)
@pytest.mark.parametrize("known", [False, True], ids=["given-it-is-open", "given-it-is-known"])
def test_given_ctrl_c_at_any_point_then_others_learn_the_outcome(
    use: Callable[[Outcome], object], *, known: bool
) -> None:
    outcome = Outcome("orders")
    if known:
        outcome.set_result(5)
    raised = list(interrupted_everywhere(lambda: use(outcome)))
    assert raised
    assert {type(error) for error in raised} <= {KeyboardInterrupt, TimeoutError}
    assert known or ends(lambda: outcome.set_result(5))
    assert ends(outcome.result)
    assert ends(outcome.exception)
    assert (outcome.result(), outcome.exception()) == (5, None)


def test_given_a_callback_that_waits_for_who_waits_then_both_go_on() -> None:
    outcome, heard, found = Outcome("orders"), threading.Event(), list[bool]()
    outcome.add_done_callback(lambda _: found.append(heard.wait(LONG_S)))
    teller = threading.Thread(target=outcome.set_result, args=(5,), daemon=True)
    teller.start()
    assert outcome.result() == 5
    heard.set()
    teller.join(LONG_S)
    assert found == [True]


def test_given_a_known_outcome_then_only_the_new_callback_is_called_here() -> None:
    outcome, called = Outcome("orders"), list[str]()

    def first(_: object) -> None:
        called.append("first")
        assert ends(lambda: outcome.add_done_callback(lambda _: called.append("new")))
        called.append("first goes on")

    outcome.add_done_callback(first)
    outcome.add_done_callback(lambda _: called.append("second"))
    outcome.set_result(5)
    assert called == ["first", "new", "first goes on", "second"]


def test_given_a_callback_that_fails_then_the_others_are_called(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outcome, called = Outcome("orders"), list[object]()

    def fail(_: object) -> None:
        raise ValueError("boom")

    outcome.add_done_callback(fail)
    outcome.add_done_callback(called.append)
    outcome.set_exception(RunnelError("no"))
    outcome.add_done_callback(called.append)
    assert called == [outcome] * 2
    assert "a callback of a batch for topic 'orders' failed" in caplog.text
    with pytest.raises(RunnelError):
        outcome.result()


def test_given_a_flag_then_waits_end_when_it_is_set() -> None:
    flag = Flag()
    assert not flag.wait(0.001)
    raised = list(interrupted_everywhere(lambda: flag.wait(0.001)))
    assert {type(error) for error in raised} == {KeyboardInterrupt}
    assert ends(lambda: threading.Timer(0.001, flag.set).start())
    assert (flag.wait(), flag.is_set()) == (True, True)


def test_given_ctrl_c_at_any_point_of_a_wait_for_room_then_the_buffer_takes_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(send_buffer, "_ROOM_POLL_S", 0.001)
    bench = Bench(buffer_bytes=10, waits=True)
    bench.send(b"1" * 10)
    bench.flush()
    raised = list(islice(interrupted_everywhere(lambda: bench.send(b"2")), POINTS))
    assert {type(error) for error in raised} == {KeyboardInterrupt}
    assert ends(lambda: bench._send_buffer.release(bench.taken[0]))
    assert ends(lambda: bench.send(b"3"))
    bench.flush()
    assert [batch.count for batch in bench.taken] == [1, 1]


def test_given_ctrl_c_at_any_point_of_a_sleep_then_chunks_come() -> None:
    queue: ChunkQueue[str] = ChunkQueue()
    raised = list(interrupted_everywhere(lambda: queue.sleep(0.001)))
    assert len(raised) > 5
    assert {type(error) for error in raised} == {KeyboardInterrupt}
    assert ends(lambda: queue.put("a"))
    assert queue.take() == "a"
