"""Consumers with names on a real cluster, as users see them: killed, fenced, reset, outlived."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import runnel as library
from runnel.consume.settings import ConsumerSettings
from schemas.objects.partition import Partition
from schemas.objects.system_topics import POSITIONS
from schemas.wire.partitioner import partition_for
from tests.e2e.conftest import PYTHON, SQLITE_ALONE, Command, KvChoice, running_cluster
from tests.e2e.test_crash import kill

pytestmark = SQLITE_ALONE

ROOT = Path(__file__).parents[2]
TOTAL = 600
#: More than make a snapshot due.
COMMITS = 300
#: Prints every record's value, commits every tenth, and never ends by itself.
READER = """
import sys, runnel
from runnel import ConsumerSettings
settings = ConsumerSettings(auto_commit_ms=None)
with runnel.connect(sys.argv[1]) as cluster:
    consumer = cluster.consumer("numbers", name="killed", settings=settings)
    for count, record in enumerate(consumer, 1):
        print(record.value.decode(), flush=True)
        if count % 10 == 0:
            consumer.commit()
"""


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory, kv: KvChoice) -> Iterator[Command]:
    """A cluster whose partitions outlive one SPU."""
    with running_cluster(tmp_path_factory.mktemp("consumers"), kv, 3) as command:
        yield command


def produce(command: Command, topic: str, values: range) -> None:
    command("produce", topic, stdin="".join(f"{value}\n" for value in values))


def leader_of(cluster: library.Cluster, partition: str) -> int:
    found = cluster.get("partitions", partition)
    assert isinstance(found, Partition)
    assert found.status.leader is not None
    return found.status.leader


def test_given_a_first_look_then_nothing_is_made(three: Command) -> None:
    assert three("get", "consumers") == ""
    assert three.fails("get", "consumers", "billing", code=3)
    assert three("get", "topics", "--show-system", "-o", "name") == ""


@pytest.mark.long
def test_given_a_consumer_that_is_killed_then_the_next_one_misses_nothing(
    three: Command, tmp_path: Path
) -> None:
    three("create", "topic", "numbers", "--partitions", "3", "-r", "3")
    produce(three, "numbers", range(TOTAL))
    script = tmp_path / "reader.py"
    script.write_text(READER)
    reader = subprocess.Popen(
        [PYTHON, str(script), str(three.sc)],
        env=three.environment,
        stdout=subprocess.PIPE,
    )
    assert reader.stdout is not None
    lines = [reader.stdout.readline() for _ in range(TOTAL // 3)]
    reader.kill()
    more, _ = reader.communicate()
    before = [int(line) for line in [*lines, *more.split()]]
    watch = three.start("get", "consumers", "killed", "-w", stdout=subprocess.PIPE)
    assert watch.stdout is not None
    assert [watch.stdout.readline().split()[2] for _ in range(2)] == [b"STATE", b"open"]
    after = [
        int(line) for line in three("consume", "numbers", "--name", "killed", "--no-follow").split()
    ]
    assert sorted({*before, *after}) == list(range(TOTAL))
    assert len(before) == len(set(before))
    # What was read since the last commit comes again, and no more.
    assert len(before) + len(after) - TOTAL <= 10
    (found,) = three.json("get", "consumers", "killed")["items"]
    assert (found["state"], found["lagAtMost"]) == ("closed", 0)
    while b" closed " not in (line := watch.stdout.readline()):
        assert line
    watch.send_signal(signal.SIGINT)
    watch.communicate(timeout=60)
    assert watch.returncode == 130


@pytest.mark.slow
def test_given_leaders_that_are_killed_then_commits_go_on_and_the_log_stays_short(
    three: Command,
) -> None:
    three("create", "topic", "busy", "-r", "3")
    produce(three, "busy", range(COMMITS))
    index = partition_for(b"patient", 4)
    settings = ConsumerSettings(auto_commit_ms=None)
    handled: list[int] = []
    with library.connect(three.sc) as cluster:
        for part in range(3):
            with cluster.consumer("busy", name="patient", settings=settings) as consumer:
                for record in consumer:
                    handled.append(int(record.value))
                    consumer.commit()
                    if len(handled) == part * 100 + 50:
                        for partition in (f"{POSITIONS}-{index}", "busy-0"):
                            kill(three, leader_of(cluster, partition))
                    if len(handled) == (part + 1) * 100:
                        break
        assert handled == list(range(COMMITS))
        bounds = cluster.offsets(POSITIONS, [index])[index]
        # Without snapshots there would be an entry for each commit.
        assert bounds.latest > COMMITS
        assert bounds.latest - bounds.earliest < COMMITS - 100
        (found,) = cluster.consumers("patient")
        assert found.partitions[0].committed == record.offset + 1


@pytest.mark.long
def test_given_a_second_one_then_the_first_ends_with_4_and_says_why(three: Command) -> None:
    three("create", "topic", "shared")
    produce(three, "shared", range(2))
    first = three.start(
        "consume", "shared", "--name", "two", stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert first.stdout is not None
    assert first.stdout.readline() == b"0\n"
    three("consume", "shared", "--name", "two", "--no-follow")
    # Something to commit, if the first had committed all before it was fenced.
    produce(three, "shared", range(2, 3))
    _, said = first.communicate(timeout=60)
    assert (first.returncode, b"opened again or reset by" in said) == (4, True)
    assert three("consume", "shared", "--name", "two", "--no-follow") == "2\n"


@pytest.mark.slow
def test_given_resets_truncation_and_deletion_then_reading_follows(three: Command) -> None:
    three("create", "topic", "again")
    produce(three, "again", range(5))
    read = ("consume", "again", "--name", "reader", "--no-follow")
    assert three(*read) == "0\n1\n2\n3\n4\n"
    reset = ("consumer", "reset", "reader", "--topic", "again")
    out = three(*reset, "--to", "-1h")
    assert out.splitlines()[1].split()[0] == "again-0"
    out = three(*reset, "--offset", "4")
    assert out.splitlines()[1].split() == ["again-0", "4"]
    assert three(*read) == "3\n4\n"
    three(*reset, "--to", "earliest")
    three("topic", "truncate", "again", "--before", "4", "--yes")
    assert "the first available one is 4" in three.fails(*read, code=1)
    assert "4 offsets truncated" in three("describe", "consumer", "reader")
    done = three.run(*read, "--on-truncated", "earliest")
    assert (done.returncode, done.stdout) == (0, b"3\n4\n")
    assert b"offsets 0 to 3 were truncated" in done.stderr
    three("delete", "topic", "again")
    assert "topic gone" in three("get", "consumers", "reader")
    three("delete", "consumer", "reader", "--topic", "again")
    three.fails("get", "consumers", "reader", code=3)


def test_given_a_topic_that_is_made_again_then_it_starts_afresh(three: Command) -> None:
    with library.connect(three.sc) as cluster:
        for value in (b"1", b"2"):
            cluster.create(library.Topic("brief"))
            with cluster.producer("brief") as producer:
                producer.send(value)
            with cluster.consumer("brief", stop="latest", name="same") as consumer:
                assert [record.value for record in consumer] == [value]
            cluster.delete("topic", "brief")
            cluster.wait("topic", "brief", "deleted")


def test_given_added_partitions_then_a_follower_reads_all_records(three: Command) -> None:
    """A producer and a consumer that were open before, and a producer that is opened after."""
    three("create", "topic", "growing")
    quick = ConsumerSettings(metadata_max_age_ms=100)
    with library.connect(three.sc) as client:
        with (
            client.consumer("growing", "earliest", settings=quick) as consumer,
            client.producer("growing", metadata_max_age_ms=100) as open_before,
        ):
            open_before.send(b"0", key=b"0")
            open_before.flush()
            client.patch("topic", "growing", {"spec": {"partitions": 3}})
            three("wait", "topic", "growing", "--for", "provisioned")
            with client.producer("growing") as late:
                for number in range(1, 60):
                    late.send(b"%d" % number, key=b"%d" % number)
            places: set[int] = set()
            numbers = iter(range(60, 1000))
            while len(places) < 3:
                number = next(numbers)
                sent = open_before.send(b"%d" % number, key=b"%d" % number)
                places.add(sent.result(20).partition)
            total = next(numbers)
            records = iter(consumer)
            found = {int(bytes(next(records).value)) for _ in range(total)}
        assert found == set(range(total))


@pytest.mark.long
def test_the_page_on_reading_says_what_works(
    three: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "howto" / "read-records.md").read_text()
    three("create", "topic", "orders")
    three("produce", "orders", "--key-separator", ":", stdin="Ann:a pen\nBob:a cup\n")
    commands = re.findall(r"^\$ runnel (.*)$", page, re.MULTILINE)
    shown = [three(*shlex.split(command)) for command in commands]
    assert shown == ["", "a pen\na cup\n"]
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    with library.connect(three.sc) as cluster:
        names = {"cluster": cluster}
        for block in blocks:
            exec(block, names)  # noqa: S102 - the project's own page
    said = capsys.readouterr().out
    # The second loop begins with the second record.
    *values, place = said.splitlines()
    assert values == ["b'a pen'", "b'a cup'", "b'a cup'"]
    assert place == "0 3"
