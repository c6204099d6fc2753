"""An event loop in a thread of its own, for blocking callers.

It works even if a loop is already running (Jupyter). Ctrl-C in the calling thread cancels the call
and is raised at once; the thread is a daemon, so a process can end without it.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import socket
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, Generic, TypeVar

from runnel.fork import OpenedIn, tell_forks
from runnel.waiters import Waiters
from schemas.errors import InvalidRequestError

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])

_JOIN_S: Final = 5.0
#: How often a caller looks whether the loop was closed.
_LOOK_S: Final = 0.2
#: Of a parent, in its fork.
_inherited: Final[list[LoopThread]] = []


class ClosedError(InvalidRequestError):
    """A call of a client that was closed."""


def blocking_form_of(original: Callable[..., object]) -> Callable[[F], F]:
    """Give a blocking method the docstring of the method that it calls, so that `help` shows it.

    The method's own first paragraph stays first; the rest of its own text comes last.
    """

    def documented(method: F) -> F:
        # Python has no docstrings at all when it runs with -OO.
        if method.__doc__ and original.__doc__:
            first, *own = inspect.cleandoc(method.__doc__).split("\n\n")
            _, *rest = inspect.cleandoc(original.__doc__).split("\n\n")
            method.__doc__ = "\n\n".join([first, *rest, *own])
        return method

    return documented


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        uvloop = importlib.import_module("uvloop")
    except ImportError:
        # It does not exist for every platform; asyncio's own loop works as well, but slower.
        return asyncio.new_event_loop()

    class Loop(uvloop.Loop):  # type: ignore[misc, name-defined]
        async def getaddrinfo(self, *arguments: Any, **options: Any) -> Any:
            # libuv would start threads of its own for this. At the exit of a forked process it
            # waits for them, which are not there, and crashes.
            ask = partial(socket.getaddrinfo, *arguments, **options)
            try:
                answer = self.run_in_executor(None, ask)
            except RuntimeError:
                # The process is ending, and its executors with it: it will not fork any more.
                return await super().getaddrinfo(*arguments, **options)
            return await answer

    return Loop()


class _Call(Generic[T]):
    """A coroutine that a loop runs for another thread."""

    def __init__(self, work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> None:
        self._work = work
        self._loop = loop
        # Only the loop's thread lets go of it: asyncio then runs code of Python, in which the
        # interpreter would swallow a KeyboardInterrupt.
        self._task: asyncio.Task[T] | None = None
        self._started = False
        self._value: list[T] = []
        self._drop: Callable[[T], object] | None = None
        self._error: BaseException | None = None
        self._waiters = Waiters()

    def start(self) -> None:
        """In the loop."""
        self._started = True
        self._task = self._loop.create_task(self._work)
        self._task.add_done_callback(self._end)

    def cancel(self, drop: Callable[[T], object]) -> None:
        """In the loop. ``drop`` gets the result if there is one all the same."""
        self._drop = drop
        if self._task is not None:
            self._task.cancel()
        elif not self._started:
            self._work.close()
        elif self._value:
            drop(self._value.pop())

    def result(self) -> T:
        """Wait for it, not in the loop. Raises asyncio.CancelledError if it did not come to an end
        before the loop did.
        """
        while not self._waiters.wait(self._is_done, _LOOK_S):
            if self._loop.is_closed():
                break
        if not self._started:
            # It reached the loop while that was ending.
            self._work.close()
        if not self._is_done():
            raise asyncio.CancelledError
        if self._error is not None:
            try:
                raise self._error
            finally:
                # The error knows this frame.
                self._error = None
        return self._value[0]

    def _is_done(self) -> bool:
        return self._error is not None or bool(self._value)

    def _end(self, task: asyncio.Task[T]) -> None:
        self._task = None
        if task.cancelled():
            self._error = asyncio.CancelledError()
        elif (error := task.exception()) is not None:
            self._error = error
        elif self._drop is None:
            self._value.append(task.result())
        else:
            self._drop(task.result())
        self._waiters.tell_all()


class LoopThread:
    """Runs coroutines for other threads until `stop`."""

    def __init__(self, name: str) -> None:
        self._opened_in = OpenedIn()
        self._loop = _new_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        tell_forks(self)

    def forked(self) -> None:
        """Keep the loop for ever: its connections, if they were collected here, would end the
        polling of the parent's.
        """
        _inherited.append(self)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop; use only its thread-safe methods."""
        return self._loop

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in this thread."""
        return threading.current_thread() is self._thread

    @property
    def running(self) -> bool:
        """Can it be called? False once it is stopped, and in a fork of the process."""
        return self._opened_in.is_this and not self._loop.is_closed()

    def call(
        self, work: Coroutine[Any, Any, T], drop: Callable[[T], object] = lambda _result: None
    ) -> T:
        """Run a coroutine in the loop, wait, and return its result or raise its error. ``drop``, in
        the loop, gets the result that Ctrl-C keeps from the caller.

        Raises ClosedError once it is stopped, InvalidRequestError in a fork of the process.
        """
        if self.is_current:
            work.close()
            raise RuntimeError("a blocking call from a callback of the client would never end")
        if not self.running:
            work.close()
            self._opened_in.require()
            raise ClosedError("the client is closed; open another with runnel.connect()")
        call = _Call(work, self._loop)
        try:
            self.soon(call.start)
            return call.result()
        except (KeyboardInterrupt, SystemExit):
            self.soon(partial(call.cancel, drop))
            raise
        except asyncio.CancelledError:
            raise ClosedError("the client was closed by another thread") from None

    def end(self, work: Coroutine[Any, Any, object], at_once: Callable[[], object]) -> None:
        """`call` what ends something. If Ctrl-C ends the wait for it, ``at_once`` is called in the
        loop, and ends it without waiting."""
        try:
            self.call(work)
        except (KeyboardInterrupt, SystemExit):
            self.soon(at_once)
            raise

    def soon(self, callback: Callable[[], object]) -> None:
        """Call a function in the loop, without waiting; nothing happens after `stop`."""
        if self.running:
            try:
                self._loop.call_soon_threadsafe(callback)
            except RuntimeError:
                # The loop was closed between the check and the call.
                return

    def stop(self) -> None:
        """End the loop; tasks that still run in it are cancelled."""
        if not self.running:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_JOIN_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()
