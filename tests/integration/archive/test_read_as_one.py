"""A topic with an archive reads as one: what is in files and in the log, in every way to read."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import runnel
from tests.cold_topics import FIRST_US, ROWS, fill, make, same, shrink

TOPIC = "cold"


@pytest.fixture(scope="module")
def whole(cluster: runnel.Cluster, tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    """All records, as read before they were archived and left the log."""
    make(cluster, TOPIC, tmp_path_factory.mktemp("archive"), partitions=2)
    fill(cluster, TOPIC)
    table = cluster.read(TOPIC)
    assert table.num_rows == ROWS
    done = cluster.archive(TOPIC)
    assert not done.failures
    assert len(done.files) == 2
    shrink(cluster, TOPIC)
    return table


def test_given_all_then_as_before(cluster: runnel.Cluster, whole: pa.Table) -> None:
    assert same(cluster.read(TOPIC), whole)
    for index, one in cluster.offsets(TOPIC).items():
        assert one.archived == one.first == 0 < one.earliest, index


def test_given_random_places_then_what_is_between_them(
    cluster: runnel.Cluster, whole: pa.Table
) -> None:
    ends = {index: one.latest for index, one in cluster.offsets(TOPIC).items()}
    rng = random.Random(5)
    for _ in range(12):
        cuts = {index: sorted(rng.choices(range(end + 1), k=2)) for index, end in ends.items()}
        start = {index: low for index, (low, _) in cuts.items()}
        stop = {index: high for index, (_, high) in cuts.items()}
        within = [
            start[p] <= at < stop[p]
            for p, at in zip(
                whole["partition"].to_pylist(), whole["offset"].to_pylist(), strict=True
            )
        ]
        found = cluster.read(TOPIC, start=start, stop=stop)
        assert same(found, whole.filter(pa.array(within))), (start, stop)


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(0, id="given-the-first-record"),
        pytest.param(700, id="given-one-in-a-file"),
        pytest.param(ROWS - 3, id="given-one-in-the-log"),
    ],
)
def test_given_a_time_or_an_id_then_from_there(
    cluster: runnel.Cluster, whole: pa.Table, number: int
) -> None:
    at = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=FIRST_US + 1_000 * number)
    later = pc.greater_equal(whole["timestamp"], pa.scalar(at, whole["timestamp"].type))
    wanted = whole.filter(later)
    assert same(cluster.read(TOPIC, start=at), wanted)
    assert same(cluster.read(TOPIC, start=runnel.TransactionId(number)), wanted)
    assert same(cluster.read(TOPIC, stop=at), whole.filter(pc.invert(later)))
    firsts = wanted.group_by("partition").aggregate([("offset", "min")]).to_pylist()
    expected = {row["partition"]: row["offset_min"] for row in firsts}
    found = cluster.offsets_at(TOPIC, at)
    assert {index: found[index] for index in expected} == expected


def test_given_records_one_by_one_then_keys_headers_and_ids_as_sent(
    cluster: runnel.Cluster, whole: pa.Table
) -> None:
    seen = 0
    for record in cluster.consumer(TOPIC, start="earliest", stop="latest"):
        number = record.transaction_id
        assert number is not None
        assert record.value == b"value %d" % number
        assert record.key == b"%d" % (number % 40)
        assert bool(record.headers) is (number % 10 == 0)
        seen += 1
    assert seen == ROWS


def test_given_a_few_columns_then_those(cluster: runnel.Cluster, whole: pa.Table) -> None:
    columns = ["partition", "offset", "value"]
    assert same(cluster.read(TOPIC, columns=columns), whole.select(columns))


def test_given_a_named_consumer_then_it_commits_and_goes_on_across_the_border(
    cluster: runnel.Cluster, whole: pa.Table
) -> None:
    seen: list[tuple[int, int]] = []
    for count in (900, 1_700, ROWS):
        with cluster.consumer(TOPIC, name="audit", stop="latest") as consumer:
            for record in consumer:
                seen.append((record.partition, record.offset))
                if len(seen) == count:
                    break
    wanted = zip(whole["partition"].to_pylist(), whole["offset"].to_pylist(), strict=True)
    assert sorted(seen) == sorted(wanted)
    reset = cluster.reset_consumer("audit", TOPIC, "earliest")
    assert reset.offsets == {0: 0, 1: 0}


def test_given_the_last_so_many_then_as_far_back_as_needed(
    cluster: runnel.Cluster, whole: pa.Table
) -> None:
    for count in (10, ROWS - 5, ROWS + 5):
        by_time = whole.sort_by([("timestamp", "descending")]).slice(0, count)
        assert same(cluster.read(TOPIC, last=count), by_time)


def test_given_a_consumer_far_behind_then_nothing_of_it_is_lost(
    cluster: runnel.Cluster, whole: pa.Table
) -> None:
    with cluster.consumer(TOPIC, name="slow", stop="latest") as consumer:
        next(iter(consumer))
    cluster.reset_consumer("slow", TOPIC, {0: 5, 1: 5})
    (found,) = cluster.consumers("slow")
    assert {(p.committed, p.earliest) for p in found.partitions} == {(5, 0)}


def test_given_a_seek_back_then_it_is_read_again(cluster: runnel.Cluster, whole: pa.Table) -> None:
    with cluster.consumer(TOPIC, start="latest", stop="latest") as consumer:
        assert not list(consumer)
        consumer.seek("earliest")
        assert sum(1 for _ in consumer) == ROWS


def test_given_another_client_with_what_is_known_then_it_asks_nobody(
    cluster: runnel.Cluster, whole: pa.Table
) -> None:
    known = cluster.known_topic(TOPIC)
    assert known.archive is not None
    with (
        runnel.connect("127.0.0.1:9", known=known.cluster) as other,
        other.consumer(TOPIC, "earliest", "latest", known=known) as consumer,
    ):
        assert sum(batch.num_rows for batch in consumer.batches()) == ROWS


def test_given_a_typed_topic_that_grew_then_older_files_have_nulls(
    cluster: runnel.Cluster, tmp_path: Path
) -> None:
    columns: list[dict[str, Any]] = [{"name": "id", "type": "int64"}]
    make(cluster, "grown", tmp_path, schema=columns)
    cluster.write("grown", {"id": list(range(100))})
    assert cluster.archive("grown", everything=True).rows == 100
    make(cluster, "grown", tmp_path, schema=[*columns, {"name": "note", "type": "string"}])
    cluster.write("grown", {"id": [100, 101], "note": ["a", None]})
    before = cluster.read("grown")
    assert cluster.archive("grown", everything=True).rows == 2
    cluster.truncate("grown", before=50)
    after = cluster.read("grown")
    assert same(after, before.filter([at >= 50 for at in before["offset"].to_pylist()]))
    assert after["note"].to_pylist()[-2:] == ["a", None]
