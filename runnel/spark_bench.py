"""What ``runnel bench spark`` does: this door leads to Spark, and the command knows only it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from schemas.errors import UnsupportedError

if TYPE_CHECKING:
    from spark_io.bench.measuring import Report
    from spark_io.bench.result import Results


def bench(
    sc: str,
    *,
    mb: int,
    row_bytes: tuple[int, ...],
    rounds: int,
    directory: str | None,
    spu_pids: Sequence[int] | None,
    report: Report,
) -> Results:
    """Measure Spark's reads of a running cluster; see `spark_io.bench.run.run_bench`.

    Raises UnsupportedError without PySpark.
    """
    try:
        from spark_io.bench.run import BenchSettings, run_bench
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            f"{error.name} is not installed; install Spark too: pip install 'runnel[spark]'"
        ) from error
    settings = BenchSettings(mb, row_bytes, rounds, directory)
    return run_bench(sc, settings, spu_pids, report)


def table(results: Results) -> list[list[str]]:
    """The results as a table with a heading."""
    from spark_io.bench.result import report

    return report(results)
