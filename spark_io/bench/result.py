"""What a measurement gives: seconds by part, fixed cost and slope, ratios. Pure.

A query costs something however little it reads (*fixed*: the same query of an empty source), and
something more for each byte. Both are medians over rounds.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

#: The source to which the others are compared.
REFERENCE: Final = "parquet"


@dataclass(frozen=True, slots=True)
class Cost:
    """One run of a query: seconds by the clock, and of processor time of the JVM, of Python (driver
    and workers), and of SPUs, None where these are not on this host."""

    wall_s: float
    jvm_s: float
    python_s: float
    spu_s: float | None


@dataclass(frozen=True, slots=True)
class Measured:
    """All runs of one query on one source. ``rows`` of ``row_bytes``; none for an empty source."""

    query: str
    source: str
    row_bytes: int
    rows: int
    costs: tuple[Cost, ...]

    @property
    def wall_s(self) -> float:
        """The median."""
        return statistics.median(cost.wall_s for cost in self.costs)

    @property
    def spread_s(self) -> tuple[float, float]:
        """The shortest and the longest."""
        times = [cost.wall_s for cost in self.costs]
        return min(times), max(times)

    @property
    def jvm_s(self) -> float:
        return statistics.median(cost.jvm_s for cost in self.costs)

    @property
    def python_s(self) -> float:
        return statistics.median(cost.python_s for cost in self.costs)

    @property
    def spu_s(self) -> float | None:
        """None if it is not known."""
        known = [cost.spu_s for cost in self.costs if cost.spu_s is not None]
        return statistics.median(known) if known else None


@dataclass(frozen=True, slots=True)
class Results:
    """``measured`` in the order of the report; ``fixed`` by source: a query of an empty source."""

    measured: Sequence[Measured]
    fixed: Mapping[str, Measured] = field(default_factory=dict)

    def slope_mb_per_s(self, one: Measured) -> float | None:
        """10^6 bytes of values per second, beyond the fixed cost; None if that is all there is."""
        fixed = self.fixed.get(one.source)
        beyond_s = one.wall_s - (fixed.wall_s if fixed is not None else 0.0)
        return one.rows * one.row_bytes / 1e6 / beyond_s if beyond_s > 0 else None

    def ratio(self, one: Measured, to: str = REFERENCE) -> float | None:
        """How many times as fast as the source ``to``, by the median of the rounds' ratios: runs of
        one round met the same machine. None if that source was not asked the same."""
        for other in self.measured:
            same = (other.query, other.row_bytes) == (one.query, one.row_bytes)
            if same and other.source == to and other is not one:
                pairs = zip(other.costs, one.costs, strict=True)
                return statistics.median(its.wall_s / mine.wall_s for its, mine in pairs)
        return None

    def to_json(self) -> dict[str, Any]:
        """All numbers, for programs."""
        return {
            "queries": [self._json(one) for one in self.measured],
            "fixed": [self._json(one) for one in self.fixed.values()],
        }

    def _json(self, one: Measured) -> dict[str, Any]:
        low, high = one.spread_s
        return {
            "query": one.query,
            "source": one.source,
            "rowBytes": one.row_bytes,
            "rows": one.rows,
            "seconds": one.wall_s,
            "fastestSeconds": low,
            "slowestSeconds": high,
            "mbPerSecondBeyondFixed": self.slope_mb_per_s(one) if one.rows else None,
            "ratioToParquet": self.ratio(one) if one.rows else None,
            "processorSeconds": {"jvm": one.jvm_s, "python": one.python_s, "spu": one.spu_s},
        }


def report(results: Results) -> list[list[str]]:
    """A table: a heading, and a row for each query and source."""
    rows = [
        [
            "QUERY",
            "ROW",
            "SOURCE",
            "SECONDS",
            "SPREAD",
            "MB/S",
            "RATIO",
            "JVM S",
            "PYTHON S",
            "SPU S",
        ]
    ]
    for one in (*results.measured, *results.fixed.values()):
        low, high = one.spread_s
        slope = results.slope_mb_per_s(one) if one.rows else None
        ratio = results.ratio(one) if one.rows else None
        rows.append(
            [
                one.query,
                f"{one.row_bytes} B" if one.rows else "none",
                one.source,
                f"{one.wall_s:.3f}",
                f"{low:.2f}-{high:.2f}",
                "-" if slope is None else f"{slope:,.0f}",
                "-" if ratio is None else f"{ratio:.2f}",
                f"{one.jvm_s:.2f}",
                f"{one.python_s:.2f}",
                "-" if one.spu_s is None else f"{one.spu_s:.2f}",
            ]
        )
    return rows
