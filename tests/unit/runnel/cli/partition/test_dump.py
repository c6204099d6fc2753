"""``partition dump``: what is printed of batches, whole and damaged, of a leader and of files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from runnel.cli.partition import dump
from runnel.cli.partition.dump import (
    Choice,
    _cells,
    batch_json,
    dump_leader,
    dump_stored,
    make_choice,
)
from runnel.partition.stored_batches import StoredBatch, stored_batch
from schemas.errors import InvalidRequestError, NotFoundError
from schemas.ids import make_term
from schemas.wire.batch import build, build_control, set_offset_and_term
from schemas.wire.payload import RECORD_SCHEMA, encode_records
from schemas.wire.record_requests import FetchResponse, ListOffsetsResponse

TERM = make_term(0, 1, 2)
SECOND = 1_000_000


def records(base: int, values: list[bytes | None], at_us: int = SECOND, **header: int) -> bytes:
    rows = [
        {
            "timestamp": datetime.fromtimestamp(at_us / SECOND, UTC),
            "key": b"k",
            "value": value,
            "headers": [{"key": "h", "value": b"v"}],
        }
        for value in values
    ]
    payload = encode_records(pa.RecordBatch.from_pylist(rows, RECORD_SCHEMA))
    made = build(
        memoryview(payload),
        record_count=len(values),
        first_timestamp_us=at_us,
        last_timestamp_us=at_us,
        **header,
    )
    set_offset_and_term(made, base, TERM)
    return bytes(made)


def control(base: int) -> bytes:
    made = build_control("term", SECOND)
    set_offset_and_term(made, base, TERM)
    return bytes(made)


#: Offsets 0 (control), 1 and 2, 3, 4 and 5; a second apart.
LOG = [
    control(0),
    records(1, [b"one", None], producer_id=255, producer_epoch=1, sequence=7),
    records(3, [b"\xff"], 2 * SECOND, first_transaction_id=4, last_transaction_id=5),
    records(4, [b"x", b"y\n"], 3 * SECOND),
]


def read(data: bytes) -> StoredBatch:
    return stored_batch(memoryview(data))


def test_a_control_batch_says_its_kind_and_has_no_records() -> None:
    found = batch_json(read(LOG[0]), "t-0", records=True)
    assert (found["control"], found["term"], found["crc"]) == ("term", "0.1.2", "ok")
    assert (found["producerId"], found["sequence"], found["firstTransactionId"]) == (None,) * 3
    assert "items" not in found
    assert "file" not in found


def test_a_table_shows_the_term_as_people_read_it() -> None:
    found = batch_json(read(LOG[0]), "t-0", records=False)
    assert _cells(found, places=False)[2] == "1+2"
    assert _cells({"crc": "damaged"}, places=False)[2] == "-"


def test_a_batch_says_all_of_its_header() -> None:
    found = batch_json(read(LOG[1]), "t-0", records=False)
    assert (found["offset"], found["records"], found["bytes"]) == (1, 2, len(LOG[1]))
    assert (found["producerId"], found["producerEpoch"], found["sequence"]) == (f"{255:016x}", 1, 7)
    assert found["firstTimestamp"] == "1970-01-01T00:00:01.000000+00:00"
    assert (found["codec"], found["schemaId"], found["control"]) == ("none", 0, None)


def test_records_have_offsets_and_what_is_no_text_is_base64() -> None:
    (one, two), (three,) = (
        batch_json(read(data), "t-0", records=True)["items"] for data in LOG[1:3]
    )
    assert (one["offset"], one["value"], two["offset"], two["value"]) == (1, "one", 2, None)
    assert three["valueBase64"] == "/w=="
    assert "partition" not in one


def test_given_damage_then_it_is_named_and_nothing_is_decoded() -> None:
    data = bytearray(LOG[1])
    data[-1] ^= 1
    found = batch_json(read(bytes(data)), "t-0", records=True)
    assert "client CRC32C" in found["crc"]
    assert (found["items"], found["notDecoded"]) == ([], found["crc"])


def test_given_a_payload_of_another_schema_then_it_says_so() -> None:
    made = bytearray(records(0, [b"x"], schema_id=9))
    found = batch_json(read(bytes(made)), "t-0", records=True)
    assert "schema 9" in found["notDecoded"]


def test_given_no_header_then_only_its_place() -> None:
    found = batch_json(StoredBatch(None, memoryview(b""), "torn", "f.log", 9), "t-0", records=True)
    assert found == {"partition": "t-0", "crc": "torn", "file": "f.log", "position": 9}


def test_given_a_time_that_cannot_be_then_a_number() -> None:
    made = bytearray(build(b"", record_count=1, first_timestamp_us=1 << 62, last_timestamp_us=0))
    set_offset_and_term(made, 0, TERM)
    assert batch_json(read(bytes(made)), "t", records=False)["firstTimestamp"] == str(1 << 62)


def test_two_starts_are_refused() -> None:
    with pytest.raises(InvalidRequestError):
        make_choice(1, None, 1, None, False)
    assert make_choice(None, "1970-01-01T00:00:02", None, 3, True) == Choice(
        at_us=2 * SECOND, count=3, records=True
    )


# From a leader


class FakeLog:
    """A leader that gives two batches at a time."""

    async def bounds(self) -> ListOffsetsResponse:
        return ListOffsetsResponse(6, 0, 5, 0)

    async def find(self, position: int) -> ListOffsetsResponse:
        found = next(
            one.header.base_offset
            for one in map(read, LOG)
            if one.header is not None and one.header.last_timestamp_us >= position
        )
        return ListOffsetsResponse(found, 0, 5, 0)

    async def read(self, offset: int) -> tuple[list[StoredBatch], FetchResponse]:
        found = [one for one in map(read, LOG) if one.header and one.header.next_offset > offset]
        return found[:2], FetchResponse(0, 5)


class InPlace:
    """Carries out what a loop in a thread would."""

    def call(self, work: Any) -> Any:
        try:
            work.send(None)
        except StopIteration as end:
            return end.value
        raise AssertionError("it waits")


@pytest.fixture
def _leader(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def opened(_name: str, _sc: str | None) -> Iterator[Any]:
        yield InPlace(), FakeLog()

    monkeypatch.setattr(dump, "_opened", opened)


CHOICES = {
    "given-nothing-then-all": (Choice(), [0, 1, 3, 4]),
    "given-an-offset-then-the-batch-that-holds-it": (Choice(offset=2), [1, 3, 4]),
    "given-a-time-then-from-there": (Choice(at_us=2 * SECOND), [3, 4]),
    "given-a-tail-then-the-last-batches": (Choice(tail=2), [3, 4]),
    "given-a-tail-of-more-than-there-is-then-all": (Choice(tail=9), [0, 1, 3, 4]),
    "given-a-tail-of-none-then-none": (Choice(tail=0), []),
    "given-a-count-then-so-many": (Choice(count=1), [0]),
    "given-an-offset-behind-the-end-then-none": (Choice(offset=6), []),
}


def offsets(capsys: pytest.CaptureFixture[str]) -> list[int]:
    return [json.loads(line)["offset"] for line in capsys.readouterr().out.splitlines()]


@pytest.mark.usefixtures("_leader")
@pytest.mark.parametrize(("choice", "expected"), CHOICES.values(), ids=CHOICES)
def test_choices_of_a_leader(
    capsys: pytest.CaptureFixture[str], choice: Choice, expected: list[int]
) -> None:
    dump_leader("t-0", choice, None, as_json=True)
    assert offsets(capsys) == expected


@pytest.mark.parametrize(("choice", "expected"), CHOICES.values(), ids=CHOICES)
def test_choices_of_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], choice: Choice, expected: list[int]
) -> None:
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(b"".join(LOG))
    dump_stored(path, None, choice, as_json=True)
    assert offsets(capsys) == expected


# From files

DESCRIBED: dict[str, Any] = {
    "meta": {"name": "t-0", "partitionUid": "u", "storageId": "s", "clusterUid": "c"},
    "checkpoint": {
        "logStart": 0,
        "durableEnd": 6,
        "lac": 5,
        "segment": 0,
        "scanPosition": 0,
        "cutAt": None,
        "producers": 1,
        "lastTransactionIdBeforeStart": 41,
        "history": [{"term": TERM, "start": 0}],
    },
    "segments": [
        {"file": "0.log", "baseOffset": 0, "bytes": 9, "index": None},
        {"file": "1.log", "baseOffset": 1, "bytes": 9, "index": {"damaged": True}},
        {"file": "2.log", "baseOffset": 2, "bytes": 9, "index": {"ofEarlierVersion": True}},
        {
            "file": "3.log",
            "baseOffset": 3,
            "bytes": 9,
            "index": {"entries": 1, "covered": 9, "lastTransactionId": 60},
        },
    ],
    "otherFiles": ["cut-1"],
}


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / f"{0:020d}.log").write_bytes(b"".join(LOG[:2]))
    (tmp_path / f"{3:020d}.log").write_bytes(b"".join(LOG[2:]) + b"torn")
    found = DESCRIBED | {"directory": str(tmp_path)}
    monkeypatch.setattr(dump, "describe_logs", lambda _path: [found])
    return tmp_path


def test_a_directory_is_described_before_its_batches(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dump_stored(directory, None, Choice(records=True), as_json=False)
    said = capsys.readouterr().out
    assert "log start 0, durable end 6, LAC 5" in said
    assert "1+2 from offset 0" in said
    assert "1 entries over 9 bytes, transaction ids up to 60" in said
    assert "of an earlier version" in said
    assert "transaction ids up to 41 before the log start" in said
    batches = said[said.index("OFFSET      RECORDS") :].splitlines()
    rows = [line for line in batches if line[:1].isdigit() or line.startswith("-")]
    assert [row.split()[0] for row in rows] == ["0", "1", "3", "4", "-"]
    assert rows[-1].split()[-3:] == ["BAD", f"{3:020d}.log", str(len(LOG[2]) + len(LOG[3]))]
    assert any("cannot hold a batch header" in line for line in batches)
    assert any(line.split()[-2:] == ["y\\n", "h=v"] for line in batches)
    assert any("base64:/w==" in line for line in batches)


def test_a_partition_is_chosen_by_its_name(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dump_stored(directory, "t-0", Choice(tail=2), as_json=True)
    head, *batches = map(json.loads, capsys.readouterr().out.splitlines())
    assert head["log"]["meta"]["name"] == "t-0"
    assert [one.get("offset") for one in batches] == [4, None]
    with pytest.raises(NotFoundError, match="no partition u-0; there are t-0"):
        dump_stored(directory, "u-0", Choice(), as_json=True)
