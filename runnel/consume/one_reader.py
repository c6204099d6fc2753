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

    __slots__ = ("_depth", "_lock", "_opened_in", "_thread", "_what")

    def __init__(self, what: str) -> None:
        self._what = what
        self._opened_in = OpenedIn()
        # Nobody waits for it. A loop may be ended by another thread, so it is not an RLock.
        self._lock = threading.Lock()
        self._thread: int | None = None
        self._depth = 0

    def __enter__(self) -> None:
        me = threading.get_ident()
        if self._thread != me:
            if not self._lock.acquire(blocking=False):
                self._opened_in.require()
                raise InvalidRequestError(
                    f"another thread is using {self._what}: one thread at a time may read from it,"
                    " seek, or commit; open one for each thread, or end the other thread's loop"
                    " first (close() may be called from any thread)"
                )
            self._thread = me
        self._depth += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._depth -= 1
        if not self._depth:
            self._thread = None
            self._lock.release()
