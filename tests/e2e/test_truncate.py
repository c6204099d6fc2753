"""``runnel topic truncate`` and ``runnel partition``, as users call them."""

from __future__ import annotations

import json
import subprocess
import time

import pytest

from tests.e2e.conftest import Command, Refusals

DEADLINE_S = 30.0
RECORDS = "\n".join(f"record {i}" for i in range(100)) + "\n"


@pytest.fixture(scope="module")
def topic(cluster: Command) -> str:
    cluster("create", "topic", "short", "--replication-factor", "2")
    cluster("produce", "short", stdin=RECORDS)
    return "short"


def states(cluster: Command, partition: str) -> list[str]:
    found = cluster.json("partition", "segments", partition)
    return [item["state"] for item in found["items"]]


def test_given_an_offset_then_the_records_below_it_are_gone(cluster: Command, topic: str) -> None:
    first = cluster.json("partition", "segments", f"{topic}-0")
    assert (first["logStart"], states(cluster, f"{topic}-0")) == (0, ["inProgress"])
    out = cluster("topic", "truncate", topic, "--before", "41", "--yes")
    assert out.splitlines()[1].split() == ["short-0", "41", "41"]
    # Offset 0 is the leader's control record.
    assert cluster("consume", topic, "--from-beginning", "-n", "1") == "record 40\n"
    refused = cluster.fails("consume", topic, "--offset", "7", "--no-follow", code=1)
    assert "the first available one is 41" in refused
    assert states(cluster, f"{topic}-0") == ["partiallyTruncated"]
    assert "truncateBefore: 41" in cluster("describe", "partition", f"{topic}-0")
    deadline = time.monotonic() + DEADLINE_S
    while cluster.json("get", "partition", f"{topic}-0")["status"]["startOffset"] != 41:
        assert time.monotonic() < deadline
    # Never back.
    out = cluster("topic", "truncate", topic, "--before", "7", "--yes")
    assert out.splitlines()[1].split() == ["short-0", "41", "0"]


def test_given_all_then_the_file_is_put_away_and_offsets_go_on(
    cluster: Command, topic: str
) -> None:
    out = cluster("topic", "truncate", topic, "--all", "--yes")
    assert out.splitlines()[1].split()[:2] == ["short-0", "101"]
    assert cluster("consume", topic, "--from-beginning", "--no-follow") == ""
    deadline = time.monotonic() + DEADLINE_S
    while (found := states(cluster, f"{topic}-0")) != ["truncated", "inProgress"]:
        assert time.monotonic() < deadline, found
    cluster("produce", topic, stdin="one more\n")
    record = cluster("consume", topic, "--from-beginning", "--no-follow", "-o", "json")
    assert json.loads(record)["offset"] == 101


def test_given_a_watch_then_changes_are_printed(cluster: Command) -> None:
    cluster("create", "topic", "trimmed")
    watch = cluster.start(
        "partition", "segments", "trimmed-0", "-w", "-o", "json", stdout=subprocess.PIPE
    )
    assert watch.stdout is not None
    try:
        assert b'"logStart": 0' in b"".join(watch.stdout.readline() for _ in range(2))
        cluster("produce", "trimmed", stdin=RECORDS)
        cluster("topic", "truncate", "trimmed", "--all", "--yes")
        seen = b""
        while b'"truncated"' not in seen:
            line = watch.stdout.readline()
            assert line, seen
            seen += line
    finally:
        watch.kill()
        watch.communicate()


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        pytest.param(("--yes",), 2, "give one of --before, --at and --all", id="nothing"),
        pytest.param(("--all", "--before", "1", "--yes"), 2, "give one of", id="two"),
        pytest.param(("--before", "1000", "--yes"), 2, "cannot begin at offset 1000", id="beyond"),
        pytest.param(("--all",), 2, "add --yes", id="unasked"),
        pytest.param(("--all", "-p", "9", "--yes"), 2, "9", id="no-such-partition"),
    ],
)
def test_refused(
    refused: Refusals, topic: str, arguments: tuple[str, ...], code: int, says: str
) -> None:
    assert says in refused("topic", "truncate", topic, *arguments, code=code)


def test_given_no_such_topic_then_3(cluster: Command) -> None:
    assert "none" in cluster.fails("topic", "truncate", "none", "--all", "--yes", code=3)


def test_given_no_such_partition_then_an_error_and_no_table(cluster: Command) -> None:
    for command in (("dump",), ("verify",), ("segments",)):
        done = cluster.run("partition", *command, "none-0")
        assert (done.returncode, done.stdout) == (3, b""), command
        assert b"none-0" in done.stderr
