"""What a host lacks on which an SPU alone is installed (docs/howto/install.md).

Such a host has what an SPU imports, and not the packages of clients. An import of one of those says
so, because the name of a missing package alone would not tell what to do.
"""

from __future__ import annotations

from typing import Final

#: The packages that clients and the command import, and SPUs do not.
OF_CLIENTS: Final = frozenset({"mmh3", "numpy", "psutil", "pyarrow", "rich", "typer"})


def explained(error: ModuleNotFoundError) -> ModuleNotFoundError:
    """The error to raise instead: with what to do, if a package of clients is missing."""
    if error.name is None or error.name.partition(".")[0] not in OF_CLIENTS:
        return error
    return ModuleNotFoundError(
        f"{error.name} is not installed: this host has what an SPU needs, and not what clients and"
        " the command need. Start the SPU with python -m spu -c FILE; for the rest, install Runnel"
        " with its dependencies (pip install without --no-deps)",
        name=error.name,
    )
