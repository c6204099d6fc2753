"""``runnel sc`` and ``runnel spu``: run a daemon in place of this process, and look after them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Final

import typer

from runnel.cli import completion
from runnel.cli.arguments import ScOption
from schemas.daemon.installation import Program, program_command
from schemas.daemon.log_options import LogFormat, LogLevel
from schemas.daemon.secret_file import write_secret
from schemas.errors import InvalidRequestError, NotFoundError

ConfigOption = Annotated[
    Path, typer.Option("-c", "--config", metavar="FILE", help="YAML configuration of the daemon.")
]

LogLevelOption = Annotated[
    LogLevel | None,
    typer.Option("--log-level", help="Instead of logLevel in the file.", show_default=False),
]
LogFormatOption = Annotated[
    LogFormat | None,
    typer.Option(
        "--log-format",
        help="Instead of logFormat in the file; auto: text on a terminal, JSON elsewhere.",
        show_default=False,
    ),
]

sc_app = typer.Typer(help="The streaming controller.", no_args_is_help=True)
spu_app = typer.Typer(help="A streaming processing unit.", no_args_is_help=True)


def _become(program: Program, config: Path, level: LogLevel | None, form: LogFormat | None) -> None:
    """Replace this process, so that signals and the exit code are the daemon's own."""
    if not config.is_file():
        raise NotFoundError(f"{config}: no such configuration file")
    options = ["-c", str(config.absolute())]
    if level is not None:
        options += ["--log-level", level]
    if form is not None:
        options += ["--log-format", form]
    command = program_command(program, *options)
    os.execv(command[0], command)  # noqa: S606 - the interpreter that runs us, with our own module


@sc_app.command("run")
def sc_run(
    config: ConfigOption = Path("sc.yaml"),
    log_level: LogLevelOption = None,
    log_format: LogFormatOption = None,
) -> None:
    """Run a streaming controller in the foreground until SIGTERM or Ctrl-C."""
    _become(Program.SC, config, log_level, log_format)


@sc_app.command("step-down")
def sc_step_down(sc: ScOption = None) -> None:
    """Have the SC that leads let another one lead, before its host is stopped for example.

    SPUs go on serving. The SC stays as a standby, and does not stand for election for 10 s.
    """
    from runnel.cli.controllers import step_down

    step_down(sc)


@spu_app.command("secret")
def spu_secret(
    name: Annotated[
        str,
        typer.Argument(metavar="SPU", autocompletion=completion.spus, show_default=False),
    ],
    to: Annotated[
        Path | None,
        typer.Option(
            "--to",
            metavar="FILE",
            help="Write it to this file, which only its owner may read. Default: print it.",
            show_default=False,
        ),
    ] = None,
    sc: ScOption = None,
) -> None:
    """Make a secret by which an SPU proves to the SC who it is.

    Bring it to the SPU's host, into the file `secret` in its logDir (or its secretFile), with mode
    600; the SPU finds it when it connects next. Once the SPU has used it, the SC accepts no earlier
    secret, and turns away whoever speaks as this SPU without it. Nobody can read it later; if it
    is lost, make another one.
    """
    # Only this command needs a client; `run` is to become the daemon at once.
    from runnel.cli.spu_secret import make_secret

    if to is not None:
        # Before there is a secret that nobody holds.
        if to.is_dir():
            raise InvalidRequestError(f"--to: {to} is a directory; name a file in it")
        if not to.parent.is_dir():
            raise InvalidRequestError(f"--to: there is no directory {to.parent}; make it first")
    secret = make_secret(sc, name)
    if to is None:
        print(secret)
        return
    write_secret(to, secret)
    print(f"wrote the secret of spu/{name} to {to}; bring it to the SPU's host")


#: How long a command waits for an SPU to be empty.
DRAIN_S: Final = 3_600.0
DrainedSpu = Annotated[
    str, typer.Argument(metavar="SPU", autocompletion=completion.spus, show_default=False)
]
WaitOption = Annotated[bool, typer.Option(help="Wait until it holds no replicas.")]
PatienceOption = Annotated[float, typer.Option(metavar="SECONDS", min=0, help="How long to wait.")]


@spu_app.command("drain")
def spu_drain(
    name: DrainedSpu,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Let it keep what has not moved yet.")
    ] = False,
    wait: WaitOption = True,
    timeout: PatienceOption = DRAIN_S,
    sc: ScOption = None,
) -> None:
    """Move all replicas of an SPU to others, while clients use them.

    It gets no new replicas from then on. Each replica is made anew elsewhere before it leaves. An
    SPU that is lost for good is drained in the same way, as far as other replicas are there. Ctrl-C
    ends the wait, not the drain. A drain that somebody calls off ends the wait with 4, and so does
    `--cancel` for an SPU that its group has no place for.
    """
    from runnel.cli.spu_drain import cancel as keep
    from runnel.cli.spu_drain import drain

    if cancel:
        keep(sc, name)
    else:
        drain(sc, name, wait=wait, timeout_s=timeout)


@spu_app.command("replace")
def spu_replace(
    name: DrainedSpu,
    new: Annotated[
        str,
        typer.Option(
            "--with",
            metavar="SPU",
            help="The SPU that takes its replicas.",
            autocompletion=completion.spus,
            show_default=False,
        ),
    ],
    wait: WaitOption = True,
    timeout: PatienceOption = DRAIN_S,
    sc: ScOption = None,
) -> None:
    """Move all replicas of an SPU to another one, for example of a host that is lost.

    Partitions of which the other SPU has a replica already move to any SPU. Besides that, it is a
    drain: see `runnel spu drain`, which also cancels it.
    """
    from runnel.cli.spu_drain import drain

    if name == new:
        raise typer.BadParameter("an SPU cannot replace itself", param_hint="--with")
    drain(sc, name, wait=wait, timeout_s=timeout, to=new)


@spu_app.command("run")
def spu_run(
    config: ConfigOption = Path("spu.yaml"),
    log_level: LogLevelOption = None,
    log_format: LogFormatOption = None,
) -> None:
    """Run an SPU in the foreground until SIGTERM or Ctrl-C."""
    _become(Program.SPU, config, log_level, log_format)
