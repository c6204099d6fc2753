"""Records to send."""

from __future__ import annotations

from itertools import islice

import pytest

from runnel.bench.payload import Payload

SHAPES = {
    "given-records-for-several-batches": (100, 50, 1_240, [10, 10, 10, 10, 10, 10]),
    "given-a-last-batch-that-is-not-full": (100, 25, 1_240, [10, 10, 5, 10, 10, 5]),
    "given-records-larger-than-a-batch-then-one-each": (500, 3, 100, [1, 1, 1, 1, 1, 1]),
    "given-fewer-records-than-a-batch": (10, 2, 1_000, [2, 2, 2, 2, 2, 2]),
}


@pytest.mark.parametrize(("size", "records", "batch", "rows"), SHAPES.values(), ids=SHAPES)
def test_tables_are_a_batch_each_without_end(
    size: int, records: int, batch: int, rows: list[int]
) -> None:
    payload = Payload(size, records, batch)
    tables = list(islice(payload.tables(), len(rows)))
    assert [table.num_rows for table in tables] == rows
    values = [value for table in tables for value in table.column("value").to_pylist()]
    assert {len(value) for value in values} == {size}
    assert values[:records] == payload.values()[: len(values)]


def test_records_are_letters_and_differ() -> None:
    values = Payload(40, 200, 1 << 20).values()
    assert len(set(values)) == 200
    assert all(value.isalpha() and value.isupper() for value in values)


def test_given_any_number_of_records_then_the_pool_is_bounded() -> None:
    assert len(Payload(1 << 20, 1 << 40, 1 << 20).values()) == 64
