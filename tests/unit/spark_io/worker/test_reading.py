"""One slice in a task: what is lost is an error or left out, and nothing comes twice."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pytest

from runnel import ClusterInfo, KnownTopic, OffsetAndTerm, PartitionOffsets
from schemas.control.assignments import TopicAssignment
from schemas.errors import (
    DivergedError,
    NotFoundError,
    OffsetOutOfRangeError,
    RunnelError,
    UnreachableError,
)
from spark_io.options.read import ReadOptions, parse_read_options
from spark_io.plan.slices import LogSlice
from spark_io.worker import reading
from spark_io.worker.reading import read_slice

KNOWN = KnownTopic(
    ClusterInfo("c", "uid", "1", None),
    TopicAssignment.model_validate(
        {
            "name": "orders",
            "uid": "u",
            "resolution": "provisioned",
            "partitionCount": 1,
            "replicationFactor": 1,
            "compression": "none",
            "durability": "fsync",
            "maxRecordSize": 1,
        }
    ),
    None,
)
#: What a consumer meets: a batch of so many records, the same and its term, an error, or None for
#: silence.
Step = int | tuple[int, int] | RunnelError | None


class Log:
    """A played cluster: each consumer that is opened plays the next list of steps."""

    def __init__(self, *plays: list[Step], end: int | RunnelError = 100) -> None:
        self.plays = list(plays)
        self.end = end
        self.opened: list[int] = []
        self.terms: list[int] = []

    def consumer(self, topic: str, *, start: dict[int, OffsetAndTerm], **_: Any) -> Consumer:
        (begin,) = start.values()
        self.opened.append(begin.offset)
        self.terms.append(begin.term)
        return Consumer(begin.offset, self.plays.pop(0))

    def offsets(self, topic: str, partitions: list[int]) -> dict[int, PartitionOffsets]:
        if isinstance(self.end, RunnelError):
            raise self.end
        return {0: PartitionOffsets(0, 0, self.end, 0)}


class Consumer:
    """Plays its steps; it has met its end when none is left."""

    def __init__(self, begin: int, steps: list[Step]) -> None:
        self._at = begin
        self._term = 0
        self._steps = steps

    @property
    def exhausted(self) -> bool:
        return not self._steps

    def position(self) -> dict[int, int]:
        return {0: self._at}

    def position_with_terms(self) -> dict[int, OffsetAndTerm]:
        return {0: OffsetAndTerm(self._at, self._term)}

    def batches(self) -> Iterator[pa.RecordBatch]:
        # A silence is never the end.
        while self._steps:
            match self._steps.pop(0):
                case None:
                    return
                case int() as count:
                    yield self._batch(count)
                case (count, term):
                    self._term = term
                    yield self._batch(count)
                case error:
                    raise error

    def _batch(self, count: int) -> pa.RecordBatch:
        offsets = list(range(self._at, self._at + count))
        self._at += count
        return pa.RecordBatch.from_pydict({"offset": offsets})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        pass


def gone(first: int) -> OffsetOutOfRangeError:
    return OffsetOutOfRangeError("not there", firstAvailable=first)


def diverged() -> DivergedError:
    return DivergedError("lost", diverged_at=3)


def read(
    log: Log,
    monkeypatch: pytest.MonkeyPatch,
    lenient: bool,
    start_term: int = 0,
    end_term: int = 0,
    most_term: int = 0,
) -> list[int]:
    monkeypatch.setattr(reading, "task_client", lambda *_: log)
    options: ReadOptions = parse_read_options(
        {"topic": "orders", "failOnDataLoss": str(not lenient).lower()}, lambda: "localhost"
    )
    piece = LogSlice("orders", "u", 0, 0, 10, None, start_term, end_term, most_term, KNOWN)
    found = [batch["offset"].to_pylist() for batch in read_slice(options, piece)]
    return [offset for offsets in found for offset in offsets]


ALL = list(range(10))


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        pytest.param(Log([4, 6]), ALL, id="given-batches-then-all"),
        pytest.param(Log([4, None, 6]), ALL, id="given-silence-then-it-goes-on"),
        pytest.param(
            Log([4, None, 6], end=UnreachableError("away")), ALL, id="given-no-answer-then-it-waits"
        ),
    ],
)
def test_what_is_there_is_read(
    log: Log, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read(log, monkeypatch, lenient=False) == expected


@pytest.mark.parametrize(
    ("plays", "end", "says", "expected", "opened"),
    [
        pytest.param(
            [[gone(4)], [6]],
            100,
            "offsets 0 to 3 were deleted since this read was planned; load it again, or"
            " failOnDataLoss=false reads the rest",
            [4, 5, 6, 7, 8, 9],
            [0, 4],
            id="given-the-beginning-was-deleted",
        ),
        pytest.param(
            [[2, gone(5)], [5]],
            100,
            "offsets 2 to 4 were deleted",
            [0, 1, 5, 6, 7, 8, 9],
            [0, 5],
            id="given-the-middle-was-deleted",
        ),
        pytest.param(
            [[2, gone(50)]],
            100,
            "offsets 2 to 9 were deleted",
            [0, 1],
            [0],
            id="given-all-of-the-rest-was-deleted",
        ),
        pytest.param(
            [[4, diverged()], [6]],
            100,
            "lost. failOnDataLoss=false reads the rest",
            ALL,
            [0, 4],
            id="given-another-log-from-there-on",
        ),
        pytest.param(
            [[4, None, None]],
            4,
            "ends at 4, and it ended at 10 or above",
            [0, 1, 2, 3],
            [0],
            id="given-the-log-ends-early",
        ),
        pytest.param(
            [[4, OffsetOutOfRangeError("above the end", end=4)]],
            100,
            "above the end",
            [0, 1, 2, 3],
            [0],
            id="given-the-position-is-above-the-end",
        ),
    ],
)
def test_what_is_lost(
    plays: list[list[Step]],
    end: int,
    says: str,
    expected: list[int],
    opened: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Log(*(list(play) for play in plays), end=end)
    assert read(log, monkeypatch, lenient=True) == expected
    assert log.opened == opened
    with pytest.raises((OffsetOutOfRangeError, DivergedError)) as caught:
        read(Log(*(list(play) for play in plays), end=end), monkeypatch, lenient=False)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("play", "terms", "before"),
    [
        pytest.param([(4, 7), (6, 7)], {"end_term": 7, "most_term": 7}, None, id="the-same"),
        pytest.param([(4, 5), (6, 7)], {"most_term": 7}, None, id="an-election-before-it"),
        pytest.param([(4, 0), (6, 0)], {"end_term": 7, "most_term": 7}, None, id="an-archive"),
        pytest.param([(4, 9), (6, 9)], {}, None, id="nothing-is-known"),
        pytest.param([(4, 7), (6, 8)], {"most_term": 7}, 4, id="a-later-term"),
        pytest.param(
            [(4, 5), (6, 5)], {"end_term": 7, "most_term": 7}, 4, id="an-earlier-term-at-the-end"
        ),
    ],
)
def test_terms_tell_whether_these_are_the_records_that_were_planned(
    play: list[Step], terms: dict[str, int], before: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read(Log(list(play)), monkeypatch, lenient=True, **terms) == ALL
    if before is None:
        assert read(Log(list(play)), monkeypatch, lenient=False, **terms) == ALL
        return
    with pytest.raises(DivergedError, match=r"other records below offset 10 than .*planned") as one:
        read(Log(list(play)), monkeypatch, lenient=False, **terms)
    assert one.value.diverged_at == before
    assert "load it again, or begin the query with a new checkpointLocation" in str(one.value)


def test_what_was_read_before_is_compared_until_something_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Log([diverged()], [gone(4)], [6])
    assert read(log, monkeypatch, lenient=True, start_term=3) == ALL[4:]
    assert log.terms == [3, 0, 0]
    log = Log([gone(4)], [6])
    assert read(log, monkeypatch, lenient=True, start_term=3) == ALL[4:]
    assert log.terms == [3, 0]


@pytest.mark.parametrize("lenient", [True, False])
def test_given_the_topic_is_gone_then_it_says_what_to_do(
    lenient: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NotFoundError, match="since this read was planned; load it again"):
        read(Log([2, NotFoundError("no topic")]), monkeypatch, lenient)
