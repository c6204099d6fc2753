"""What an SPU says, in parts: together they say the same, and none is large."""

from __future__ import annotations

import pytest

from schemas.control.messages import (
    ElectionRequest,
    Envelope,
    FindPeers,
    Hello,
    LrsRequest,
    Message,
    ReplicaReport,
    Report,
    SpuRequest,
    Tombstone,
)
from schemas.control.parts import (
    MAX_PART_BYTES,
    MOST_HELLO_PARTS,
    hello_parts,
    question_parts,
    report_parts,
    request_parts,
)
from schemas.ids import PartitionUid, StorageId, Term
from schemas.objects.partition import LiveReplica

LRS = tuple(LiveReplica(spu_id=2**31 - 1, storage_id=StorageId("s" * 32)) for _ in range(32))
#: With 32 live replicas each: more than two megabytes.
MANY = 1_000


def replicas(count: int, reason: str | None = None) -> tuple[ReplicaReport, ...]:
    return tuple(
        ReplicaReport(
            uid=PartitionUid(f"{n:032}"), storage_id=StorageId("x"), lrs=LRS, reason=reason
        )
        for n in range(count)
    )


def hello_of(*reports: ReplicaReport) -> Hello:
    return Hello(software="test", spu_id=1, instance="one", replicas=reports)


def size(body: Message) -> int:
    return len(Envelope(id=10**9, cause="c" * 64, body=body).encode().encode())


def test_given_many_replicas_then_no_part_of_a_hello_is_large() -> None:
    hello = hello_of(*replicas(MANY))
    first, later = hello_parts(hello)
    assert max(size(first), *map(size, later)) < MAX_PART_BYTES // 16
    assert first.more == len(later) > 0
    together = [*first.replicas, *(one for part in later for one in part.replicas)]
    assert first.model_copy(update={"replicas": tuple(together), "more": None}) == hello


def test_given_very_many_replicas_then_the_parts_are_no_more_than_an_sc_takes() -> None:
    few = tuple(one.model_copy(update={"lrs": ()}) for one in replicas(1))
    first, later = hello_parts(hello_of(*(few * 100_000)))
    assert len(later) <= MOST_HELLO_PARTS
    assert max(size(first), *map(size, later)) < MAX_PART_BYTES


@pytest.mark.parametrize("count", [0, 1, 6])
def test_given_few_replicas_then_the_hello_is_one_message(count: int) -> None:
    hello = hello_of(*replicas(count))
    assert hello_parts(hello) == (hello, [])


def test_given_much_to_report_then_no_report_is_large() -> None:
    tombstones = tuple(
        Tombstone(uid=PartitionUid(f"{n:032}"), spu_id=1, storage_id=StorageId("s" * 32))
        for n in range(10 * MANY)
    )
    report = Report(replicas=replicas(MANY), deleted=tombstones, free_bytes=7)
    parts = list(report_parts(report))
    assert all(size(part) < MAX_PART_BYTES for part in parts)
    assert tuple(one for part in parts for one in part.replicas) == report.replicas
    assert tuple(one for part in parts for one in part.deleted) == report.deleted
    assert [part.free_bytes for part in parts if part.free_bytes is not None] == [7]


@pytest.mark.parametrize(
    "report",
    [
        Report(free_bytes=7),
        Report(replicas=replicas(1)),
        Report(replicas=replicas(2), free_bytes=7),
    ],
)
def test_given_little_to_report_then_one_report(report: Report) -> None:
    assert list(report_parts(report)) == [report]


def test_given_replicas_with_long_reasons_then_each_is_alone() -> None:
    # Two bytes each in UTF-8.
    reports = replicas(3, "é" * 200_000)
    assert list(report_parts(Report(replicas=reports))) == [
        Report(replicas=(one,)) for one in reports
    ]


def test_given_many_requests_then_no_message_is_large() -> None:
    lrs = tuple(
        LrsRequest(uid=PartitionUid(f"{n:032}"), term=Term(1), revision=1, lrs=LRS, reason="r")
        for n in range(MANY)
    )
    elections = tuple(
        ElectionRequest(uid=PartitionUid(f"{n:032}"), term=Term(1), reason="r" * 2_000)
        for n in range(MANY)
    )
    parts = list(request_parts(SpuRequest(lrs=lrs, elections=elections)))
    assert all(size(part) < MAX_PART_BYTES for part in parts)
    assert tuple(one for part in parts for one in part.lrs) == lrs
    assert tuple(one for part in parts for one in part.elections) == elections
    assert list(request_parts(SpuRequest())) == []


def test_given_many_unknown_peers_then_no_question_is_large() -> None:
    ids = tuple(range(2**31 - 100_000, 2**31))
    parts = list(question_parts(FindPeers(spu_ids=ids)))
    assert all(size(part) < MAX_PART_BYTES for part in parts)
    assert tuple(one for part in parts for one in part.spu_ids) == ids
    assert list(question_parts(FindPeers(spu_ids=()))) == []
