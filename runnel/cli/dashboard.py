"""``runnel dashboard``: run the dashboard in place of this process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from runnel.cli.arguments import ScOption
from runnel.contexts import default_sc
from schemas.daemon.installation import Program, program_command
from schemas.daemon.log_options import LogFormat, LogLevel
from schemas.errors import NotFoundError


def dashboard(
    config: Annotated[
        Path | None,
        typer.Option(
            "-c",
            "--config",
            metavar="FILE",
            help="YAML configuration; options take precedence.",
            show_default=False,
        ),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(help="Address to listen on. Default: 127.0.0.1.", show_default=False),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65_535, help="Port; 0 takes a free one. Default: 9009.", show_default=False
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host",
            metavar="NAME",
            help="A host name of the dashboard, for example that of a proxy; may be repeated.",
            show_default=False,
        ),
    ] = None,
    no_records: Annotated[
        bool, typer.Option("--no-records", help="Show what topics there are, but no records.")
    ] = False,
    log_level: Annotated[
        LogLevel | None, typer.Option(help="Which lines to log.", show_default=False)
    ] = None,
    log_format: Annotated[
        LogFormat | None, typer.Option(help="How lines look.", show_default=False)
    ] = None,
    sc: ScOption = None,
) -> None:
    """Serve the cluster's dashboard to browsers. It only reads, until SIGTERM or Ctrl-C.

    It asks nobody who they are, and so listens on this machine only, unless you name another
    --host. Put a proxy that asks for a password in front of it then.
    """
    if config is not None and not config.is_file():
        raise NotFoundError(f"{config}: no such configuration file")
    options: list[str] = []
    if config is not None:
        options += ["-c", str(config.absolute())]
    if sc is not None or config is None:
        options += ["--sc", default_sc() if sc is None else sc]
    given = {"--host": host, "--port": port, "--log-level": log_level, "--log-format": log_format}
    for name, value in given.items():
        if value is not None:
            options += [name, str(value)]
    for name in allow_host or ():
        options += ["--allow-host", name]
    if no_records:
        options.append("--no-records")
    command = program_command(Program.DASHBOARD, *options)
    os.execv(command[0], command)  # noqa: S606 - the interpreter that runs us, with our own module
