"""What reading records imports. In a process of its own: here it may have been imported already."""

from __future__ import annotations

import subprocess
import sys

from tests.unit.runnel.records import test_cursor as untyped
from tests.unit.runnel.records import test_schema_resolution as typed

PROGRAM = """
import sys
from runnel.consume.delivered import FetchedChunk, ReadState
from runnel.records.cursor import Cursor
from runnel.records.schema_resolution import ReadColumns
from schemas.columns.topic_schema import TopicSchema

given_a_time, given_ids, typed = (memoryview(bytes.fromhex(data)) for data in sys.argv[1:4])
for begin, data in ({"not_before_us": 1}, given_a_time), ({"not_before_id": 5}, given_ids):
    state = ReadState("orders")
    state.open(FetchedChunk(0, Cursor("orders", 0, 0, **begin).take(data), 4))
    assert next(state.records()).offset == 1
    assert state.rest().column("offset").to_pylist() == [2, 3]

rows = TopicSchema.model_validate_json(sys.argv[4])
state = ReadState("orders")
state.rows = rows
state.open(FetchedChunk(0, Cursor("orders", 0, 0, columns=ReadColumns(rows)).take(typed), 1))
assert [record.value["orderId"] for record in state.records()] == [3]
assert "pandas" not in sys.modules
"""


def test_reading_imports_no_pandas() -> None:
    timed = untyped.batch(0, 2) + untyped.batch(2, 2)
    with_ids = untyped.with_ids(0, [4, 5]) + untyped.with_ids(2, [5, 6])
    columns = {"orderId": [3], "note": ["n"], "tags": [{"a": 1}]}
    rows = typed.batch(typed.V3.columns, columns)
    data = (bytes(timed).hex(), bytes(with_ids).hex(), rows.hex())
    schema = typed.V3.model_dump_json(by_alias=True)
    subprocess.run([sys.executable, "-c", PROGRAM, *data, schema], check=True)
