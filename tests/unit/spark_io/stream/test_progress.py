"""Where the batches of a stream end, and what they read."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from schemas.errors import DivergedError, NotFoundError, OffsetOutOfRangeError, RunnelError
from spark_io.options.read import ReadOptions, TriggerLimits, parse_read_options
from spark_io.options.table import Use
from spark_io.plan.slices import LogBounds, TopicBounds
from spark_io.stream.offsets import StreamPlace
from spark_io.stream.progress import ends_of, next_place, plan_batch, untold, with_terms


def options(**given: str) -> ReadOptions:
    return parse_read_options({"topic": "orders", **given}, lambda: "localhost", Use.STREAM)


STRICT, LENIENT = options(), options(failOnDataLoss="false")


def place(uid: str = "u", **partitions: int) -> StreamPlace:
    offsets = {int(name[1:]): offset for name, offset in partitions.items()}
    return StreamPlace({"orders": offsets}, {"orders": uid})


def logs(*bounds: tuple[int, int], uid: str = "u") -> list[TopicBounds]:
    found = tuple((index, LogBounds(*one)) for index, one in enumerate(bounds))
    return [TopicBounds("orders", uid, found)]


def following(
    start: StreamPlace,
    topics: list[TopicBounds],
    wanted: ReadOptions = STRICT,
    limits: TriggerLimits | None = None,
    since_ms: float = math.inf,
    target: StreamPlace | None = None,
) -> tuple[StreamPlace, list[str]]:
    return next_place(start, topics, wanted, limits or TriggerLimits(), since_ms, target)


@pytest.mark.parametrize(
    ("start", "topics", "limits", "expected"),
    [
        pytest.param(place(p0=3), logs((0, 9)), None, place(p0=9), id="given-records-then-all"),
        pytest.param(place(p0=9), logs((0, 9)), None, place(p0=9), id="given-none-then-stays"),
        pytest.param(
            place(p0=3),
            logs((0, 9), (2, 5)),
            None,
            place(p0=9, p1=5),
            id="given-an-added-partition-then-it-is-read",
        ),
        pytest.param(
            place(p0=0),
            logs((0, 9), (0, 9)),
            TriggerLimits(4),
            place(p0=2, p1=2),
            id="given-a-limit-then-an-added-one-counts-from-its-beginning",
        ),
    ],
)
def test_the_next_place(
    start: StreamPlace,
    topics: list[TopicBounds],
    limits: TriggerLimits | None,
    expected: StreamPlace,
) -> None:
    assert following(start, topics, limits=limits) == (expected, [])


def test_given_a_target_then_nothing_behind_it_is_read_and_it_is_reached() -> None:
    target = ends_of(logs((0, 9)))
    topics = logs((0, 20), (0, 4))
    assert following(place(p0=3), topics, target=target)[0] == place(p0=9, p1=0)
    assert following(place(p0=9, p1=0), topics, target=target)[0] == place(p0=9, p1=0)
    # A checkpoint may already be behind it.
    assert following(place(p0=12), logs((0, 20)), target=target)[0] == place(p0=12)


def test_given_too_few_records_then_it_waits_for_some_time() -> None:
    limits = TriggerLimits(min_offsets=10, max_delay_ms=1_000)
    topics = logs((0, 9))
    assert following(place(p0=3), topics, limits=limits, since_ms=5)[0] == place(p0=3)
    assert following(place(p0=3), topics, limits=limits, since_ms=1_000)[0] == place(p0=9)
    target = ends_of(topics)
    found = following(place(p0=3), topics, limits=limits, since_ms=5, target=target)[0]
    assert found == place(p0=9), "availableNow does not wait for what will never come"


@pytest.mark.parametrize(
    ("start", "topics", "error", "says", "expected"),
    [
        pytest.param(
            place(p0=9),
            logs((0, 4)),
            DivergedError,
            "partition 0 of topic 'orders' ends at 4, and this stream has read up to 9",
            place(p0=4),
            id="given-the-log-is-shorter-then-from-its-end",
        ),
        pytest.param(
            place(p0=9),
            logs((2, 4), uid="new"),
            NotFoundError,
            "topic 'orders' was deleted and created again since this stream read it",
            place("new", p0=4),
            id="given-another-topic-then-from-its-beginning",
        ),
        pytest.param(
            place(p0=2),
            logs((4, 9)),
            OffsetOutOfRangeError,
            "partition 0 of topic 'orders': offsets 2 to 3 were deleted before this stream read",
            place(p0=9),
            id="given-records-were-deleted-then-from-those-that-are-there",
        ),
        pytest.param(
            place(p0=2, p1=3),
            logs((0, 9)),
            NotFoundError,
            "partition 1 of topic 'orders' of this stream is not there",
            place(p0=9),
            id="given-a-partition-is-not-chosen-any-more-then-without-it",
        ),
        pytest.param(
            place(p0=9),
            [],
            NotFoundError,
            "topic 'orders' of this stream is not there: it was deleted, or option topic",
            StreamPlace({}, {}),
            id="given-the-topic-is-gone-then-without-it",
        ),
    ],
)
def test_what_is_lost_is_an_error_or_left_out(
    start: StreamPlace,
    topics: list[TopicBounds],
    error: type[RunnelError],
    says: str,
    expected: StreamPlace,
) -> None:
    with pytest.raises(error) as caught:
        following(start, topics)
    assert says in str(caught.value)
    assert "or failOnDataLoss=false" in str(caught.value)
    found, warnings = following(start, topics, LENIENT)
    assert found == expected
    assert [says in one for one in warnings] == [True]


def known(uid: str = "u", **partitions: tuple[int, int]) -> StreamPlace:
    """A place with a term for each partition."""
    found = place(uid, **{name: offset for name, (offset, _) in partitions.items()})
    terms = {int(name[1:]): term for name, (_, term) in partitions.items()}
    return replace(found, terms={"orders": terms})


def log_of_term(term: int, end: int = 9, diverged_at: int | None = None) -> list[TopicBounds]:
    bounds = LogBounds(0, end, size_bytes=90, term=term, diverged_at=diverged_at)
    return [TopicBounds("orders", "u", ((0, bounds),))]


@pytest.mark.parametrize(
    ("start", "topics", "limits", "expected", "asked"),
    [
        pytest.param(
            known(p0=(3, 1)), log_of_term(7), None, known(p0=(9, 7)), {}, id="given-the-end"
        ),
        pytest.param(
            known(p0=(9, 1)),
            log_of_term(7),
            None,
            known(p0=(9, 1)),
            {},
            id="given-it-stays-then-the-same-text",
        ),
        pytest.param(
            place(p0=9),
            log_of_term(7),
            None,
            place(p0=9),
            {"orders": {0: 9}},
            id="given-a-text-of-an-earlier-version-then-it-stays-too",
        ),
        pytest.param(
            known(p0=(3, 1)),
            log_of_term(7),
            TriggerLimits(2),
            place(p0=5),
            {"orders": {0: 5}},
            id="given-a-place-in-the-middle-then-its-leader-is-asked",
        ),
        pytest.param(
            place(p0=3),
            logs((0, 9)),
            TriggerLimits(2),
            place(p0=5),
            {},
            id="given-an-SPU-of-an-earlier-version-then-nothing-is-asked",
        ),
    ],
)
def test_terms_of_the_next_place(
    start: StreamPlace,
    topics: list[TopicBounds],
    limits: TriggerLimits | None,
    expected: StreamPlace,
    asked: dict[str, dict[int, int]],
) -> None:
    found, _ = following(start, topics, limits=limits)
    assert found == expected
    assert untold(found, topics) == asked


def test_terms_that_were_asked_for_are_added() -> None:
    found = with_terms(known(p0=(3, 1)), {"orders": {1: 4, 2: 0}, "bills": {0: 0}})
    assert found.terms == {"orders": {0: 1, 1: 4}}


def test_given_a_target_then_its_terms() -> None:
    target = ends_of(log_of_term(7))
    assert following(known(p0=(3, 1)), log_of_term(8, 20), target=target)[0] == known(p0=(9, 7))


@pytest.mark.parametrize("end", [9, 20], ids=["given-it-is-as-long", "given-it-is-longer"])
def test_given_other_records_in_place_of_those_read_then_an_error_or_from_them_on(end: int) -> None:
    start, topics = known(p0=(9, 1)), log_of_term(7, end, diverged_at=4)
    says = "partition 0 of topic 'orders' holds other records from offset 4 on than this stream"
    with pytest.raises(DivergedError, match=says):
        following(start, topics)
    found, warnings = following(start, topics, LENIENT)
    assert (found, len(warnings)) == (known(p0=(end, 7)), 1)
    assert found.to_json() != start.to_json(), "or Spark plans no batch"
    with pytest.raises(DivergedError, match=says):
        plan_batch(start, found, topics, STRICT)
    plan = plan_batch(start, found, topics, LENIENT)
    assert [(s.start, s.end, s.start_term, s.end_term) for s in plan.slices] == [(4, end, 0, 7)]
    limited, _ = following(start, topics, LENIENT, TriggerLimits(2))
    assert limited == place(p0=6)


def test_slices_of_a_batch_have_its_terms() -> None:
    plan = plan_batch(known(p0=(3, 1)), known(p0=(6, 5)), log_of_term(7), STRICT)
    assert [(s.start_term, s.end_term, s.most_term) for s in plan.slices] == [(1, 5, 5)]
    plan = plan_batch(place(p0=3), place(p0=6), log_of_term(7), STRICT)
    assert [(s.start_term, s.end_term, s.most_term) for s in plan.slices] == [(0, 0, 7)]


@pytest.mark.parametrize(
    ("start", "end", "topics", "expected"),
    [
        pytest.param(place(p0=3), place(p0=9), logs((0, 12)), [(0, 3, 9)], id="given-a-range"),
        pytest.param(place(p0=3), place(p0=3), [], [], id="given-nothing-then-nothing-is-asked"),
        pytest.param(
            place(p0=3, p1=4),
            place(p0=9, p1=4),
            logs((0, 12)),
            [(0, 3, 9)],
            id="given-a-partition-that-is-gone-and-was-read-then-fine",
        ),
        pytest.param(
            place(p0=3),
            place(p0=9, p1=7),
            logs((0, 12), (2, 9)),
            [(0, 3, 9), (1, 2, 7)],
            id="given-an-added-partition-then-from-its-beginning",
        ),
        pytest.param(
            place("old", p0=8),
            place("u", p0=9),
            logs((1, 12)),
            [(0, 1, 9)],
            id="given-another-topic-then-from-its-beginning",
        ),
    ],
)
def test_slices_of_a_batch(
    start: StreamPlace,
    end: StreamPlace,
    topics: list[TopicBounds],
    expected: list[tuple[int, int, int]],
) -> None:
    plan = plan_batch(start, end, topics, STRICT)
    assert [(s.partition, s.start, s.end) for s in plan.slices] == expected
    assert plan.warnings == []


@pytest.mark.parametrize(
    ("topics", "error", "says", "expected"),
    [
        pytest.param(
            logs((6, 12)),
            OffsetOutOfRangeError,
            "offsets 3 to 5 were deleted before this stream read them",
            [(6, 9)],
            id="given-the-beginning-was-deleted-then-the-rest",
        ),
        pytest.param(
            logs((20, 30)),
            OffsetOutOfRangeError,
            "offsets 3 to 8 were deleted before this stream read them",
            [(9, 9)],
            id="given-all-was-deleted-then-nothing",
        ),
        pytest.param(
            logs((0, 30), uid="new"),
            NotFoundError,
            "topic 'orders' was deleted and created again since this stream read it",
            [],
            id="given-another-topic-now-then-nothing-of-it",
        ),
        pytest.param(
            [],
            NotFoundError,
            "topic 'orders' of this stream is not there",
            [],
            id="given-it-is-gone",
        ),
    ],
)
def test_given_a_batch_that_cannot_be_read_in_full(
    topics: list[TopicBounds],
    error: type[RunnelError],
    says: str,
    expected: list[tuple[int, int]],
) -> None:
    with pytest.raises(error) as caught:
        plan_batch(place(p0=3), place(p0=9), topics, STRICT)
    assert says in str(caught.value)
    plan = plan_batch(place(p0=3), place(p0=9), topics, LENIENT)
    assert [(s.start, s.end) for s in plan.slices] == expected
    assert len(plan.warnings) == 1
