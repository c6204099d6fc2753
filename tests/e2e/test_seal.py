"""``runnel topic seal``, as users call it, beside a consumer that follows."""

from __future__ import annotations

import subprocess
import time
from contextlib import suppress

import pytest

from tests.e2e.conftest import Command

DEADLINE_S = 30.0
RECORDS = "".join(f"record {i}\n" for i in range(100))


@pytest.fixture(scope="module")
def topic(cluster: Command) -> str:
    cluster("create", "topic", "done", "--partitions", "2", "--replication-factor", "2")
    cluster("produce", "done", stdin=RECORDS)
    return "done"


@pytest.mark.long
def test_given_a_seal_then_readers_end_writers_are_refused_and_it_stays(
    cluster: Command, topic: str
) -> None:
    follower = cluster.start("consume", topic, "--from-beginning", stdout=subprocess.PIPE)
    assert follower.stdout is not None
    try:
        printed = follower.stdout
        first = printed.readline()
        assert "add --yes to confirm" in cluster.fails("topic", "seal", topic, code=2)
        rows = [row.split() for row in cluster("topic", "seal", topic, "--yes").splitlines()]
        out = printed.read()
        code = follower.wait(DEADLINE_S)
    finally:
        follower.kill()
        follower.communicate()
    assert code == 0, "a reader that follows ends by itself"
    assert sorted((first + out).decode().splitlines(True)) == sorted(RECORDS.splitlines(True))
    ends = {name: int(end) for name, end in rows[1:]}
    assert sorted(ends) == [f"{topic}-0", f"{topic}-1"]
    assert cluster("topic", "seal", topic, "--yes").splitlines()[1].split()[0] == f"{topic}-0"
    assert cluster("wait", "topic", topic, "--for", "sealed") == f"topic/{topic} sealed\n"
    refused = cluster.fails("produce", topic, stdin="one more\n", code=1)
    assert "is sealed: it takes no more records, and ends at offset" in refused
    assert "provisioned, sealed" in cluster("get", "topic", topic)
    for name, end in ends.items():
        status = cluster.json("get", "partition", name)["status"]
        assert (status["resolution"], status["sealedOffset"]) == ("sealed", end)
    assert "is sealed, which is for good" in cluster.fails(
        "apply",
        "-f",
        "-",
        stdin=f"apiVersion: runnel/v1\nkind: Topic\nmetadata: {{name: {topic}}}\n"
        "spec: {partitions: 2, replicationFactor: 2}\n",
        code=2,
    )
    grown = cluster.fails("scale", "topic", topic, "--partitions", "3", code=2)
    assert "another partition would stay empty" in grown
    assert "does not exist" in cluster.fails("topic", "seal", "nope", "--yes", code=3)
    cluster("cluster", "check")
    assert cluster("consume", topic, "--from-beginning", "--no-follow").count("\n") == 100
    # Without --no-follow as well, and when nothing is left.
    cluster("topic", "truncate", topic, "--all", "--yes")
    assert cluster("consume", topic, "--from-beginning") == ""
    assert cluster("consume", topic) == ""


@pytest.mark.long
def test_given_an_input_without_end_then_the_seal_ends_the_command(cluster: Command) -> None:
    cluster("create", "topic", "piped")
    process = cluster.start("produce", "piped", stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None
    try:
        process.stdin.write(b"first\n")
        process.stdin.flush()
        deadline = time.monotonic() + DEADLINE_S
        while not cluster("consume", "piped", "--from-beginning", "--no-follow"):
            assert time.monotonic() < deadline
        cluster("topic", "seal", "piped", "--yes")
        while process.poll() is None:
            assert time.monotonic() < deadline
            with suppress(BrokenPipeError):
                process.stdin.write(b"late\n")
                process.stdin.flush()
            time.sleep(0.05)
    finally:
        process.kill()
        _, err = process.communicate()
    assert process.returncode == 1
    assert b"is sealed: it takes no more records" in err
    assert b"1 record acknowledged before the error" in err
