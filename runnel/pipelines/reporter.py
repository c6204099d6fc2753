"""Tells the SC what a run does, in a thread: that keeps the run's lease, whatever the query does.

At most one report a second, and one at least every `IDLE_S`. While the SC does not answer, the
query goes on, and so does the thread; what it tells then is only the present. An answer that
another run holds the pipeline, or that it was deleted, ends the thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from schemas.errors import ConflictError, InvalidRequestError, NotFoundError, RunnelError
from schemas.objects.pipeline import Pipeline, PipelineReport

BUSY_S: Final = 1.0
IDLE_S: Final = 2.0
#: How long the last report is tried.
_LAST_S: Final = 10.0
_AGAIN_S: Final = 0.5

Send = Callable[[PipelineReport], Pipeline]
"""Sends a report and gives the pipeline as the SC has it. Raises RunnelError."""


def due_s(sent_s: float, *, changed: bool) -> float:
    """When the report after one that was sent at ``sent_s`` is due. Pure."""
    return sent_s + (BUSY_S if changed else IDLE_S)


class Reporter:
    """Reports of one run. ``trouble`` is called in the thread, with the reason why the SC cannot be
    told, once for each, and with None when it can again."""

    def __init__(
        self, send: Send, first: PipelineReport, trouble: Callable[[RunnelError | None], None]
    ) -> None:
        self._send = send
        self._report = first
        self._trouble = trouble
        self._changed = threading.Condition()
        self._is_changed = False
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="pipeline reports", daemon=True)
        #: The pipeline as the SC has it now.
        self.pipeline: Pipeline | None = None
        #: Why the run may not go on.
        self.lost: RunnelError | None = None

    def begin(self) -> Pipeline:
        """Ask for the lease, and keep it from then on. Raises what the SC refuses with."""
        pipeline = self.pipeline = self._send(self._report)
        # It was asked for once; a report that is repeated must not take it from others.
        self._report = self._report.model_copy(update={"take_over": False})
        self._thread.start()
        return pipeline

    def tell(self, report: PipelineReport) -> None:
        """Say this from now on."""
        with self._changed:
            if report != self._report:
                self._report, self._is_changed = report, True
                self._changed.notify()

    def end(self, last: PipelineReport) -> RunnelError | None:
        """Say the last thing, and end; gives why the SC could not be told."""
        with self._changed:
            self._ended = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join()
        if self.lost is not None:
            return None
        until_s = time.monotonic() + _LAST_S
        while True:
            try:
                self._send(last)
            except (ConflictError, NotFoundError, InvalidRequestError) as error:
                return error
            except RunnelError as error:
                if time.monotonic() >= until_s:
                    return error
                time.sleep(_AGAIN_S)
            else:
                return None

    def _run(self) -> None:
        sent_s = time.monotonic()
        silent = False
        while True:
            with self._changed:
                while not self._ended:
                    left_s = due_s(sent_s, changed=self._is_changed) - time.monotonic()
                    if left_s <= 0:
                        break
                    self._changed.wait(left_s)
                if self._ended:
                    return
                report, self._is_changed = self._report, False
            try:
                self.pipeline = self._send(report)
            except (ConflictError, NotFoundError) as error:
                self.lost = error
                return
            except RunnelError as error:
                if not silent:
                    silent = True
                    self._trouble(error)
            else:
                if silent:
                    silent = False
                    self._trouble(None)
            sent_s = time.monotonic()
