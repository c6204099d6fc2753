"""The blocking facade of a shared state."""

from __future__ import annotations

from typing import Any

from runnel.loop_thread import LoopThread, blocking_form_of
from runnel.shared_state import shared_state
from runnel.shared_state.shared_state import TIMEOUT_S
from runnel.shared_state.state import Change


class SharedState:
    """A small value that many clients read and change; see `runnel.shared_state.shared_state`."""

    def __init__(self, thread: LoopThread, inner: shared_state.SharedState) -> None:
        self._thread = thread
        self._inner = inner

    def __repr__(self) -> str:
        return repr(self._inner)

    @property
    def name(self) -> str:
        """Its name."""
        return self._inner.name

    @blocking_form_of(shared_state.SharedState.read)
    def read(self, *, timeout: float = TIMEOUT_S) -> dict[str, Any]:
        """The value as it is now."""
        return self._thread.call(self._inner.read(timeout=timeout))

    @blocking_form_of(shared_state.SharedState.version)
    def version(self, *, timeout: float = TIMEOUT_S) -> int:
        """How many changes made the value what it is; 0 if nobody has written yet."""
        return self._thread.call(self._inner.version(timeout=timeout))

    @blocking_form_of(shared_state.SharedState.update)
    def update(self, change: Change, *, timeout: float = TIMEOUT_S) -> dict[str, Any]:
        """Change the value, and return it: ``state.update(lambda value: {"rate": 5})``. The
        client's thread calls ``change``."""
        return self._thread.call(self._inner.update(change, timeout=timeout))

    @blocking_form_of(shared_state.SharedState.delete)
    def delete(self, *, timeout: float = TIMEOUT_S) -> None:
        """Remove the value; nothing happens if there is none."""
        self._thread.call(self._inner.delete(timeout=timeout))
