"""``runnel bench``: its arguments, and what it prints."""

from __future__ import annotations

import sys

import pytest

from runnel.bench.settings import Mode
from runnel.cli.bench import aligned, describe
from tests.unit.runnel.bench.builders import result
from tests.unit.runnel.cli.conftest import CommandLine

WRONG = {
    "given-a-size-that-is-none": (("produce", "--record-size", "big"), "--record-size: 'big' is"),
    "given-a-batch-size-that-is-none": (("e2e", "--batch-bytes", "x"), "--batch-bytes: 'x' is"),
    "given-no-records": (("consume", "--records", "0"), "--records is 0; 1 to"),
    "given-records-that-are-no-number": (("produce", "--records", "many"), "'--records'"),
    "given-records-and-seconds": (
        ("produce", "--records", "1", "--seconds", "1"),
        "give --records or --seconds, not both",
    ),
    "given-no-rate": (("e2e", "--rate", "0"), "--rate is 0"),
    "given-unknown-acks": (("produce", "--acks", "some"), "'--acks'"),
    "given-an-unknown-durability": (("consume", "--durability", "no"), "'--durability'"),
    "given-an-unknown-codec": (("e2e", "--compression", "zip"), "'--compression'"),
    "given-a-topic-and-its-partitions": (
        ("produce", "--topic", "orders", "-p", "3"),
        "--partitions: topic 'orders' has its own",
    ),
    "given-a-rate-where-there-is-none": (("produce", "--rate", "5"), "--rate"),
    "given-too-few-spus": (
        ("produce", "-r", "3"),
        "--replication-factor 3 needs as many online SPUs; 0 of 0 registered are online",
    ),
}


@pytest.mark.parametrize(("arguments", "said"), WRONG.values(), ids=WRONG)
def test_wrong_usage_names_the_option(
    command: CommandLine, arguments: tuple[str, ...], said: str
) -> None:
    done = command("bench", *arguments)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


@pytest.mark.parametrize("mode", Mode)
def test_given_no_cluster_then_it_says_what_to_do(command: CommandLine, mode: Mode) -> None:
    done = command("bench", mode.value, "--sc", "localhost:1")
    assert (done.code, done.out) == (5, "")
    assert "no SC answers at localhost:1" in done.err
    assert "runnel cluster status" in done.err


def test_given_a_topic_that_is_not_there_then_3(command: CommandLine) -> None:
    command.sc.add_topic("orders")
    done = command("bench", "produce", "--topic", "order")
    assert (done.code, done.out) == (3, "")
    assert "did you mean 'orders'?" in done.err


def test_given_no_pyspark_then_what_to_install(
    command: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "spark_io.bench.run", None)
    done = command("bench", "spark")
    assert (done.code, done.out) == (1, "")
    assert "is not installed; install Spark too: pip install 'runnel[spark]'" in done.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(("--row-size", "big"), "--row-size: ", id="given-no-size"),
        pytest.param(("--mb", "0"), "--mb", id="given-no-bytes"),
    ],
)
def test_given_wrong_sizes_for_spark_then_2(
    command: CommandLine, arguments: tuple[str, ...], said: str
) -> None:
    done = command("bench", "spark", *arguments)
    assert (done.code, said in done.err) == (2, True)


def test_given_nothing_then_the_measurements_are_listed(command: CommandLine) -> None:
    said = command("bench", "--help").out
    assert [mode for mode in Mode if f" {mode.value} " in said] == list(Mode)


def test_numbers_stand_under_each_other() -> None:
    assert aligned([["", "here", ""], ["speed", "5.0", "MB"], ["x", "1,234.5", ""]]) == [
        "          here",
        "speed      5.0  MB",
        "x      1,234.5",
    ]


def test_the_table_of_produce() -> None:
    lines = describe(result())
    assert lines[0] == "produced 1,000,000 records of 1,000 bytes, columnar, in 10.00 s"
    rows = {line.split("  ")[0]: line for line in lines}
    assert "100.0" in rows["throughput, MB/s"]
    assert rows["records/s"].split()[1] == "100,000"
    assert "client 4.0, daemons 4.0" in rows["CPU s/million records"]
    assert any(line.split()[:4] == ["bare", "write", "400.0", "0.25"] for line in lines)
    assert lines[-2] == "floor: files in /data, sockets of this host"
    assert lines[-1].startswith("limit: ")


def test_the_table_of_consume_says_nothing_of_the_disk() -> None:
    text = "\n".join(describe(result(Mode.CONSUME)))
    assert "bare write" not in text
    assert "bare fsync" not in text
    assert "bare socket" in text


def test_given_daemons_elsewhere_then_it_says_why_there_is_no_processor_time() -> None:
    (line,) = (row for row in describe(result(daemons=None)) if row.startswith("CPU"))
    assert "not all daemons are on this host" in line
