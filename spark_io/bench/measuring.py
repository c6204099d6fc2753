"""Runs queries on sources in rounds, so that whatever else the machine does meets all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import psutil
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

import runnel
import runnel.spark
from spark_io.bench.data import PARTITIONS, Dataset
from spark_io.bench.result import REFERENCE, Cost, Measured, Results

#: The JVM is still compiling.
WARM_UP_ROUNDS: Final = 2

#: Gives the rows of a dataset, of all columns, or of those that are named; None if it has no such
#: dataset.
Source = Callable[[Dataset, Sequence[str] | None], DataFrame | None]


class Report(Protocol):
    """Is told what happens next, and how much of it is done."""

    def step(self, what: str) -> None: ...

    def advance(self, share: float) -> None: ...


def sources(spark: SparkSession, sc: str) -> dict[str, Source]:
    """Where the rows may come from, by name."""

    def live(data: Dataset, columns: Sequence[str] | None) -> DataFrame:
        reader = spark.read.format("runnel").option("sc", sc).option("topic", data.topic)
        frame = reader.load()
        if columns is None:
            return frame
        return reader.schema(frame.select(*columns).schema).load()

    def archived(data: Dataset, columns: Sequence[str] | None) -> DataFrame:
        return runnel.spark.read(spark, data.topic, columns=columns, sc=sc)

    def parquet(data: Dataset, columns: Sequence[str] | None) -> DataFrame:
        frame = spark.read.parquet(data.parquet)
        return frame if columns is None else frame.select(*columns)

    return {"runnel live": live, "runnel archived": archived, REFERENCE: parquet}


@dataclass(frozen=True, slots=True)
class Query:
    """``columns``: those that it needs, None for all; ``typed``: it is about the typed topic."""

    name: str
    run: Callable[[DataFrame], None]
    columns: tuple[str, ...] | None = None
    typed: bool = False


def queries(directory: Path) -> tuple[Query, ...]:
    """What is asked of each source."""

    def total(frame: DataFrame, column: Column) -> None:
        frame.agg(sf.sum(column)).collect()

    def count(frame: DataFrame) -> None:
        frame.count()

    def of_one_key(frame: DataFrame) -> None:
        total(frame.where(frame.key == sf.lit(b"4711")), sf.length("value"))

    def noop(frame: DataFrame) -> None:
        frame.write.format("noop").mode("overwrite").save()

    def to_parquet(frame: DataFrame) -> None:
        frame.write.mode("overwrite").parquet(str(directory / "written.parquet"))

    return (
        Query("sum", lambda frame: total(frame, sf.length("value"))),
        Query("noop", noop),
        Query("count", count, ("value",)),
        Query("filter", of_one_key, ("key", "value")),
        Query("write", to_parquet),
        Query("2 of 20", lambda frame: total(frame, frame.c3 + frame.c7), ("c3", "c7"), typed=True),
    )


class Clock:
    """Reads the processor time of a Spark session, of its workers, and of SPUs.

    ``others``: children of this process that are no part of the session.
    """

    def __init__(self, spu_pids: Sequence[int] | None, others: Collection[int] = ()) -> None:
        self._spus = None if spu_pids is None else [psutil.Process(pid) for pid in spu_pids]
        self._others = frozenset(others)

    def measure(self, work: Callable[[], None]) -> Cost:
        """What the work costs."""
        jvm, python, spu = self._read()
        began = time.perf_counter()
        work()
        wall_s = time.perf_counter() - began
        jvm_after, python_after, spu_after = self._read()
        spent = None if spu is None or spu_after is None else max(0.0, spu_after - spu)
        return Cost(wall_s, max(0.0, jvm_after - jvm), max(0.0, python_after - python), spent)

    def _read(self) -> tuple[float, float, float | None]:
        me = psutil.Process()
        jvm, python = 0.0, _seconds(me)
        for one in me.children(recursive=True):
            if one.pid in self._others:
                continue
            try:
                name, seconds = one.name(), _seconds(one)
            except psutil.Error:
                continue
            if name == "java":
                jvm += seconds
            else:
                python += seconds
        if self._spus is None:
            return jvm, python, None
        try:
            return jvm, python, sum(map(_seconds, self._spus))
        except psutil.Error:
            return jvm, python, None


def _seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def measure(
    from_where: Mapping[str, Source],
    asked: Sequence[Query],
    datasets: Sequence[Dataset],
    empty: Dataset,
    clock: Clock,
    rounds: int,
    report: Report,
) -> Results:
    """Run every query on every source, ``rounds`` times after the warm-up. ``empty`` is the dataset
    of the fixed cost; it and those with more partitions than others are asked the first query."""
    cases = [
        (query, data)
        for data in (*datasets, empty)
        for query in asked
        if query.typed == data.typed
        and (query is asked[0] or (data is not empty and data.partitions == PARTITIONS))
    ]
    measured: list[Measured] = []
    fixed: dict[str, Measured] = {}
    total = len(cases) * (WARM_UP_ROUNDS + rounds)
    done = 0
    for query, data in cases:
        name = query.name
        if data.partitions != PARTITIONS:
            name = f"{name}, {data.partitions} parts"
        report.step(f"{name}: {data.rows:,} rows of {data.row_bytes} B")
        offered = {source: rows(data, query.columns) for source, rows in from_where.items()}
        frames = {source: frame for source, frame in offered.items() if frame is not None}
        costs: dict[str, list[Cost]] = {source: [] for source in frames}
        for number in range(WARM_UP_ROUNDS + rounds):
            for source, frame in frames.items():
                cost = clock.measure(partial(query.run, frame))
                if number >= WARM_UP_ROUNDS:
                    costs[source].append(cost)
            done += 1
            report.advance(done / total)
        for source, found in costs.items():
            one = Measured(name, source, data.row_bytes, data.rows, tuple(found))
            if data is empty:
                fixed[source] = one
            else:
                measured.append(one)
    return Results(measured, fixed)
