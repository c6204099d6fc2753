"""Runnel beside others: what is skipped with which words, and the table; no peer is started."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.peers import __main__ as peers
from benchmarks.peers.kafka import KafkaPeer
from benchmarks.peers.measures import Load
from benchmarks.peers.nats import NatsPeer
from benchmarks.peers.peer import Peer, Setup, UnavailableError
from benchmarks.peers.redis import RedisPeer
from benchmarks.peers.table import table


@pytest.fixture(autouse=True)
def _nothing_is_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("BENCH_JAVA", "BENCH_KAFKA_LIBS", "BENCH_NATS_SERVER", "BENCH_REDIS_SERVER"):
        monkeypatch.delenv(name, raising=False)


def test_given_none_of_the_others_then_runnel_alone_and_the_rest_says_how_to_get_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert [peer.name for peer in peers.available(list(peers.PEERS))] == ["Runnel"]
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 4
    assert [line.split()[0] for line in said] == ["Runnel", "Kafka", "NATS", "Redis"]


@pytest.mark.parametrize(
    ("peer", "variable"),
    [
        pytest.param(NatsPeer(), "BENCH_NATS_SERVER", id="nats"),
        pytest.param(RedisPeer(), "BENCH_REDIS_SERVER", id="redis"),
    ],
)
def test_given_no_program_then_the_words_name_the_variable(
    peer: NatsPeer | RedisPeer, variable: str
) -> None:
    with pytest.raises(UnavailableError, match=rf"named by {variable}; .*install"):
        peer.version()


def test_given_a_directory_without_kafka_then_it_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BENCH_JAVA", "java")
    monkeypatch.setenv("BENCH_KAFKA_LIBS", str(tmp_path))
    with pytest.raises(UnavailableError, match=rf"{tmp_path}.*kafka-clients|confluent-kafka"):
        KafkaPeer().version()


def test_given_three_brokers_then_redis_is_not_compared(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="replication is asynchronous"):
        RedisPeer().start(Setup(tmp_path, 3, fsync=False))


def test_given_a_round_that_fails_then_the_others_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rounds: Iterator[dict[str, float] | Exception] = iter(
        [{"send": 1.0}, RuntimeError("away"), {"send": 3.0}]
    )

    def played(_peer: Peer, _setup: Setup, _load: Load) -> dict[str, float]:
        if isinstance(found := next(rounds), Exception):
            raise found
        return found

    monkeypatch.setattr(peers, "one_round", played)
    options = Namespace(rounds=3, brokers=[1], durability=["fsync"], scale=1.0)
    found, failures = peers.run([NatsPeer()], options, tmp_path)
    assert found == {"1 broker, fsync": {"send": {"NATS": [1.0, 3.0]}}}
    assert failures == ["NATS"]


def test_the_table_has_medians_and_ranges_and_a_dash_for_what_was_not_measured() -> None:
    figures = {"produce, MB/s": {"Runnel": [901.4, 1100.0, 1000.0], "Kafka": [412.34]}}
    assert table({**figures, "failover, ms": {"Runnel": [0.0791]}}, ["Runnel", "Kafka"]) == (
        "|  | Runnel | Kafka |\n"
        "| --- | --- | --- |\n"
        "| produce, MB/s | 1,000 (901 to 1,100) | 412 |\n"
        "| failover, ms | 0.0791 | – |"
    )
