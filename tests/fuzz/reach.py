"""Which lines of the code an input reaches, and by which ways: what makes it worth keeping."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

from tests.fuzz.law import Rejected, Target

#: A line and the one that ran before it in the same call, 0 where it is the first.
Way = tuple[CodeType, int, int]

_ROOT: Final = Path(__file__).parents[2]
_PACKAGES: Final = tuple(
    f"{_ROOT / name}/" for name in ("schemas", "connection_manager", "runnel", "spu", "sc")
)


def is_ours(code: CodeType) -> bool:
    """Is it code of the packages, not of the tests or of libraries?"""
    return code.co_filename.startswith(_PACKAGES)


def ways(target: Target, data: bytes, wanted: Callable[[CodeType], bool] = is_ours) -> set[Way]:
    """What an input reaches of the code that is ``wanted``, in this thread."""
    found: set[Way] = set()

    def calls(frame: FrameType, _event: str, _value: Any) -> Any:
        code = frame.f_code
        if not wanted(code):
            return None
        before = 0

        def lines(frame: FrameType, event: str, _value: Any) -> Any:
            nonlocal before
            if event == "line":
                found.add((code, before, frame.f_lineno))
                before = frame.f_lineno
            return lines

        return lines

    tracing = sys.gettrace()
    sys.settrace(calls)
    try:
        target(data)
    except Rejected:
        pass
    finally:
        sys.settrace(tracing)
    return found


def lines_of(code: CodeType) -> set[int]:
    """The lines of a function, but for its first one."""
    found = {line for _start, _end, line in code.co_lines() if line is not None}
    return found - {code.co_firstlineno}
