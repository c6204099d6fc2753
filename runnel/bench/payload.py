"""Records to send: random upper-case letters, as Kafka's own producer test sends them.

(https://github.com/apache/kafka, tools/…/ProducerPerformance.java.) They compress to about five
eighths at best, and no two are alike. A bounded pool is made once and sent over and over.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from runnel.records.tables import ROW_OVERHEAD_BYTES

_POOL_BYTES: Final = 64 << 20
_SEED: Final = 1


class Payload:
    """Values of ``record_size`` bytes; ``records`` is how many will be asked for, at least.

    ``piece_rows`` rows are a table that makes one batch of ``batch_bytes``.
    """

    def __init__(self, record_size: int, records: int, batch_bytes: int) -> None:
        self.piece_rows = max(1, batch_bytes // (record_size + ROW_OVERHEAD_BYTES))
        rows = min(records, max(self.piece_rows, _POOL_BYTES // record_size))
        letters = np.random.default_rng(_SEED).integers(
            ord("A"), ord("Z") + 1, rows * record_size, dtype=np.uint8
        )
        offsets = np.arange(0, rows * record_size + 1, record_size, dtype=np.int32)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(letters)]
        self._column = pa.Array.from_buffers(pa.binary(), rows, buffers)

    def tables(self) -> Iterator[pa.Table]:
        """Tables of at most one batch each, endlessly."""
        while True:
            for at in range(0, len(self._column), self.piece_rows):
                yield self.table(at, self.piece_rows)

    def table(self, at: int, rows: int) -> pa.Table:
        """At most ``rows`` rows from position ``at`` of the pool on."""
        return pa.table({"value": self._column.slice(at, rows)})

    def values(self) -> list[bytes]:
        """All of the pool, one by one."""
        found: list[bytes] = self._column.to_pylist()
        return found
