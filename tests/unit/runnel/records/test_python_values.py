"""Values that Python cannot express are shown, and so are those around them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest

from runnel.records.as_json import compact_json, value_json
from runnel.records.python_values import far_time, rows_of, utc_text, values_of

UTC_US = pa.timestamp("us", "UTC")
FAR = 2**60
FAR_TEXT = "38504-08-17T21:30:06.846976+00:00"


@pytest.mark.parametrize(
    ("values", "type_", "expected"),
    [
        pytest.param([0, None], UTC_US, [datetime(1970, 1, 1, tzinfo=UTC), None], id="usual"),
        pytest.param([FAR, None], UTC_US, [FAR_TEXT, None], id="after-the-year-9999"),
        pytest.param(
            [-62135596800000001], UTC_US, ["0000-12-31T23:59:59.999999+00:00"], id="before-1"
        ),
        pytest.param([-(2**63)], UTC_US, ["-9223372036854775808"], id="what-numpy-calls-no-time"),
        pytest.param(
            [2**60], pa.timestamp("s"), ["36534630048-05-13T13:56:16"], id="without-a-zone"
        ),
        pytest.param([FAR], pa.timestamp("us", "Asia/Tokyo"), [FAR_TEXT], id="of-a-zone"),
        pytest.param([2**31 - 1, 0], pa.date32(), ["5881580-07-11", date(1970, 1, 1)], id="date"),
        pytest.param([[FAR], None, []], pa.list_(UTC_US), [[FAR_TEXT], None, []], id="list"),
        pytest.param(
            [{"a": FAR, "b": 1}],
            pa.struct([("a", UTC_US), ("b", pa.int8())]),
            [{"a": FAR_TEXT, "b": 1}],
            id="struct",
        ),
        pytest.param(
            [[("a", 1), ("a", 2)], [("b", 3)]],
            pa.map_(pa.string(), pa.int64()),
            [[["a", 1], ["a", 2]], {"b": 3}],
            id="map-with-a-key-twice",
        ),
    ],
)
def test_values(values: list[Any], type_: pa.DataType, expected: list[Any]) -> None:
    column = pa.array(values, type_)
    assert values_of(column) == expected
    assert values_of(pa.chunked_array([column, column])) == expected * 2
    rows = rows_of(pa.record_batch({"x": column, "n": pa.array(range(len(column)))}))
    assert rows == [{"x": value, "n": number} for number, value in enumerate(expected)]
    assert compact_json([value_json(value) for value in values_of(column)])


def test_times_as_text() -> None:
    assert utc_text(datetime(2026, 1, 2, tzinfo=UTC)) == "2026-01-02T00:00:00.000000+00:00"
    assert utc_text(far_time(FAR)) == FAR_TEXT
    assert values_of(pa.array([10**15], UTC_US)) == [datetime(2001, 9, 9, 1, 46, 40, tzinfo=UTC)]
