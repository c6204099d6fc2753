"""Errors as Spark's users see them: the message, without the calls that led to it.

Spark shows the traceback of an error in Python, of up to thirty lines, in front of its message. The
traceback of an error that Runnel raises on purpose says nothing to its reader, so it goes.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator
from functools import wraps
from typing import ParamSpec, TypeVar

from schemas.errors import RunnelError

P = ParamSpec("P")
T = TypeVar("T")


def refusing(method: Callable[P, T]) -> Callable[P, T]:
    """A method that Spark calls: errors of Runnel leave it without their traceback."""

    @wraps(method)
    def call(*arguments: P.args, **options: P.kwargs) -> T:
        end_quietly()
        try:
            return method(*arguments, **options)
        except RunnelError as error:
            raise brief(error) from None

    return call


def refusing_later(method: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """The same for a method that gives an iterator."""

    @wraps(method)
    def call(*arguments: P.args, **options: P.kwargs) -> Iterator[T]:
        end_quietly()
        try:
            yield from method(*arguments, **options)
        except RunnelError as error:
            raise brief(error) from None

    return call


def end_quietly() -> None:
    """Let this worker of Spark end without a word once Spark has hung up on it.

    Spark closes the socket of a worker whose rows it does not need any more (``show()``,
    ``take(5)``). The worker's last flush fails then, and the process of which it is a fork prints
    the traceback among the user's output, whatever the data source.
    """
    daemon = sys.modules["__main__"]
    spec = getattr(daemon, "__spec__", None)
    if spec is not None and spec.name == "pyspark.daemon":
        # Of this process alone: workers are forks of the daemon.
        daemon.traceback = _WithoutBrokenPipes  # type: ignore[attr-defined]


class _WithoutBrokenPipes:
    """Stands for the module `traceback` in a worker."""

    format_exc = staticmethod(traceback.format_exc)

    @staticmethod
    def print_exc() -> None:
        if not isinstance(sys.exception(), BrokenPipeError):
            traceback.print_exc()


def brief(error: RunnelError) -> RunnelError:
    """The error without traceback, cause and context."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)
