"""A life of several SCs: faults, then a calm, and what must hold all the time.

- At most one SC relies on leading, and that one has the office in the KV at that very moment: its
  own deadline ends before the KV may end its lease, whatever the network did.
- No write is accepted of an SC that does not hold the office when the KV executes it, also if it
  stood still between its look at the clock and the write.
- Some time after the last fault, one SC leads and writes.

Clocks run at speeds within `SPEEDS`, that of the KV too. Faults are drawn from the seed.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final
from unittest import mock

from sc.election import node
from sc.kv.interface import Put
from sc.kv.memory import MemoryKV
from schemas.control.controllers import ControllerEntry
from schemas.errors import ConflictError
from tests.sim.leases.network import done_at_once
from tests.sim.leases.sc import KEYS, WRITES, SimSc

LIFE_S: Final = 90.0
#: Longer than an SC waits that has lost its lease again and again, and a lease.
CALM_S: Final = 45.0
SPEEDS: Final = (0.97, 1.03)
FAULTS: Final = ("stand still", "cut", "slow", "kill", "end", "step down", "KV stands still")


class ViolationError(AssertionError):
    """An invariant does not hold."""


@dataclass
class World:
    """One life, by its seed."""

    seed: int
    now_s: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    _queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = field(
        default_factory=list
    )
    _numbers: Any = field(default_factory=itertools.count)
    _cut_until_s: dict[str, float] = field(default_factory=dict)
    _slow_until_s: dict[str, float] = field(default_factory=dict)
    _still_until_s: float = 0.0
    _wrote_s: float = 0.0

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.lease_ms = self.chance.choice((3_000, 6_000, 10_000))
        self.names = [f"sc-{number}" for number in range(self.chance.choice((2, 3, 3)))]
        speed = self.chance.uniform(*SPEEDS)
        self.kv = MemoryKV(clock=lambda: self.now_s * speed)
        self.scs: dict[str, SimSc] = {}
        for name in self.names:
            self._start(name, None)

    # -- what the network and the KV do -------------------------------------------------------

    def after(self, delay_s: float, call: Callable[..., None], *args: Any) -> None:
        """Do something later."""
        heapq.heappush(self._queue, (self.now_s + delay_s, next(self._numbers), call, args))

    def delay_s(self, name: str) -> float:
        """How long a message takes, one way."""
        slow = self._slow_until_s.get(name, 0.0) > self.now_s
        delay_s = self.chance.uniform(0.1, 1.4) if slow else self.chance.uniform(0.0005, 0.005)
        return max(0.0, self._still_until_s - self.now_s) + delay_s

    def reaches(self, name: str) -> bool:
        """Whether messages come through between an SC and the KV."""
        return self._cut_until_s.get(name, 0.0) <= self.now_s

    def expire_leases(self) -> None:
        """The KV ends leases whose time is over."""
        ended: int = done_at_once(self.kv.expire_leases())
        self.counts["leases ended"] += ended

    def executed(self, sc: SimSc, name: str, args: tuple[Any, ...], result: Any) -> None:
        """The KV has executed a request."""
        if name != "txn" or not getattr(result, "succeeded", False):
            return
        keys = [op.key for op in args[1] if isinstance(op, Put)]
        if KEYS.leader in keys:
            self.counts["elections"] += 1
        if WRITES in keys:
            if self._held_by() != sc.instance:
                self._fail(f"{sc.instance} has written, and the office is {self._held_by()}'s")
            self.counts["writes"] += 1
            self._wrote_s = self.now_s

    def _held_by(self) -> str | None:
        found = done_at_once(self.kv.get(KEYS.leader))
        entry = None if found is None else ControllerEntry.decode(found.value)
        return None if entry is None else entry.instance

    # -- life ---------------------------------------------------------------------------------

    def run(self) -> Counter[str]:
        """Live. Raises ViolationError."""
        try:
            with mock.patch.object(node, "random", SimpleNamespace(random=self.chance.random)):
                self._live()
        finally:
            for sc in self.scs.values():
                sc.close()
        return self.counts

    def _live(self) -> None:
        at_s = self.chance.uniform(2, 5)
        while at_s < LIFE_S:
            self._until(at_s)
            self._fault(self.chance.choice(FAULTS))
            at_s += self.chance.expovariate(1 / 3)
        self._until(LIFE_S)
        self._heal()
        self._until(LIFE_S + CALM_S)
        if self._wrote_s < self.now_s - 1:
            self._fail(f"nobody has written since {self._wrote_s:.1f} s")

    def _heal(self) -> None:
        self._cut_until_s.clear()
        self._slow_until_s.clear()
        self._still_until_s = 0.0
        for sc in self.scs.values():
            sc.frozen_until_s = 0.0
        for name in self.names:
            self._start(name, None)

    def _until(self, end_s: float) -> None:
        while True:
            at_s, sc = end_s, None
            for one in self.scs.values():
                due_s = one.next_due_s()
                if due_s is not None and due_s < at_s:
                    at_s, sc = due_s, one
            if self._queue and self._queue[0][0] <= at_s:
                at_s, _, call, args = heapq.heappop(self._queue)
                self.now_s = max(self.now_s, at_s)
                call(*args)
            elif sc is not None:
                self.now_s = max(self.now_s, at_s)
                sc.loop.turn()
                sc.check()
            else:
                self.now_s = end_s
                return
            self._check()

    def _check(self) -> None:
        self.expire_leases()
        relying = [
            sc
            for sc in self.scs.values()
            if sc.frozen_until_s <= self.now_s and sc.writer is not None and sc.writer.would_write
        ]
        if len(relying) > 1:
            self._fail(f"{', '.join(sc.instance for sc in relying)} rely on leading")
        if relying and self._held_by() != relying[0].instance:
            self._fail(f"{relying[0].instance} relies on the office, which is {self._held_by()}'s")

    def _start(self, name: str, predecessor: str | None) -> None:
        if name not in self.scs:
            speed = self.chance.uniform(*SPEEDS)
            self.scs[name] = SimSc(self, name, next(self._numbers), predecessor, speed)

    def _fault(self, kind: str) -> None:
        name = self.chance.choice(self.names)
        sc, lasts_s = self.scs.get(name), self.chance.uniform(0.1, 3 * self.lease_ms / 1000)
        self.counts[f"fault: {kind}"] += 1
        match kind:
            case "stand still" if sc is not None:
                sc.frozen_until_s = self.now_s + lasts_s
            case "cut":
                self._cut_until_s[name] = self.now_s + lasts_s
            case "slow":
                self._slow_until_s[name] = self.now_s + lasts_s
            case "KV stands still":
                self._still_until_s = self.now_s + lasts_s / 3
            case "step down" if sc is not None and sc.frozen_until_s <= self.now_s:
                sc.loop.call_soon(_step_down, sc)
            case "end" if sc is not None:
                sc.stop()
                self.after(self.chance.uniform(1, 5), self._gone, name, sc)
            case "kill" if sc is not None:
                self._gone(name, sc)
            case _:
                pass

    def _gone(self, name: str, sc: SimSc) -> None:
        """The process is gone; another one follows, which may know that."""
        if self.scs.get(name) is not sc:
            return
        self.scs.pop(name).close()
        known = sc.instance if self.chance.random() < 0.5 else None
        self.after(self.chance.uniform(0.2, 10), self._start, name, known)

    def _fail(self, what: str) -> None:
        raise ViolationError(
            f"seed {self.seed}, {self.now_s:.3f} s: {what};"
            f" again: python -m tests.sim.leases --seeds 1 --seed {self.seed}"
        )


def _step_down(sc: SimSc) -> None:
    try:
        sc.node.step_down()
    except ConflictError:
        # It does not lead.
        return


def run(seed: int) -> Counter[str]:
    """One life; gives what happened, counted. Raises ViolationError."""
    return World(seed).run()
