"""The garbage collector is held for a block, and only where it was on; old objects are frozen."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from schemas.daemon.collector import PAUSE_S, FrozenHeap, held


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    yield
    gc.enable()


def test_given_block_then_held_until_its_end() -> None:
    with held():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_given_error_then_on_again() -> None:
    with pytest.raises(ValueError, match="x"), held():
        raise ValueError("x")
    assert gc.isenabled()


def test_given_collector_that_is_off_then_it_stays_off() -> None:
    gc.disable()
    with held():
        pass
    assert not gc.isenabled()


@dataclass
class Heap:
    """A collector that freezes and thaws numbers of objects, and a clock."""

    old: int = 0
    frozen: int = 0
    now_s: float = 0.0
    counted: int = 0
    traversed: list[int] = field(default_factory=list)

    def get_freeze_count(self) -> int:
        self.counted += 1
        return self.frozen

    def freeze(self) -> None:
        self.old, self.frozen = 0, self.frozen + self.old

    def unfreeze(self) -> None:
        self.old, self.frozen = self.old + self.frozen, 0

    def collect(self, heap: FrozenHeap, added: int, garbage: int = 0, generation: int = 2) -> None:
        """So many objects have become old; of all that are old so many are garbage."""
        self.old += added
        heap.on_collection("start", {"generation": generation})
        if generation == 2:
            self.traversed.append(self.old)
            self.old -= garbage
        heap.on_collection("stop", {"generation": generation})


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Heap:
    fake = Heap(frozen=1_000)
    monkeypatch.setattr("schemas.daemon.collector.gc", fake)
    return fake


def test_given_collections_then_each_traverses_only_what_became_old_since(fake: Heap) -> None:
    heap = FrozenHeap(few=10_000, each=100, clock=lambda: PAUSE_S)
    for _ in range(9):
        fake.collect(heap, added=100, garbage=10)
    assert fake.traversed == [100] * 9
    assert fake.frozen == 1_000 + 9 * 90


def test_given_collection_of_the_young_then_nothing_is_frozen(fake: Heap) -> None:
    heap = FrozenHeap()
    fake.collect(heap, added=100, generation=1)
    assert (fake.old, fake.frozen) == (100, 1_000)


def test_given_twice_as_much_then_all_of_it_is_traversed_once(fake: Heap) -> None:
    heap = heap_of(fake, few=1, each=100)
    for _ in range(10):
        fake.collect(heap, added=100)
    assert fake.traversed == [100] * 9 + [2_000]
    assert fake.frozen == 2_000
    fake.now_s += PAUSE_S
    for _ in range(20):
        fake.collect(heap, added=100)
    assert fake.traversed[10:] == [100] * 19 + [4_000]


def test_given_as_much_freed_as_frozen_then_never_all_of_it_and_rarely_counted(
    fake: Heap,
) -> None:
    heap = heap_of(fake, few=1, each=100)
    before = fake.counted
    for _ in range(100):
        fake.collect(heap, added=100)
        fake.frozen -= 100
    assert max(fake.traversed) == 100
    assert fake.counted - before <= 10


def test_given_few_then_not_all_of_it(fake: Heap) -> None:
    heap = heap_of(fake, few=100_000, each=100)
    for _ in range(100):
        fake.collect(heap, added=100)
    assert max(fake.traversed) == 100


def test_given_growth_soon_after_the_last_time_then_it_waits(fake: Heap) -> None:
    heap = heap_of(fake, few=1, each=100)
    fake.now_s -= 1
    for _ in range(50):
        fake.collect(heap, added=100)
    assert max(fake.traversed) == 100
    fake.now_s += 1
    fake.collect(heap, added=100)
    assert fake.traversed[-1] == 6_100


def heap_of(fake: Heap, *, few: int, each: int) -> FrozenHeap:
    """A heap that was frozen long ago."""
    heap = FrozenHeap(few=few, each=each, clock=lambda: fake.now_s)
    fake.now_s = PAUSE_S
    return heap


_REAL = """
import gc, weakref
from schemas.daemon.collector import PAUSE_S, FrozenHeap

class Node:
    def __init__(self):
        self.self = self

now_s = 0.0
gc.collect()
gc.freeze()
gc.callbacks.append(FrozenHeap(few=1, each=10**9, clock=lambda: now_s).on_collection)
node, garbage = Node(), weakref.ref(Node())
gc.collect()
assert garbage() is None
assert not any(found is node for found in gc.get_objects())
garbage = weakref.ref(node)
del node
gc.collect()
assert garbage() is not None
more = [[] for _ in range(gc.get_freeze_count())]
gc.collect()
assert garbage() is not None
now_s = PAUSE_S
gc.collect()
assert garbage() is None
assert gc.get_freeze_count() > len(more)
print("good")
"""


def test_python_collects_so() -> None:
    """In a process of its own: in this one there is very much to traverse."""
    done = subprocess.run(
        [sys.executable, "-c", _REAL], capture_output=True, text=True, check=False
    )
    assert done.stdout == "good\n", done.stderr
