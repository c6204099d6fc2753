"""``runnel cluster diagnostics``: one archive with what a colleague needs, without secrets.

Neighbour: `runnel.diagnostics` does the work; only this command needs what it imports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from runnel.cli.arguments import ScOption
from runnel.cli.connection import who
from runnel.cli.failure import EXIT_NOT_NOW, say, warn
from runnel.contexts import default_sc, load_contexts, runnel_home
from runnel.net.address import Address, parse_addresses
from schemas.objects.quantities import readable_size
from schemas.objects.spu import is_loopback

if TYPE_CHECKING:
    from runnel.diagnostics.host import DaemonHere


def diagnostics(
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="The archive, which must not exist yet. Default: runnel-diagnostics-TIME.tar.gz"
            " in the working directory.",
            show_default=False,
        ),
    ] = None,
    sc: ScOption = None,
) -> None:
    """Collect what is needed to find out what happened to the cluster, in one archive.

    It holds objects, their history, events, statistics, metrics, log lines, configurations and
    facts of this host; no records, and no secrets. Look through it before you give it away. What
    could not be collected is named in its README.md. Works without an SC, too: with the files
    and the SPUs of this host. Exits with 5 if a daemon does not answer.
    """
    from runnel.diagnostics.archive import open_archive
    from runnel.diagnostics.collect import Source, collect
    from runnel.diagnostics.host import daemons_here, secrets_of_environment
    from runnel.diagnostics.local_files import learn_secrets
    from runnel.diagnostics.redaction import Redactor
    from runnel.diagnostics.spus_here import spus_here
    from runnel.loop_thread import LoopThread

    addresses = parse_addresses(default_sc() if sc is None else sc)
    at = datetime.now(UTC)
    file = output or Path(f"runnel-diagnostics-{at:%Y%m%dT%H%M%SZ}.tar.gz")
    directories = _directories(addresses)
    daemons = _of(directories, daemons_here())
    redactor = Redactor(secrets_of_environment())
    learn_secrets(redactor, directories, daemons)
    source = Source(
        addresses, who(), lambda: _check(addresses), daemons, spus_here(daemons), directories
    )
    thread = LoopThread("runnel cluster diagnostics")
    try:
        with open_archive(file, redactor, at) as archive:
            answered = thread.call(collect(source, archive, lambda what: say(f"collecting {what}")))
    finally:
        thread.stop()
    for name in answered.away:
        warn(f"{name} does not answer; what it would have told is missing")
    size = readable_size(file.stat().st_size)
    say(f"{len(archive.kept)} files, {size}; {len(archive.missing)} missing, see README.md inside")
    print(file)
    if answered.away:
        raise typer.Exit(EXIT_NOT_NOW)


async def _check(addresses: Sequence[Address]) -> list[Mapping[str, str]]:
    from runnel.cli.cluster.examination import examine

    checks, _ = await examine(addresses)
    return [{"check": c.check, "result": str(c.result), "detail": c.detail} for c in checks]


def _directories(addresses: Sequence[Address]) -> list[Path]:
    """The data directories of the cluster, if it was started on this host."""
    wanted = {_place(address) for address in addresses}
    found = [
        Path(context.data_dir)
        for context in load_contexts().known
        if context.data_dir is not None
        and wanted & {_place(address) for address in parse_addresses(context.sc)}
    ]
    directories = [directory for directory in dict.fromkeys(found) if directory.is_dir()]
    local = runnel_home() / "local"
    if not load_contexts().known and any(map(_is_here, addresses)) and local.is_dir():
        # Its start failed before there was a context.
        directories.append(local)
    return directories


def _of(directories: Sequence[Path], daemons: Sequence[DaemonHere]) -> list[DaemonHere]:
    """The daemons of local clusters in these directories; without any, all daemons here."""
    if not directories:
        return list(daemons)
    return [d for d in daemons if any(d.config.is_relative_to(path) for path in directories)]


def _place(address: Address) -> tuple[str, int]:
    """An address with one spelling for this host."""
    return ("localhost" if _is_here(address) else address.host, address.port)


def _is_here(address: Address) -> bool:
    return is_loopback(address.host)
