"""The seeds and the corpus reach every line of the code that takes bytes apart."""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from runnel.admin import answers, calls, sse, watch
from runnel.net import push as pushes
from runnel.partition.verify import read_findings
from runnel.positions import state as consumers
from runnel.records import arrow_schema, cursor, schema_resolution
from runnel.state_log import fold
from sc.api import bodies, listing, merge_patch, requests, selectors
from sc.store import codec
from schemas import errors
from schemas.merge_patch import merge
from schemas.objects.manifest import manifest, problems, validation, yaml_lines
from schemas.wire import (
    batch,
    framing,
    log_requests,
    payload,
    protocol,
    record_requests,
    subscription_requests,
)
from spu.replica import batch_checks
from spu.replication import producer_state, wire
from spu.server import requests as spu_requests
from spu.server import subscriptions
from spu.storage import checkpoint, data_dir, index, journal, recovery, segment, truncated_segments
from tests.fuzz.reach import lines_of, ways
from tests.fuzz.seeds import seeds
from tests.fuzz.targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"

#: Statements to which the compiler may give no place of their own.
JUMPS = {"break", "continue", "pass", "return"}

#: What takes apart bytes of others, or decides by them; some lines need what no input can say.
FUNCTIONS: tuple[Callable[..., Any], ...] = (
    framing.FrameReader.next_frame,
    framing.FrameReader._begin_large,
    framing.FrameReader._may_begin_large,
    framing.FrameReader._claim_more,
    framing._impossible,
    protocol.raise_for_status,
    record_requests.ListOffsetsRequest.unpack,
    record_requests.ListOffsetsResponse.unpack,
    log_requests.SegmentInfo.unpack_all,
    subscription_requests.SubscriptionEntry.unpack_all,
    subscription_requests.Grant.unpack_all,
    subscription_requests.unpack_numbers,
    read_findings,
    wire.decode,
    wire._batches,
    wire._unpack,
    wire.Greeting.unpack,
    producer_state.dump_from,
    batch.verify_client_part,
    batch.verify,
    batch.split_batches,
    cursor.Cursor.take,
    cursor.Cursor._due,
    cursor.Cursor._located,
    payload.decode_records,
    payload.read_payload,
    payload.require_transaction_ids,
    payload._decompressed_bytes,
    payload._table_field,
    arrow_schema.decode_rows,
    schema_resolution.ReadColumns.decode,
    schema_resolution.ReadColumns._timestamps,
    checkpoint.read_checkpoint,
    checkpoint._parsed,
    checkpoint._is_possible,
    checkpoint._history,
    producer_state.split_last_id,
    index._summary,
    journal.Journal._load,
    journal.Journal._read,
    journal.JournalEntry.from_json,
    journal._read_frame,
    recovery.Recovery._recover,
    recovery.Recovery._without_checkpoint,
    recovery.Recovery._completed,
    recovery.Recovery._restore_index,
    recovery.Recovery._scan_segment,
    recovery.Recovery._cut,
    recovery.Recovery._make_durable,
    segment.scan,
    segment.find_batch,
    truncated_segments.find_truncated,
    index.is_of_earlier_version,
    fold.Entry.unpack,
    fold.read_text,
    fold.read_number,
    fold.StateFold.take,
    fold.StateFold._take_snapshot,
    consumers.PositionsState.read_state,
    consumers.PositionsState.read_update,
    batch_checks._admit_transaction_ids,
    spu_requests.Requests.dispatch,
    spu_requests.Requests._hello,
    spu_requests.Requests._subscribe,
    subscriptions.Subscriptions.check,
    subscriptions.Subscriptions.add,
    subscriptions.Subscriptions.remove,
    subscriptions.Subscriptions.grant,
    subscriptions.Subscriptions._take,
    subscriptions.Subscriptions._send,
    subscriptions.Subscriptions._read_next,
    pushes.Subscriptions.received,
    pushes.Subscriptions.refused,
    pushes.Subscription.take,
    data_dir._read_identity,
    data_dir.DataDir.went_down_uncleanly,
    data_dir.DataDir.read_meta,
    errors.error_from,
    codec.decode_object,
    codec.split_write,
    codec.decode_tombstone,
    sse.EventParser.feed,
    sse.EventParser._line,
    calls.understood,
    calls.parse_answer,
    answers.parse_history_entry,
    answers.parse_replica,
    watch._data,
    bodies._read_json,
    requests.read_query,
    requests._check,
    requests.read_by,
    requests.read_cause,
    requests.read_last_event,
    selectors._parse_term,
    selectors._parse_fields,
    listing.Place.parse,
    merge,
    merge_patch.patched,
    manifest._load_text,
    validation.build_object,
    problems.format_path,
    yaml_lines._Loader.compose_node,
    yaml_lines.read_documents,
    yaml_lines._plain,
    yaml_lines._value,
    yaml_lines._check_tag,
)


def code_of(function: Callable[..., Any]) -> CodeType:
    code: CodeType = inspect.unwrap(function).__code__
    return code


@pytest.fixture(scope="module")
def reached() -> set[tuple[CodeType, int]]:
    """The lines of all of `FUNCTIONS` that some input reaches."""
    codes = set(map(code_of, FUNCTIONS))
    found: set[tuple[CodeType, int]] = set()
    for name, target in TARGETS.items():
        for data in (*seeds(name), *(path.read_bytes() for path in (CORPUS / name).iterdir())):
            steps = ways(target, data, codes.__contains__)
            found |= {(code, line) for code, _before, line in steps}
    return found


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__qualname__)
def test_given_seeds_and_corpus_then_every_line_is_reached(
    function: Callable[..., Any], reached: set[tuple[CodeType, int]]
) -> None:
    code = code_of(function)
    missing = {
        linecache.getline(code.co_filename, line).strip()
        for line in lines_of(code)
        if (code, line) not in reached
    }
    assert missing <= JUMPS, "\n".join(missing - JUMPS)
