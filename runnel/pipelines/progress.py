"""What the batches of a run add up to. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from schemas.objects.pipeline import PipelineProgress

RATE_S: Final = 10.0
"""Over so many seconds a rate is taken."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch that ended. ``lag``: the records between where it ended and the ends of the logs
    then. ``rows_out`` and ``lag`` are None where Spark does not tell them."""

    number: int
    rows_in: int
    rows_out: int | None
    lag: int | None
    seconds: float


class Progress:
    """Adds up the batches of one run. Time is in seconds that grow."""

    def __init__(self, now_s: float) -> None:
        self._recent: deque[tuple[float, int]] = deque()
        self._began_s = now_s
        self.last: Batch | None = None
        self.total_in = 0
        self.total_out: int | None = None

    def take(self, batch: Batch, now_s: float) -> None:
        """A batch has ended."""
        self.last = batch
        self.total_in += batch.rows_in
        if batch.rows_out is not None:
            self.total_out = (self.total_out or 0) + batch.rows_out
        self._recent.append((now_s, batch.rows_in))

    def rate(self, now_s: float) -> float:
        """Rows read a second, over the last `RATE_S`, or since the run began."""
        while self._recent and self._recent[0][0] <= now_s - RATE_S:
            self._recent.popleft()
        seconds = min(RATE_S, max(1.0, now_s - self._began_s))
        return sum(rows for _, rows in self._recent) / seconds

    def numbers(self, now_s: float, restarts: int, last_error: str | None) -> PipelineProgress:
        """As the SC is told."""
        last = self.last
        return PipelineProgress(
            last_batch=None if last is None else last.number,
            rows_in=None if last is None else last.rows_in,
            rows_out=None if last is None else last.rows_out,
            total_rows_in=self.total_in,
            total_rows_out=self.total_out,
            rows_per_second=None if last is None else round(self.rate(now_s), 1),
            lag=None if last is None else last.lag,
            last_error=last_error,
            restarts=restarts,
        )
