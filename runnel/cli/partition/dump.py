"""``runnel partition dump``: the batches of a partition, from its leader or from a directory."""

from __future__ import annotations

import json
import secrets
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

from runnel.admin.client import Admin
from runnel.admin.http import ScClient
from runnel.cli.connection import who
from runnel.cli.records.output import shown
from runnel.cli.render import format_row, print_rows
from runnel.cli.times import parse_time
from runnel.contexts import default_sc
from runnel.local.offline_admin import choose_partition, describe_logs
from runnel.loop_thread import LoopThread
from runnel.net.address import parse_addresses
from runnel.partition.dump import BatchDump
from runnel.partition.stored_batches import StoredBatch, read_segment, read_segments, segment_files
from runnel.records.as_json import record_json
from runnel.records.python_values import rows_of
from schemas.errors import InvalidRequestError, RunnelError
from schemas.ids import dotted_term, format_term, parse_dotted_term
from schemas.wire.batch import CODECS, HEADER_SIZE, NO_TRANSACTION, BatchHeader
from schemas.wire.payload import decode_records

_CODEC_NAMES: Final = {number: name for name, number in CODECS.items()}
_COLUMNS: Final = {
    "OFFSET": 10,
    "RECORDS": 7,
    "TERM": 9,
    "SIZE": 8,
    "CODEC": 5,
    "KIND": 7,
    "SCHEMA": 6,
    "FIRST TIMESTAMP": 26,
    "LAST TIMESTAMP": 26,
    "PRODUCER": 16,
    "EPOCH": 5,
    "SEQUENCE": 8,
    "TRANSACTIONS": 12,
    "CRC": 3,
}
_PLACE: Final = {"FILE": 24, "POSITION": 10}
_MICROSECOND: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Choice:
    """Which batches are printed: from an offset or a time (µs) on, or the last ones, up to a limit.
    ``records``: with their records.
    """

    offset: int | None = None
    at_us: int | None = None
    tail: int | None = None
    count: int | None = None
    records: bool = False


def make_choice(
    offset: int | None, at: str | None, tail: int | None, count: int | None, records: bool
) -> Choice:
    """The choice that the options make. Raises InvalidRequestError."""
    if sum(option is not None for option in (offset, at, tail)) > 1:
        raise InvalidRequestError("give one of --offset, --at and --tail")
    at_us = None if at is None else int(parse_time(at, datetime.now(UTC)).timestamp() * 1_000_000)
    return Choice(offset, at_us, tail, count, records)


def dump_leader(name: str, choice: Choice, sc: str | None, *, as_json: bool) -> None:
    """Print batches as the leader serves them, up to what is committed now."""
    with _opened(name, sc) as (thread, log):
        batches = _from_leader(thread, log, choice)
        _print(islice(batches, choice.count), name, choice, as_json=as_json, places=False)


@contextmanager
def _opened(name: str, sc: str | None) -> Iterator[tuple[LoopThread, BatchDump]]:
    addresses = parse_addresses(default_sc() if sc is None else sc)
    thread = LoopThread("runnel partition dump")
    try:

        async def open_it() -> ScClient:
            return ScClient(addresses, who())

        client = thread.call(open_it())
        log = BatchDump(Admin(client), name, secrets.SystemRandom().random)
        try:
            yield thread, log
        finally:
            thread.call(log.close())
            thread.call(client.close())
    finally:
        thread.stop()


def _from_leader(thread: LoopThread, log: BatchDump, choice: Choice) -> Iterator[StoredBatch]:
    bounds = thread.call(log.bounds())
    # Control batches as well, those behind the end of a sealed log included.
    start, end = bounds.log_start, bounds.lac + 1
    if choice.offset is not None:
        start = choice.offset
    elif choice.at_us is not None:
        start = thread.call(log.find(choice.at_us)).offset
    if choice.tail is None:
        yield from _walk(thread, log, start, end)
        return
    # Batches are of any size: reach back further until there are enough.
    reach = max(choice.tail, 1)
    while True:
        begin = max(start, end - reach)
        last = deque(_walk(thread, log, begin, end), choice.tail)
        if len(last) == choice.tail or begin == start:
            yield from last
            return
        reach *= 4


def _walk(thread: LoopThread, log: BatchDump, start: int, end: int) -> Iterator[StoredBatch]:
    """The batches from ``start`` on that begin before ``end``."""
    while start < end:
        batches, _bounds = thread.call(log.read(start))
        if not batches:
            return
        for batch in batches:
            if batch.header is None or batch.header.base_offset >= end:
                return
            start = batch.header.next_offset
            yield batch


def dump_stored(path: Path, name: str | None, choice: Choice, *, as_json: bool) -> None:
    """Print a segment file; or the metadata in a partition's directory, then its batches."""
    if path.is_file():
        batches: Iterable[StoredBatch] = read_segment(path)
        label = path.stem
    else:
        found = choose_partition(describe_logs(path), name, path)
        label = str((found["meta"] or {}).get("name", path.name))
        if as_json:
            print(json.dumps({"log": found}))
        else:
            print_log(found)
        batches = read_segments(segment_files(Path(found["directory"])), choice.offset or 0)
    chosen: Iterable[StoredBatch] = (batch for batch in batches if _is_chosen(batch, choice))
    if choice.tail is not None:
        chosen = deque(chosen, choice.tail)
    _print(islice(chosen, choice.count), label, choice, as_json=as_json, places=True)


def _is_chosen(batch: StoredBatch, choice: Choice) -> bool:
    if batch.header is None:
        return True
    if choice.offset is not None:
        return batch.header.next_offset > choice.offset
    return choice.at_us is None or batch.header.last_timestamp_us >= choice.at_us


def print_log(found: dict[str, Any]) -> None:
    """The metadata of a directory, which is printed before its batches."""
    meta, checkpoint = found["meta"], found["checkpoint"]
    print(f"directory   {found['directory']}")
    if meta is not None:
        print(f"partition   {meta['name']}, uid {meta['partitionUid']}")
        print(f"storage     {meta['storageId']}, cluster {meta['clusterUid']}")
    if checkpoint is None:
        print("checkpoint  missing or damaged")
    else:
        print(
            f"checkpoint  log start {checkpoint['logStart']}, durable end"
            f" {checkpoint['durableEnd']}, LAC {checkpoint['lac']}, scan from byte"
            f" {checkpoint['scanPosition']} of segment {checkpoint['segment']},"
            f" {checkpoint['producers']} producers"
        )
        if checkpoint["cutAt"] is not None:
            print(f"            a cut at byte {checkpoint['cutAt']} is not finished")
        if checkpoint["lastTransactionIdBeforeStart"] is not None:
            last_id = checkpoint["lastTransactionIdBeforeStart"]
            print(f"            transaction ids up to {last_id} before the log start")
        for epoch in checkpoint["history"]:
            print(f"term        {format_term(epoch['term'])} from offset {epoch['start']}")
    for name in found["otherFiles"]:
        print(f"beside it   {name}")
    rows = [
        [one["file"], str(one["baseOffset"]), f"{one['bytes']:,}", _index_text(one["index"])]
        for one in found["segments"]
    ]
    print()
    print_rows(["SEGMENT", "OFFSET", "BYTES", "INDEX"], rows)
    print()


def _index_text(index: dict[str, Any] | None) -> str:
    if index is None:
        return "none"
    if index.get("damaged"):
        return "damaged"
    if index.get("ofEarlierVersion"):
        return "of an earlier version"
    last_id = index["lastTransactionId"]
    ids = "" if last_id is None else f", transaction ids up to {last_id}"
    return f"{index['entries']:,} entries over {index['covered']:,} bytes{ids}"


# Batches


def _print(
    batches: Iterable[StoredBatch], name: str, choice: Choice, *, as_json: bool, places: bool
) -> None:
    if as_json:
        for batch in batches:
            print(json.dumps(batch_json(batch, name, records=choice.records), ensure_ascii=False))
        return
    columns = _COLUMNS | (_PLACE if places else {})
    widths = list(columns.values())
    found_batches = iter(batches)
    # A request that fails at once is an error without a table.
    first = list(islice(found_batches, 1))
    print(format_row(list(columns), widths))
    for batch in chain(first, found_batches):
        found = batch_json(batch, name, records=choice.records)
        print(format_row(_cells(found, places=places), widths))
        if batch.problem is not None:
            print(f"    {batch.problem}")
        for record in found.get("items", ()):
            print(f"    {_record_line(record)}")


def batch_json(batch: StoredBatch, name: str, *, records: bool) -> dict[str, Any]:
    """One batch as JSON; its fields may be wrong if ``crc`` is not ``ok``."""
    header = batch.header
    found: dict[str, Any] = {"partition": name}
    if header is not None:
        found |= _header_json(header)
        if header.is_control:
            found["control"] = _control_kind(batch)
    found["crc"] = batch.problem or "ok"
    if batch.file is not None:
        found |= {"file": batch.file, "position": batch.position}
    if records and header is not None and not header.is_control:
        found |= _records(batch, header, name)
    return found


def _header_json(header: BatchHeader) -> dict[str, Any]:
    produced = header.producer_id != 0
    transacted = header.first_transaction_id != NO_TRANSACTION
    return {
        "offset": header.base_offset,
        "records": header.record_count,
        "term": dotted_term(header.term),
        "bytes": header.length,
        "codec": _CODEC_NAMES.get(header.codec, str(header.codec)),
        "flags": header.flags,
        "control": None,
        "schemaId": header.schema_id,
        "firstTimestamp": _time(header.first_timestamp_us),
        "lastTimestamp": _time(header.last_timestamp_us),
        "producerId": f"{header.producer_id:016x}" if produced else None,
        "producerEpoch": header.producer_epoch if produced else None,
        "sequence": header.sequence if produced else None,
        "firstTransactionId": header.first_transaction_id if transacted else None,
        "lastTransactionId": header.last_transaction_id if transacted else None,
    }


def _control_kind(batch: StoredBatch) -> str:
    return shown(bytes(batch.data[HEADER_SIZE:]).rstrip(b"\0")) or "?"


def _records(batch: StoredBatch, header: BatchHeader, name: str) -> dict[str, Any]:
    if batch.problem is not None:
        return {"items": [], "notDecoded": batch.problem}
    try:
        rows = rows_of(decode_records(batch.data, batch.header))
    except RunnelError as error:
        return {"items": [], "notDecoded": error.message}
    items = []
    for number, row in enumerate(rows):
        place = {"partition": name, "offset": header.base_offset + number}
        item = record_json(name, row | place)
        items.append({key: item[key] for key in item if key not in {"topic", "partition"}})
    return {"items": items}


def _record_line(record: dict[str, Any]) -> str:
    def text(name: str) -> str:
        if f"{name}Base64" in record:
            return f"base64:{record[f'{name}Base64']}"
        value = record[name]
        return "-" if value is None else shown(value.encode())

    headers = "".join(
        f"  {shown(one['key'].encode())}={one.get('value', one.get('valueBase64'))}"
        for one in record.get("headers", ())
    )
    return f"{record['offset']:>10}  {record['timestamp']}  {text('key')}  {text('value')}{headers}"


def _cells(found: dict[str, Any], *, places: bool) -> list[str]:
    def cell(name: str) -> str:
        value = found.get(name)
        return "-" if value is None else str(value)

    first, last = found.get("firstTransactionId"), found.get("lastTransactionId")
    return [
        *(cell(name) for name in ("offset", "records")),
        format_term(parse_dotted_term(found["term"])) if "term" in found else "-",
        *(cell(name) for name in ("bytes", "codec")),
        found.get("control") or ("data" if "records" in found else "?"),
        cell("schemaId"),
        *(_without_zone(cell(name)) for name in ("firstTimestamp", "lastTimestamp")),
        *(cell(name) for name in ("producerId", "producerEpoch", "sequence")),
        "-" if first is None else f"{first}-{last}",
        "ok" if found["crc"] == "ok" else "BAD",
        *((cell("file"), cell("position")) if places else ()),
    ]


def _without_zone(text: str) -> str:
    return text.replace("T", " ").removesuffix("+00:00")


def _time(microseconds: int) -> str:
    """ISO 8601 in UTC; a number where no such time exists."""
    try:
        seconds, rest = divmod(microseconds, _MICROSECOND)
        when = datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest)
    except (ValueError, OverflowError, OSError):
        return str(microseconds)
    return when.isoformat(timespec="microseconds")
