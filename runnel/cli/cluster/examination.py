"""What ``runnel cluster check`` finds: whether a cluster serves clients on this machine.

It does what a client does: it asks the SC, connects to every SPU at its advertised address, and
asks the SPU for its identity. It does not try private endpoints: only other SPUs must reach those.

Neighbour: `runnel.cli.cluster.check` is the command.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Final, NamedTuple

import psutil

import runnel
from runnel.admin.client import Admin
from runnel.admin.http import ScClient
from runnel.cli.readiness import commits, why_not
from runnel.cli.render import count
from runnel.contexts import local_data_dirs
from runnel.net.address import Address
from runnel.net.connection import open_connection
from schemas.errors import RunnelError, UnreachableError
from schemas.objects.partition import (
    Partition,
    PartitionResolution,
    is_led,
    is_under_replicated,
)
from schemas.objects.quantities import readable_size
from schemas.objects.spu import Spu, SpuResolution, is_loopback
from schemas.objects.stream import Stream, StreamState
from schemas.objects.topic import Topic, TopicResolution

PATIENCE_S: Final = 3.0
#: How long an SC may take to answer what it knows by itself.
_THERE_S: Final = 1.0
_AT_ONCE: Final = 32
_NAMED: Final = 5
#: Less free space than this is a warning, or a failure.
_LOW_BYTES, _LOW_SHARE = 1 << 30, 0.05
_FULL_BYTES: Final = 64 << 20


class Result(IntEnum):
    """The outcome of a check; the outcome of several checks is the worst of them."""

    OK = 0
    WARNING = 1
    FAILED = 2

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was checked; ``detail`` says what to do unless it is ok."""

    check: str
    result: Result
    detail: str


async def examine(addresses: Sequence[Address]) -> tuple[list[Check], bool]:
    """All checks of a cluster, and whether any of its SCs answers."""
    looks = await asyncio.gather(*map(_look_at_sc, addresses))
    checks = [look.check for look in looks]
    answers = [
        (address, look.info) for address, look in zip(addresses, looks, strict=True) if look.info
    ]
    if not answers:
        if not any(look.answers for look in looks):
            return checks, False
        said = (
            "no SC says yet what its cluster is, so nothing else was looked at; check again in a"
            " few seconds"
        )
        return [*checks, Check("cluster", Result.FAILED, said)], True
    if len({info["clusterUid"] for _, info in answers}) > 1:
        named = ", ".join(f"{address} to {info['cluster']}" for address, info in answers)
        checks.append(
            Check("cluster", Result.FAILED, f"the SCs belong to different clusters: {named}")
        )
        return checks, True
    address, info = next((one for one in answers if one[1]["office"] is not None), answers[0])
    if info["office"] is None:
        why = info.get("officeUnknown") or "no SC leads"
        said = f"no answer of an SC that leads, and what follows may be old: {why}"
        checks.append(Check("leader", Result.FAILED, said))
    client = ScClient((address,))
    try:
        admin = Admin(client)
        spus = [obj for obj in await admin.list("spus") if isinstance(obj, Spu)]
        topics = [
            obj for obj in await admin.list("topics", show_system=True) if isinstance(obj, Topic)
        ]
        streams = [obj for obj in await admin.list("streams") if isinstance(obj, Stream)]
        partitions = [
            obj
            for obj in await admin.list("partitions", show_system=True)
            if isinstance(obj, Partition)
        ]
    except RunnelError as error:
        checks.append(Check("objects", Result.FAILED, error.message))
        return checks, True
    finally:
        await client.close()
    checks += check_recovery(info)
    checks += check_stored(info, spus)
    checks += check_online(spus)
    checks += check_proven(spus, info)
    at_once = asyncio.Semaphore(_AT_ONCE)
    checks += await asyncio.gather(
        *(_check_endpoint(spu, info["clusterUid"], address, at_once) for spu in spus)
    )
    checks += check_topics(topics)
    checks += check_streams(streams)
    checks += check_partitions(partitions)
    checks += [found for spu in spus if (found := check_disk(spu, info["clusterUid"])) is not None]
    return checks, True


class _Look(NamedTuple):
    """What was found of an SC, and what it says about its cluster. ``answers``: it is there,
    also if it says nothing of that."""

    check: Check
    info: dict[str, Any] | None = None
    answers: bool = True


async def _look_at_sc(address: Address) -> _Look:
    """Whether an SC answers, and what it says about its cluster."""
    client = ScClient((address,))
    # What it says now is what is wanted.
    client.not_ready_s = 0.0
    name = f"sc {address}"
    info: dict[str, Any] | None = None
    try:
        async with asyncio.timeout(PATIENCE_S):
            info = await client.call("GET", "/v1/cluster")
            await client.call("GET", "/health")
    except UnreachableError as error:
        return _Look(Check(name, Result.FAILED, error.message), answers=False)
    except TimeoutError:
        if await _is_there(client):
            said = f"it answers, but the SC that leads has not within {PATIENCE_S:g} s; check again"
            return _Look(Check(name, Result.FAILED, said))
        said = f"no answer within {PATIENCE_S:g} s"
        return _Look(Check(name, Result.FAILED, said), answers=False)
    except RunnelError as error:
        # Without its KV an SC decides nothing; otherwise it has only just started.
        without = not {"kvAwayMs", "kvUnwritable"}.isdisjoint(error.details)
        result = Result.FAILED if without else Result.WARNING
        return _Look(Check(name, result, error.message), info)
    finally:
        await client.close()
    detail = f"cluster {info['cluster']}, version {info['version']}, KV at {info['revision']}"
    if info["version"] != runnel.__version__:
        detail += f"; this command is {runnel.__version__}: use the same version"
        return _Look(Check(name, Result.WARNING, detail), info)
    if info["office"] is None:
        detail += "; it has no answer of one that leads"
        return _Look(Check(name, Result.WARNING, detail), info)
    return _Look(Check(name, Result.OK, detail), info)


async def _is_there(client: ScClient) -> bool:
    """Whether an SC itself answers: what it knows only from the one that leads may take longer."""
    try:
        async with asyncio.timeout(_THERE_S):
            await client.call("GET", "/health")
    except (UnreachableError, TimeoutError):
        return False
    except RunnelError:
        pass
    return True


def check_recovery(info: Mapping[str, Any]) -> list[Check]:
    """A warning if the cluster is recovering from a KV that was restored from a backup, and a
    failure for each SPU that is turned away because only an operator may begin a recovery."""
    checks = [
        Check(
            f"recovery from SPU {found['spu']}",
            Result.FAILED,
            f"the SC turns it away: {found['why']}; if the KV was restored from a backup:"
            f" runnel cluster recover --spu {found['spu']}; if not, something else speaks as this"
            " SPU",
        )
        for found in info.get("divergent", ())[:_NAMED]
    ]
    if not info.get("recovering"):
        return checks
    detail = (
        "the KV was restored from a backup: partitions are elected anew as soon as all of their"
        " replicas have answered, and nothing is deleted meanwhile; see: runnel get partitions"
    )
    return [*checks, Check("recovery", Result.WARNING, detail)]


def check_stored(info: Mapping[str, Any], spus: Iterable[Spu]) -> list[Check]:
    """A failure for each object in the KV that does not parse, and for each SPU id that several
    objects have. Nothing but a write past the SC leads to either."""
    checks = [
        Check(
            f"stored {found['key']}",
            Result.FAILED,
            f"{found['why']}; the SC does without it: if an SC of a later version wrote it, start"
            " that one again; else restore this key of the KV from a backup, or delete it",
        )
        for found in info.get("unreadable", ())[:_NAMED]
    ]
    by_id: dict[int, list[str]] = {}
    for spu in spus:
        by_id.setdefault(spu.spec.spu_id, []).append(spu.name)
    checks += [
        Check(
            f"spuId {spu_id}",
            Result.FAILED,
            f"belongs to {len(names)} objects: {', '.join(sorted(names))}; stop the SC and delete"
            " all but one from the KV, then start it again",
        )
        for spu_id, names in sorted(by_id.items())
        if len(names) > 1
    ]
    return checks


def check_online(spus: Iterable[Spu]) -> list[Check]:
    """Whether SPUs are registered, and all of them are online."""
    checks = []
    for spu in spus:
        state, reason = spu.status.resolution, spu.status.reason
        because = f": {reason}" if reason else ""
        start = (
            "start it, or open its way to the private port of the SC; if it is gone for good:"
            f" runnel delete spu {spu.name}"
        )
        if spu.spec.group is not None:
            start = f"its SC keeps its process running; see: runnel cluster logs {spu.name}"
        # An online SPU has a reason only if something is wrong with it: it holds replicas that
        # it is not to hold, cannot reach another SPU, or has addresses that contradict.
        result, todo = {
            SpuResolution.ONLINE: (Result.WARNING if reason else Result.OK, ""),
            SpuResolution.DRAINING: (Result.WARNING, ""),
            SpuResolution.UNKNOWN: (
                Result.WARNING,
                "; it left or the SC started a moment ago, check again",
            ),
        }.get(state, (Result.FAILED, f"; {start}"))
        checks.append(Check(f"spu {spu.name}", result, f"{state.value}{because}{todo}"))
    if not checks:
        checks.append(
            Check("spus", Result.FAILED, "none is registered; register them: runnel apply -f …")
        )
    return checks


def check_proven(spus: Iterable[Spu], info: Mapping[str, Any]) -> list[Check]:
    """A warning if SPUs are connected that have not proven who they are."""
    unproven = set(info.get("unproven", ()))
    names = [spu.name for spu in spus if spu.spec.spu_id in unproven]
    if not names:
        return []
    listed = ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
    detail = (
        f"{count(len(names), 'SPU')} without a secret, whose id another program could take while it"
        f" is offline: {listed}; make one: runnel spu secret {names[0]}"
    )
    return [Check("secrets", Result.WARNING, detail)]


async def _check_endpoint(
    spu: Spu, cluster_uid: str, sc: Address, at_once: asyncio.Semaphore
) -> Check:
    """Whether this SPU of this cluster answers at the address that it advertises."""
    public = spu.spec.public_endpoint
    address = Address(public.host, public.port)
    name = f"endpoint {spu.name}"
    change = f"change spec.publicEndpoint: runnel edit spu {spu.name}"
    if spu.spec.group is not None:
        change = f"change spec.template.publicEndpoint: runnel edit spugroup {spu.spec.group}"
    async with at_once:
        try:
            connection = await open_connection(address, PATIENCE_S)
        except RunnelError as error:
            hint = "start the SPU, open the network path to it, or "
            if is_loopback(address.host) and not is_loopback(sc.host):
                hint = f"{address.host} is this machine, and the SC is elsewhere: "
            return Check(name, Result.FAILED, f"{error.message}; {hint}{change}")
        spu_id, uid = connection.spu_id, connection.cluster_uid
        await connection.close()
    if uid not in {"", cluster_uid}:
        return Check(
            name, Result.FAILED, f"an SPU of another cluster ({uid}) answers at {address}; {change}"
        )
    if spu_id != spu.spec.spu_id:
        return Check(
            name,
            Result.FAILED,
            f"SPU {spu_id} answers at {address}, not SPU {spu.spec.spu_id}; {change}",
        )
    if not uid:
        return Check(name, Result.WARNING, f"{address} answers, but has not joined a cluster yet")
    return Check(name, Result.OK, f"SPU {spu_id} answers at {address}")


def check_topics(topics: Sequence[Topic]) -> list[Check]:
    """Whether every topic is placed; one line for all that are, and one for each that is not."""
    stuck = [
        topic
        for topic in topics
        if topic.status.resolution not in {TopicResolution.PROVISIONED, TopicResolution.DELETING}
    ]
    checks = [
        Check(
            f"topic {topic.name}",
            Result.FAILED,
            f"{topic.status.resolution.value}: {topic.status.reason or 'not looked at yet'}",
        )
        for topic in stuck[:_NAMED]
    ]
    if len(stuck) > _NAMED:
        more = f"{len(stuck) - _NAMED} more are not provisioned; see: runnel get topics"
        checks.append(Check("topics", Result.FAILED, more))
    elif not stuck:
        checks.append(Check("topics", Result.OK, f"{count(len(topics), 'topic')}, all placed"))
    return checks


def check_streams(streams: Sequence[Stream]) -> list[Check]:
    """Whether no stream waits for something; nothing where there are no streams."""
    waiting = [one for one in streams if one.status.reason]
    checks = [
        Check(
            f"stream {one.name}",
            Result.FAILED if one.status.state is StreamState.CREATING else Result.WARNING,
            f"{one.status.state}: {one.status.reason}",
        )
        for one in waiting[:_NAMED]
    ]
    if len(waiting) > _NAMED:
        more = f"{len(waiting) - _NAMED} more wait; see: runnel get streams"
        checks.append(Check("streams", Result.WARNING, more))
    elif streams and not waiting:
        checks.append(Check("streams", Result.OK, f"{count(len(streams), 'stream')}, none waits"))
    return checks


def check_partitions(partitions: Sequence[Partition]) -> list[Check]:
    """Whether every partition has a leader, enough live replicas to commit, and all it wants."""
    checks = []
    leaderless = [p for p in partitions if p.status.resolution is PartitionResolution.OFFLINE]
    for p in leaderless[:_NAMED]:
        reason = p.status.reason or "no controller has looked at it yet"
        checks.append(Check(f"partition {p.name}", Result.FAILED, f"has no leader: {reason}"))
    if len(leaderless) > _NAMED:
        more = f"{len(leaderless) - _NAMED} more have no leader; see: runnel get partitions"
        checks.append(Check("partitions", Result.FAILED, more))
    led = [p for p in partitions if is_led(p.status)]
    checks += [
        Check(f"partition {p.name}", Result.FAILED, f"cannot commit: {why_not(p)}")
        for p in [p for p in led if not commits(p)][:_NAMED]
    ]
    thin = [p for p in led if commits(p) and is_under_replicated(p)]
    if thin:
        names = ", ".join(p.name for p in thin[:_NAMED]) + (", …" if len(thin) > _NAMED else "")
        checks.append(
            Check(
                "replicas",
                Result.WARNING,
                f"{count(len(thin), 'partition')} with fewer live replicas than wanted: {names}",
            )
        )
        checks += [
            Check(f"partition {p.name}", Result.WARNING, p.status.reason)
            for p in thin[:_NAMED]
            if p.status.reason is not None
        ]
    unclean = [p for p in partitions if p.status.unclean_term == p.status.term]
    if unclean:
        names = ", ".join(p.name for p in unclean[:_NAMED])
        names += ", …" if len(unclean) > _NAMED else ""
        detail = f"{count(len(unclean), 'leader')} elected uncleanly, records may be lost: {names}"
        checks.append(Check("elections", Result.WARNING, detail))
    if not checks:
        all_led = f"{count(len(partitions), 'partition')}, all with a leader"
        checks.append(Check("partitions", Result.OK, all_led))
    return checks


def check_disk(spu: Spu, cluster_uid: str) -> Check | None:
    """Space under an SPU's log directory; None where that is not on this machine.

    A directory is an SPU's if the identity that the SPU wrote into it says so.
    """
    for directory in _directories(spu):
        try:
            identity = json.loads((directory / "identity.json").read_text())
            if (identity["clusterUid"], identity["spuId"]) == (cluster_uid, spu.spec.spu_id):
                return _space(spu, directory)
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return None


def _directories(spu: Spu) -> Iterator[Path]:
    """The possible log directories of an SPU: that of its spec, and that in each local cluster,
    where the one of the spec is below the directory of all SPUs unless it is absolute."""
    log_dir = spu.spec.storage.log_dir
    if log_dir is not None:
        yield Path(log_dir)
    for local in local_data_dirs():
        yield Path(local, "spus", spu.name if log_dir is None else log_dir)


def _space(spu: Spu, directory: Path) -> Check:
    usage = psutil.disk_usage(str(directory))
    detail = f"{readable_size(usage.free)} of {readable_size(usage.total)} free"
    name = f"disk {spu.name}"
    todo = f"; free space under {directory}, or shorten the retention of topics"
    if usage.free < _FULL_BYTES:
        return Check(name, Result.FAILED, detail + todo)
    if usage.free < min(_LOW_BYTES, usage.total * _LOW_SHARE):
        return Check(name, Result.WARNING, detail + todo)
    return Check(name, Result.OK, detail)
