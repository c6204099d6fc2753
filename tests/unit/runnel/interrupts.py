"""Ctrl-C at every point of a call at which CPython lets a signal's handler raise.

CPython runs handlers only between two instructions, and only after some of them. The interrupter
counts these points while a call runs in this thread, and raises KeyboardInterrupt at one of them.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator
from itertools import count
from types import FrameType
from typing import Any, Final

#: After these the interpreter looks whether a signal has come (`CHECK_EVAL_BREAKER` in ceval.c).
_LOOKS_AFTER: Final = {"CALL", "CALL_KW", "CALL_FUNCTION_EX", "JUMP_BACKWARD", "RESUME"}
_MODULES: Final = ("runnel.", "threading", "concurrent.futures.")


def interrupted_everywhere(
    call: Callable[[], object], of: tuple[str, ...] = _MODULES
) -> Iterator[BaseException]:
    """Repeat ``call`` with an interrupt at its first point, at its second, and so on, and give what
    it raised each time, until it ends without. ``of``: how the modules begin whose points count."""
    for point in count(1):
        interrupter = _Interrupter(point, of)
        sys.settrace(interrupter)
        try:
            call()
        except BaseException as error:
            sys.settrace(None)
            yield error
        finally:
            sys.settrace(None)
        if not interrupter.raised:
            return


class _Interrupter:
    def __init__(self, point: int, modules: tuple[str, ...]) -> None:
        self.raised = False
        self._left = point
        self._modules = modules
        self._before: dict[FrameType, str] = {}

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> _Interrupter | None:
        if not frame.f_globals.get("__name__", "").startswith(self._modules):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode" and not self.raised:
            before = self._before.get(frame)
            self._before[frame] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            if before in _LOOKS_AFTER:
                self._left -= 1
                if not self._left:
                    self.raised = True
                    raise KeyboardInterrupt
        return self
