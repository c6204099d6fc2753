"""Duplicate detection by table, and against a list that remembers everything."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import FencedError, InvalidRequestError, NotReadyError
from schemas.wire.batch import MAX_TRANSACTION_ID, NO_TRANSACTION, BatchHeader, read_header
from spu.replication import producer_state
from spu.replication.producer_state import (
    NO_PRODUCERS,
    Duplicate,
    ProducerSnapshot,
    ProducerTable,
    newest_snapshot,
    split_last_id,
    with_last_id,
)
from tests.unit.spu.builders import batch_of


def header(sequence: int, epoch: int = 1, producer: int = 7, count: int = 2) -> BatchHeader:
    return read_header(
        batch_of(count, producer_id=producer, producer_epoch=epoch, sequence=sequence)
    )


def table(last: int) -> ProducerTable:
    """A producer that appended sequences 0 to ``last``, two records each."""
    made = ProducerTable()
    for sequence in range(last + 1):
        made.record(header(sequence), 2 * sequence)
    return made


@pytest.mark.parametrize(
    ("last", "sent", "expected"),
    [
        pytest.param(-1, header(9), None, id="given-an-unknown-producer-then-new"),
        pytest.param(4, header(5), None, id="given-the-next-then-new"),
        pytest.param(4, header(4), Duplicate(8, 10), id="given-the-last-then-duplicate"),
        pytest.param(9, header(5), Duplicate(10, 12), id="given-the-fifth-last-then-duplicate"),
        pytest.param(4, header(0, epoch=2), None, id="given-a-new-epoch-from-0-then-new"),
        pytest.param(9, header(4), InvalidRequestError, id="given-a-forgotten-one-then-invalid"),
        pytest.param(4, header(6), NotReadyError, id="given-a-gap-then-not-ready"),
        pytest.param(4, header(5, epoch=0), FencedError, id="given-an-old-epoch-then-fenced"),
        pytest.param(4, header(5, epoch=2), NotReadyError, id="given-an-epoch-not-from-0"),
    ],
)
def test_check(last: int, sent: BatchHeader, expected: Duplicate | type[Exception] | None) -> None:
    known = table(last)
    if isinstance(expected, type):
        with pytest.raises(expected):
            known.check(sent)
    else:
        assert known.check(sent) == expected


def test_given_the_last_sequence_then_the_next_is_zero() -> None:
    known = ProducerTable()
    known.record(header(2**32 - 1), 0)
    assert known.check(header(0)) is None
    known.record(header(0), 2)
    assert known.check(header(2**32 - 1)) == Duplicate(0, 2)


def test_given_too_many_producers_then_the_longest_silent_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(producer_state, "MAX_PRODUCERS", 2)
    known = ProducerTable()
    for producer in (1, 2, 1, 3):
        known.record(header(0 if producer != 1 else 1, producer=producer), 0)
    assert [row[0] for row in known.dump()] == [1, 3]


def test_given_no_producer_id_then_nothing_is_remembered() -> None:
    known = ProducerTable()
    known.record(header(0, producer=0), 0)
    assert known.dump() == ()


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 8)), max_size=60))
def test_law_a_restored_table_answers_alike(sends: list[tuple[int, int]]) -> None:
    known = ProducerTable()
    offset = 0
    for producer, sequence in sends:
        sent = header(sequence, producer=producer)
        try:
            fresh = known.check(sent) is None
        except (NotReadyError, InvalidRequestError):
            continue
        if fresh:
            known.record(sent, offset)
            offset += 2
    restored = ProducerTable(known.dump())
    assert restored.dump() == known.dump()
    for producer in (1, 2, 3):
        for sequence in range(9):
            sent = header(sequence, producer=producer)
            assert answer(known, sent) == answer(restored, sent)


def answer(known: ProducerTable, sent: BatchHeader) -> object:
    try:
        return known.check(sent)
    except (NotReadyError, InvalidRequestError) as error:
        return str(error)


@pytest.mark.parametrize(
    ("leo", "found"),
    [
        pytest.param(9, 8, id="given-above-all-then-the-newest"),
        pytest.param(8, 8, id="given-its-end-then-it"),
        pytest.param(7, 4, id="given-below-it-then-the-one-before"),
        pytest.param(3, 0, id="given-below-all-then-none"),
    ],
)
def test_newest_snapshot(leo: int, found: int) -> None:
    snapshots = [ProducerSnapshot(end, table(end).dump()) for end in (8, 4)]
    expected = next((each for each in snapshots if each.leo == found), NO_PRODUCERS)
    assert newest_snapshot(snapshots, leo) == expected


@given(
    st.lists(st.tuples(st.integers(1, 3), st.booleans()), min_size=1, max_size=40),
    st.integers(0, 40),
)
def test_law_what_is_known_before_an_offset_and_the_rest_make_the_whole_table(
    appends: list[tuple[int, bool]], cut: int
) -> None:
    """A follower that begins anew at an offset comes to know what its leader knows."""
    epochs: dict[int, int] = {}
    sequences: dict[int, int] = {}
    written: list[BatchHeader] = []
    whole = ProducerTable()
    for producer, anew in appends:
        if anew or producer not in epochs:
            epochs[producer] = epochs.get(producer, 0) + 1
            sequences[producer] = 0
        written.append(header(sequences[producer], epochs[producer], producer, count=1))
        sequences[producer] += 1
        whole.record(written[-1], len(written) - 1)
    start = min(cut, len(written))
    rebuilt = ProducerTable(whole.dump_before(start))
    for offset in range(start, len(written)):
        rebuilt.record(written[offset], offset)
    assert sorted(rebuilt.dump()) == sorted(whole.dump())


# The last transaction id, which travels with producers


@given(st.integers(NO_TRANSACTION, MAX_TRANSACTION_ID), st.integers(0, 9))
def test_law_the_last_id_comes_off_a_dump_as_it_was_put_on(last_id: int, known: int) -> None:
    dump = table(known).dump()
    assert split_last_id(with_last_id(dump, last_id)) == (dump, last_id)


def test_given_a_table_of_an_earlier_version_then_it_passes_the_last_id_on() -> None:
    """It knows no such row, takes it for a producer, and dumps all of those."""
    taken = ProducerTable(with_last_id(table(3).dump(), 41))
    taken.record(header(4), 8)
    assert split_last_id(taken.dump()) == (table(4).dump(), 41)
    assert split_last_id(taken.dump_before(0)) == ((), 41)


def test_given_a_last_id_that_none_can_be_then_the_largest() -> None:
    assert split_last_id(((0, 0, (((1 << 64) - 1, 0, 0),)),)) == ((), MAX_TRANSACTION_ID)
    assert split_last_id(((0, 0, ()),)) == ((), NO_TRANSACTION)
