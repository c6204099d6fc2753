"""The pure core of the producer: what is in a batch, when it is ready, and that order holds."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.produce.accumulator import Accumulator
from runnel.produce.batch import ProducerBatch
from runnel.records.tables import ROW_OVERHEAD_BYTES, chunks, measured, record_sizes, record_table
from schemas.errors import InvalidRequestError, RecordTooLargeError
from schemas.wire.batch import read_header, set_offset_and_term
from schemas.wire.partitioner import partition_for
from schemas.wire.payload import decode_records

BATCH_BYTES = 400
LINGER_S = 5.0
HOLD_S = 8.0


@dataclass
class Bench:
    """An accumulator on a virtual clock, and everything it ever gave."""

    partitions: int = 3
    batch_bytes: int = BATCH_BYTES
    now: float = 0.0
    eager: bool = False
    max_in_flight: int | None = None
    hold_s: float = math.inf
    taken: list[ProducerBatch[None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.accumulator: Accumulator[None] = Accumulator(
            "orders",
            self.partitions,
            max_record_bytes=1_000,
            batch_bytes=self.batch_bytes,
            linger_s=LINGER_S,
            clock=lambda: self.now,
            new_outcome=lambda: None,
            eager=self.eager,
            max_in_flight=self.max_in_flight,
            hold_s=self.hold_s,
        )

    def send(self, key: bytes | None, value: bytes, partition: int | None = None) -> None:
        self.accumulator.append(key, value, 1, (), partition)

    def send_table(self, rows: list[tuple[bytes | None, bytes]]) -> None:
        table = pa.table(
            {
                "key": pa.array([key for key, _ in rows], pa.binary()),
                "value": pa.array([value for _, value in rows], pa.binary()),
            }
        )
        for chunk in chunks(measured(record_table(table, 1)), 2 * self.batch_bytes):
            self.accumulator.append_table(chunk)

    def take(self) -> list[ProducerBatch[None]]:
        ready, _due = self.accumulator.take(self.now)
        self.taken += ready
        return ready

    def flush(self) -> None:
        self.accumulator.seal_all()
        self.take()

    def values(self, partition: int) -> list[bytes]:
        return [
            value
            for batch in self.taken
            if batch.partition == partition
            for value in batch.to_arrow().column("value").to_pylist()
        ]


@pytest.mark.parametrize(
    ("elapsed_s", "ready"),
    [
        pytest.param(LINGER_S - 0.001, 0, id="given-less-than-linger-then-it-waits"),
        pytest.param(LINGER_S, 1, id="given-linger-passed-then-it-is-ready"),
    ],
)
def test_linger(elapsed_s: float, ready: int) -> None:
    bench = Bench()
    bench.now = 100.0
    bench.send(b"k", b"v")
    assert bench.accumulator.take(bench.now)[1] == 100.0 + LINGER_S
    bench.now += elapsed_s
    assert len(bench.take()) == ready


def test_given_the_next_record_does_not_fit_then_the_batch_is_ready_without_it() -> None:
    bench = Bench(partitions=1)
    value = b"x" * (BATCH_BYTES // 2 - ROW_OVERHEAD_BYTES - len(b"k"))
    bench.send(b"k", value)
    bench.send(b"k", value)
    assert bench.take() == []
    bench.send(b"k", b"")
    (batch,) = bench.take()
    assert (batch.count, batch.size) == (2, BATCH_BYTES)


def test_given_a_record_larger_than_a_batch_then_it_is_a_batch_of_its_own() -> None:
    bench = Bench(partitions=1)
    for size in (1, 900, 1):
        bench.send(b"k", b"x" * size)
    bench.flush()
    assert [batch.count for batch in bench.taken] == [1, 1, 1]


def test_given_no_key_then_records_stick_to_one_partition_per_batch_and_move_on() -> None:
    bench = Bench(partitions=3)
    for index in range(12):
        bench.send(None, bytes([index]) * 176)
    bench.flush()
    assert [batch.partition for batch in bench.taken] == [0, 1, 2, 0, 1, 2]
    assert {batch.count for batch in bench.taken} == {2}


def test_given_keyless_rows_of_a_table_then_they_fill_partitions_in_turn() -> None:
    bench = Bench(partitions=3)
    bench.send_table([(None, bytes([index]) * 176) for index in range(12)])
    bench.take()
    assert [(batch.partition, batch.count) for batch in bench.taken] == [
        (0, 2), (1, 2), (2, 2), (0, 2), (1, 2), (2, 2),
    ]  # fmt: skip


def test_given_an_explicit_partition_then_no_other_is_used_even_without_a_key() -> None:
    bench = Bench(partitions=3)
    for index in range(9):
        bench.send(None, bytes([index]) * 176, partition=0)
    bench.flush()
    assert {batch.partition for batch in bench.taken} == {0}


def test_given_a_partition_that_does_not_exist_then_it_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="partitions 0 to 2, not 3"):
        Bench().send(None, b"v", partition=3)


def test_given_a_record_over_the_limit_then_the_error_names_size_and_limit() -> None:
    bench = Bench()
    with pytest.raises(RecordTooLargeError, match="1003 bytes, more than maxRecordSize 1000"):
        bench.send(b"key", b"x" * 1_000)
    assert bench.accumulator.buffered_bytes == 0


def test_given_an_interrupt_inside_an_append_then_the_record_is_wholly_there_or_not() -> None:
    class Interrupting(list[int]):
        def append(self, value: int) -> None:
            raise KeyboardInterrupt

    bench = Bench(partitions=1)
    bench.send(b"a", b"1")
    batch = bench.accumulator.append(b"b", b"2", 2)
    good, batch.timestamps = batch.timestamps, Interrupting(batch.timestamps)
    with pytest.raises(KeyboardInterrupt):
        bench.send(b"c", b"3")
    batch.timestamps = good
    bench.send(b"d", b"4")
    bench.flush()
    rows = bench.taken[0].to_arrow()
    assert rows.column("key").to_pylist() == [b"a", b"b", b"d"]
    assert rows.column("value").to_pylist() == [b"1", b"2", b"4"]


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_given_a_batch_then_its_bytes_decode_to_its_records(codec: str) -> None:
    bench = Bench(partitions=1)
    accumulator = bench.accumulator
    accumulator.append(b"k", b"v", 30, (("h", b"1"), ("n", None)))
    batch = accumulator.append(None, None, 10)
    pieces = batch.encode(codec, producer_id=7, producer_epoch=2, sequence=9)
    encoded = bytearray().join(pieces)
    set_offset_and_term(encoded, 5, 1)
    header = read_header(encoded)
    assert (header.first_timestamp_us, header.last_timestamp_us) == (10, 30)
    assert (header.producer_id, header.producer_epoch, header.sequence) == (7, 2, 9)
    records = decode_records(encoded)
    assert records.column("value").to_pylist() == [b"v", None]
    assert records.column("headers").to_pylist() == [
        [{"key": "h", "value": b"1"}, {"key": "n", "value": None}],
        None,
    ]
    assert [batch.timestamp_us(index) for index in (0, 1)] == [30, 10]


def test_given_slices_of_a_large_table_then_batches_carry_nothing_of_the_rest() -> None:
    bench = Bench(partitions=1, batch_bytes=10_000)
    bench.send_table([(None, b"x" * 100)] * 5_000)
    for batch in bench.take():
        assert sum(map(len, batch.encode("none"))) < 10_000 + 1_000


@pytest.mark.parametrize(
    ("eager", "under_way", "taken"),
    [
        pytest.param(False, 0, [], id="given-it-is-not-eager-then-it-waits"),
        pytest.param(True, 0, [b"1", b"2"], id="given-nothing-is-under-way-then-all-at-once"),
        pytest.param(True, 1, [], id="given-a-batch-is-under-way-then-it-waits"),
    ],
)
def test_eager(eager: bool, under_way: int, taken: list[bytes]) -> None:
    bench = Bench(partitions=2, eager=eager)
    for _ in range(under_way):
        bench.send(None, b"0", 0)
        bench.flush()
    before = bench.taken[:]
    bench.send(None, b"1", 0)
    bench.send(None, b"2", 1)
    found = [value for batch in bench.take() for value in batch.to_arrow()["value"].to_pylist()]
    assert found == taken

    for batch in before:
        bench.accumulator.release(batch)
    assert bench.accumulator.wake == bool(before)
    bench.now = LINGER_S / 2
    bench.take()
    assert bool(bench.values(1)) == eager
    bench.now = LINGER_S
    bench.take()
    assert bench.values(1) == [b"2"]


def _age(bench: Bench) -> None:
    """Let the open batches become old enough to be sealed."""
    bench.now += LINGER_S
    bench.take()


def test_given_as_many_in_flight_as_allowed_then_the_next_batch_grows_until_one_has_ended() -> None:
    bench = Bench(partitions=2, max_in_flight=2)
    for value in (b"1", b"2"):
        bench.send(b"k", value, 0)
        _age(bench)
    for value in (b"3", b"4"):
        bench.send(b"k", value, 0)
        bench.send(b"k", value, 1)
        _age(bench)
    # The other partition has room; one batch of each age was sealed there.
    assert [(b.partition, b.count) for b in bench.taken] == [(0, 1), (0, 1), (1, 1), (1, 1)]
    assert bench.accumulator.awaits_outcome
    bench.accumulator.wake = False
    bench.accumulator.release(bench.taken[0])
    assert bench.accumulator.wake
    (grown,) = bench.take()
    assert (grown.partition, grown.count) == (0, 2)
    assert not bench.accumulator.awaits_outcome


def test_given_a_held_batch_then_a_full_one_is_ready_all_the_same() -> None:
    bench = Bench(partitions=1, max_in_flight=1)
    bench.send(b"k", b"1")
    _age(bench)
    bench.send(b"k", b"x" * (BATCH_BYTES - ROW_OVERHEAD_BYTES - 1))
    _age(bench)
    assert len(bench.taken) == 1
    bench.send(b"k", b"3")
    assert [batch.count for batch in bench.take()] == [1]


def test_given_a_batch_held_for_long_then_its_records_do_not_share_its_deadline_any_more() -> None:
    bench = Bench(partitions=1, max_in_flight=1, hold_s=20.0)
    bench.send(b"k", b"1")
    _age(bench)
    bench.send(b"k", b"2")
    opened_at = bench.now
    bench.now += LINGER_S
    assert bench.accumulator.take(bench.now)[1] == opened_at + 20.0
    bench.now = opened_at + 19.9
    assert bench.take() == []
    bench.now = opened_at + 20.0
    assert [batch.count for batch in bench.take()] == [1]


def test_given_a_stuck_partition_then_keyless_records_go_where_there_is_room() -> None:
    bench = Bench(partitions=3, max_in_flight=1)
    for number in range(9):
        bench.send(None, bytes([number]))
        bench.now += LINGER_S
        for batch in bench.take():
            if batch.partition != 0:
                bench.accumulator.release(batch)
    # Of partition 0, the first is in flight and the second is held; each age passed one by.
    assert len(bench.values(0)) == 1
    assert len(bench.values(1) + bench.values(2)) == 7


@pytest.mark.parametrize("commit_ms", [1, 10, 100, 1_000])
def test_given_slow_commits_then_producers_do_not_collapse(commit_ms: int) -> None:
    bench = Bench(partitions=1, batch_bytes=1 << 20, eager=True, max_in_flight=5, hold_s=12.0)
    queue: deque[ProducerBatch[None]] = deque()
    in_flight: list[ProducerBatch[None]] = []
    committing: list[ProducerBatch[None]] = []
    acknowledged = sent = 0
    for now_ms in range(15_000):
        bench.now = now_ms / 1_000
        bench.accumulator.append(b"k", b"x" * 100, 1)
        sent += 1
        if now_ms % commit_ms == 0:
            # One fsync ends, and the next begins, with all that has come meanwhile.
            for batch in committing:
                acknowledged += batch.count
                bench.accumulator.release(batch)
                in_flight.remove(batch)
            committing = list(in_flight)
        queue.extend(bench.take())
        while queue and len(in_flight) < 5:
            in_flight.append(queue.popleft())
    assert sent - acknowledged <= 4 * commit_ms + 10


keys = st.one_of(st.none(), st.sampled_from([b"a", b"b", b"c", b"dd", b"eee"]))
sizes = st.integers(0, 450)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), keys, sizes),
        st.tuples(st.just("table"), st.lists(st.tuples(keys, sizes), max_size=12)),
        st.tuples(st.just("flush")),
        st.tuples(st.just("wait"), st.floats(0, 4)),
        st.tuples(st.just("release")),
    ),
    max_size=40,
)


@given(
    waits=st.lists(
        st.tuples(st.floats(0, 4), st.integers(0, 2), st.booleans()), min_size=10, max_size=60
    ),
    max_in_flight=st.integers(1, 5),
    eager=st.booleans(),
)
def test_law_age_brings_no_more_into_flight_than_is_allowed(
    waits: list[tuple[float, int, bool]], max_in_flight: int, eager: bool
) -> None:
    bench = Bench(
        partitions=3, batch_bytes=1 << 20, eager=eager, max_in_flight=max_in_flight, hold_s=math.inf
    )
    in_flight: list[ProducerBatch[None]] = []
    for wait_s, partition, ends in waits:
        bench.now += wait_s
        bench.send(b"k", b"v", partition)
        in_flight += bench.take()
        for at in range(3):
            assert sum(batch.partition == at for batch in in_flight) <= max_in_flight
        if ends and in_flight:
            bench.accumulator.release(in_flight.pop(0))
    # Once all have their outcomes, whatever was held leaves too.
    bench.now += LINGER_S
    in_flight += bench.take()
    while in_flight or bench.accumulator.awaits_outcome:
        for batch in in_flight:
            bench.accumulator.release(batch)
        bench.now += LINGER_S
        in_flight = bench.take()
    assert sum(batch.count for batch in bench.taken) == len(waits)


@given(
    steps=steps,
    partitions=st.integers(1, 5),
    eager=st.booleans(),
    max_in_flight=st.one_of(st.none(), st.integers(1, 5)),
)
def test_law_nothing_lost_or_doubled_order_per_key_and_limits(
    steps: list[tuple[object, ...]], partitions: int, eager: bool, max_in_flight: int | None
) -> None:
    bench = Bench(partitions=partitions, eager=eager, max_in_flight=max_in_flight, hold_s=HOLD_S)
    sent: dict[bytes | None, list[bytes]] = {}
    number = released = 0

    def value(key: bytes | None, size: int) -> bytes:
        nonlocal number
        number += 1
        made = number.to_bytes(4, "big") + b"x" * size
        sent.setdefault(key, []).append(made)
        return made

    for step in steps:
        match step:
            case ("send", key, size):
                bench.send(key, value(key, size))  # type: ignore[arg-type]
            case ("table", rows):
                bench.send_table([(key, value(key, size)) for key, size in rows])  # type: ignore[attr-defined]
            case ("flush",):
                bench.flush()
            case ("wait", seconds):
                bench.now += float(seconds)  # type: ignore[arg-type]
                bench.take()
            case ("release",):
                for batch in bench.taken[released:]:
                    bench.accumulator.release(batch)
                released = len(bench.taken)
    buffered = bench.accumulator.buffered_bytes
    bench.flush()
    assert buffered == bench.accumulator.buffered_bytes
    assert buffered == sum(b.size for b in bench.taken[released:])
    assert bench.accumulator.under_way == len(bench.taken) - released

    got: dict[bytes | None, list[bytes]] = {}
    for batch in bench.taken:
        rows = batch.to_arrow()
        assert batch.sealed
        assert batch.count == rows.num_rows > 0
        assert batch.size == int(record_sizes(rows).sum()) + ROW_OVERHEAD_BYTES * batch.count
        assert batch.size <= BATCH_BYTES or batch.count == 1
        for key, found in zip(
            rows.column("key").to_pylist(), rows.column("value").to_pylist(), strict=True
        ):
            got.setdefault(key, []).append(found)
            if key is not None:
                assert batch.partition == partition_for(key, partitions)
    assert sorted(got.pop(None, [])) == sorted(sent.pop(None, []))
    assert got == sent


@given(
    st.lists(
        st.tuples(st.none() | st.sampled_from([b"a", b"b", b"c", b"d"]), st.integers(0, 300)),
        min_size=1,
        max_size=40,
    ),
    st.integers(1, 4),
)
def test_law_few_records_are_arranged_as_many_are(
    records: list[tuple[bytes | None, int]], partitions: int
) -> None:
    places = []
    for few in (True, False):
        bench = Bench(partitions=partitions)
        keys = [key for key, _ in records]
        values: list[bytes | None] = [bytes(size) for _, size in records]
        sizes = [size for _, size in records]
        rows = (
            bench.accumulator.arrange_few(keys, values, sizes, 1, 0.0)
            if few
            else bench.accumulator.arrange(keys, values, np.array(sizes, np.int64), 1, 0.0)
        )
        bench.accumulator.append_rows(rows)
        bench.accumulator.seal_all()
        taken, _ = bench.accumulator.take(0.0)
        found = [(batch.partition, batch.keys, batch.values, batch.size) for batch in taken]
        where = [rows.place(row) for row in range(len(records))]
        assert [batch.values[at] for batch, at in where] == values
        places.append((found, [(taken.index(batch), at) for batch, at in where]))
    assert places[0] == places[1]


def test_given_added_partitions_then_later_records_go_to_all_of_them() -> None:
    bench = Bench(partitions=1, max_in_flight=5)
    keys = [b"key-%d" % number for number in range(40)]
    for key in keys:
        bench.send(key, b"before")
    with pytest.raises(InvalidRequestError, match="0 to 0"):
        bench.send(None, b"chosen", partition=2)
    bench.accumulator.grow(3)
    for key in keys:
        bench.send(key, b"after")
    bench.send_table([(key, b"table") for key in keys])
    for _ in range(3 * BATCH_BYTES // 100):
        bench.send(None, b"keyless" * 10)
    bench.send(None, b"chosen", partition=2)
    bench.flush()
    for partition in range(3):
        mine = sum(partition_for(key, 3) == partition for key in keys)
        found = bench.values(partition)
        assert found.count(b"before") == (40 if partition == 0 else 0)
        assert found.count(b"after") == mine
        assert found.count(b"table") == mine
        assert found.count(b"chosen") == (partition == 2)
        assert b"keyless" * 10 in found
    for batch in bench.taken:
        bench.accumulator.release(batch)
    assert bench.accumulator.buffered_bytes == 0
