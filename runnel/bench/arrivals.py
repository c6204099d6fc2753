"""The records that the consumer of an end-to-end measurement received, and their latencies.

The timestamp of a record says when it was due. Times are those of the wall clock at
`Arrivals.begin`, continued by ``perf_counter``: setting the clock meanwhile changes nothing.
Records that were due before belong to the warm-up, and do not count.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from runnel.bench.latency import Samples
from runnel.waiters import Flag
from schemas.errors import DeadlineExceededError


@dataclass
class Arrivals:
    """Waits for ``records`` records. `read` runs in a thread of its own, the rest in another."""

    records: int
    begin_s: float = 0.0
    received: int = 0
    _begin_us: int = 1 << 62
    _latencies_us: list[Samples] = field(default_factory=list)
    _failure: Exception | None = None
    _any: Flag = field(default_factory=Flag)
    _all: Flag = field(default_factory=Flag)

    def begin(self) -> None:
        """From now on records count; earlier ones were the warm-up."""
        self.begin_s = perf_counter()
        self._begin_us = time.time_ns() // 1000

    def due_us(self, at_s: float) -> int:
        """The timestamp of a record that is due so many seconds after `begin`."""
        return self._begin_us + round(at_s * 1e6)

    def read(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Take batches until all records have come, or the client is closed."""
        try:
            for batch in batches:
                self._take(batch, perf_counter())
                if self.received >= self.records:
                    return
        except Exception as error:
            # Any error belongs to the thread that waits.
            self._failure = error
        finally:
            self._any.set()
            self._all.set()

    def wait_for_any(self, patience_s: float) -> None:
        """Wait for a first record. Raises the reader's error, DeadlineExceededError."""
        came = self._any.wait(patience_s)
        self.raise_failure()
        if not came:
            raise DeadlineExceededError(f"no record was read within {patience_s:g} s")

    def wait_for_all(self, patience_s: float) -> None:
        """Wait while records keep coming, until all have. Raises as `wait_for_any`."""
        before = -1
        while not self._all.wait(patience_s) and self.received > before:
            before = self.received
        self.raise_failure()
        if self.received < self.records:
            raise DeadlineExceededError(
                f"{self.received:,} of {self.records:,} records were read, and no more came"
            )

    def raise_failure(self) -> None:
        """Raise the reader's error, if there is one."""
        if self._failure is not None:
            raise self._failure

    def latencies_ms(self) -> Samples:
        """The latencies of all records, once they have come."""
        return np.concatenate(self._latencies_us)[: self.records] / 1e3

    def _take(self, batch: pa.RecordBatch, now_s: float) -> None:
        self._any.set()
        due_us = batch.column("timestamp").cast(pa.int64())
        due_us = due_us.filter(pc.greater_equal(due_us, self._begin_us)).to_numpy(
            zero_copy_only=False
        )
        if len(due_us):
            now_us = self._begin_us + (now_s - self.begin_s) * 1e6
            self._latencies_us.append(now_us - due_us)
            self.received += len(due_us)
