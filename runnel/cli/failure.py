"""How the command fails: a clear message on standard error and an exit code with a meaning.

0 done · 1 failed · 2 wrong usage or invalid manifest · 3 not found · 4 conflict · 5 not now:
timed out, unreachable, or no room for it yet · 130 interrupted (143 by SIGTERM, 129 by SIGHUP)

It is no failure if the reader of a pipe closes it early (``| head``). Output is flushed here
because the interpreter, at its exit, could only complain about that.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import typer

from runnel.cli.interrupts import importing, interruptible, tell_ending
from schemas.errors import (
    ConflictError,
    FencedError,
    InvalidRequestError,
    NotFoundError,
    RetryableError,
    RunnelError,
)

if TYPE_CHECKING:
    from rich.console import Console

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_NOT_FOUND = 3
EXIT_CONFLICT = 4
EXIT_NOT_NOW = 5
EXIT_INTERRUPTED = 130


@cache
def stderr() -> Console:
    """Standard error as a console. Most commands print nothing there, and do without Rich."""
    with importing():
        from rich.console import Console
    return Console(stderr=True, soft_wrap=True, highlight=False)


def exit_code(error: BaseException) -> int:
    """The documented exit code of an error."""
    match error:
        case InvalidRequestError():
            return EXIT_USAGE
        case NotFoundError():
            return EXIT_NOT_FOUND
        case ConflictError() | FencedError():
            return EXIT_CONFLICT
        case RetryableError():
            return EXIT_NOT_NOW
        case BaseExceptionGroup():
            return max(exit_code(inner) for inner in error.exceptions)
        case _:
            return EXIT_FAILED


def report(error: BaseException) -> int:
    """Print what went wrong, and give the exit code."""
    console = stderr()
    from rich.markup import escape

    for line in _lines(error):
        # Standard error may be closed, too.
        with suppress(OSError):
            console.print(f"[bold red]error:[/] {escape(_shown(line))}")
    if isinstance(error, InvalidRequestError) and "kind" in error.details:
        from runnel.cli import habits

        _say_what_was_meant(habits.of_kind(error.details["kind"]))
    return exit_code(error)


def _say_what_was_meant(answer: str | None) -> None:
    # Without Rich, as in `_show_usage`.
    if answer is not None:
        with suppress(OSError):
            print(f"hint: {answer}", file=sys.stderr)


def say(text: str) -> None:
    """Print a line on standard error, as it is."""
    with suppress(OSError):
        stderr().print(text, markup=False)


def warn(text: str) -> None:
    """Print a warning on standard error: the command goes on."""
    console = stderr()
    from rich.markup import escape

    with suppress(OSError):
        console.print(f"[bold yellow]warning:[/] {escape(_shown(text))}")


class _ClientWarnings(logging.Handler):
    """Prints the warnings in the log of the client library as `warn` does, and leaves others to the
    handler of last resort. Used where the process keeps no log."""

    def __init__(self, others: logging.Handler | None) -> None:
        super().__init__(logging.WARNING)
        self._others = others

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == "runnel":
            warn(record.getMessage())
        elif self._others is not None:
            self._others.handle(record)


def _shown(text: str) -> str:
    """Text that does nothing to a terminal but begin new lines, and that can be printed: a message
    may quote a file."""
    return "".join(
        c.encode("unicode_escape").decode()
        if unicodedata.category(c) in ("Cc", "Cs") and c not in "\n\t"
        else c
        for c in text
    )


def _lines(error: BaseException) -> list[str]:
    if isinstance(error, BaseExceptionGroup):
        return list(dict.fromkeys(line for e in error.exceptions for line in _lines(e)))
    if isinstance(error, RunnelError):
        return [error.message]
    return [f"{type(error).__name__}: {error}"]


@runtime_checkable
class _UsageMistake(Protocol):
    """The error that typer raises for wrong usage, whichever click it bundles."""

    exit_code: int
    ctx: Any | None

    def format_message(self) -> str: ...


def run(app: Callable[..., object]) -> int:
    """Run the command line and give the exit code; standard output is flushed by then. Warnings of
    the client library are printed."""
    if not isinstance(logging.lastResort, _ClientWarnings):
        logging.lastResort = _ClientWarnings(logging.lastResort)
    return _finish_output(_outcome(app))


def _outcome(app: Callable[..., object]) -> int:
    try:
        # Whatever the path of the program: completion looks for this name, and usage shows it.
        result = interruptible(lambda: app(standalone_mode=False, prog_name="runnel"))
    except (typer.Abort, KeyboardInterrupt):
        result = EXIT_INTERRUPTED
    except BrokenPipeError:
        _discard_output()
        return EXIT_OK
    except SystemExit as end:
        # Typer ends the process by itself with 1 when a pipe breaks.
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        _discard_output()
        return EXIT_OK
    except (RunnelError, OSError, BaseExceptionGroup) as error:
        return report(error)
    except Exception as error:
        if not isinstance(error, _UsageMistake):
            raise
        _show_usage(error)
        return error.exit_code
    # Typer gives 130 for Ctrl-C instead of raising it.
    if result == EXIT_INTERRUPTED:
        return tell_ending()
    return result if isinstance(result, int) else EXIT_OK


def _show_usage(mistake: _UsageMistake) -> None:
    if type(mistake).__name__ == "NoArgsIsHelpError":
        # A group without a command: the message is its help.
        lines = [mistake.format_message()]
    else:
        # Typer tells a choice that does not exist as Pydantic does.
        lines = [f"error: {mistake.format_message().replace(': Value error, ', ': ', 1)}"]
        if mistake.ctx is not None:
            hint = f"Try '{mistake.ctx.command_path} --help' for help."
            lines = [mistake.ctx.get_usage(), hint, *lines]
    # Without Rich, which takes longer to import than everything else here.
    with suppress(OSError):
        print(*lines, sep="\n", file=sys.stderr)
    if mistake.ctx is not None:
        _say_what_was_meant(_meant(mistake, mistake.ctx.command_path.split()[1:]))


def _meant(mistake: _UsageMistake, path: list[str]) -> str | None:
    """What was meant by a command, an option or a choice that does not exist."""
    # What typer raises for one that it does not know, whichever click it bundles.
    option = type(mistake).__name__ == "NoSuchOption"
    message = mistake.format_message()
    choice = re.fullmatch(r"Invalid value for .*'(--?[\w-]+)': .*?'(.*)' is not one of .*", message)
    if not option and choice is None and not message.startswith("No such command"):
        return None
    from runnel.cli import habits

    if choice is not None:
        return habits.of_choice(choice[1], choice[2])
    if option:
        return habits.of_option(path, getattr(mistake, "option_name", ""))
    return habits.of_command(path, sys.argv[1:])


def _finish_output(code: int) -> int:
    """Flush standard output; if that fails, leave the interpreter nothing to flush."""
    try:
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        _discard_output()
        return code
    except OSError as error:
        _discard_output()
        # A command that failed has printed an error already, most likely the same one.
        if code == EXIT_OK:
            say(f"error: standard output: {error.strerror}")
            return EXIT_FAILED
        return code


def _discard_output() -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
