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
#: None: a function begins.
_LOOKS_AFTER: Final = {None, "CALL", "CALL_KW", "CALL_FUNCTION_EX", "RESUME"}
#: After these, too; but what is raised then is caught where the jump stands, not where it leads to.
_JUMPS_BACK: Final = ("JUMP_BACKWARD", "POP_JUMP_BACKWARD")
_MODULES: Final = ("runnel.", "threading", "concurrent.futures.")


def interrupted_everywhere(
    call: Callable[[], object], of: tuple[str, ...] = _MODULES
) -> Iterator[BaseException]:
    """Repeat ``call`` with an interrupt at its first point, at its second, and so on, and give what
    it raised each time, until it ends without. ``of``: how the modules begin whose points count."""
    tracer = sys.gettrace()
    for point in count(1):
        interrupter = _Interrupter(point, of)
        raised: BaseException | None = None
        sys.settrace(interrupter)
        try:
            call()
        except BaseException as error:
            raised = error
        finally:
            sys.settrace(tracer)
            interrupter.forget()
        if raised is not None:
            # Its frames would keep alive what the call had in hand.
            yield raised.with_traceback(None)
        if not interrupter.raised:
            return


class _Interrupter:
    def __init__(self, point: int, modules: tuple[str, ...]) -> None:
        self.raised = False
        self._left = point
        self._modules = modules
        self._before: dict[FrameType, str] = {}

    def forget(self) -> None:
        """Let go of the frames."""
        self._before.clear()

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> _Interrupter | None:
        if not frame.f_globals.get("__name__", "").startswith(self._modules):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode" and not self.raised:
            before, now = self._before.get(frame), dis.opname[frame.f_code.co_code[frame.f_lasti]]
            self._before[frame] = now
            if before in _LOOKS_AFTER or now.startswith(_JUMPS_BACK):
                self._left -= 1
                if not self._left:
                    self.raised = True
                    raise KeyboardInterrupt
        return self
