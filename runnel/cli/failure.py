"""How the command fails: a clear message on standard error and an exit code with a meaning.

0 done · 1 failed · 2 wrong usage or invalid manifest · 3 not found · 4 conflict · 5 timed out or
unreachable · 130 interrupted
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Protocol, runtime_checkable

import typer
from rich.console import Console
from rich.markup import escape

from schemas.errors import (
    ConflictError,
    DeadlineExceededError,
    InvalidRequestError,
    NotFoundError,
    NotReadyError,
    RunnelError,
    UnreachableError,
)

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_NOT_FOUND = 3
EXIT_CONFLICT = 4
EXIT_UNREACHABLE = 5
EXIT_INTERRUPTED = 130

stderr = Console(stderr=True, soft_wrap=True, highlight=False)


def exit_code(error: BaseException) -> int:
    """The documented exit code of an error."""
    match error:
        case InvalidRequestError():
            return EXIT_USAGE
        case NotFoundError():
            return EXIT_NOT_FOUND
        case ConflictError():
            return EXIT_CONFLICT
        case UnreachableError() | DeadlineExceededError() | NotReadyError():
            return EXIT_UNREACHABLE
        case BaseExceptionGroup():
            return max(exit_code(inner) for inner in error.exceptions)
        case _:
            return EXIT_FAILED


def report(error: BaseException) -> int:
    """Print what went wrong, and give the exit code."""
    for line in _lines(error):
        stderr.print(f"[bold red]error:[/] {escape(line)}")
    return exit_code(error)


def _lines(error: BaseException) -> list[str]:
    if isinstance(error, BaseExceptionGroup):
        return list(dict.fromkeys(line for e in error.exceptions for line in _lines(e)))
    if isinstance(error, RunnelError):
        return [error.message]
    return [f"{type(error).__name__}: {error}"]


@runtime_checkable
class _UsageMistake(Protocol):
    """What typer raises for wrong usage, whichever click it brings along."""

    exit_code: int

    def show(self) -> None: ...


def run(app: Callable[..., object]) -> int:
    """Run the command line and give the exit code."""
    try:
        result = app(standalone_mode=False)
    except (typer.Abort, KeyboardInterrupt):
        stderr.print("interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of a pipe has seen enough: that is no failure.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except (RunnelError, OSError, BaseExceptionGroup) as error:
        return report(error)
    except Exception as error:
        if not isinstance(error, _UsageMistake):
            raise
        error.show()
        return error.exit_code
    return result if isinstance(result, int) else EXIT_OK
