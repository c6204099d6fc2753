"""Fills an archive with what a cluster and this host tell. What does not answer is named in it.

No daemon that is away keeps the others from being asked: each file is collected by itself. SPUs are
asked directly, so their pages and log lines are there without an SC, too, if the SPUs run here.

Neighbours: `runnel.diagnostics.contents` says where what is; `runnel.cli.cluster.diagnostics` is
the command.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp

from runnel.admin.client import Admin
from runnel.admin.http import ScClient
from runnel.diagnostics import contents
from runnel.diagnostics.archive import Archive
from runnel.diagnostics.host import DaemonHere, command_facts, host_facts
from runnel.diagnostics.local_files import add_cluster, add_config
from runnel.diagnostics.pages import read_page
from runnel.diagnostics.redaction import REMOVED
from runnel.diagnostics.spus_here import SpuHere, http_address
from runnel.logs.daemons import DaemonLogs, Wanted
from runnel.logs.events import list_events
from runnel.net.address import Address
from schemas.daemon.log_ring import MAX_ANSWER_LINES
from schemas.errors import RunnelError
from schemas.objects.kinds import KINDS
from schemas.objects.manifest.manifest import dump_yaml
from schemas.objects.metadata import Object
from schemas.objects.partition import Partition, is_writable
from schemas.objects.spu import Spu

#: Most events, objects with their history, writes of each, and partitions with their replicas.
MAX_EVENTS: Final = 2_000
MAX_HISTORIES: Final = 200
_MAX_WRITES: Final = 50
MAX_REPLICAS: Final = 200
#: Most topics of which the statistics are read, and of a page of them.
_MAX_TOPICS: Final = 5_000
_PAGE_TOPICS: Final = 1_000
_AT_ONCE: Final = 16

Progress = Callable[[str], None]
Examine = Callable[[], Awaitable[Sequence[Mapping[str, str]]]]


@dataclass(frozen=True, slots=True)
class Source:
    """What is asked: SCs, daemons and directories of this host. ``check`` examines the cluster."""

    sc: tuple[Address, ...]
    by: str
    check: Examine
    daemons: Sequence[DaemonHere] = ()
    spus: Sequence[SpuHere] = ()
    directories: Sequence[Path] = ()


@dataclass(slots=True)
class Answered:
    """Which daemons did not answer."""

    away: list[str] = field(default_factory=list)


async def collect(source: Source, archive: Archive, progress: Progress) -> Answered:
    """Ask everything and fill the archive. Raises OSError if the archive cannot be written,
    which `open_archive` explains."""
    answered = Answered()
    progress("this host")
    archive.add_json(contents.COMMAND, command_facts())
    archive.add_json(contents.HOST, host_facts(source.daemons, _disks_of(source)))
    for directory in source.directories:
        add_cluster(archive, directory)
    for daemon in source.daemons:
        if not any(daemon.config.is_relative_to(directory) for directory in source.directories):
            name = contents.safe_name(str(daemon.config))
            add_config(archive, f"local/{daemon.program}-{name}", daemon.config)
    client = ScClient(source.sc, source.by)
    try:
        async with aiohttp.ClientSession() as session:
            await _cluster(source, client, session, archive, answered, progress)
    finally:
        await client.close()
    return answered


def _disks_of(source: Source) -> list[Path]:
    """Directories of which the disks are told. The working directory may have been deleted."""
    try:
        return [*source.directories, Path.cwd()]
    except FileNotFoundError:
        return list(source.directories)


async def _cluster(
    source: Source,
    client: ScClient,
    session: aiohttp.ClientSession,
    archive: Archive,
    answered: Answered,
    progress: Progress,
) -> None:
    progress("the SC")
    there = await asyncio.gather(
        *(_pages(session, archive, f"sc-{address}", address) for address in source.sc)
    )
    answered.away += [
        f"SC {one}" for one, is_there in zip(source.sc, there, strict=True) if not is_there
    ]
    known = True
    objects: list[Object] = []
    try:
        info = await client.cluster_of_leader()
        archive.add_json(contents.CLUSTER, info)
    except RunnelError as error:
        archive.miss(contents.CLUSTER, error.message)
        known = False
        if not answered.away:
            answered.away.append("the SC")
        spus = [spu.as_object() for spu in source.spus]
        for path in ("objects/", contents.CHECK, contents.EVENTS, contents.STATISTICS, "history/"):
            archive.miss(path, "no SC answers")
    else:
        if info["office"] is None:
            # It was waited for; hundreds of questions that only a leader answers would each wait.
            client.not_ready_s = 0.0
        progress("objects, their history, and statistics")
        objects = await _objects(Admin(client), archive)
        spus = [obj for obj in objects if isinstance(obj, Spu)]
        await _histories(Admin(client), archive, objects)
        await _add(archive, contents.EVENTS, lambda: _events(client), as_lines=True)
        await _add(archive, contents.STATISTICS, lambda: _statistics(client))
        progress("runnel cluster check")
        await _add(archive, contents.CHECK, source.check)
    progress(f"pages and log lines of {len(spus)} SPUs")
    at_once = asyncio.Semaphore(_AT_ONCE)

    async def pages_of(spu: Spu) -> None:
        async with at_once:
            address = http_address(spu, source.spus)
            await _pages(session, archive, f"spu-{spu.spec.spu_id}", address)

    await asyncio.gather(*map(pages_of, spus))
    await _log_lines(client if known else None, spus, archive, answered)


async def _objects(admin: Admin, archive: Archive) -> list[Object]:
    found: list[Object] = []
    for cls in KINDS:
        path = f"objects/{cls.PLURAL}.yaml"
        try:
            objects = await admin.list(cls.PLURAL, show_system=True)
        except RunnelError as error:
            archive.miss(path, error.message)
            continue
        found += objects
        clean = [_without_secrets(archive, obj) for obj in objects]
        # Thousands of objects take seconds to print: connections must not time out meanwhile.
        archive.add(path, await asyncio.to_thread(dump_yaml, clean))
    return found


def _without_secrets(archive: Archive, obj: Object) -> Object:
    """An object whose annotations have no values: those are texts of people, of any kind."""
    return obj.with_metadata(
        annotations=dict.fromkeys(obj.metadata.annotations, REMOVED),
        labels=archive.redactor.structure(obj.metadata.labels),
    )


async def _histories(admin: Admin, archive: Archive, objects: Iterable[Object]) -> None:
    troubled = [obj for obj in objects if _is_troubled(obj)]
    for obj in troubled[:MAX_HISTORIES]:
        name = contents.safe_name(obj.name)

        async def history(obj: Object = obj) -> Any:
            found = await admin.history(obj.kind, obj.name, _MAX_WRITES)
            return [asdict(entry) for entry in found.entries]

        await _add(archive, f"history/{obj.kind.lower()}/{name}.json", history)
    partitions = [obj for obj in troubled if isinstance(obj, Partition)]
    for partition in partitions[:MAX_REPLICAS]:

        async def replicas(name: str = partition.name) -> Any:
            return [asdict(replica) for replica in await admin.replicas(name)]

        await _add(archive, f"replicas/{contents.safe_name(partition.name)}.json", replicas)
    for path, found, most in (
        ("history/", len(troubled), MAX_HISTORIES),
        ("replicas/", len(partitions), MAX_REPLICAS),
    ):
        if found > most:
            archive.miss(path, f"{found} objects are not well; these are the first {most}")


def _is_troubled(obj: Object) -> bool:
    return obj.status.reason is not None or (isinstance(obj, Partition) and not is_writable(obj))


async def _events(client: ScClient) -> list[dict[str, Any]]:
    return [event.to_json() for event in await list_events(client, limit=MAX_EVENTS)]


async def _statistics(client: ScClient) -> dict[str, Any]:
    """The latest numbers, with the topics of all pages."""
    query = {"limit": str(_PAGE_TOPICS)}
    found: dict[str, Any] = dict(await client.call("GET", "/v1/stats", query=query))
    topics = list(found.get("topics", ()))
    more = found.pop("next", None)
    while more and len(topics) < _MAX_TOPICS:
        page = await client.call("GET", "/v1/stats", query={**query, "continue": str(more)})
        topics += page.get("topics", ())
        more = page.get("next")
    return {**found, "topics": topics}


async def _pages(
    session: aiohttp.ClientSession, archive: Archive, name: str, address: Address
) -> bool:
    """Add the pages of a daemon. Gives whether it answered."""
    there = True
    for page, suffix in (("/health", "json"), ("/metrics", "txt")):
        path = f"daemons/{contents.safe_name(name)}{page}.{suffix}"
        try:
            archive.add(path, await read_page(session, address, page))
        except RunnelError as error:
            archive.miss(path, error.message)
            there = False
    return there


async def _log_lines(
    client: ScClient | None, spus: Sequence[Spu], archive: Archive, answered: Answered
) -> None:
    daemons = DaemonLogs(client, spus)
    try:
        gathered = await daemons.read(Wanted(limit=MAX_ANSWER_LINES))
    finally:
        await daemons.close()
    lines = [json.dumps(archive.redactor.structure(line)) for line in gathered.lines]
    archive.add(contents.LOG_LINES, "".join(f"{line}\n" for line in lines))
    for number, note in enumerate(gathered.notes):
        archive.miss(f"{contents.LOG_LINES} ({number + 1})", note)
    for name, why in gathered.away.items():
        archive.miss(f"{contents.LOG_LINES} of {name}", why)
        answered.away.append(name)


async def _add(
    archive: Archive, path: str, read: Callable[[], Awaitable[Any]], *, as_lines: bool = False
) -> None:
    """Add what an SC answers, or say why it is not there."""
    try:
        found = await read()
    except RunnelError as error:
        archive.miss(path, error.message)
        return
    if as_lines:
        clean = archive.redactor.structure(found)
        archive.add(path, "".join(f"{json.dumps(one)}\n" for one in clean))
    else:
        archive.add_json(path, found)
