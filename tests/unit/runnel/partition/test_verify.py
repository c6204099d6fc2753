"""Replicas are verified by their SPUs, and compared by what those say."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from runnel.net.connection import Response
from runnel.partition import verify as verify_module
from runnel.partition.replicas import Located, locate
from runnel.partition.verify import (
    Finding,
    PartitionResult,
    ReplicaResult,
    Verdict,
    compare,
    verify_partition,
)
from schemas.errors import (
    NotFoundError,
    NotReadyError,
    RunnelError,
    StorageFailedError,
    UnreachableError,
    UnsupportedError,
)
from schemas.objects.metadata import Metadata, Object, OwnerReference
from schemas.objects.partition import Partition, PartitionSpec, PartitionStatus
from schemas.objects.spu import Spu, SpuSpec, SpuStatus
from schemas.wire.log_requests import VerifyRequest, VerifyResponse
from schemas.wire.protocol import Api
from schemas.wire.record_requests import EARLIEST

UID = "3f1c1a52-0000-4000-8000-0000000000aa"
WHOLE = VerifyResponse(0, 9, 10, 10, 0, 100, 100, 5, 9, 1, 1, b"a" * 16, 1)
DAMAGE = {"file": "f.log", "position": 7, "reason": "r", "severity": "damage", "rebuilt": False}


def result(spu: int, checked: VerifyResponse | None = WHOLE, *, leads: bool = False) -> Any:
    return ReplicaResult(spu, leads, Verdict.OK, None, checked)


def digest(byte: bytes, **changes: Any) -> VerifyResponse:
    return replace(WHOLE, digest=byte * 16, **changes)


A, B = digest(b"a"), digest(b"b")
COMPARED: dict[str, tuple[list[ReplicaResult], set[int], tuple[int, ...]]] = {
    "given-equal-digests-then-alike": ([result(0, A), result(1, A)], set(), (0, 1)),
    "given-another-than-the-leader-then-it-differs": (
        [result(0, A, leads=True), result(1, B), result(2, B)],
        {1, 2},
        (0,),
    ),
    "given-no-leader-then-most-are-right": (
        [result(0, A), result(1, B), result(2, B)],
        {0},
        (1, 2),
    ),
    "given-one-alone-then-nothing-to-compare": ([result(0, A, leads=True)], set(), (0,)),
    "given-one-that-was-not-reached-then-the-others": (
        [result(0, None, leads=True), result(1, A), result(2, A)],
        set(),
        (1, 2),
    ),
    "given-one-that-ended-early-then-it-is-left-out": (
        [result(0, A, leads=True), result(1, digest(b"c", next_offset=4))],
        set(),
        (0,),
    ),
    "given-retention-meanwhile-then-those-with-the-same-start": (
        [result(0, digest(b"c", compared_from=4)), result(1, A), result(2, A)],
        set(),
        (0,),
    ),
    "given-none-then-none": ([], set(), ()),
}


@pytest.mark.parametrize(("results", "differ", "alike"), COMPARED.values(), ids=COMPARED)
def test_comparison(results: list[ReplicaResult], differ: set[int], alike: tuple[int, ...]) -> None:
    marked, same = compare(results)
    assert {one.spu for one in marked if one.verdict is Verdict.DIFFERS} == differ
    assert same == alike
    assert all(one.reason for one in marked if one.spu in differ)


@pytest.mark.parametrize(
    ("verdicts", "worst"),
    [
        ([Verdict.OK, Verdict.OK], Verdict.OK),
        ([Verdict.OK, Verdict.UNCHECKED], Verdict.UNCHECKED),
        ([Verdict.UNCHECKED, Verdict.DIFFERS], Verdict.DIFFERS),
        ([Verdict.DIFFERS, Verdict.DAMAGED, Verdict.UNCHECKED], Verdict.DAMAGED),
    ],
)
def test_the_worst_counts(verdicts: list[Verdict], worst: Verdict) -> None:
    replicas = tuple(ReplicaResult(spu, False, one) for spu, one in enumerate(verdicts))
    assert PartitionResult("t-0", 0, 0, replicas).worst is worst


# A partition, and SPUs that answer what a test says

Answer = tuple[VerifyResponse, list[dict[str, Any]]] | RunnelError


@dataclass
class FakeConnection:
    answers: list[Answer]
    asked: list[VerifyRequest] = field(default_factory=list)
    closed: bool = False

    async def request(self, api: Api, fixed: bytes, *, timeout_s: float) -> Response:
        assert api is Api.VERIFY
        self.asked.append(VerifyRequest.unpack(fixed))
        answer = self.answers.pop(0)
        if isinstance(answer, RunnelError):
            raise answer
        response, problems = answer
        tail = json.dumps({"problems": problems}).encode()
        return Response(memoryview(response.pack()), memoryview(tail))

    async def close(self) -> None:
        self.closed = True


@dataclass(frozen=True)
class FakeLocated(Located):
    connections: dict[int, FakeConnection] = field(default_factory=dict)

    async def connect(self, spu_id: int) -> Any:
        if spu_id not in self.connections:
            raise UnreachableError(f"SPU {spu_id} is offline")
        return self.connections[spu_id]


def partition(name: str = "t-0", owner: str = "t", index: int = 0) -> Partition:
    reference = OwnerReference(kind="Topic", name=owner, uid="u")
    return Partition(
        metadata=Metadata(name=name, uid=UID),
        spec=PartitionSpec(owner=reference, index=index, replicas=(0, 1), preferred_leader=0),
        status=PartitionStatus(leader=0),
    )


def begun(**changes: Any) -> Answer:
    return replace(WHOLE, next_offset=-1, finished=0, checked_bytes=0, **changes), []


async def verify(
    answers: dict[int, list[Answer]], progress: Callable[[int, int], None] = lambda *_: None
) -> tuple[PartitionResult, dict[int, FakeConnection]]:
    connections = {spu: FakeConnection(list(script)) for spu, script in answers.items()}
    found = await verify_partition(FakeLocated(partition(), {}, {}, connections), progress)
    assert all(connection.closed for connection in connections.values())
    return found, connections


async def test_all_are_asked_for_bounds_and_then_for_the_range_that_all_have() -> None:
    said: list[tuple[int, int]] = []
    half = replace(WHOLE, next_offset=5, checked_bytes=50, finished=0)
    found, connections = await verify(
        {0: [begun(log_start=3), (half, []), (WHOLE, [])], 1: [begun(lac=7), (WHOLE, [])]},
        lambda done, total: said.append((done, total)),
    )
    assert found.worst is Verdict.OK
    assert (found.compared_from, found.compared_upto, found.alike) == (3, 8, (0, 1))
    asked = connections[0].asked
    assert [one.offset for one in asked] == [EARLIEST, EARLIEST, 5]
    assert [one.max_wait_ms > 0 for one in asked] == [False, True, True]
    assert {(one.compare_from, one.compare_upto) for one in asked[1:]} == {(3, 8)}
    assert said[-1] == (200, 200)


FAILURES: dict[str, tuple[list[Answer] | None, Verdict, str]] = {
    "given-no-way-there-then-unchecked": (None, Verdict.UNCHECKED, "SPU 1 is offline"),
    "given-an-earlier-version-then-unchecked": (
        [UnsupportedError("this SPU knows no request 6")],
        Verdict.UNCHECKED,
        "upgrade",
    ),
    "given-an-unfit-replica-then-damaged": (
        [StorageFailedError("cannot serve: damage")],
        Verdict.DAMAGED,
        "cannot serve",
    ),
    "given-one-that-is-being-rebuilt-then-unchecked": (
        [NotReadyError("is being rebuilt")],
        Verdict.UNCHECKED,
        "rebuilt",
    ),
    "given-one-that-goes-away-in-the-middle-then-unchecked": (
        [begun(), UnreachableError("closed the connection")],
        Verdict.UNCHECKED,
        "closed",
    ),
    "given-a-log-that-is-cut-again-and-again-then-unchecked": (
        [begun(), *[NotReadyError("was cut")] * 3],
        Verdict.UNCHECKED,
        "was cut",
    ),
}


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_module, "_PAUSE_S", 0.0)


@pytest.mark.parametrize(("script", "verdict", "reason"), FAILURES.values(), ids=FAILURES)
async def test_what_fails_is_told_and_the_other_is_verified(
    script: list[Answer] | None, verdict: Verdict, reason: str
) -> None:
    scripts: dict[int, list[Answer]] = {0: [begun(), (WHOLE, [])]}
    if script is not None:
        scripts[1] = script
    found, _ = await verify(scripts)
    fine, other = found.replicas
    assert (fine.verdict, fine.leads) == (Verdict.OK, True)
    assert (other.verdict, other.is_whole) == (verdict, False)
    assert reason in str(other.reason)


async def test_given_a_log_that_is_cut_once_then_it_begins_anew() -> None:
    found, connections = await verify(
        {0: [begun(), (WHOLE, [])], 1: [begun(), NotReadyError("was cut"), (WHOLE, [])]}
    )
    assert found.worst is Verdict.OK
    assert [one.offset for one in connections[1].asked] == [EARLIEST] * 3


@pytest.mark.parametrize(
    ("severity", "verdict"), [("damage", Verdict.DAMAGED), ("note", Verdict.OK)]
)
async def test_findings_are_kept(severity: str, verdict: Verdict) -> None:
    problem = DAMAGE | {"severity": severity}
    found, _ = await verify({0: [begun(), (WHOLE, [problem])], 1: [begun(), (WHOLE, [])]})
    assert found.replicas[0].findings == (Finding("f.log", 7, "r", severity, False),)
    assert found.worst is verdict
    assert found.alike == (0, 1)


# Where they are


@dataclass
class FakeAdmin:
    partitions: list[Partition]
    spus: list[Spu]

    async def list(self, kind: str) -> Any:
        found: list[Object] = [*self.partitions] if kind == "partitions" else [*self.spus]
        return found


def admin() -> Any:
    spec = SpuSpec.model_validate({"spuId": 0, "publicEndpoint": {"port": 1}})
    spu = Spu(metadata=Metadata(name="spu-0"), spec=spec, status=SpuStatus.model_validate({}))
    names = [("t-1", "t", 1), ("t-0", "t", 0), ("u-0", "u", 0)]
    return FakeAdmin([partition(*one) for one in names], [spu])


@pytest.mark.parametrize(
    ("names", "found"),
    [
        pytest.param([], ["t-0", "t-1", "u-0"], id="given-no-name-then-all-in-order"),
        pytest.param(["t"], ["t-0", "t-1"], id="given-a-topic-then-its-partitions"),
        pytest.param(["u-0", "t-0", "u"], ["u-0", "t-0"], id="given-one-twice-then-once"),
    ],
)
async def test_names(names: list[str], found: list[str]) -> None:
    assert [one.name for one in await locate(admin(), names)] == found


async def test_given_an_unknown_name_then_the_nearest_is_named() -> None:
    with pytest.raises(NotFoundError, match="did you mean 't-0'"):
        await locate(admin(), ["t_0"])


async def test_each_spu_is_waited_for_once() -> None:
    first, second, _ = await locate(admin(), [])
    with pytest.raises(UnreachableError, match="SPU 0 is init: no SPU answers"):
        await first.connect(0)
    first.away[0] = "known"
    with pytest.raises(UnreachableError, match="known"):
        await second.connect(0)
    with pytest.raises(UnreachableError, match="not registered"):
        await second.connect(1)
