"""The log lines that a block of a test writes, as the objects that they are printed from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from schemas.daemon import logs


@contextmanager
def captured_logs() -> Iterator[list[dict[str, Any]]]:
    """Lines of all levels, instead of where they would go."""
    lines: list[dict[str, Any]] = []
    with mock.patch.object(logs, "_output", logs._Output(0, lines.append)):
        yield lines
