"""Strategies for column types and the schemas of typed topics."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from schemas.columns.column_types import (
    SCALARS,
    ColumnType,
    Decimal,
    ListOf,
    MapOf,
    Scalar,
    Struct,
    Timestamp,
)
from schemas.columns.topic_schema import READER_COLUMNS, Column, TopicSchema, check_key_column

field_names = st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True)
column_names = st.text(st.characters(categories=["L", "N", "P"]), min_size=1, max_size=8).filter(
    lambda name: name.isprintable() and name.lower() not in READER_COLUMNS
)
scalars: st.SearchStrategy[ColumnType] = st.sampled_from(SCALARS).map(Scalar)
decimals = st.integers(1, 38).flatmap(
    lambda precision: st.builds(Decimal, st.just(precision), st.integers(0, precision))
)
timestamps = st.builds(
    Timestamp, st.sampled_from(["s", "ms", "us"]), st.sampled_from([None, "UTC", "+02:00"])
)


def _nested(inner: st.SearchStrategy[ColumnType]) -> st.SearchStrategy[ColumnType]:
    fields = st.dictionaries(field_names, inner, min_size=1, max_size=3)
    structs = fields.map(lambda found: Struct(tuple(found.items())))
    return st.builds(ListOf, inner) | st.builds(MapOf, inner) | structs


column_types = st.recursive(scalars | decimals | timestamps, _nested, max_leaves=4)
columns = st.builds(
    lambda name, type_, nullable: Column(name=name, type=str(type_), nullable=nullable),
    column_names,
    column_types,
    st.booleans(),
)


def _may_be_key(column: Column) -> bool:
    try:
        check_key_column(column.name, [column])
    except ValueError:
        return False
    return True


@st.composite
def topic_schemas(draw: st.DrawFn) -> TopicSchema:
    """Schemas whose key and timestamp are in columns that can hold them, or in none."""
    found = draw(
        st.lists(columns, min_size=1, max_size=5, unique_by=lambda column: column.name.lower())
    )
    keys = [column.name for column in found if _may_be_key(column)]
    times = [c.name for c in found if isinstance(c.parsed, Timestamp) and not c.nullable]
    return TopicSchema(
        columns=tuple(found),
        key_column=draw(st.sampled_from([None, *keys])),
        timestamp_column=draw(st.sampled_from([None, *times])),
    )


def as_spec(rows: TopicSchema | None) -> dict[str, Any]:
    """The fields of a topic's spec that say this schema."""
    if rows is None:
        return {}
    return {
        "columns": rows.columns,
        "key_column": rows.key_column,
        "timestamp_column": rows.timestamp_column,
    }
