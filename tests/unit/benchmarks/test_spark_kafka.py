"""Spark beside Kafka: what is said where there is no Kafka, and the table; nothing is started."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.maven_jars import maven_jars, pom_of
from benchmarks.peers.peer import UnavailableError
from benchmarks.spark_kafka import TUNED, as_json, beside_kafka, kafka_jars
from spark_io.bench.result import REFERENCE, Cost, Measured, Results


@pytest.fixture(autouse=True)
def _nothing_is_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def program(directory: Path, name: str, text: str) -> None:
    path = directory / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_given_no_java_or_no_maven_then_the_one_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="no java"):
        kafka_jars()
    program(tmp_path, "java", "exit 0")
    with pytest.raises(UnavailableError, match="no mvn"):
        kafka_jars()


def test_given_a_package_that_maven_has_not_then_nothing_is_cached(tmp_path: Path) -> None:
    program(tmp_path, "mvn", "exit 1")
    with pytest.raises(UnavailableError, match="mvn has no a:b:1"):
        maven_jars("one", ["a:b:1"])
    assert not list((tmp_path / "cache" / "runnel" / "jars").iterdir())


def test_given_jars_in_the_cache_then_maven_is_not_asked_again(tmp_path: Path) -> None:
    last = 'for last; do :; done; /bin/mkdir -p "${last#-DoutputDirectory=}"'
    program(tmp_path, "mvn", last)
    found = maven_jars("one", ["a:b:1"])
    (tmp_path / "mvn").unlink()
    assert found.is_dir()
    assert maven_jars("one", ["a:b:1"]) == found


def test_the_project_has_a_dependency_for_each_package() -> None:
    found = re.findall("<dependency>(.*?)</dependency>", pom_of(["a:b:1", "c:d&:2"]))
    assert found == [
        "<groupId>a</groupId><artifactId>b</artifactId><version>1</version>",
        "<groupId>c</groupId><artifactId>d&amp;</artifactId><version>2</version>",
    ]


def test_the_ratio_to_kafka_is_beside_that_to_parquet_where_kafka_was_asked_the_same() -> None:
    def measured(source: str, wall: float, query: str = "sum", rows: int = 10) -> Measured:
        return Measured(query, source, 100, rows, (Cost(wall, 0.0, 0.0, 0.0),))

    live, typed = measured("runnel live", 2.0), measured("runnel live", 2.0, "2 of 20")
    others = [measured(REFERENCE, 1.0), measured(TUNED, 3.0)]
    results = Results([live, *others, typed], {TUNED: measured(TUNED, 1.0, rows=0)})
    heading, *rows = beside_kafka(results)
    assert heading[-2:] == ["SERVER S", "TO KAFKA TUNED"]
    assert [row[-1] for row in rows] == ["1.50", "3.00", "-", "-", "-"]
    data = as_json(results, "Kafka 1")
    assert [one["ratioToKafkaTuned"] for one in data["queries"]] == [1.5, 3.0, None, None]
    assert (data["kafka"], as_json(results, None)["kafka"]) == ("Kafka 1", None)
