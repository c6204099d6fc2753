"""From wishes and log bounds to slices."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from runnel import TransactionId
from schemas.errors import (
    DivergedError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    RunnelError,
)
from spark_io.options.read import ReadOptions, parse_read_options
from spark_io.plan.slices import LogBounds, LogSlice, Plan, TopicBounds, plan_slices

LOGS = (LogBounds(0, 10), LogBounds(5, 5), LogBounds(7, 9))


def plan(wanted: ReadOptions, logs: Sequence[LogBounds] = LOGS) -> Plan:
    return plan_slices(wanted, [TopicBounds("orders", "uid", tuple(enumerate(logs)))])


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
    planned = plan(options(**given)).slices
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
    planned = plan(options(startingTransactionId="7", **given), logs).slices
    assert planned == [
        LogSlice("orders", "uid", index, start, end, TransactionId(7))
        for index, (start, end) in enumerate(slices)
    ]


@pytest.mark.parametrize(
    ("given", "kind", "says"),
    [
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
        plan(options(**given))
    assert says in caught.value.message


def test_a_slice_survives_the_way_to_a_task_and_is_small() -> None:
    piece = LogSlice("orders", "uid", 3, 5, 9)
    raw = pickle.dumps(piece)
    assert pickle.loads(raw) == piece  # noqa: S301 - made in the line above
    assert len(raw) < 300


WHEN = datetime(2025, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("given", "logs", "slices"),
    [
        pytest.param(
            {"startingTimestamp": "1735689600000"},
            [LogBounds(0, 10, first=4), LogBounds(5, 9, first=5)],
            [(4, 10, WHEN), (5, 9, WHEN)],
            id="given-a-start-then-from-its-first-record",
        ),
        pytest.param(
            {"endingTimestamp": "1735689600000"},
            [LogBounds(0, 10, last=4), LogBounds(5, 9, last=12)],
            [(0, 4, None), (5, 9, None)],
            id="given-an-end-then-before-its-first-record",
        ),
        pytest.param(
            {
                "startingTimestamp": "1735689600000",
                "startingOffsetsByTimestampStrategy": "latest",
            },
            [LogBounds(0, 10, first=10)],
            [(10, 10, WHEN)],
            id="given-no-such-record-and-latest-then-nothing",
        ),
        pytest.param(
            {"startingTimestamp": "1735689600000", "endingOffsets": '{"0": 3}'},
            [LogBounds(0, 10, first=5)],
            [(3, 3, WHEN)],
            id="given-a-start-after-the-end-then-nothing",
        ),
    ],
)
def test_slices_by_time(
    given: dict[str, str], logs: list[LogBounds], slices: list[tuple[int, int, datetime | None]]
) -> None:
    planned = plan(options(**given), logs).slices
    assert [(s.start, s.end, s.begins_at) for s in planned] == slices


def test_given_a_time_that_no_record_has_then_refused() -> None:
    with pytest.raises(OffsetOutOfRangeError, match="partition 1 of topic 'orders' has no record"):
        plan(
            options(startingTimestamp="1735689600000"),
            [LogBounds(0, 10, first=4), LogBounds(5, 9, first=9)],
        )


def test_given_losses_are_accepted_then_the_nearest_offsets_and_a_warning_each() -> None:
    found = plan(
        options(
            failOnDataLoss="false",
            startingOffsets='{"0": 0, "1": 5, "2": 3}',
            endingOffsets='{"0": 99, "1": -1, "2": -1}',
        )
    )
    assert [(s.start, s.end) for s in found.slices] == [(0, 10), (5, 5), (7, 9)]
    assert [text.partition(" is not there")[0] for text in found.warnings] == [
        "partition 0 of topic 'orders': offset 99",
        "partition 2 of topic 'orders': offset 3",
    ]


@pytest.mark.parametrize(
    ("given", "terms"),
    [
        pytest.param({}, (0, 7, 7), id="given-all-then-the-last-term"),
        pytest.param({"startingOffsets": "latest"}, (7, 7, 7), id="given-latest-then-both"),
        pytest.param(
            {"endingOffsets": '{"0": 6}'}, (0, 0, 7), id="given-an-end-below-then-only-the-most"
        ),
        pytest.param(
            {
                "startingOffsets": '{"orders": {"0": 4}, "_terms": {"orders": {"0": 3}}}',
                "endingOffsets": '{"orders": {"0": 6}, "_terms": {"orders": {"0": 5}}}',
            },
            (3, 5, 5),
            id="given-terms-then-those",
        ),
        pytest.param(
            {"endingOffsets": '{"orders": {"0": 10}, "_terms": {"orders": {"0": 5}}}'},
            (0, 5, 5),
            id="given-a-term-that-the-log-no-longer-has-then-the-given-one",
        ),
    ],
)
def test_terms_say_which_records_were_planned(
    given: dict[str, str], terms: tuple[int, int, int]
) -> None:
    (piece,) = plan(options(**given), [LogBounds(0, 10, term=7)]).slices
    assert (piece.start_term, piece.end_term, piece.most_term) == terms


def test_given_other_records_below_the_start_then_an_error_or_from_them_on() -> None:
    wanted = {"startingOffsets": '{"orders": {"0": 8}, "_terms": {"orders": {"0": 3}}}'}
    log = LogBounds(0, 10, term=7, diverged_at=4)
    with pytest.raises(DivergedError) as caught:
        plan(options(**wanted), [log])
    assert caught.value.message.startswith(
        "option startingOffsets: partition 0 of topic 'orders' holds other records below offset 8,"
        " from 4 on: "
    )
    assert caught.value.message.endswith("; failOnDataLoss=false begins at 4")
    found = plan(options(**wanted, failOnDataLoss="false"), [log])
    assert [(s.start, s.start_term, s.end) for s in found.slices] == [(4, 0, 10)]
    assert len(found.warnings) == 1


def test_sizes_are_in_proportion_to_the_offsets() -> None:
    found = plan(
        options(startingOffsets='{"0": 5, "1": 5}'),
        [LogBounds(0, 10, size_bytes=1_000), LogBounds(5, 5, size_bytes=77)],
    )
    assert found.sizes == [500, 0]


def test_partitions_of_several_topics_are_planned_together() -> None:
    wanted = parse_read_options(
        {"topic": "a,b", "startingOffsets": '{"a": {"0": 1}, "b": {"2": -1}}'}, lambda: "localhost"
    )
    found = plan_slices(
        wanted,
        [
            TopicBounds("a", "ua", ((0, LogBounds(0, 5)),)),
            TopicBounds("b", "ub", ((2, LogBounds(0, 6)),)),
        ],
    )
    assert found.slices == [LogSlice("a", "ua", 0, 1, 5), LogSlice("b", "ub", 2, 6, 6)]
