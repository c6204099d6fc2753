"""`Cluster.write`: one call makes the topic, sends the rows and says where they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest

from runnel.produce.write import Written
from runnel.records.record import BatchMetadata
from schemas.errors import (
    ConflictError,
    DeadlineExceededError,
    InvalidRequestError,
    RecordTooLargeError,
    RunnelError,
)
from schemas.objects.topic import Topic, TopicResolution, TopicStatus
from tests.unit.runnel.conftest import World

AT = datetime(2026, 1, 2, tzinfo=UTC)
TABLE = pa.table({"id": [1, 2, 3], "name": ["a", None, "c"]})


@dataclass
class Order:
    id: int
    name: str | None


SOURCES: dict[str, Callable[[], Any]] = {
    "given-a-table": lambda: TABLE,
    "given-a-reader": TABLE.to_reader,
    "given-pandas": TABLE.to_pandas,
    "given-a-filtered-frame": lambda: (
        pd.concat([TABLE.to_pandas(), TABLE.to_pandas()]).head(3).reset_index(drop=True)
    ),
    "given-columns": TABLE.to_pydict,
    "given-dicts": TABLE.to_pylist,
    "given-a-generator": lambda: iter(TABLE.to_pylist()),
    "given-dataclasses": lambda: [Order(1, "a"), Order(2, None), Order(3, "c")],
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
async def test_a_new_topic_gets_the_columns(world: World, source: Callable[[], Any]) -> None:
    written = await world.cluster.write("orders", source())
    assert written == Written("orders", 3, True, (BatchMetadata("orders", 0, 0, 3),))
    assert written.offsets == {0: range(3)}
    found = await world.cluster.read("orders", ["id", "name"])
    assert found.equals(TABLE)
    topic = await world.cluster.get("topic", "orders")
    assert isinstance(topic, Topic)
    assert list(map(str, topic.spec.columns or ())) == ["id int64", "name string"]
    assert (topic.spec.partition_count, topic.spec.replica_count) == (1, 1)

    again = await world.cluster.write("orders", source())
    assert (again.created, again.offsets) == (False, {0: range(3, 6)})
    assert str(again) == "3 records to topic orders"
    assert str(await world.cluster.write("orders", TABLE[:1])) == "1 record to topic orders"


async def test_what_is_said_of_a_new_topic(world: World) -> None:
    frame = pd.DataFrame({"id": range(100), "at": pd.to_datetime([AT] * 100)})
    said: dict[str, Any] = {"partitions": 3, "key_column": "id", "timestamp_column": "at"}
    written = await world.cluster.write("orders", frame, **said)
    assert sum(batch.records for batch in written.batches) == written.records == 100
    assert set(written.offsets) == {0, 1, 2}
    topic = await world.cluster.get("topic", "orders")
    assert isinstance(topic, Topic)
    assert [c.nullable for c in topic.spec.columns or ()] == [True, False]
    assert topic.spec.key_column == "id"
    assert not (await world.cluster.write("orders", frame, **said)).created


async def test_values_that_are_hard_to_keep(world: World) -> None:
    row = {
        "price": Decimal("9.50"), "at": AT, "wall": AT.replace(tzinfo=None), "day": AT.date(),
        "raw": b"\xff", "tags": ["x", None], "to": {"city": "Ulm", "zip": 7},
    }  # fmt: skip
    await world.cluster.write("orders", [row, {"price": Decimal("123456.1")}])
    found = (await world.cluster.read("orders", list(row))).to_pylist()
    assert found[0] == row
    assert found[1] == {**dict.fromkeys(row), "price": Decimal("123456.1")}


async def test_an_empty_table_makes_the_topic(world: World) -> None:
    written = await world.cluster.write("orders", TABLE.slice(0, 0))
    assert written == Written("orders", 0, True, ())
    assert written.offsets == {}


async def test_records_of_a_topic_without_columns(world: World) -> None:
    world.sc.add_topic("orders")
    written = await world.cluster.write("orders", {"key": ["a"], "value": [b"x"]})
    assert (written.records, written.created) == (1, False)
    with pytest.raises(InvalidRequestError, match=r"has no schema, so it takes only bytes: .*id"):
        await world.cluster.write("orders", TABLE)


REFUSED: dict[str, tuple[Any, dict[str, Any], type[RunnelError], str]] = {
    "given-no-type": ({"id": [None]}, {}, InvalidRequestError, "column id: .*nothing but nulls"),
    "given-a-field-without-type": (
        [{"to": {"zip": None}}],
        {},
        InvalidRequestError,
        "column to: field zip: holds nothing but nulls",
    ),
    "given-no-columns": ([], {}, InvalidRequestError, "there are no columns"),
    "given-nanoseconds": (
        {"at": pa.array([1], pa.timestamp("ns"))},
        {},
        InvalidRequestError,
        "row 0, column at: .* does not fit timestamp\\(us\\)",
    ),
    "given-a-large-row": ({"raw": [b"x" * (1 << 20)]}, {}, RecordTooLargeError, "row 0 .*1048"),
    "given-no-such-key": (
        TABLE,
        {"key_column": "di"},
        InvalidRequestError,
        "there is no column di",
    ),
    "given-a-null-time": (
        {"at": pa.array([AT, None])},
        {"timestamp_column": "at"},
        InvalidRequestError,
        "row 1, column at: must not be null",
    ),
    "given-too-few-ids": (TABLE, {"transaction_ids": [1]}, InvalidRequestError, "1 ids for 3 rows"),
    "given-no-partitions": (TABLE, {"partitions": 0}, InvalidRequestError, "spec.partitions"),
    "given-a-name-of-the-system": (TABLE, {}, InvalidRequestError, "only Runnel writes to it"),
}


@pytest.mark.parametrize(("rows", "said", "error", "why"), REFUSED.values(), ids=REFUSED)
async def test_given_rows_that_cannot_be_written_then_no_topic(
    world: World, rows: Any, said: dict[str, Any], error: type[RunnelError], why: str
) -> None:
    name = "_orders" if "only Runnel" in why else "orders"
    with pytest.raises(error, match=why):
        await world.cluster.write(name, rows, **said)
    assert not world.sc.objects


DIFFERING: dict[str, tuple[Any, dict[str, Any], type[RunnelError], str]] = {
    "given-another-column": ({"ids": [1]}, {}, InvalidRequestError, "ids: .*did you mean id"),
    "given-another-type": ({"id": ["x"]}, {}, InvalidRequestError, "column id: "),
    "given-more-partitions": (
        TABLE,
        {"partitions": 5},
        ConflictError,
        "exists with partitions 2, not 5; nothing was written. Leave that out",
    ),
    "given-another-key": (
        TABLE,
        {"key_column": "name", "timestamp_column": "at", "replication_factor": 3},
        ConflictError,
        "replication_factor 1, not 3, key_column id, not name, timestamp_column None, not at",
    ),
}


@pytest.mark.parametrize(("rows", "said", "error", "why"), DIFFERING.values(), ids=DIFFERING)
async def test_given_another_topic_of_that_name_then_nothing_is_sent(
    world: World, rows: Any, said: dict[str, Any], error: type[RunnelError], why: str
) -> None:
    schema = [{"name": "id", "type": "int64"}, {"name": "name", "type": "string"}]
    world.sc.add_topic("orders", 2, schema=schema, keyColumn="id")
    with pytest.raises(error, match=why):
        await world.cluster.write("orders", rows, **said)
    assert (await world.cluster.read("orders")).num_rows == 0


async def test_given_a_topic_that_is_being_deleted_then_it_says_so(world: World) -> None:
    topic = world.sc.add_topic("orders")
    world.sc.change(topic.with_metadata(deletion_timestamp="2026-01-02T00:00:00Z"))
    with pytest.raises(ConflictError, match="being deleted; wait for it with: runnel wait topic"):
        await world.cluster.write("orders", TABLE)


async def test_given_another_writer_made_it_meanwhile_then_rows_are_added(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = world.cluster.create

    async def late(*arguments: Any, **options: Any) -> Any:
        monkeypatch.undo()
        await create(*arguments, **options)
        return await create(*arguments, **options)

    monkeypatch.setattr(world.cluster, "create", late)
    written = await world.cluster.write("orders", TABLE)
    assert (written.records, written.created) == (3, False)


async def test_given_a_topic_without_place_then_it_says_that_nothing_was_written(
    world: World,
) -> None:
    topic = world.sc.add_topic("orders", schema=[{"name": "id", "type": "int64"}])
    status = TopicStatus(
        resolution=TopicResolution.INSUFFICIENT_RESOURCES, reason="no SPU", observed_generation=1
    )
    world.sc.change(topic.model_copy(update={"status": status}))
    with pytest.raises(
        DeadlineExceededError, match=r"nothing was written\. topic 'orders'.*no SPU"
    ):
        await world.cluster.write("orders", {"id": [1]}, timeout=0.1)
