"""Schemas of typed topics: what may be declared, how it may change, and the ids of versions."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from schemas.columns.topic_schema import (
    MAX_COLUMNS,
    Column,
    TopicSchema,
    column_count,
    incompatibility,
    schema_id,
)
from schemas.errors import ManifestError
from schemas.objects.manifest.manifest import load_text
from schemas.objects.topic import LogSettings, TopicSpec
from tests.unit.schemas.typed import as_spec, columns, topic_schemas

TOPIC = """\
apiVersion: runnel/v1
kind: Topic
metadata: {name: orders}
spec:
  schema:
    - {name: orderId, type: int64, nullable: false}
    - name: amount
      type: decimal(12,2)
    - {name: at, type: "timestamp(us, UTC)", nullable: false}
    - {name: tags, type: list<string>}
  keyColumn: orderId
  timestampColumn: at
"""


def test_a_manifest_is_read_and_printed_in_canonical_types() -> None:
    (loaded,) = load_text(TOPIC)
    spec = loaded.object.to_json()["spec"]
    assert spec["schema"] == [
        {"name": "orderId", "type": "int64", "nullable": False},
        {"name": "amount", "type": "decimal128(12, 2)", "nullable": True},
        {"name": "at", "type": "timestamp(us, UTC)", "nullable": False},
        {"name": "tags", "type": "list<string>", "nullable": True},
    ]
    assert (spec["keyColumn"], spec["timestampColumn"]) == ("orderId", "at")


WRONG = {
    "given-an-unknown-type-then-its-line": (
        "type: int64",
        "type: bigint",
        "o.yaml:6: spec.schema[0].type: 'bigint' is not a column type; write int64",
    ),
    "given-an-unknown-field-then-the-nearest": (
        "type: list<string>",
        "tpye: list<string>",
        "o.yaml:10: spec.schema[3].tpye: unknown field; did you mean type?",
    ),
    "given-a-comma-in-a-flow-mapping-then-quotes": (
        '"timestamp(us, UTC)"',
        "timestamp(us, UTC)",
        "within {…} a comma ends a value, so put the type in quotes there",
    ),
    "given-a-column-twice-then-its-name": (
        "name: tags",
        "name: amount",
        "o.yaml:5: spec.schema: column amount appears twice",
    ),
    "given-names-that-differ-by-case-then-both": (
        "name: tags",
        "name: ORDERID",
        "o.yaml:5: spec.schema: column ORDERID differs from orderId only by case",
    ),
    "given-a-name-that-readers-have-then-another": (
        "name: amount",
        "name: Timestamp",
        "timestamp anyway; choose another name, and name that in timestampColumn",
    ),
    "given-a-blank-name-then-refused": ("name: amount", "name: ' '", "is not a column name"),
    "given-a-key-that-is-not-there-then-those-that-are": (
        "keyColumn: orderId",
        "keyColumn: order",
        (
            "o.yaml:11: spec.keyColumn: there is no column order;"
            " the columns are orderId, amount, at, tags"
        ),
    ),
    "given-a-key-without-one-form-then-which-have": (
        "keyColumn: orderId",
        "keyColumn: amount",
        "spec.keyColumn: column amount is decimal128(12, 2); keys are string, binary or whole",
    ),
    "given-a-time-that-is-none-then-its-type": (
        "timestampColumn: at",
        "timestampColumn: amount",
        "o.yaml:12: spec.timestampColumn: column amount is decimal128(12, 2), not a timestamp(…)",
    ),
    "given-a-time-that-may-be-missing-then-how": (
        'UTC)", nullable: false',
        'UTC)"',
        "every record needs a timestamp: write nullable: false for column at",
    ),
}


@pytest.mark.parametrize(("old", "new", "says"), WRONG.values(), ids=WRONG)
def test_mistakes_name_line_and_field(old: str, new: str, says: str) -> None:
    assert TOPIC.count(old) == 1
    with pytest.raises(ManifestError) as caught:
        load_text(TOPIC.replace(old, new), "o.yaml")
    assert says in str(caught.value)


@pytest.mark.parametrize("field", ["keyColumn: a", "timestampColumn: a"])
def test_given_a_column_without_a_schema_then_refused(field: str) -> None:
    text = f"apiVersion: runnel/v1\nkind: Topic\nmetadata: {{name: t}}\nspec: {{{field}}}\n"
    with pytest.raises(ManifestError, match="there is no schema"):
        load_text(text)


def test_given_too_many_columns_then_refused() -> None:
    many = [{"name": f"c{i}", "type": "int8"} for i in range(MAX_COLUMNS + 1)]
    with pytest.raises(ValueError, match=f"at most {MAX_COLUMNS}"):
        TopicSpec.model_validate({"schema": many})
    most = TopicSpec.model_validate({"schema": many[:-1]}).row_schema
    assert most is not None
    assert column_count(most.schema_id) == MAX_COLUMNS
    assert most.schema_id < 1 << 32


def schema(text: str, key: str | None = None, time: str | None = None) -> TopicSchema:
    """``a int8, b string!``: two columns, the second not nullable."""
    found = []
    for part in text.split(", "):
        name, type_ = part.split(" ", 1)
        found.append(Column(name=name, type=type_.rstrip("!"), nullable=not type_.endswith("!")))
    return TopicSchema(columns=tuple(found), key_column=key, timestamp_column=time)


OLD = "a int64!, b string, c timestamp(us)!"

MUST_BE_NULLABLE = "must be nullable: existing records have no value for it"
AT_THE_END = "only nullable columns can be added, at the end"

CHANGES = {
    "given-the-same-then-fine": (OLD, None),
    "given-a-nullable-column-at-the-end-then-fine": (f"{OLD}, d int8", None),
    "given-two-of-them-then-fine": (f"{OLD}, d int8, e list<string>", None),
    "given-another-spelling-then-fine": (
        "a int64!, b utf8, c timestamp[us]!",
        None,
    ),
    "given-a-column-that-must-be-there-then-why": (
        f"{OLD}, d int8!",
        f"spec.schema[3].nullable: the new column d {MUST_BE_NULLABLE}",
    ),
    "given-a-second-one-that-must-be-there-then-which": (
        f"{OLD}, d int8, e int8!",
        f"spec.schema[4].nullable: the new column e {MUST_BE_NULLABLE}",
    ),
    "given-a-column-before-others-then-where": (
        f"z int8, {OLD}",
        "spec.schema[0]: column z is new; new columns come last",
    ),
    "given-another-type-then-both": (
        "a int32!, b string, c timestamp(us)!",
        "spec.schema[0].type: column a cannot change from int64 to int32",
    ),
    "given-a-wider-type-then-refused-as-well": (
        "a int64!, b string, c timestamp(ms)!",
        "spec.schema[2].type: column c cannot change from timestamp(us) to timestamp(ms)",
    ),
    "given-null-no-more-then-why": (
        "a int64!, b string!, c timestamp(us)!",
        "spec.schema[1].nullable: column b cannot become not nullable",
    ),
    "given-null-from-now-on-then-why": (
        "a int64, b string, c timestamp(us)!",
        "spec.schema[0].nullable: column a cannot become nullable",
    ),
    "given-another-name-then-both": (
        "a int64!, bb string, c timestamp(us)!",
        f"spec.schema[1].name: column b cannot become bb, or be removed; {AT_THE_END}",
    ),
    "given-another-order-then-which": (
        "b string, a int64!, c timestamp(us)!",
        "spec.schema[0]: column b cannot move",
    ),
    "given-the-last-gone-then-which": (
        "a int64!, b string",
        "spec.schema: column c cannot be removed: existing records have it",
    ),
    "given-one-gone-from-the-middle-then-which": (
        "a int64!, c timestamp(us)!",
        "spec.schema[1]: column b cannot be removed: existing records have it",
    ),
}


@pytest.mark.parametrize(("new", "reason"), CHANGES.values(), ids=CHANGES)
def test_changes_of_columns(new: str, reason: str | None) -> None:
    assert incompatibility(schema(OLD), schema(new)) == reason


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        pytest.param(None, schema(OLD), "cannot be added", id="given-a-schema-added"),
        pytest.param(schema(OLD), None, "cannot be removed", id="given-a-schema-removed"),
        pytest.param(
            schema(OLD),
            schema(OLD, key="a"),
            "spec.keyColumn: cannot change from none to a",
            id="given-a-key-added",
        ),
        pytest.param(
            schema(OLD, key="a"),
            schema(OLD, key="b"),
            "spec.keyColumn: cannot change from a to b",
            id="given-another-key",
        ),
        pytest.param(
            schema(OLD, time="c"),
            schema(OLD),
            "spec.timestampColumn: cannot change from c to none",
            id="given-the-time-removed",
        ),
    ],
)
def test_changes_of_what_the_columns_mean(
    old: TopicSchema | None, new: TopicSchema | None, says: str
) -> None:
    assert says in (incompatibility(old, new) or "")


def test_given_no_schema_before_and_after_then_fine() -> None:
    assert incompatibility(None, None) is None


VERSIONS = {
    "given-only-nullable-columns-then-every-prefix": ("a int8, b int8, c int8", [1, 2, 3]),
    "given-a-required-column-then-from-it-on": ("a int8, b int8!, c int8", [2, 3]),
    "given-the-last-required-then-only-all": ("a int8, b int8!", [2]),
}


@pytest.mark.parametrize(("text", "counts"), VERSIONS.values(), ids=VERSIONS)
def test_versions_that_batches_may_have(text: str, counts: list[int]) -> None:
    rows = schema(text)
    assert list(rows.versions.values()) == counts
    assert rows.versions[rows.schema_id] == len(rows.columns)


def test_given_a_nullable_key_then_every_version_has_it() -> None:
    assert list(schema("a int8, b int8, c int8", key="b").versions.values()) == [2, 3]


@given(topic_schemas(), st.lists(columns, max_size=3))
def test_law_what_is_compatible_keeps_all_versions(rows: TopicSchema, more: list[Column]) -> None:
    names = {c.name.lower() for c in rows.columns}
    fresh = list({c.name.lower(): c for c in more if c.name.lower() not in names}.values())
    grown = rows.model_copy(update={"columns": (*rows.columns, *fresh)})
    grown = TopicSchema.model_validate(grown.model_dump())
    fits = incompatibility(rows, grown) is None
    assert fits == all(column.nullable for column in fresh)
    # The version that producers write now stays one exactly if the change is allowed.
    assert (rows.schema_id in grown.versions) == fits
    assert column_count(grown.schema_id) == len(grown.columns)


@given(topic_schemas(), topic_schemas())
def test_law_other_columns_have_another_id(one: TopicSchema, other: TopicSchema) -> None:
    assume(one.columns != other.columns)
    assert one.schema_id != other.schema_id


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a int8", 0x005160E2), ("orderId int64!, note string", 0x0090C3E1)],
)
def test_ids_are_fixed_for_ever(text: str, expected: int) -> None:
    assert schema_id(schema(text).columns) == expected


@given(topic_schemas())
def test_law_what_was_asked_of_a_schema_changes_nothing(rows: TopicSchema) -> None:
    fresh = TopicSchema.model_validate(rows.model_dump(by_alias=True))
    assert rows.versions
    assert rows.schema_id
    assert (rows, hash(rows)) == (fresh, hash(fresh))
    spec = TopicSpec.model_validate(as_spec(rows))
    assert spec.row_schema == rows
    assert spec.log_settings == TopicSpec.model_validate(as_spec(fresh)).log_settings
    text = spec.log_settings.model_dump_json(by_alias=True)
    assert LogSettings.model_validate_json(text).row_schema == rows
