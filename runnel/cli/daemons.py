"""``runnel sc run`` and ``runnel spu run``: replace this process with that daemon."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from schemas.daemon.installation import Program, program_command
from schemas.errors import NotFoundError

ConfigOption = Annotated[
    Path, typer.Option("-c", "--config", metavar="FILE", help="YAML configuration of the daemon.")
]

sc_app = typer.Typer(help="The streaming controller.", no_args_is_help=True)
spu_app = typer.Typer(help="A streaming processing unit.", no_args_is_help=True)


def _become(program: Program, config: Path) -> None:
    """Replace this process, so that signals and the exit code are the daemon's own."""
    if not config.is_file():
        raise NotFoundError(f"{config}: no such configuration file")
    command = program_command(program, "-c", str(config.absolute()))
    os.execv(command[0], command)  # noqa: S606 - the interpreter that runs us, with our own module


@sc_app.command("run")
def sc_run(config: ConfigOption = Path("sc.yaml")) -> None:
    """Run a streaming controller in the foreground until SIGTERM or Ctrl-C."""
    _become(Program.SC, config)


@spu_app.command("run")
def spu_run(config: ConfigOption = Path("spu.yaml")) -> None:
    """Run an SPU in the foreground until SIGTERM or Ctrl-C."""
    _become(Program.SPU, config)
