"""`runnel.Topic(schema=…)`: columns from what a user has, and what is refused."""

from __future__ import annotations

import decimal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest

from runnel.manifests import Topic
from runnel.records.arrow_schema import arrow_schema
from runnel.records.row_tables import fit_table
from schemas.columns.column_types import SCALARS
from schemas.columns.topic_schema import Column
from schemas.errors import ManifestError

#: Every column type, with the Arrow type that its batches have.
TYPES: dict[str, pa.DataType] = {
    **{name: arrow_schema((Column(name="a", type=name),)).field("a").type for name in SCALARS},
    "decimal128(12, 2)": pa.decimal128(12, 2),
    **{f"timestamp({unit})": pa.timestamp(unit) for unit in ("s", "ms", "us")},
    "timestamp(us, Europe/Berlin)": pa.timestamp("us", "Europe/Berlin"),
    "timestamp(ms, +05:30)": pa.timestamp("ms", "+05:30"),
    "list<int64>": pa.list_(pa.int64()),
    "list<list<string>>": pa.list_(pa.list_(pa.string())),
    "struct<city: string, zip: int32>": pa.struct([("city", pa.string()), ("zip", pa.int32())]),
    "map<string, decimal128(9, 0)>": pa.map_(pa.string(), pa.decimal128(9, 0)),
}


def columns(schema: Any, **spec: Any) -> list[str]:
    """The columns of a topic with this schema, as an error shows them."""
    found = Topic("orders", schema=schema, **spec).spec.columns
    assert found is not None
    return list(map(str, found))


@pytest.mark.parametrize(("name", "type_"), TYPES.items(), ids=TYPES)
@pytest.mark.parametrize("nullable", [True, False], ids=["nullable", "required"])
def test_every_type_goes_both_ways(name: str, type_: pa.DataType, nullable: bool) -> None:
    schema = pa.schema([pa.field("a", type_, nullable)])
    found = Topic("orders", schema=schema).spec.columns
    assert found is not None
    assert [(c.name, c.type, c.nullable) for c in found] == [("a", name, nullable)]
    assert arrow_schema(found).equals(schema)
    text = name if nullable else f"{name} not null"
    assert Topic("orders", schema={"a": text}).spec.columns == found
    assert Topic("orders", schema=[found[0].model_dump()]).spec.columns == found
    assert Topic("orders", schema=list(found)).spec.columns == found


#: Other layouts of values that a column type keeps.
LAYOUTS: dict[str, tuple[pa.DataType, str]] = {
    "given-large-text": (pa.large_string(), "string"),
    "given-a-view-of-text": (pa.string_view(), "string"),
    "given-large-bytes": (pa.large_binary(), "binary"),
    "given-a-view-of-bytes": (pa.binary_view(), "binary"),
    "given-bytes-of-one-length": (pa.binary(4), "binary"),
    "given-categories": (pa.dictionary(pa.int8(), pa.large_string()), "string"),
    "given-dates-in-milliseconds": (pa.date64(), "date32"),
    "given-nanoseconds": (pa.timestamp("ns", "UTC"), "timestamp(us, UTC)"),
    "given-a-short-decimal": (pa.decimal32(5, 2), "decimal128(5, 2)"),
    "given-a-long-decimal": (pa.decimal256(38, 2), "decimal128(38, 2)"),
    "given-a-large-list": (pa.large_list(pa.string_view()), "list<string>"),
    "given-a-list-of-one-length": (pa.list_(pa.int8(), 3), "list<int8>"),
}


@pytest.mark.parametrize(("type_", "name"), LAYOUTS.values(), ids=LAYOUTS)
def test_layouts(type_: pa.DataType, name: str) -> None:
    assert columns(pa.schema([("a", type_)])) == [f"a {name}"]
    # Rows of that layout fit the topic that it makes.
    found = Topic("orders", schema={"a": name}).spec.columns
    assert found is not None
    assert fit_table(pa.table({"a": pa.nulls(2, type_)}), found, "orders").num_rows == 2


class Frame:
    """Stands in for a frame of polars: it exports Arrow streams."""

    __module__ = "polars.dataframe.frame"

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self.columns = table.column_names

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


class Query:
    """Stands in for a query of polars that must not run for its columns."""

    __module__ = "polars.lazyframe.frame"

    def __init__(self, rows: int = 1) -> None:
        self.rows = rows

    def head(self, count: int) -> Query:
        return Query(min(count, self.rows))

    def collect(self) -> Frame:
        assert self.rows == 0
        return Frame(TABLE.slice(0, 0))


AT = datetime(2026, 1, 2, tzinfo=UTC)
TABLE = pa.table({"id": [1], "name": pa.array(["x"], pa.string_view())})
SOURCES: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "given-a-table": (lambda: TABLE, ["id int64", "name string"]),
    "given-a-batch": (lambda: TABLE.to_batches()[0], ["id int64", "name string"]),
    "given-a-reader": (TABLE.to_reader, ["id int64", "name string"]),
    "given-a-frame-of-polars": (lambda: Frame(TABLE), ["id int64", "name string"]),
    "given-a-query-of-polars": (Query, ["id int64", "name string"]),
    "given-a-frame-of-pandas": (
        lambda: pd.DataFrame(
            {
                "id": [1],
                "price": [Decimal("9.50")],
                "at": pd.to_datetime([AT]),
                "kind": pd.Categorical(["x"]),
            }
        ),
        [
            "id int64",
            "price decimal128(38, 2)",
            "at timestamp(us, UTC)",
            "kind string",
        ],
    ),
    "given-an-index-with-a-name": (
        lambda: pd.DataFrame({"id": [1], "a": [True]}).set_index("id"),
        ["a bool", "id int64"],
    ),
    "given-types-of-python": (
        lambda: {
            "a": int, "b": float, "c": str, "d": bytes, "e": bool, "f": date, "g": datetime,
            "h": list[str], "i": dict[str, float], "j": int | None, "k": tuple[int, ...],
            "l": {"city": str, "zip": "int32"},
        },
        [
            "a int64", "b float64", "c string", "d binary", "e bool", "f date32",
            "g timestamp(us, UTC)", "h list<string>", "i map<string, float64>", "j int64",
            "k list<int64>", "l struct<city: string, zip: int32>",
        ],
    ),
    "given-types-of-arrow": (
        lambda: {"a": pa.int8(), "b": pa.field("other", pa.large_string(), nullable=False)},
        ["a int8", "b string not null"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("source", "found"), SOURCES.values(), ids=SOURCES)
def test_sources(source: Callable[[], Any], found: list[str]) -> None:
    assert columns(source()) == found


def test_a_reader_keeps_its_rows() -> None:
    reader = TABLE.to_reader()
    columns(reader)
    assert reader.read_all().num_rows == 1


def test_the_timestamp_column_is_required() -> None:
    schema = {"id": int, "at": datetime}
    assert columns(schema, timestamp_column="at")[1] == "at timestamp(us, UTC) not null"
    frame = pd.DataFrame({"at": pd.to_datetime([AT])})
    assert columns(frame, timestamp_column="at") == ["at timestamp(us, UTC) not null"]


REFUSED: dict[str, tuple[Any, str]] = {
    "given-a-decimal-without-digits": ({"a": decimal.Decimal}, "column a: .*'decimal\\(12, 2\\)'"),
    "given-a-time-of-day": ({"a": time}, "column a: time is no column type; write int64"),
    "given-a-duration": ({"a": timedelta}, "column a: timedelta is no column type; write int64"),
    "given-a-list-of-anything": ({"a": list}, "column a: .*say of what: list\\[str\\]"),
    "given-a-dict-of-anything": ({"a": dict}, "column a: .*dict\\[str, float\\]"),
    "given-keys-that-are-no-text": ({"a": dict[int, str]}, "column a: keys of maps are strings"),
    "given-another-class": ({"a": Frame}, "column a: Frame is no column type; give one of Python"),
    "given-two-types": ({"a": int | str}, "column a: UnionType is no column type"),
    "given-another-name": ({"a": "bigint"}, "column a: 'bigint' .*write int64"),
    "given-a-name-that-is-no-text": ({1: int}, "column 1: names of columns are text, not int"),
    "given-nothing-but-nulls": (pa.table({"a": [None]}), "column a: .*nothing but nulls"),
    "given-Arrow-s-time-of-day": (pa.schema([("a", pa.time64("us"))]), "cast it to int64"),
    "given-half-floats": (pa.schema([("a", pa.float16())]), "column a: .*write float32"),
    "given-an-extension": (pa.schema([("a", pa.uuid())]), "column a: .*fixed_size_binary\\[16\\]"),
    "given-too-many-digits": (pa.schema([("a", pa.decimal256(50, 2))]), "column a: .*1 to 38"),
    "given-maps-with-numbers": (
        pa.schema([("a", pa.map_(pa.int8(), pa.int8()))]),
        "column a: keys of maps are strings, not int8",
    ),
    "given-a-field-that-is-no-name": (
        pa.schema([("a", pa.struct([("b c", pa.int8())]))]),
        "column a: .*'b c: int8' is not a field",
    ),
    "given-an-index-without-a-name": (
        pd.DataFrame({"a": [1, 2]}).iloc[[1]],
        "reset_index\\(drop=True\\)",
    ),
    "given-a-mixture": (pd.DataFrame({"a": [1, "x"]}), "column a"),
    "given-a-name-that-readers-have": (pa.table({"offset": [1]}), "choose another name"),
    "given-no-columns": ({}, "there are no columns; give a pyarrow schema"),
    "given-text": ("int64", "give a pyarrow schema.*not str"),
    "given-a-number": (7, "give a pyarrow schema.*not int"),
    "given-a-list-of-names": (["id"], "a list has columns such as .*not str"),
    "given-a-list-with-a-wrong-type": ([{"name": "a", "type": "bigint"}], "write int64"),
}


@pytest.mark.parametrize(("source", "says"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(source: Any, says: str) -> None:
    with pytest.raises(ManifestError, match=f"Topic orders: spec.schema.*{says}"):
        Topic("orders", schema=source)


def test_every_column_at_fault_has_a_line() -> None:
    with pytest.raises(ManifestError) as caught:
        Topic("orders", schema={"a": "bigint", "b": int, "c": time})
    assert [line.split(": ")[2] for line in caught.value.message.splitlines()] == [
        "column a",
        "column c",
    ]


def test_a_topic_without_columns_needs_no_arrow() -> None:
    code = (
        "import sys; from runnel import Topic; Topic('x');"
        " Topic('x', schema=None); assert 'pyarrow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
