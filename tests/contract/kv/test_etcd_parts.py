"""The pure parts of the etcd backend, without a server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sc.election.keeper import ATTEMPT_S
from sc.kv.interface import DeleteEvent, Event, KeyValue, Put, PutEvent, WatchBatch
from schemas.daemon.kv_url import without_password
from schemas.errors import (
    DeadlineExceededError,
    InvalidRequestError,
    NotFoundError,
    OverloadedError,
    StorageFailedError,
    UnauthorizedError,
    UnreachableError,
)

from .etcd_server import require_client

require_client()

from sc.kv.etcd import schema, wire  # noqa: E402 - after the check that it can be imported
from sc.kv.etcd.channel import _CHANNEL_OPTIONS, Endpoint, Members  # noqa: E402
from sc.kv.etcd.client import EtcdKV  # noqa: E402
from sc.kv.etcd.failures import CallFailed, Verdict, failure_of, text_of_alarm  # noqa: E402
from sc.kv.etcd.options import (  # noqa: E402
    LEASE_ATTEMPT_TIMEOUT_MS,
    EtcdOptions,
    Tls,
    parse_etcd_url,
)
from sc.kv.etcd.outcome import Guard, conflict_is_certain  # noqa: E402
from sc.kv.etcd.watch import Assembler, lacks_history  # noqa: E402

# URLs


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name in ("ca", "cert", "key"):
        (tmp_path / name).write_bytes(name.encode())
    (tmp_path / "pw").write_text("s3cret\n")
    return tmp_path


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        pytest.param("etcd://h", EtcdOptions(("h:2379",)), id="given-host-then-default-port"),
        pytest.param(
            "etcd://h:1,10.0.0.2:3,h:1/",
            EtcdOptions(("h:1", "10.0.0.2:3")),
            id="given-list-then-each-once",
        ),
        pytest.param(
            "etcd://[::1]:1,[fe80::2]",
            EtcdOptions(("[::1]:1", "[fe80::2]:2379")),
            id="given-ipv6-then-brackets-stay",
        ),
        pytest.param(
            "etcd://me:p%40ss%2Fw@h:1",
            EtcdOptions(("h:1",), "me", "p@ss/w"),
            id="given-user-then-unquoted",
        ),
        pytest.param(
            "etcd://me@h:1?password-file={d}/pw",
            EtcdOptions(("h:1",), "me", "s3cret"),
            id="given-password-file-then-read",
        ),
        pytest.param("etcd://h?tls=true", EtcdOptions(("h:2379",), tls=Tls()), id="given-tls"),
        pytest.param("etcd://h?tls=false", EtcdOptions(("h:2379",)), id="given-no-tls"),
        pytest.param(
            "etcd://h?ca={d}/ca&cert={d}/cert&key={d}/key&server-name=etcd.example",
            EtcdOptions(("h:2379",), tls=Tls(b"ca", b"cert", b"key", "etcd.example")),
            id="given-files-then-tls",
        ),
        pytest.param(
            "etcd://h?keep-revisions=0&attempt-timeout-ms=5&request-timeout-ms=6",
            EtcdOptions(("h:2379",), keep_revisions=0, attempt_timeout_ms=5, request_timeout_ms=6),
            id="given-numbers",
        ),
    ],
)
def test_given_url_then_options(url: str, expected: EtcdOptions, files: Path) -> None:
    assert parse_etcd_url(url.format(d=files)) == expected


@pytest.mark.parametrize(
    ("url", "message"),
    [
        pytest.param("etcd:h", "write etcd://", id="given-no-slashes"),
        pytest.param("etcd://", "write etcd://", id="given-no-host"),
        pytest.param("etcd://h/path", "write etcd://", id="given-path"),
        pytest.param("etcd://h,", "'' is not host:port", id="given-empty-host"),
        pytest.param("etcd://h:x", "'h:x' is not host:port", id="given-bad-port"),
        pytest.param("etcd://h:0", "is not host:port", id="given-port-0"),
        pytest.param("etcd://::1", "is not host:port", id="given-ipv6-without-brackets"),
        pytest.param("etcd://me@h", "a user needs a password", id="given-user-alone"),
        pytest.param("etcd://:hunter2@h", "a password a user", id="given-password-alone"),
        pytest.param("etcd://me:hunter2@h?password-file={d}/pw", "keep one", id="given-both"),
        pytest.param("etcd://me@h?password-file={d}/no", "cannot read", id="given-no-such-file"),
        pytest.param("etcd://h?x=1", "unknown option 'x'", id="given-unknown-option"),
        pytest.param("etcd://h?ca=", "has no value", id="given-empty-option"),
        pytest.param("etcd://h?tls=true&tls=true", "twice", id="given-option-twice"),
        pytest.param("etcd://h?tls=yes", "use true or false", id="given-bad-tls"),
        pytest.param("etcd://h?tls=false&ca={d}/ca", "drop one", id="given-tls-off-and-ca"),
        pytest.param("etcd://h?cert={d}/cert", "go together", id="given-cert-without-key"),
        pytest.param("etcd://h?keep-revisions=-1", "whole number", id="given-negative"),
        pytest.param("etcd://h?attempt-timeout-ms=0", "from 1", id="given-no-time"),
    ],
)
def test_given_bad_url_then_refused_without_its_password(
    url: str, message: str, files: Path
) -> None:
    with pytest.raises(InvalidRequestError, match=message) as caught:
        parse_etcd_url(url.format(d=files))
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("etcd://me:pw@h:1?x=y", "etcd://me:***@h:1?x=y"),
        ("etcd://me:p/w@x@h:1", "etcd://me:***@h:1"),
        ("etcd://h:1,g:2", "etcd://h:1,g:2"),
        ("sqlite:/a:b@c", "sqlite:/a:b@c"),
        ("memory:", "memory:"),
    ],
)
def test_given_url_then_its_password_is_not_shown(url: str, shown: str) -> None:
    assert without_password(url) == shown


def test_given_options_then_their_repr_hides_secrets() -> None:
    text = repr(EtcdOptions(("h:1",), "me", "hunter2", Tls(key=b"hunter2")))
    assert "hunter2" not in text


# The schema


def test_given_fields_newer_than_the_schema_then_they_have_etcds_numbers() -> None:
    create = schema.message_class("etcdserverpb.WatchCreateRequest")(fragment=True)
    assert create.SerializeToString() == b"\x40\x01"
    assert schema.message_class("etcdserverpb.WatchResponse").FromString(b"\x38\x01").fragment
    # A request for progress stays unknown to the schema, and passes through all the same.
    progress = schema.message_class("etcdserverpb.WatchRequest").FromString(b"\x1a\x00")
    assert progress.SerializeToString() == b"\x1a\x00"


def test_given_generated_source_then_its_literal_is_found() -> None:
    source = "D = F(name='x', serialized_pb=_b('\\n\\x08\\xff'))"
    assert schema.descriptor_literal(source) == b"\n\x08\xff"
    assert schema.descriptor_literal("D = F(serialized_pb=b'\\x01')") == b"\x01"
    with pytest.raises(ValueError, match="no serialized_pb"):
        schema.descriptor_literal("x = 1")


def test_given_the_schema_then_the_package_itself_is_not_imported() -> None:
    import sys

    schema.message_class("etcdserverpb.RangeRequest")
    assert not [name for name in sys.modules if name.split(".")[0] == "etcd3"]


@given(st.text(), st.text(), st.text())
def test_given_prefix_then_its_range_holds_what_starts_with_it(
    prefix: str, key: str, start_after: str
) -> None:
    request = schema.message_class("etcdserverpb.RangeRequest").FromString(
        wire.range_request(
            prefix,
            start_after=start_after or None,
            limit=1,
            revision=0,
        )
    )
    raw = key.encode()
    in_range = request.key <= raw and (request.range_end == b"\0" or raw < request.range_end)
    after = not start_after or raw > start_after.encode()
    assert (in_range and bool(key)) == (bool(key) and key.startswith(prefix) and after)


def test_given_channel_options_then_pings_and_sizes_are_set() -> None:
    options = dict(_CHANNEL_OPTIONS)
    assert options["grpc.keepalive_time_ms"] == 10_000
    assert options["grpc.keepalive_timeout_ms"] == 5_000
    assert options["grpc.http2.ping_timeout_ms"] == 5_000
    assert options["grpc.max_receive_message_length"] == -1


# Failures


@pytest.mark.parametrize(
    ("code", "text", "verdict", "error"),
    [
        ("UNAVAILABLE", "etcdserver: no leader", Verdict.NOT_APPLIED, UnreachableError),
        ("UNAVAILABLE", "etcdserver: request timed out", Verdict.UNKNOWN, UnreachableError),
        ("UNAVAILABLE", "etcdserver: leader changed", Verdict.UNKNOWN, UnreachableError),
        ("UNAVAILABLE", "Socket closed", Verdict.UNKNOWN, UnreachableError),
        (
            "UNAVAILABLE",
            "failed to connect to all addresses; last error: refused",
            Verdict.NOT_APPLIED,
            UnreachableError,
        ),
        (
            "UNAVAILABLE",
            "failed to connect to all addresses; last error: Unwrap failed (TSI_DATA_CORRUPTED)",
            Verdict.NOT_APPLIED,
            UnreachableError,
        ),
        ("DEADLINE_EXCEEDED", "Deadline Exceeded", Verdict.NO_ANSWER, UnreachableError),
        ("UNKNOWN", "context canceled", Verdict.UNKNOWN, UnreachableError),
        ("INTERNAL", "RST_STREAM", Verdict.UNKNOWN, UnreachableError),
        ("RESOURCE_EXHAUSTED", "something new", Verdict.UNKNOWN, UnreachableError),
        (
            "RESOURCE_EXHAUSTED",
            "etcdserver: too many requests",
            Verdict.NOT_APPLIED,
            OverloadedError,
        ),
        (
            "RESOURCE_EXHAUSTED",
            "etcdserver: mvcc: database space exceeded",
            Verdict.FINAL,
            StorageFailedError,
        ),
        ("DATA_LOSS", "etcdserver: corrupt cluster", Verdict.FINAL, StorageFailedError),
        (
            "OUT_OF_RANGE",
            "etcdserver: mvcc: required revision has been compacted",
            Verdict.COMPACTED,
            InvalidRequestError,
        ),
        (
            "OUT_OF_RANGE",
            "etcdserver: mvcc: required revision is a future revision",
            Verdict.FINAL,
            InvalidRequestError,
        ),
        ("NOT_FOUND", "etcdserver: requested lease not found", Verdict.FINAL, NotFoundError),
        ("UNAUTHENTICATED", "etcdserver: invalid auth token", Verdict.EXPIRED, UnauthorizedError),
        (
            "INVALID_ARGUMENT",
            "etcdserver: revision of auth store is old",
            Verdict.EXPIRED,
            UnauthorizedError,
        ),
        ("INVALID_ARGUMENT", "etcdserver: user name is empty", Verdict.FINAL, UnauthorizedError),
        ("PERMISSION_DENIED", "etcdserver: permission denied", Verdict.FINAL, UnauthorizedError),
        ("INVALID_ARGUMENT", "etcdserver: anything else", Verdict.FINAL, InvalidRequestError),
    ],
)
def test_given_status_then_verdict(
    code: str, text: str, verdict: Verdict, error: type[Exception]
) -> None:
    failure = failure_of("h:1", code, text)
    assert (failure.verdict, failure.error) == (verdict, error)
    assert failure.message.startswith("etcd h:1: ")


# Doubt


def at(mod: int, value: bytes = b"x", lease: int = 0) -> KeyValue:
    return KeyValue("k", value, 1, mod, 1, lease)


OURS = Guard("k", 5, Put("k", b"ours", 7))
CREATION = Guard("k", 0, Put("k", b"ours"))
DELETION = Guard("k", 5, None)


@pytest.mark.parametrize(
    ("guard", "current", "before", "certain"),
    [
        pytest.param(OURS, at(5), None, True, id="given-untouched-then-certain"),
        pytest.param(OURS, at(9), at(5), True, id="given-others-write-then-certain"),
        pytest.param(OURS, at(9, b"ours", 7), at(5), False, id="given-our-content-then-unknown"),
        pytest.param(OURS, at(9, b"ours", 8), at(5), True, id="given-other-lease-then-certain"),
        pytest.param(OURS, at(9), at(8), False, id="given-writes-between-then-unknown"),
        pytest.param(OURS, at(9), None, False, id="given-deleted-between-then-unknown"),
        pytest.param(OURS, None, None, False, id="given-absent-then-unknown"),
        pytest.param(CREATION, at(9), None, False, id="given-creation-then-unknown"),
        pytest.param(DELETION, at(9), at(5), True, id="given-write-not-delete-then-certain"),
        pytest.param(DELETION, None, None, False, id="given-deleted-then-unknown"),
    ],
)
def test_given_history_then_conflict(
    guard: Guard, current: KeyValue | None, before: KeyValue | None, certain: bool
) -> None:
    assert conflict_is_certain(guard, current, before) is certain


# Reassembling histories


def changed(revision: int, key: str = "k") -> PutEvent:
    return PutEvent(KeyValue(key, b"", revision, revision, 1, 0), None)


@given(
    st.lists(st.integers(1, 4), max_size=8),
    st.lists(st.integers(1, 5), max_size=40),
    st.integers(1, 4),
)
def test_given_any_fragments_then_whole_revisions_once(
    sizes: list[int], cuts: list[int], start: int
) -> None:
    events = [
        changed(revision, str(n)) for revision, size in enumerate(sizes, 1) for n in range(size)
    ]
    assembler = Assembler(start)
    batches: list[WatchBatch] = []
    position = 0
    while position < len(events):
        size = cuts.pop() if cuts else len(events)
        part: list[Event] = [*events[position : position + size]]
        position += size
        batches.extend(assembler.feed(part, more_follow=position < len(events)))
    assert [(batch.revision, len(batch.events)) for batch in batches] == [
        (revision, size) for revision, size in enumerate(sizes, 1) if revision >= start
    ]


def test_given_stream_broke_amid_a_revision_then_it_is_asked_for_again() -> None:
    assembler = Assembler(1)
    assert [b.revision for b in assembler.feed([changed(1), changed(2)], more_follow=True)] == [1]
    assert assembler.next_revision == 2
    assembler.restart_at(assembler.next_revision)
    batches = assembler.feed([changed(2), changed(2, "l")], more_follow=False)
    assert [(batch.revision, len(batch.events)) for batch in batches] == [(2, 2)]


def test_given_progress_then_an_idle_watch_moves_on_and_never_back() -> None:
    assembler = Assembler(10)
    assembler.caught_up(7)
    assert assembler.next_revision == 10
    assembler.caught_up(20)
    assert assembler.next_revision == 21


@pytest.mark.parametrize(
    ("event", "lacking"),
    [
        (changed(3), False),
        (PutEvent(KeyValue("k", b"", 1, 3, 2, 0), None), True),
        (PutEvent(KeyValue("k", b"", 1, 3, 2, 0), at(1)), False),
        (DeleteEvent("k", 3, None), True),
        (DeleteEvent("k", 3, at(1)), False),
    ],
)
def test_given_event_then_whether_its_past_is_lacking(event: Event, lacking: bool) -> None:
    assert lacks_history(WatchBatch(3, (event,))) is lacking


@pytest.mark.parametrize(
    ("errors", "alarms"),
    [
        ((), ()),
        (("memberID:10276657743932975437 alarm:NOSPACE",), ("NOSPACE",)),
        (("memberID:1 alarm:NOSPACE ", "memberID:2 alarm:NOSPACE "), ("NOSPACE",)),
        (("memberID:2 alarm:NOSPACE", "memberID:1 alarm:CORRUPT"), ("CORRUPT", "NOSPACE")),
        (("etcdserver: no leader",), ()),
    ],
)
def test_given_errors_of_a_member_then_its_alarms(
    errors: tuple[str, ...], alarms: tuple[str, ...]
) -> None:
    status = schema.message_class("etcdserverpb.StatusResponse")(version="3.5.16", errors=errors)
    payload = status.SerializeToString()
    assert wire.parse_alarms(payload) == alarms
    assert wire.parse_status(payload) == "3.5.16"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("NOSPACE", "its space is used up, and it takes no writes; compact, defragment"),
        ("CORRUPT", "its members hold different data, and it takes no writes; see etcd's"),
        ("NEWER", "its members have raised the alarm NEWER"),
    ],
)
def test_given_an_alarm_then_it_is_said_what_it_means(name: str, text: str) -> None:
    assert text_of_alarm(name).startswith(f"etcd: {text}")


# Leases at a member that stands still


class Silent:
    """A member that never answers: each attempt takes all its time."""

    def __init__(self) -> None:
        self.name = "silent"
        self.waited_s = list[float]()
        self.cut = 0

    async def unary(self, _method: str, _request: bytes, timeout_s: float, _: object) -> bytes:
        self.waited_s.append(timeout_s)
        raise CallFailed(failure_of(self.name, "DEADLINE_EXCEEDED", "Deadline Exceeded"))

    exchange = unary

    def cut_streams(self) -> None:
        self.cut += 1

    async def close(self) -> None:
        pass


class Answering(Silent):
    """One that answers every call in the same way."""

    def __init__(self, answer: bytes) -> None:
        super().__init__()
        self.answer = answer

    async def unary(self, _method: str, _request: bytes, timeout_s: float, _: object) -> bytes:
        self.waited_s.append(timeout_s)
        return self.answer

    exchange = unary


def over(options: EtcdOptions, *endpoints: Silent) -> EtcdKV:
    """A store over members of a test, none of which is connected to."""
    members = Members(replace(options, endpoints=()))
    members._endpoints = [cast("Endpoint", endpoint) for endpoint in endpoints]
    return EtcdKV(members, keep_revisions=0, revision=0)


GRANTED = schema.message_class("etcdserverpb.LeaseGrantResponse")(ID=7, TTL=6).SerializeToString()
RENEWED = schema.message_class("etcdserverpb.LeaseKeepAliveResponse")(
    ID=7, TTL=6
).SerializeToString()


async def test_given_a_silent_member_then_each_call_for_a_lease_soon_asks_the_next() -> None:
    # The holder gives up an attempt before the time of other calls is over, and would come back to
    # the same member then.
    calls: list[tuple[Callable[[EtcdKV], Awaitable[object]], bytes]] = [
        (lambda kv: kv.lease_grant(6_000), GRANTED),
        (lambda kv: kv.lease_keep_alive(7), RENEWED),
        (lambda kv: kv.lease_revoke(7), b""),
    ]
    for call, answer in calls:
        silent, other = Silent(), Answering(answer)
        await call(over(EtcdOptions(("a", "b")), silent, other))
        assert silent.waited_s == [LEASE_ATTEMPT_TIMEOUT_MS / 1000]
        assert len(other.waited_s) == 1
    assert LEASE_ATTEMPT_TIMEOUT_MS / 1000 < ATTEMPT_S


async def test_given_a_shorter_attempt_than_that_for_all_calls_then_it_is_that_of_leases() -> None:
    silent, other = Silent(), Answering(RENEWED)
    await over(EtcdOptions(("a", "b"), attempt_timeout_ms=300), silent, other).lease_keep_alive(7)
    assert silent.waited_s == [0.3]


async def test_given_a_lease_that_another_member_renews_then_the_watches_leave_the_silent_one() -> (
    None
):
    silent, other = Silent(), Answering(RENEWED)
    await over(EtcdOptions(("a", "b")), silent, other).lease_keep_alive(7)
    assert (silent.cut, other.cut) == (1, 0)


async def test_given_no_member_that_renews_in_time_then_the_watches_stay() -> None:
    # What is slow is the store, not one member: watches begun anew elsewhere would gain nothing.
    one, two = Silent(), Silent()
    kv = over(EtcdOptions(("a", "b"), request_timeout_ms=1), one, two)
    with pytest.raises(DeadlineExceededError):
        await kv.lease_keep_alive(7)
    assert (one.cut, two.cut) == (0, 0)
