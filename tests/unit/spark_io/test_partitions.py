"""From wishes and log bounds to slices."""

from __future__ import annotations

import pickle

import pytest

from schemas.errors import InvalidRequestError, OffsetOutOfRangeError, RunnelError
from spark_io.options import ReadOptions, parse_read_options
from spark_io.partitions import LogBounds, LogSlice, plan_slices

LOGS = (LogBounds(0, 10), LogBounds(5, 5), LogBounds(7, 9))


def options(**given: str) -> ReadOptions:
    return parse_read_options({"topic": "orders", **given}, lambda: "localhost")


@pytest.mark.parametrize(
    ("given", "slices"),
    [
        pytest.param({}, [(0, 10), (5, 5), (7, 9)], id="given-nothing-then-all"),
        pytest.param(
            {"startingOffsets": "latest"}, [(10, 10), (5, 5), (9, 9)], id="given-latest-then-none"
        ),
        pytest.param(
            {
                "startingOffsets": '{"0": 3, "1": 5, "2": -1}',
                "endingOffsets": '{"0": 4, "1": -1, "2": 9}',
            },
            [(3, 4), (5, 5), (9, 9)],
            id="given-offsets-then-exactly-those",
        ),
        pytest.param(
            {"startingOffsets": '{"0": 10, "1": -2, "2": 7}'},
            [(10, 10), (5, 5), (7, 9)],
            id="given-the-end-as-the-start-then-an-empty-slice",
        ),
    ],
)
def test_slices(given: dict[str, str], slices: list[tuple[int, int]]) -> None:
    planned = plan_slices(options(**given), "uid", LOGS)
    assert [(s.start, s.end) for s in planned] == slices
    assert [s.partition for s in planned] == [0, 1, 2]


@pytest.mark.parametrize(
    ("given", "found", "slices"),
    [
        pytest.param(
            {},
            (4, 5, 7),
            [(4, 10), (5, 5), (7, 9)],
            id="given-batches-with-the-id-then-from-them",
        ),
        pytest.param(
            {}, (12, 6, 9), [(10, 10), (5, 5), (9, 9)], id="given-it-is-not-there-yet-then-nothing"
        ),
        pytest.param(
            {"endingOffsets": '{"0": 4, "1": -1, "2": 8}'},
            (6, 5, 7),
            [(4, 4), (5, 5), (7, 8)],
            id="given-it-comes-after-the-end-then-nothing",
        ),
    ],
)
def test_slices_from_a_transaction_id(
    given: dict[str, str], found: tuple[int, ...], slices: list[tuple[int, int]]
) -> None:
    logs = [LogBounds(log.start, log.end, first) for log, first in zip(LOGS, found, strict=True)]
    planned = plan_slices(options(startingTransactionId="7", **given), "uid", logs)
    assert planned == [
        LogSlice("uid", index, start, end, 7) for index, (start, end) in enumerate(slices)
    ]


def test_given_a_transaction_id_then_the_end_must_name_all_partitions_as_ever() -> None:
    with pytest.raises(InvalidRequestError, match="option endingOffsets: partition 0, 2 of topic"):
        plan_slices(options(startingTransactionId="7", endingOffsets='{"1": 5}'), "uid", LOGS)


@pytest.mark.parametrize(
    ("given", "kind", "says"),
    [
        pytest.param(
            {"startingOffsets": '{"0": 1, "1": 5, "2": 8, "3": 0}'},
            InvalidRequestError,
            "option startingOffsets: topic 'orders' has no partition 3; it has 3 (0 to 2)",
            id="given-an-unknown-partition-then-named",
        ),
        pytest.param(
            {"endingOffsets": '{"1": 5}'},
            InvalidRequestError,
            "option endingOffsets: partition 0, 2 of topic 'orders' is missing",
            id="given-a-partition-left-out-then-named",
        ),
        pytest.param(
            {"startingOffsets": '{"0": 11, "1": -2, "2": -2}'},
            OffsetOutOfRangeError,
            "option startingOffsets: offset 11 of partition 0 of topic 'orders' is out of range;"
            " the log holds 0 to 10 (end not included): later records are not committed yet; if"
            " there were some, acknowledged records were lost in an unclean election",
            id="given-an-offset-above-the-end-then-the-bounds",
        ),
        pytest.param(
            {"endingOffsets": '{"0": 1, "1": -1, "2": 6}'},
            OffsetOutOfRangeError,
            "the log holds 7 to 9 (end not included): earlier records were deleted by retention",
            id="given-an-offset-below-the-start-then-the-bounds",
        ),
        pytest.param(
            {"startingOffsets": "latest", "endingOffsets": '{"0": 4, "1": -1, "2": -1}'},
            InvalidRequestError,
            "partition 0 of topic 'orders' starts at 10, after its end 4 (endingOffsets)",
            id="given-an-end-before-the-start-then-both",
        ),
    ],
)
def test_refusals(given: dict[str, str], kind: type[RunnelError], says: str) -> None:
    with pytest.raises(kind) as caught:
        plan_slices(options(**given), "uid", LOGS)
    assert says in caught.value.message


def test_a_slice_survives_the_way_to_a_task_and_is_small() -> None:
    piece = LogSlice("uid", 3, 5, 9)
    raw = pickle.dumps(piece)
    assert pickle.loads(raw) == piece  # noqa: S301 - made in the line above
    assert len(raw) < 300
