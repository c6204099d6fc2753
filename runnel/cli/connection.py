"""Opens the connection to the right SC that every command needs."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

import runnel
from runnel.cli.failure import warn

if TYPE_CHECKING:
    from runnel.admin.blocking import BlockingAdmin
    from runnel.admin.calls import OnWarning


def who() -> str:
    """The user of the command, as the history of objects names them: ``user@host``."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        # A container may run as a user that has no name.
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


@contextmanager
def connected(sc: str | None) -> Iterator[runnel.Cluster]:
    """An open cluster for the length of a command: its objects and its records."""
    with runnel.connect(sc, by=who()) as cluster:
        yield cluster


def administered(
    sc: str | None, on_warning: OnWarning | None = None
) -> AbstractContextManager[BlockingAdmin]:
    """The objects of a cluster alone, without loading what only records need.

    What the SC warns of is printed, or goes to ``on_warning``.
    """
    from runnel.admin.blocking import administer

    return administer(sc, who(), on_warning or warn)
