"""The controller loop: writes before the next look, conflicts, failures, and the end of office."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from sc.controllers.actions import (
    Action,
    Key,
    KvAction,
    RegisterSpu,
    SessionAction,
    WakeAt,
    WriteStatus,
)
from sc.dispatch.loop import ControllerLoop
from sc.dispatch.work_queue import WorkQueue
from sc.metrics import ScMetrics
from sc.store.view import View
from schemas.causality import current_cause
from schemas.errors import ConflictError, FencedError, UnreachableError
from tests.polling import eventually
from tests.unit.sc.builders import spu_of, topic_of

A, B = Key("Topic", "a"), Key("Topic", "b")


def write(name: str = "a") -> WriteStatus:
    return WriteStatus(topic_of(name), topic_of(name).status)


@dataclass
class Bench:
    """A loop whose controllers, KV and mirror do what the test says."""

    queue: WorkQueue = field(default_factory=WorkQueue)
    metrics: ScMetrics = field(default_factory=ScMetrics)
    log: list[str] = field(default_factory=list)
    actions: dict[Key, list[tuple[Action, ...] | Exception]] = field(default_factory=dict)
    writes: list[Exception] = field(default_factory=list)
    mirrored: asyncio.Event = field(default_factory=asyncio.Event)

    def reconcile(self, _view: View, key: Key, _now_ms: int) -> tuple[Action, ...]:
        self.log.append(f"look {key.name} {current_cause()}")
        planned = self.actions.get(key)
        found = planned.pop(0) if planned else ()
        if isinstance(found, Exception):
            raise found
        return found

    async def write(self, action: KvAction) -> int:
        assert isinstance(action, WriteStatus)
        self.log.append(f"write {action.object.name} {current_cause()}")
        if self.writes:
            raise self.writes.pop(0)
        return 7

    async def applied(self, revision: int) -> None:
        self.log.append(f"wait {revision}")
        await self.mirrored.wait()

    def carry_out(self, action: SessionAction) -> None:
        self.log.append(f"send {type(action).__name__}")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        loop = ControllerLoop(
            View(),
            self.queue,
            write=self.write,
            sessions=self,
            applied=self.applied,
            metrics=self.metrics,
            now_ms=lambda: 1_000,
        )
        task = asyncio.create_task(loop.run())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self.queue.close()

    async def until(self, condition: Callable[[], bool]) -> None:
        await eventually(condition)

    def looks(self, name: str = "a") -> int:
        return sum(line.startswith(f"look {name} ") for line in self.log)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench()
    monkeypatch.setattr("sc.dispatch.loop.reconcile", made.reconcile)
    monkeypatch.setattr("sc.dispatch.loop.RETRY_BASE_MS", 1.0)
    made.mirrored.set()
    return made


async def test_given_write_then_the_key_waits_for_the_mirror_before_its_next_look(
    bench: Bench,
) -> None:
    bench.mirrored.clear()
    bench.actions[A] = [(write(),)]
    async with bench.running():
        bench.queue.add(A, "one")
        await bench.until(lambda: "wait 7" in bench.log)
        bench.queue.add(A, "two")
        bench.queue.add(B, "other")
        await bench.until(lambda: bench.looks("b") == 1)
        assert bench.looks("a") == 1
        bench.mirrored.set()
        await bench.until(lambda: bench.looks("a") == 2)
    assert bench.log == ["look a one", "write a one", "wait 7", "look b other", "look a two"]


async def test_given_several_actions_then_carried_out_in_order(bench: Bench) -> None:
    bench.actions[A] = [(RegisterSpu(spu_of(1)), write(), RegisterSpu(spu_of(2)))]
    async with bench.running():
        bench.queue.add(A, "c")
        await bench.until(lambda: bench.queue.idle)
    assert bench.log == ["look a c", "send RegisterSpu", "write a c", "wait 7", "send RegisterSpu"]


async def test_given_lost_compare_and_swap_then_looked_at_anew_after_the_mirror_caught_up(
    bench: Bench,
) -> None:
    bench.actions[A] = [(write(), RegisterSpu(spu_of(1))), ()]
    bench.writes = [ConflictError("changed", revision=9)]
    async with bench.running():
        bench.queue.add(A, "c")
        await bench.until(lambda: bench.looks() == 2)
    assert bench.log == ["look a c", "write a c", "wait 9", "look a c"]
    assert b"runnel_sc_conflicts_total 1.0" in bench.metrics.render()


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(UnreachableError("no KV"), id="given-store-away-then-tried-again"),
        pytest.param(KeyError("bug"), id="given-unforeseen-error-then-tried-again"),
    ],
)
async def test_failure(bench: Bench, failure: Exception) -> None:
    bench.actions[A] = [(write(),), failure, (write(),)]
    bench.writes = [failure]
    async with bench.running() as task:
        bench.queue.add(A, "c")
        bench.queue.add(B, "c")
        await bench.until(lambda: bench.looks() == 3 and bench.queue.idle)
        assert not task.done()
    assert bench.log[-2:] == ["write a c", "wait 7"]


async def test_given_deposed_then_the_loop_ends(bench: Bench) -> None:
    bench.actions[A] = [(write(),)]
    bench.writes = [FencedError("another SC took office")]
    async with bench.running() as task:
        bench.queue.add(A, "c")
        await bench.until(task.done)
        assert isinstance(task.exception(), BaseExceptionGroup)
        assert "another SC took office" in repr(task.exception())


async def test_given_wake_at_then_the_key_comes_back_by_itself(bench: Bench) -> None:
    bench.actions[A] = [(WakeAt(A, 1_001),), ()]
    async with bench.running():
        bench.queue.add(A, "c")
        await bench.until(lambda: bench.looks() == 2)


async def test_given_slow_write_then_the_same_key_is_never_at_work_twice(bench: Bench) -> None:
    bench.mirrored.clear()
    bench.actions[A] = [(write(),), (write(),)]
    async with bench.running():
        for cause in ("1", "2", "3"):
            bench.queue.add(A, cause)
            await asyncio.sleep(0)
        await bench.until(lambda: bench.log.count("wait 7") == 1)
        bench.mirrored.set()
        await bench.until(lambda: bench.queue.idle)
    assert bench.log.count("wait 7") == 2
    assert [line for line in bench.log if line.startswith("look")][-1] == "look a 3"
