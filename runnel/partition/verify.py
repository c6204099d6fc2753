"""Having every replica of a partition verified by the SPU that holds it, and comparing them.

All replicas are asked for their bounds first. The common range is what all of them hold and
know to be committed; each SPU gives a digest over it, and equal replicas give equal digests.
An SPU that cannot be asked is reported, and the others are compared without it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from runnel.net.connection import SpuConnection
from runnel.partition.replicas import Located
from schemas.errors import (
    NotReadyError,
    OverloadedError,
    ProtocolError,
    RunnelError,
    StorageFailedError,
    UnsupportedError,
)
from schemas.wire.log_requests import VerifyRequest, VerifyResponse
from schemas.wire.protocol import Api
from schemas.wire.record_requests import EARLIEST, NO_OFFSET

#: How long an SPU works before it reports its progress.
_STEP_MS: Final = 500
_TIMEOUT_S: Final = 60.0
#: A log may be cut while it is read, by an election for example.
_ATTEMPTS: Final = 3
_PAUSE_S: Final = 0.5


class Verdict(StrEnum):
    """What is known of a replica now; ``OK`` is the only good one."""

    OK = "ok"
    #: Something was damaged: records, or files that were rebuilt from them.
    DAMAGED = "damaged"
    #: It is whole, but its records differ from those of the others.
    DIFFERS = "differs"
    #: It could not be asked.
    UNCHECKED = "unchecked"


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem; ``severity`` is ``damage`` or ``note``."""

    file: str
    position: int
    reason: str
    severity: str
    rebuilt: bool

    @property
    def is_damage(self) -> bool:
        return self.severity != "note"

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Finding:
        return cls(
            str(data["file"]),
            int(data["position"]),
            str(data["reason"]),
            str(data["severity"]),
            bool(data.get("rebuilt")),
        )


def read_findings(tail: memoryview) -> tuple[Finding, ...]:
    """The findings in the tail of an answer to VERIFY. Raises ProtocolError."""
    try:
        return tuple(map(Finding.from_json, json.loads(bytes(tail))["problems"]))
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError) as error:
        raise ProtocolError(f"the findings of a verification do not parse: {error!r}") from error


@dataclass(frozen=True, slots=True)
class ReplicaResult:
    """What one SPU reports about its replica. Without ``checked`` it could not be verified, and
    ``reason`` says why."""

    spu: int
    leads: bool
    verdict: Verdict
    reason: str | None = None
    checked: VerifyResponse | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether all of its records were verified, and are good."""
        return self.checked is not None and self.checked.next_offset >= self.checked.end


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """All replicas of a partition. Those on the SPUs ``alike`` are equal from ``compared_from``
    to below ``compared_upto``."""

    partition: str
    compared_from: int
    compared_upto: int
    replicas: tuple[ReplicaResult, ...]
    alike: tuple[int, ...] = ()

    @property
    def worst(self) -> Verdict:
        order = (Verdict.DAMAGED, Verdict.DIFFERS, Verdict.UNCHECKED)
        return next((v for v in order if any(r.verdict is v for r in self.replicas)), Verdict.OK)


#: Bytes verified, and bytes in all, of all replicas of the partition.
Progress = Callable[[int, int], None]


@dataclass(slots=True)
class _Replica:
    """One replica while it is verified."""

    located: Located
    spu: int
    connection: SpuConnection | None = None
    bounds: VerifyResponse | None = None
    last: VerifyResponse | None = None
    findings: tuple[Finding, ...] = ()
    failure: RunnelError | None = None

    async def open(self) -> None:
        """Connect and ask for the bounds; a failure is kept for the result."""
        try:
            self.connection = await self.located.connect(self.spu)
            self.bounds = await self._step(EARLIEST, 0, 0, 0)
        except RunnelError as error:
            self.failure = error

    async def verify(self, start: int, upto: int, told: Callable[[], None]) -> None:
        """Have all of it verified; a failure is kept for the result."""
        for attempt in range(_ATTEMPTS):
            try:
                offset = EARLIEST
                while offset == EARLIEST or self.last is None or not self.last.finished:
                    self.last = await self._step(offset, start, upto, _STEP_MS)
                    offset = self.last.next_offset
                    told()
            except (NotReadyError, OverloadedError) as error:
                self.failure = error
                await asyncio.sleep(_PAUSE_S * (attempt + 1))
            except RunnelError as error:
                self.failure = error
                return
            else:
                self.failure = None
                return

    async def close(self) -> None:
        if self.connection is not None:
            await self.connection.close()

    def result(self) -> ReplicaResult:
        leads = self.spu == self.located.partition.status.leader
        match self.failure:
            case None:
                harmed = any(finding.is_damage for finding in self.findings)
                verdict = Verdict.DAMAGED if harmed else Verdict.OK
                return ReplicaResult(self.spu, leads, verdict, None, self.last, self.findings)
            case StorageFailedError() as error:
                return ReplicaResult(self.spu, leads, Verdict.DAMAGED, error.message)
            case UnsupportedError():
                reason = f"SPU {self.spu} is of an earlier version, which cannot verify; upgrade it"
                return ReplicaResult(self.spu, leads, Verdict.UNCHECKED, reason)
            case error:
                return ReplicaResult(self.spu, leads, Verdict.UNCHECKED, error.message)

    async def _step(self, offset: int, start: int, upto: int, wait_ms: int) -> VerifyResponse:
        assert self.connection is not None  # noqa: S101 - `open` comes first
        request = VerifyRequest(self.located.uid, offset, start, upto, wait_ms)
        answer = await self.connection.request(Api.VERIFY, request.pack(), timeout_s=_TIMEOUT_S)
        self.findings = read_findings(answer.tail)
        return VerifyResponse.unpack(answer.fixed)


async def verify_partition(located: Located, progress: Progress) -> PartitionResult:
    """Verify all replicas at the same time, each by its own SPU. Failures of replicas are in the
    result; they are not raised."""
    replicas = [_Replica(located, spu) for spu in located.partition.spec.replicas]
    try:
        await asyncio.gather(*(replica.open() for replica in replicas))
        known = [replica.bounds for replica in replicas if replica.bounds is not None]
        start = max((bounds.log_start for bounds in known), default=0)
        upto = min((bounds.lac for bounds in known), default=-1) + 1
        total = sum(bounds.size_bytes for bounds in known)

        def told() -> None:
            done = sum(replica.last.checked_bytes for replica in replicas if replica.last)
            progress(min(done, total), total)

        await asyncio.gather(
            *(replica.verify(start, upto, told) for replica in replicas if replica.bounds)
        )
    finally:
        await asyncio.gather(*(replica.close() for replica in replicas))
    results, alike = compare([replica.result() for replica in replicas])
    return PartitionResult(located.name, start, max(start, upto), tuple(results), alike)


def compare(results: Sequence[ReplicaResult]) -> tuple[list[ReplicaResult], tuple[int, ...]]:
    """Mark the replicas whose digest differs from the leader's, or else from that of most; also
    returns the SPUs whose replicas are alike.

    It compares replicas that were verified to their end and begin with the same batch: retention
    may have deleted records meanwhile.
    """
    whole = {result.spu: result.checked for result in results if result.checked and result.is_whole}
    common = max((one.compared_from for one in whole.values()), default=NO_OFFSET)
    digests = {spu: one.digest for spu, one in whole.items() if one.compared_from == common}
    leader = next((result.spu for result in results if result.leads), None)
    found = list(digests.values())
    if leader in digests:
        right, whose = digests[leader], "the leader's"
    else:
        right, whose = max(found, key=found.count, default=b""), "those of most others"
    reason = f"its records are not {whose}"
    marked = [
        replace(result, verdict=Verdict.DIFFERS, reason=reason)
        if digests.get(result.spu, right) != right
        else result
        for result in results
    ]
    return marked, tuple(spu for spu, digest in digests.items() if digest == right)
