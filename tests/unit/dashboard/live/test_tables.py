"""What a reader of a table gets, by what it has seen."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dashboard.live import tables
from dashboard.live.tables import NOTHING, Changes, Table


def test_given_a_reader_that_has_seen_nothing_then_it_gets_all_rows() -> None:
    table = Table()
    table.replace({"a": 1, "b": 2})
    assert table.since(NOTHING) == Changes(1, {"a": 1, "b": 2}, whole=True)


def test_given_a_reader_that_is_up_to_date_then_it_gets_what_changed() -> None:
    table = Table()
    table.replace({"a": 1, "b": 2, "c": 3})
    assert table.since(1) is None
    table.replace({"a": 1, "b": 5, "d": 4})
    assert table.since(1) == Changes(2, {"b": 5, "d": 4}, ("c",))
    table.replace({"a": 1, "b": 5, "c": 3, "d": 4})
    assert table.since(1) == Changes(3, {"b": 5, "d": 4, "c": 3})
    assert table.since(2) == Changes(3, {"c": 3})


def test_given_no_change_then_the_version_stays() -> None:
    table = Table()
    assert table.replace({"a": [1]})
    assert not table.replace({"a": [1]})
    assert table.version == 1


def test_given_a_table_that_was_never_filled_then_a_new_reader_waits() -> None:
    assert Table().since(NOTHING) is None


def test_given_an_empty_table_then_a_new_reader_is_told_that_it_is_empty() -> None:
    table = Table()
    assert table.replace({})
    assert table.since(NOTHING) == Changes(1, {}, whole=True)
    assert not table.replace({})


def test_given_a_row_of_none_then_it_is_a_row() -> None:
    table = Table()
    assert table.replace({"a": None})
    assert table.since(NOTHING) == Changes(1, {"a": None}, whole=True)


def test_given_more_gone_keys_than_are_remembered_then_an_old_reader_gets_all() -> None:
    table = Table()
    table.replace({str(number): 0 for number in range(tables.REMEMBERED_KEYS + 1)})
    table.replace({"left": 1})
    assert table.since(1) == Changes(2, {"left": 1}, whole=True)
    assert len(table._gone) == tables.REMEMBERED_KEYS


@given(
    st.lists(st.dictionaries(st.sampled_from("abcd"), st.integers(0, 2)), max_size=8),
    st.sets(st.integers(0, 8)),
)
def test_a_reader_that_looks_now_and_then_has_the_rows_of_the_table(
    states: list[dict[str, int]], looks: set[int]
) -> None:
    table, seen, rows = Table(), NOTHING, dict[str, int]()
    for number, state in enumerate(states):
        table.replace(state)
        if number not in looks and number != len(states) - 1:
            continue
        changes = table.since(seen)
        if changes is not None:
            seen = changes.version
            rows = {} if changes.whole else rows
            rows = {key: row for key, row in rows.items() if key not in changes.gone}
            rows |= changes.rows
        assert rows == state


def test_given_the_same_mapping_then_nothing_has_changed() -> None:
    table, rows = Table(), {"a": 1}
    assert table.replace(rows)
    assert not table.replace(rows)
    assert table.replace({})
    assert table.replace(rows)
