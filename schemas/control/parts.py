"""What an SPU says, in messages of a bounded size. Pure.

A message is parsed in one step, during which an event loop does nothing else. So whoever has much
to say says it in several messages, each complete in itself, or, of a hello, counted by its first
one (`schemas.control.messages.Hello.more`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

from schemas.control.messages import FindPeers, Hello, HelloPart, Report, SpuRequest
from schemas.model import Model

#: The most that an SC takes in one message of an SPU that offers `PARTS_PROTOCOL`.
MAX_PART_BYTES: Final = 1 << 20
#: How much of it is used for replicas, requests and tombstones.
FILLED_BYTES: Final = 512 << 10
#: The same for a hello, so that over slow lines, too, a part arrives within seconds. One of very
#: many replicas has larger parts, but not more than this.
HELLO_BYTES: Final = 16 << 10
MOST_HELLO_PARTS: Final = 500
#: Ids of SPUs in one question: each has at most ten digits.
FILLED_IDS: Final = 40_000

ModelT = TypeVar("ModelT", bound=Model)


def hello_parts(hello: Hello) -> tuple[Hello, list[HelloPart]]:
    """A hello, and the parts that follow it."""
    sizes = list(_sizes(hello.replicas))
    filled = min(max(HELLO_BYTES, sum(sizes) // (MOST_HELLO_PARTS // 2)), FILLED_BYTES)
    first, *more = _filled(hello.replicas, sizes, filled) or [()]
    later = [HelloPart(replicas=replicas) for replicas in more]
    update = {"replicas": first, "more": len(later) or None}
    return hello.model_copy(update=update), later


def report_parts(report: Report) -> Iterator[Report]:
    """Reports that together say the same: replicas first, as of one state each."""
    free_bytes = report.free_bytes
    for replicas in _slices(report.replicas):
        yield Report(replicas=replicas, free_bytes=free_bytes)
        free_bytes = None
    for deleted in _slices(report.deleted):
        yield Report(deleted=deleted, free_bytes=free_bytes)
        free_bytes = None
    if free_bytes is not None:
        yield Report(free_bytes=free_bytes)
    if report.obstacles is not None:
        yield Report(obstacles=report.obstacles)


def request_parts(request: SpuRequest) -> Iterator[SpuRequest]:
    """Requests that together ask for the same."""
    for lrs in _slices(request.lrs):
        yield SpuRequest(lrs=lrs)
    for elections in _slices(request.elections):
        yield SpuRequest(elections=elections)


def question_parts(question: FindPeers) -> Iterator[FindPeers]:
    """Questions that together ask for the same SPUs."""
    ids = question.spu_ids
    for start in range(0, len(ids), FILLED_IDS):
        yield FindPeers(spu_ids=ids[start : start + FILLED_IDS])


def _slices(models: Sequence[ModelT]) -> list[tuple[ModelT, ...]]:
    return _filled(models, _sizes(models), FILLED_BYTES)


def _filled(
    models: Sequence[ModelT], sizes: Iterable[int], filled: int
) -> list[tuple[ModelT, ...]]:
    """Models in order, as many together as fit; one that does not fit is alone."""
    found: list[tuple[ModelT, ...]] = []
    slice_: list[ModelT] = []
    used_bytes = 0
    for model, size in zip(models, sizes, strict=True):
        if slice_ and used_bytes + size > filled:
            found.append(tuple(slice_))
            slice_, used_bytes = [], 0
        slice_.append(model)
        used_bytes += size
    return [*found, tuple(slice_)] if slice_ else found


def _sizes(models: Iterable[Model]) -> Iterator[int]:
    """How many bytes each takes in a message, with its comma."""
    for model in models:
        yield len(model.model_dump_json(by_alias=True, exclude_none=True).encode()) + 1
