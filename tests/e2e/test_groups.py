"""Reader groups as users have them: by the command, and in the library."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter, defaultdict

import pytest

import runnel
from tests.e2e.conftest import Command

RECORDS = 200
KEYS = 20
HALF = 100


@pytest.mark.long
@pytest.mark.timeout(240)
def test_given_a_topic_then_the_life_of_a_group(cluster: Command) -> None:
    cluster("create", "topic", "shared", "--partitions", "4")
    lines = "".join(f"k{n % KEYS}:{n}\n" for n in range(RECORDS))
    cluster("produce", "shared", "--key-separator", ":", stdin=lines)
    assert "there is no reader group 'readers'" in cluster.fails(
        "group", "describe", "readers", code=3
    )
    made = cluster("group", "create", "readers", "--topic", "shared", "--lease", "3s")
    assert made == "group readers is there\n"
    assert "and its lease is 3 s" in cluster.fails(
        "group", "create", "readers", "--topic", "shared", code=4
    )
    first = cluster("consume", "shared", "--group", "readers", "-n", "70").split()
    assert len(first) == 70
    rest = cluster("consume", "shared", "-g", "readers", "-n", str(RECORDS - 70)).split()
    assert sorted(map(int, first + rest)) == list(range(RECORDS))
    group = cluster.json("group", "describe", "readers")
    assert (group["lag"], group["readers"], len(group["segments"])) == (0, [], 4)
    assert (group["unreadBytes"], group["segments"][0]["unreadBytes"]) == (0, 0)
    assert "No readers" in cluster("group", "describe", "readers")
    (listed,) = (row for row in cluster("group", "list").splitlines() if "readers " in row)
    assert listed.split()[:5] == ["readers", "shared", "0", "4", "4"]
    cut = cluster("group", "checkpoint", "readers").strip()
    cluster("produce", "shared", stdin="more\n")
    behind = cluster("group", "describe", "readers")
    assert re.search(r"^Lag: +1 records at most, about \d+ bytes?$", behind, re.MULTILINE), behind
    assert cluster("consume", "shared", "-g", "readers", "-n", "1") == "more\n"
    cluster("group", "reset", "readers", "--to", cut)
    assert cluster("consume", "shared", "-g", "readers", "-n", "1") == "more\n"
    # It ends by itself where the other one was.
    cluster("group", "create", "ending", "--topic", "shared", "--lease", "3s", "--end", cut)
    assert len(cluster("consume", "shared", "-g", "ending").split()) == RECORDS
    assert '\nEnd:              {"streams":[],' in cluster("group", "describe", "ending")
    assert "and it ends at a place" in cluster.fails(
        "group", "create", "ending", "--topic", "shared", "--lease", "3s", code=4
    )
    cluster("group", "delete", "ending")
    cluster("group", "reset", "readers", "--to", "checkpoint")
    cluster("group", "reset", "readers", "--to", "earliest")
    again = cluster("consume", "shared", "-g", "readers", "--timeout", "3s").split()
    assert len(again) == RECORDS + 1
    for words, code, message in (
        (("consume", "shared", "-g", "readers", "-B"), 2, "--from-beginning: not with --group"),
        (("consume", "shared", "--reader", "a"), 2, "--reader: the name of a reader"),
        (("consume", "other", "-g", "readers"), 2, "group readers reads shared, not other alone"),
        (("group", "reset", "readers", "--to", "x"), 2, "not a place of a group"),
        (("group", "offline", "readers", "a"), 3, "has no reader 'a'; its readers: none"),
        (("group", "create", "g"), 2, "at least one --topic or --stream"),
        (
            ("group", "create", "g", "--topic", "shared", "--retention", "manual"),
            2,
            "has no stream",
        ),
        (("group", "publish", "readers"), 2, "has retention none: its streams wait for nobody"),
        (("group", "publish", "readers", "@none"), 2, "CUT: cannot read none"),
    ):
        assert message in cluster.fails(*words, code=code)
    assert cluster("group", "delete", "readers") == "group readers deleted\n"
    assert "readers" not in cluster("group", "list")


def test_given_a_stream_that_is_scaled_then_two_readers_have_each_key_in_order(
    cluster: Command,
) -> None:
    cluster("create", "stream", "carts", "--segments", "2")
    assert cluster.sc is not None
    found: list[runnel.Record] = []

    def read(group: runnel.ReaderGroup) -> None:
        with group.reader() as reader:
            found.extend(reader)

    with runnel.connect(cluster.sc) as client:
        stream = client.stream("carts")
        group = client.reader_group("carts", streams=["carts"])
        readers = [threading.Thread(target=read, args=(group,)) for _ in range(2)]
        with stream.producer() as producer:
            for n in range(RECORDS):
                if n == HALF:
                    producer.flush()
                    cut = stream.tail()
                if n == 50:
                    readers[0].start()
                if n % 60 == 59:
                    producer.flush()
                    low = stream.epoch().segments[0]
                    middle = (low.low + low.high) / 2
                    stream.scale([low.id], [(low.low, middle), (middle, low.high)])
                if n == 120:
                    readers[1].start()
                producer.send(str(n), key=f"k{n % KEYS}")
        stream.seal()
        for one in readers:
            one.join(60)
            assert not one.is_alive(), "a group ends with its sealed stream"
        assert group.describe().lag == 0
        group.delete()
        end = runnel.GroupCut({cut.stream: cut})
        half = client.reader_group("half", streams=["carts"], end=end)
        with half.reader() as reader:
            values = [int(bytes(record.value or b"")) for record in reader]
        assert sorted(values) == list(range(HALF))
        assert half.checkpoint() == half.describe().end == end
        half.delete()
    by_key: defaultdict[str, list[int]] = defaultdict(list)
    for record in found:
        assert record.key is not None
        assert record.value is not None
        by_key[bytes(record.key).decode()].append(int(record.value))
    assert Counter(n for numbers in by_key.values() for n in numbers) == Counter(range(RECORDS))
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


@pytest.mark.long
def test_given_a_retention_then_a_stream_keeps_what_its_groups_have_not_read(
    cluster: Command,
) -> None:
    name = "default/kept"
    cluster(
        "apply",
        "-f",
        "-",
        stdin=f"""
apiVersion: runnel/v1
kind: Stream
metadata: {{name: {name}}}
spec:
  retention: {{minTime: 1s, period: 1s}}
""",
    )
    cluster("wait", "stream", name, "--for", "active")
    cluster("produce", name, stdin="".join(f"{n}\n" for n in range(100)))
    cluster("group", "create", "by-hand", "--stream", name, "--retention", "manual")
    cluster(
        *("group", "create", "alone", "--stream", name, "--retention", "automatic"),
        *("--checkpoint-every", "1s"),
    )
    assert len(cluster("consume", name, "-g", "by-hand", "-n", "60").split()) == 60
    cluster("group", "publish", "by-hand", cluster("group", "checkpoint", "by-hand").strip())
    assert cluster.sc is not None
    with runnel.connect(cluster.sc) as library:
        stream = library.stream(name)
        beginning = stream.head()
        assert sorted(stream.subscribers()) == ["alone", "by-hand"]
        with library.reader_group("alone") as group, group.reader("a") as reader:
            read = 0
            until_s = time.monotonic() + 60
            while "alone" not in (there := stream.subscribers()) or there["alone"] != stream.tail():
                assert time.monotonic() < until_s, f"{read} read, and published {there}"
                read += reader.poll(0.2) is not None
        assert read == 100
        while stream.head() != stream.subscribers()["by-hand"]:
            assert time.monotonic() < until_s, f"it begins at {stream.head()}"
            time.sleep(0.1)
        left = [record.value for record in stream.consumer("earliest", "latest")]
        assert left == [str(n).encode() for n in range(60, 100)]
        # Who kept the beginning is told, though its segment is there.
        assert beginning.offsets == {0: 0}
        with pytest.raises(runnel.OffsetOutOfRangeError, match="were removed by a truncation"):
            list(stream.consumer(beginning, "latest"))
    assert "by-hand  0.0 at 61" in cluster("describe", "stream", name)
    cluster("group", "delete", "by-hand")
    assert "by-hand" not in cluster("describe", "stream", name)
