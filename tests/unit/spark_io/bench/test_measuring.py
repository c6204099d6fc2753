"""How a measurement asks its sources, and whose processor time counts; no Spark is started."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest
from pyspark.sql import DataFrame

from spark_io.bench.data import Dataset
from spark_io.bench.measuring import Clock, Query, measure


class Silent:
    def step(self, what: str) -> None: ...

    def advance(self, share: float) -> None: ...


def test_given_a_source_without_a_dataset_then_it_is_left_out_for_that_one_alone() -> None:
    plain, empty = (Dataset(name, 100, rows, "") for name, rows in (("t", 5), ("e", 0)))
    typed = Dataset("c", 160, 5, "", typed=True)
    many = Dataset("m", 100, 5, "", partitions=100)
    asked: list[DataFrame] = []
    frames = {data.topic: cast(DataFrame, data.topic) for data in (plain, typed, many, empty)}
    results = measure(
        {
            "all": lambda data, _columns: frames[data.topic],
            "some": lambda data, _columns: None if data.typed else frames[data.topic],
        },
        [
            Query("sum", asked.append),
            Query("noop", asked.append),
            Query("2 of 20", asked.append, typed=True),
        ],
        [plain, typed, many],
        empty,
        Clock(None),
        1,
        Silent(),
    )
    found = [(one.query, one.source) for one in results.measured]
    assert found == [
        *[(query, source) for query in ("sum", "noop") for source in ("all", "some")],
        ("2 of 20", "all"),
        *[("sum, 100 parts", source) for source in ("all", "some")],
    ]
    assert list(results.fixed) == ["all", "some"]
    assert None not in asked


def test_given_children_that_are_no_part_of_the_session_then_their_time_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spent = {1: ("python", 0.0), 2: ("java", 0.0), 3: ("java", 0.0), 4: ("python3", 0.0)}

    def process(pid: int = 1) -> Any:
        return SimpleNamespace(
            pid=pid,
            name=lambda: spent[pid][0],
            cpu_times=lambda: SimpleNamespace(user=spent[pid][1], system=0.0),
            children=lambda recursive: [process(child) for child in (2, 3, 4)],
        )

    def work() -> None:
        spent.update({1: ("python", 1.0), 2: ("java", 2.0), 3: ("java", 40.0), 4: ("p", 8.0)})

    monkeypatch.setattr(psutil, "Process", process)
    cost = Clock([3], [3]).measure(work)
    assert (cost.jvm_s, cost.python_s, cost.spu_s) == (2.0, 9.0, 40.0)
