"""Between the interface's types and the bytes of etcd's messages. Pure.

The one place that touches message classes, which have no static types: `channel` moves bytes, the
rest of the package sees the interface's types and the few below.

Keys of the interface are text and etcd's are bytes: UTF-8 keeps their order. Bytes 0xff do not
occur in UTF-8, so the end of a prefix is always found by adding one to its last byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from sc.kv.etcd.schema import message_class
from sc.kv.interface import (
    Compare,
    CreateRevisionIs,
    Delete,
    DeleteEvent,
    DeletePrefix,
    DeleteResponse,
    Event,
    Get,
    GetResponse,
    KeyValue,
    LeaseIs,
    ModRevisionIs,
    Op,
    OpResponse,
    Put,
    PutEvent,
    PutResponse,
    RangePage,
    TxnResult,
    ValueIs,
    VersionIs,
)
from schemas.errors import StorageFailedError

RANGE = "/etcdserverpb.KV/Range"
TXN = "/etcdserverpb.KV/Txn"
COMPACT = "/etcdserverpb.KV/Compact"
WATCH = "/etcdserverpb.Watch/Watch"
LEASE_GRANT = "/etcdserverpb.Lease/LeaseGrant"
LEASE_REVOKE = "/etcdserverpb.Lease/LeaseRevoke"
LEASE_KEEP_ALIVE = "/etcdserverpb.Lease/LeaseKeepAlive"
AUTHENTICATE = "/etcdserverpb.Auth/Authenticate"
STATUS = "/etcdserverpb.Maintenance/Status"

_FIRST_KEY = b"\0"
_TO_THE_END = b"\0"
"""As the end of a range: no end."""

_DELETE = 1
"""The type of an event that deletes."""


@dataclass(frozen=True, slots=True)
class WatchReply:
    """One message of a watch. ``revision`` is the header's, which may run ahead of the events;
    ``compact_revision`` is 0 unless the watch was cancelled because of compaction; ``fragment``
    when more messages of the same response follow."""

    revision: int
    created: bool
    canceled: bool
    compact_revision: int
    cancel_reason: str
    fragment: bool
    events: tuple[Event, ...]


def get_request(key: str, revision: int) -> bytes:
    """Read one key."""
    return _encoded("RangeRequest", key=key.encode(), revision=revision)


def range_request(prefix: str, *, start_after: str | None, limit: int, revision: int) -> bytes:
    """Read keys under a prefix in their order."""
    start, end = _prefix_range(prefix)
    if start_after is not None:
        start = max(start, start_after.encode() + b"\0")
        if end != _TO_THE_END and start >= end:
            # An empty range that etcd accepts; the answer still names the revision.
            start, end = end, end
    return _encoded("RangeRequest", key=start, range_end=end, limit=limit, revision=revision)


def revision_request() -> bytes:
    """Read nothing but the current revision, linearizably."""
    return _encoded("RangeRequest", key=_FIRST_KEY, count_only=True)


def parse_range(payload: bytes, revision: int) -> RangePage:
    """The page a read at ``revision`` got; 0 takes the one in the answer."""
    reply = message_class("etcdserverpb.RangeResponse").FromString(payload)
    items = tuple([_key_value(kv) for kv in reply.kvs])
    return RangePage(items, revision or reply.header.revision, reply.more)


def txn_request(compares: Sequence[Compare], success: Sequence[Op], failure: Sequence[Op]) -> bytes:
    """A transaction.

    Without any operation etcd would decide the compares from one member's possibly stale state,
    so that a read is added then; `parse_txn` drops its answer.
    """
    onward = [_op(op) for op in success]
    otherwise = [_op(op) for op in failure]
    if not onward and not otherwise:
        onward = [{"request_range": {"key": _FIRST_KEY, "count_only": True}}]
    return _encoded(
        "TxnRequest",
        compare=[_compare(compare) for compare in compares],
        success=onward,
        failure=otherwise,
    )


def parse_txn(payload: bytes, success: Sequence[Op], failure: Sequence[Op]) -> TxnResult:
    """What a transaction with these branches did."""
    reply = message_class("etcdserverpb.TxnResponse").FromString(payload)
    branch = success if reply.succeeded else failure
    # Not strict: the read added to an empty transaction has no operation of the caller's.
    responses = tuple(
        [_op_response(op, answer) for op, answer in zip(branch, reply.responses, strict=False)]
    )
    return TxnResult(reply.succeeded, reply.header.revision, responses)


def compact_request(revision: int) -> bytes:
    return _encoded("CompactionRequest", revision=revision)


def watch_request(prefix: str, from_revision: int) -> bytes:
    """Open a watch. Large responses come in fragments, which bounds the memory of one message;
    progress tells idle watches how far they have come."""
    start, end = _prefix_range(prefix)
    return _encoded(
        "WatchRequest",
        create_request={
            "key": start,
            "range_end": end,
            "start_revision": from_revision,
            "progress_notify": True,
            "prev_kv": True,
            "fragment": True,
        },
    )


def parse_watch(payload: bytes) -> WatchReply:
    """One message of a watch."""
    reply = message_class("etcdserverpb.WatchResponse").FromString(payload)
    return WatchReply(
        revision=reply.header.revision,
        created=reply.created,
        canceled=reply.canceled,
        compact_revision=reply.compact_revision,
        cancel_reason=reply.cancel_reason,
        fragment=reply.fragment,
        events=tuple([_event(event) for event in reply.events]),
    )


def lease_grant_request(ttl_s: int) -> bytes:
    return _encoded("LeaseGrantRequest", TTL=ttl_s)


def parse_lease_grant(payload: bytes) -> int:
    """The new lease's id."""
    return int(message_class("etcdserverpb.LeaseGrantResponse").FromString(payload).ID)


def lease_keep_alive_request(lease: int) -> bytes:
    return _encoded("LeaseKeepAliveRequest", ID=lease)


def parse_lease_keep_alive(payload: bytes) -> int:
    """The lease's time to live in seconds; 0 or less when there is no such lease."""
    return int(message_class("etcdserverpb.LeaseKeepAliveResponse").FromString(payload).TTL)


def lease_revoke_request(lease: int) -> bytes:
    return _encoded("LeaseRevokeRequest", ID=lease)


def authenticate_request(user: str, password: str) -> bytes:
    return _encoded("AuthenticateRequest", name=user, password=password)


def parse_authenticate(payload: bytes) -> str:
    """The token to send with every call."""
    return str(message_class("etcdserverpb.AuthenticateResponse").FromString(payload).token)


def status_request() -> bytes:
    return _encoded("StatusRequest")


def parse_status(payload: bytes) -> str:
    """The version of the member asked, such as ``3.5.16``."""
    return str(message_class("etcdserverpb.StatusResponse").FromString(payload).version)


def parse_alarms(payload: bytes) -> tuple[str, ...]:
    """The alarms that the members have raised, by name, such as ``NOSPACE``; each once."""
    errors = message_class("etcdserverpb.StatusResponse").FromString(payload).errors
    # As "memberID:10276657743932975437 alarm:NOSPACE", among errors of other kinds.
    found = (text.rpartition("alarm:")[2].strip() for text in errors if "alarm:" in text)
    return tuple(sorted(set(found)))


def _encoded(message: str, **fields: object) -> bytes:
    payload: bytes = message_class(f"etcdserverpb.{message}")(**fields).SerializeToString()
    return payload


def _prefix_range(prefix: str) -> tuple[bytes, bytes]:
    raw = prefix.encode()
    if not raw:
        return _FIRST_KEY, _TO_THE_END
    return raw, _prefix_end(raw)


def _prefix_end(raw: bytes) -> bytes:
    return raw[:-1] + bytes((raw[-1] + 1,))


def _compare(compare: Compare) -> dict[str, Any]:
    key = compare.key.encode()
    match compare:
        case ModRevisionIs(revision=revision):
            return {"key": key, "target": "MOD", "mod_revision": revision}
        case CreateRevisionIs(revision=revision):
            return {"key": key, "target": "CREATE", "create_revision": revision}
        case VersionIs(version=version):
            return {"key": key, "target": "VERSION", "version": version}
        case LeaseIs(lease=lease):
            return {"key": key, "target": "LEASE", "lease": lease}
        case ValueIs(value=value):
            return {"key": key, "target": "VALUE", "value": value}
        case _:
            assert_never(compare)


def _op(op: Op) -> dict[str, Any]:
    match op:
        case Put(key=key, value=value, lease=lease):
            return {"request_put": {"key": key.encode(), "value": value, "lease": lease}}
        case Delete(key=key):
            return {"request_delete_range": {"key": key.encode()}}
        case DeletePrefix(prefix=prefix):
            start, end = _prefix_range(prefix)
            return {"request_delete_range": {"key": start, "range_end": end}}
        case Get(key=key):
            return {"request_range": {"key": key.encode()}}
        case _:
            assert_never(op)


def _op_response(op: Op, answer: Any) -> OpResponse:
    match op:
        case Put():
            return PutResponse()
        case Delete() | DeletePrefix():
            return DeleteResponse(answer.response_delete_range.deleted)
        case Get():
            found = answer.response_range.kvs
            return GetResponse(_key_value(found[0]) if found else None)
        case _:
            assert_never(op)


def _key_value(kv: Any) -> KeyValue:
    return KeyValue(
        _text(kv.key), kv.value, kv.create_revision, kv.mod_revision, kv.version, kv.lease
    )


def _event(event: Any) -> Event:
    previous = _key_value(event.prev_kv) if event.HasField("prev_kv") else None
    if event.type == _DELETE:
        return DeleteEvent(_text(event.kv.key), event.kv.mod_revision, previous)
    return PutEvent(_key_value(event.kv), previous)


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise StorageFailedError(
            f"etcd holds the key {raw!r}, which is not text; Runnel needs an etcd that no other "
            "program writes to"
        ) from error
