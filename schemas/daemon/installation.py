"""Where our modules are, and how one of our processes starts another.

In a clone a package has the name of its folder (`spu`); an installed wheel keeps every package but
the client's below one of the client's (``runnel._internal.spu``), so that none can collide with a
module of a user. The names are taken from the name that this very module has: no other module
writes such a name, and a test of the architecture holds them to it.

Neighbours: `process` looks for daemons by their command lines, `logs` names modules as in a clone.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import Enum
from itertools import pairwise
from typing import Final

#: ``runnel``, ``_internal`` in an installed wheel; nothing in a clone.
_ABOVE: Final = tuple(__name__.split(".")[:-3])


class Program(Enum):
    """What ``python -m`` runs, by its path from the folder that holds our packages."""

    SC = ("sc",)
    SC_ADMIN = ("sc", "admin")
    SPU = ("spu",)
    SPU_ADMIN = ("spu", "admin")
    DASHBOARD = ("dashboard",)


def program_command(program: Program, *arguments: str) -> list[str]:
    """The command that runs a program of this installation, with this interpreter.

    ``-P`` keeps the working directory out of the module path: what lies there is the user's.
    """
    name = ".".join((*_ABOVE, *program.value))
    return [sys.executable, "-P", "-m", name, *arguments]


def runs_program(command: Sequence[str], program: Program) -> bool:
    """Whether a command line runs a program, be it of a clone or of an installed wheel: daemons
    outlive the installation that started them."""
    name = ".".join(program.value)
    return any(
        option == "-m" and (module == name or module.endswith(f".{name}"))
        for option, module in pairwise(command)
    )


def name_in_clone(module: str) -> str:
    """The name of a module as a clone has it: one of ours reads the same in each installation."""
    above = "".join(f"{name}." for name in _ABOVE)
    return module.removeprefix(above)
