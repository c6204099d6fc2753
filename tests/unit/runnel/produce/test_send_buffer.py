"""Where `send` leaves records: none lost, doubled or out of order, whoever sends and gathers."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.produce import send_buffer
from runnel.produce.accumulator import Accumulator
from runnel.produce.delivery import Batch, Delivery, Outcome
from runnel.produce.linger import LEAST_S
from runnel.produce.send import RecordSender
from runnel.produce.send_buffer import SLOT_VALUE_BYTES, STAMP_S, SendBuffer
from runnel.records.tables import ROW_OVERHEAD_BYTES, measured, record_table
from schemas.errors import InvalidRequestError, OverloadedError, RecordTooLargeError
from schemas.wire.partitioner import partition_for

BATCH_BYTES = 3_000
LINGER_S = 60.0


@dataclass
class Bench(RecordSender):
    """A send buffer on a virtual clock, without an event loop."""

    partitions: int = 3
    buffer_bytes: int = 1 << 40
    waits: bool = False
    eager: bool = False
    max_record_bytes: int = 1 << 20
    woken: int = 0
    taken: list[Batch] = field(default_factory=list)

    def __post_init__(self) -> None:
        accumulator: Accumulator[Outcome] = Accumulator(
            "orders",
            self.partitions,
            max_record_bytes=self.max_record_bytes,
            batch_bytes=BATCH_BYTES,
            linger_s=LINGER_S,
            clock=lambda: 0.0,
            new_outcome=lambda: Outcome("orders"),
            eager=self.eager,
        )
        self._send_buffer = SendBuffer(
            "orders",
            accumulator,
            buffer_bytes=self.buffer_bytes,
            max_record_bytes=self.max_record_bytes,
            waits=self.waits,
            wake=self._wake,
        )

    def _wake(self) -> None:
        self.woken += 1

    def flush(self) -> None:
        self._send_buffer.seal_all()
        self.taken += self._send_buffer.take(0.0)[0]

    def rows(self) -> dict[int, list[tuple[bytes | None, bytes | None]]]:
        """Keys and values by partition, in the order in which they leave."""
        found: dict[int, list[tuple[bytes | None, bytes | None]]] = {}
        for batch in self.taken:
            records = batch.to_arrow()
            keys, values = (records.column(name).to_pylist() for name in ("key", "value"))
            found.setdefault(batch.partition, []).extend(zip(keys, values, strict=True))
        return found


@pytest.fixture(params=["slots", "no slots"])
def slots(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With slots, and as where no interpreter lock makes them safe."""
    if request.param == "no slots":
        monkeypatch.setattr(send_buffer, "_MOST_SLOTS", 0)


def record_of(delivery: Delivery) -> tuple[int, bytes | None]:
    batch, row = delivery._source.place(delivery._index)
    return batch.partition, batch.to_arrow().column("value")[row].as_py()


keys = st.one_of(st.none(), st.sampled_from([b"a", b"b", b"c", b"dd", b"eee"]))
values = st.integers(0, 1_500)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), keys, values),
        st.tuples(st.just("many"), keys, st.integers(1, 150)),
        st.tuples(st.just("large"), keys, st.integers(SLOT_VALUE_BYTES - 5, SLOT_VALUE_BYTES + 5)),
        st.tuples(st.just("stamped"), keys, values),
        st.tuples(st.just("table"), st.lists(st.tuples(keys, values), max_size=5)),
        st.tuples(st.sampled_from(["gather", "flush", "take", "ask"])),
    ),
    max_size=30,
)


@given(steps=steps, partitions=st.integers(1, 5), most_slots=st.sampled_from([0, 100, 4096]))
def test_law_nothing_lost_or_doubled_order_per_key_and_handles_know_their_record(
    steps: list[tuple[object, ...]], partitions: int, most_slots: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(send_buffer, "_MOST_SLOTS", most_slots)
        bench = Bench(partitions)
    sent: dict[bytes | None, list[bytes]] = {}
    handles: list[tuple[Delivery, bytes]] = []
    number = 0

    def value(key: bytes | None, size: int) -> bytes:
        nonlocal number
        number += 1
        made = number.to_bytes(4, "big") + b"x" * size
        sent.setdefault(key, []).append(made)
        return made

    def send(key: bytes | None, size: int, timestamp: int | None = None) -> None:
        made = value(key, size)
        handles.append((bench.send(made, key, timestamp), made))

    for step in steps:
        match step:
            case ("send" | "large", key, size):
                send(key, size)  # type: ignore[arg-type]
            case ("many", key, count):
                for _ in range(count):  # type: ignore[call-overload]
                    send(key, 3)  # type: ignore[arg-type]
            case ("stamped", key, size):
                send(key, size, 7)  # type: ignore[arg-type]
            case ("table", rows):
                made = [(key, value(key, size)) for key, size in rows]  # type: ignore[attr-defined]
                table = pa.table({
                    "key": pa.array([key for key, _ in made], pa.binary()),
                    "value": pa.array([data for _, data in made], pa.binary()),
                })  # fmt: skip
                for piece in measured(record_table(table, 1)):
                    bench._send_buffer.add_table(piece)
            case ("gather",):
                bench._send_buffer.gather()
            case ("flush",):
                bench.flush()
            case ("take",):
                bench.taken += bench._send_buffer.take(0.0)[0]
            case ("ask",):
                for delivery, expected in handles[-1:]:
                    assert record_of(delivery)[1] == expected
    buffered = bench._send_buffer.buffered_bytes()
    bench.flush()
    assert buffered == sum(batch.size for batch in bench.taken)
    assert [record_of(delivery)[1] for delivery, _ in handles] == [made for _, made in handles]
    got: dict[bytes | None, list[bytes]] = {}
    for partition, rows in bench.rows().items():
        for key, data in rows:
            assert data is not None
            got.setdefault(key, []).append(data)
            assert key is None or partition == partition_for(key, partitions)
    assert sorted(got.pop(None, [])) == sorted(sent.pop(None, []))
    assert got == sent
    for batch in bench.taken:
        records = batch.to_arrow()
        size = sum(len(v) for v in records.column("value").to_pylist())
        size += sum(len(k or b"") for k in records.column("key").to_pylist())
        assert batch.size == size + ROW_OVERHEAD_BYTES * batch.count
        assert batch.size <= BATCH_BYTES or batch.count == 1


def test_given_threads_then_each_ones_records_are_all_there_in_its_order(slots: None) -> None:
    bench = Bench(partitions=2)
    each = 3_000
    handles: dict[int, list[Delivery]] = {}
    ready = threading.Barrier(5)

    def work(name: int) -> None:
        ready.wait()
        handles[name] = [bench.send(b"%d" % number, b"%d" % name) for number in range(each)]

    def gather() -> None:
        ready.wait()
        while len(handles) < 4:
            bench.taken += bench._send_buffer.take(0.0)[0]

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    threads.append(threading.Thread(target=gather))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    bench.flush()
    got: dict[bytes | None, list[bytes | None]] = {}
    for rows in bench.rows().values():
        for key, value in rows:
            got.setdefault(key, []).append(value)
    expected = [b"%d" % number for number in range(each)]
    assert got == {b"%d" % name: expected for name in range(4)}
    for made in handles.values():
        # One row of each batch is enough to see that batches and rows fit.
        assert [record_of(d)[1] for d in made[:: each // 10]] == expected[:: each // 10]


def test_given_a_slot_taken_and_not_filled_then_who_gathers_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(partitions=1)
    bench.send(b"first", b"k")
    indices, slot_keys, slot_values, _chunk = bench._send_buffer.fields
    late = next(indices)
    bench.send(b"third", b"k")

    def fill(_seconds: float) -> None:
        slot_keys[late], slot_values[late] = b"k", b"second"

    monkeypatch.setattr(send_buffer, "sleep", fill)
    bench.flush()
    assert bench.rows() == {0: [(b"k", b"first"), (b"k", b"second"), (b"k", b"third")]}


def test_given_the_slots_of_a_gathered_chunk_then_none_is_given_out_any_more() -> None:
    bench = Bench()
    bench.send(b"v")
    indices, *_rest = bench._send_buffer.fields
    bench._send_buffer.gather()
    assert list(indices) == []


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(size, id=f"given-{size}-bytes-each")
        for size in (0, 1, 100, 4_095, 4_096, 9_000)
    ],
)
@pytest.mark.parametrize("limit", [1, 10_000, 300_000])
def test_the_limit_holds_to_the_record(slots: None, size: int, limit: int) -> None:
    bench = Bench(buffer_bytes=limit)
    accepted = -(-limit // (size + ROW_OVERHEAD_BYTES))
    for _ in range(accepted):
        bench.send(bytes(size))
    with pytest.raises(OverloadedError, match=f"the limit is {limit}"):
        bench.send(bytes(size))
    assert not bench._send_buffer.has_room()
    assert bench._send_buffer.buffered_bytes() == accepted * (size + ROW_OVERHEAD_BYTES)
    bench.flush()
    for batch in bench.taken:
        bench._send_buffer.release(batch)
    assert bench._send_buffer.buffered_bytes() == 0
    bench.send(bytes(size))


def test_given_waiting_is_allowed_then_send_waits_until_something_is_released() -> None:
    bench = Bench(buffer_bytes=10, waits=True)
    bench.send(b"1" * 10)
    bench.flush()
    waiting = threading.Thread(target=bench.send, args=(b"2",))
    waiting.start()
    bench._send_buffer.release(bench.taken[0])
    waiting.join()
    bench.flush()
    assert [batch.count for batch in bench.taken] == [1, 1]


@pytest.mark.parametrize(
    ("value", "error"),
    [
        pytest.param(b"x" * 11, RecordTooLargeError, id="given-a-record-over-the-limit"),
        pytest.param(5, InvalidRequestError, id="given-a-number"),
    ],
)
def test_refused(value: bytes, error: type[Exception]) -> None:
    bench = Bench(max_record_bytes=10)
    bench.send(b"x" * 10)
    with pytest.raises(error):
        bench.send(value)
    bench.flush()
    assert [batch.count for batch in bench.taken] == [1]


def test_given_it_is_closed_then_nothing_more_is_taken(slots: None) -> None:
    bench = Bench()
    bench.send(b"v")
    bench._send_buffer.close()
    with pytest.raises(InvalidRequestError, match="closed"):
        bench.send(b"w")
    with pytest.raises(InvalidRequestError, match="closed"):
        bench._send_buffer.add_table(measured(record_table(pa.table({"value": [b"w"]}), 1))[0])
    bench.flush()
    assert [batch.count for batch in bench.taken] == [1]


def test_given_an_interrupt_while_gathering_then_the_next_one_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(partitions=1)
    handles = [bench.send(b"%d" % n + b"x" * 1_000, b"k") for n in range(6)]
    seal = bench._send_buffer._accumulator._seal
    interrupted = False

    def interrupt(batch: Batch) -> None:
        nonlocal interrupted
        seal(batch)
        if not interrupted:
            interrupted = True
            raise KeyboardInterrupt

    monkeypatch.setattr(bench._send_buffer._accumulator, "_seal", interrupt)
    with pytest.raises(KeyboardInterrupt):
        bench._send_buffer.gather()
    handles.append(bench.send(b"6", b"k"))
    bench.flush()
    expected = [b"%d" % n + b"x" * 1_000 for n in range(6)] + [b"6"]
    assert [value for _key, value in bench.rows()[0]] == expected
    assert [record_of(delivery)[1] for delivery in handles] == expected


def test_given_a_chunk_then_its_records_have_the_time_of_its_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_ns = 5_000_000
    monkeypatch.setattr(send_buffer, "time_ns", lambda: now_ns)
    bench = Bench(partitions=1)
    handles = [bench.send(b"1")]
    now_ns = 6_000_000
    handles += [bench.send(b"2"), bench.send(b"3", timestamp=77)]
    now_ns = 7_000_000
    handles.append(bench.send(b"4"))
    stamps = []
    for delivery in handles:
        batch, row = delivery._source.place(delivery._index)
        stamps.append(batch.timestamp_us(row))
    assert stamps == [5_000, 5_000, 77, 7_000]


def test_the_loop_is_woken_for_the_first_record_and_then_comes_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(send_buffer, "monotonic", lambda: 0.0)
    bench = Bench()
    bench.send(b"1")
    bench.send(b"2")
    assert bench.woken == 1
    # The batch lingers longer, but the chunk that may come now must be looked after.
    assert bench._send_buffer.take(0.0) == ([], STAMP_S)
    woken = bench.woken
    bench.send(b"3")
    assert bench.woken == woken
    assert bench._send_buffer.take(STAMP_S) == ([], 2 * STAMP_S)
    # Nothing came since: back to the batch's own time, and the next record calls again.
    assert bench._send_buffer.take(2 * STAMP_S) == ([], LINGER_S)
    woken = bench.woken
    bench.send(b"4")
    assert bench.woken == woken + 1


def test_given_it_is_eager_then_no_record_calls_for_the_loop_while_others_are_under_way() -> None:
    bench = Bench(partitions=1, eager=True)
    bench.send(b"1")
    assert bench.woken == 1
    (first,), due = bench._send_buffer.take(0.0)
    assert due == STAMP_S
    woken = bench.woken
    bench.send(b"2")
    assert bench._send_buffer.take(STAMP_S) == ([], 2 * STAMP_S)
    bench.send(b"3")
    assert bench.woken == woken
    bench._send_buffer.release(first)
    assert bench.woken == woken + 1
    (second,), _due = bench._send_buffer.take(STAMP_S)
    assert second.to_arrow().column("value").to_pylist() == [b"2", b"3"]


def test_given_it_is_eager_and_has_just_sent_then_it_paces_itself() -> None:
    bench = Bench(partitions=1, eager=True)
    bench.send(b"1")
    (first,), _due = bench._send_buffer.take(0.0)
    bench._send_buffer.release(first)
    assert bench._send_buffer.take(0.0) == ([], LEAST_S)
    woken = bench.woken
    bench.send(b"2")
    assert bench.woken == woken
    (second,), _due = bench._send_buffer.take(LEAST_S)

    # Once that is over, the next record calls for the loop again.
    bench._send_buffer.release(second)
    assert bench._send_buffer.take(2 * LEAST_S) == ([], None)
    woken = bench.woken
    bench.send(b"3")
    assert bench.woken > woken
    assert [batch.count for batch in bench._send_buffer.take(2 * LEAST_S)[0]] == [1]


@pytest.mark.parametrize(
    "keyed",
    [
        pytest.param(0, id="given-only-records-without-a-key-then-they-fill-batches-in-turn"),
        pytest.param(1, id="given-keys-among-them-then-those-without-still-do"),
    ],
)
def test_records_without_a_key(keyed: int) -> None:
    bench = Bench(partitions=3)
    handles = [bench.send(b"x" * 1_400) for _ in range(6)]
    for _ in range(keyed):
        # Small enough for the room that two of the others leave in a batch.
        bench.send(b"v", b"k")
    handles += [bench.send(b"x" * 1_400) for _ in range(6)]
    bench.flush()
    assert [record_of(delivery)[0] for delivery in handles] == [0, 0, 1, 1, 2, 2] * 2
