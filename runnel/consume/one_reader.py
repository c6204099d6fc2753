"""One thread at a time reads from a blocking consumer.

What was handed out last, and so what counts as processed, is known of one user only. Two threads at
once would each get a part of the records, and commit what the other one has in hand.
"""

from __future__ import annotations

import threading
from types import TracebackType

from runnel.fork import OpenedIn
from schemas.errors import InvalidRequestError


class OneReader:
    """A context for each use of ``what``; a loop over records holds it while it goes through a
    chunk. The thread that is in it may enter again. Raises InvalidRequestError in another one.
    """

    __slots__ = ("_depth", "_opened_in", "_owner", "_what")

    def __init__(self, what: str) -> None:
        self._what = what
        self._opened_in = OpenedIn()
        # Taken in one step that names the thread: one that is interrupted there may enter again.
        # Nobody waits for it, and a loop may be ended by another thread, so it is no lock.
        self._owner: dict[None, int] = {}
        self._depth = 0

    def __enter__(self) -> None:
        me = threading.get_ident()
        if self._owner.setdefault(None, me) != me:
            self._opened_in.require()
            raise InvalidRequestError(
                f"another thread is using {self._what}: one thread at a time may read from it,"
                " seek, or commit; open one for each thread, or end the other thread's loop"
                " first: a loop that was begun and not ended uses it (close() may be called"
                " from any thread)"
            )
        self._depth += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner.pop(None, None)
