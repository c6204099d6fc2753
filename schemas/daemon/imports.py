"""How a daemon imports its modules: quickly, and without what it never uses.

A library that finds an optional package imports it, whether the process needs it or not. Daemons
hide such packages from the libraries that they import:

- Rich from structlog, which draws tracebacks in terminals with it; daemons log JSON.
- OpenSSL from aiohttp, which reads the certificates of the system when it is imported; daemons
  serve and ask plain HTTP.

Neighbours: ``python -m sc`` and ``python -m spu`` import everything within `importing`;
`collector` tunes the garbage collector once their state is loaded.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from schemas.daemon.collector import held_for_imports


@contextmanager
def importing() -> Iterator[None]:
    """A block that imports the modules of a daemon."""
    with held_for_imports():
        # They offer TLS to everybody, so they must not meet the gap that aiohttp is to see.
        import asyncio  # noqa: F401
        import http.client  # noqa: F401

        import_without("ssl", "aiohttp")
        yield


def import_without(hidden: str, library: str) -> None:
    """Import a library that does without ``hidden`` where that is not installed, as if it were not.

    Does nothing if the library is imported already.
    """
    if library in sys.modules:
        return
    before = sys.modules.get(hidden)
    sys.modules[hidden] = None  # type: ignore[assignment]
    try:
        importlib.import_module(library)
    finally:
        if before is None:
            del sys.modules[hidden]
        else:
            sys.modules[hidden] = before
