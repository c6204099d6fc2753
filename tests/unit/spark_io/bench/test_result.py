"""What a measurement of Spark says: medians, fixed cost and slope, ratios of one round."""

from __future__ import annotations

import json

import pytest

from spark_io.bench.result import REFERENCE, Cost, Measured, Results, report


def measured(
    source: str, *walls: float, query: str = "sum", rows: int = 1_000_000, spu: float | None = 0.5
) -> Measured:
    costs = tuple(Cost(wall, 2 * wall, 3 * wall, spu) for wall in walls)
    return Measured(query, source, 100, rows, costs)


LIVE = measured("runnel live", 3.0, 1.0, 2.0)
PARQUET = measured(REFERENCE, 3.0, 0.5, 8.0)
EMPTY = measured("runnel live", 1.0, rows=0)


def test_medians_and_spread() -> None:
    assert (LIVE.wall_s, LIVE.spread_s) == (2.0, (1.0, 3.0))
    assert (LIVE.jvm_s, LIVE.python_s, LIVE.spu_s) == (4.0, 6.0, 0.5)
    assert measured("x", 1.0, spu=None).spu_s is None


@pytest.mark.parametrize(
    ("fixed", "slope"),
    [
        pytest.param({}, 50.0, id="given-no-fixed-cost-then-all-of-the-time"),
        pytest.param({"runnel live": EMPTY}, 100.0, id="given-one-then-without-it"),
        pytest.param(
            {"runnel live": measured("runnel live", 2.5, rows=0)},
            None,
            id="given-more-than-the-whole-then-nothing-can-be-said",
        ),
    ],
)
def test_slope(fixed: dict[str, Measured], slope: float | None) -> None:
    assert Results([LIVE], fixed).slope_mb_per_s(LIVE) == slope


def test_ratios_are_those_of_rounds_and_not_of_medians() -> None:
    results = Results([LIVE, PARQUET])
    # 3/3, 0.5/1, 8/2: the median of the three.
    assert results.ratio(LIVE) == 1.0
    assert results.ratio(PARQUET) is None
    assert Results([LIVE]).ratio(LIVE) is None
    other = measured(REFERENCE, 1.0, 1.0, 1.0, query="noop")
    assert Results([LIVE, other]).ratio(LIVE) is None


def test_the_table_and_the_json_have_every_measurement() -> None:
    results = Results([LIVE, PARQUET], {"runnel live": EMPTY})
    heading, live, parquet, fixed = report(results)
    assert live == [
        *("sum", "100 B", "runnel live", "2.000", "1.00-3.00", "100", "1.00"),
        *("4.00", "6.00", "0.50"),
    ]
    assert (parquet[6], fixed[1], fixed[5]) == ("-", "none", "-")
    assert len(heading) == len(live)
    data = json.loads(json.dumps(results.to_json()))
    assert data["queries"][0]["processorSeconds"] == {"jvm": 4.0, "python": 6.0, "spu": 0.5}
    assert data["queries"][0]["mbPerSecondBeyondFixed"] == 100.0
    assert data["fixed"][0]["rows"] == 0
