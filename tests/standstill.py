"""What every thread and every asyncio task of this process waits for, for a test that hangs."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any


def who_waits() -> str:
    """One paragraph for each thread and for each task of each loop that runs: its name and the
    lines in which it is, outermost first."""
    frames = sys._current_frames()
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    found = [
        f"thread {names.get(ident, ident)}:\n{_lines([*_outward(frame)][::-1])}"
        for ident, frame in frames.items()
    ]
    loops = [one for one in gc.get_objects() if isinstance(one, asyncio.AbstractEventLoop)]
    for loop in loops:
        if loop.is_running():
            found += [f"task {task.get_name()}:\n{_of(task)}" for task in asyncio.all_tasks(loop)]
    return "\n".join(found)


def _of(task: asyncio.Task[Any]) -> str:
    frames: list[FrameType] = []
    waits: Any = task.get_coro()
    while waits is not None:
        frame = getattr(waits, "cr_frame", None) or getattr(waits, "ag_frame", None)
        if frame is not None:
            frames.append(frame)
        waits = getattr(waits, "cr_await", None) or getattr(waits, "ag_await", None)
    return _lines(frames)


def _outward(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _lines(frames: list[FrameType]) -> str:
    summary = traceback.StackSummary.extract((frame, frame.f_lineno) for frame in frames)
    return "\n".join(f"  {one.filename}:{one.lineno} {one.name}" for one in summary)
