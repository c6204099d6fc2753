"""What consumers count. Each answer is counted once for its consumer and once for its client.

The event loop counts, per answer of an SPU, never per record. Neighbours: `runnel.consume.reader`
and `runnel.consume.fetcher` count, `runnel.metrics` shows the counts to Prometheus.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from schemas.daemon.latency import Latencies, LatencyHistogram
from schemas.errors import RunnelError


@dataclass(frozen=True, slots=True)
class ConsumerMetrics:
    """Counts since the consumer was opened; bytes are as received, before decompression.

    Records count when they are fetched: up to two answers of each partition may not be handed out
    yet. ``answers`` are pushed frames and answers to fetches that had records. ``errors``: attempts
    to read that failed, by code of the error; most are repeated. ``fetch``: the time until records
    came that were known to exist; waits for new records are not in it. ``lag_records``: for each
    partition that is read, how many records at most were not handed out yet, as of the last answer.
    """

    records_consumed: int
    bytes_consumed: int
    answers: int
    errors: Mapping[str, int]
    fetch: Latencies
    lag_records: Mapping[int, int]


@dataclass(slots=True)
class FetchCounts:
    """The counts of a consumer, or of all consumers of a client for one topic. What is counted here
    is counted in ``total``, too."""

    total: FetchCounts | None = None
    records: int = 0
    bytes: int = 0
    answers: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    fetch: LatencyHistogram = field(default_factory=LatencyHistogram)

    def received(self, records: int, size: int) -> None:
        """An answer with so many records and bytes is about to be handed out."""
        self.records += records
        self.bytes += size
        self.answers += 1
        if self.total is not None:
            self.total.received(records, size)

    def took(self, seconds: float) -> None:
        """Records that were known to exist came after so long."""
        self.fetch.observe(seconds)
        if self.total is not None:
            self.total.took(seconds)

    def refused(self, error: RunnelError) -> None:
        """An attempt to read failed."""
        self.errors[error.code.name] = self.errors.get(error.code.name, 0) + 1
        if self.total is not None:
            self.total.refused(error)

    def metrics(self, lag_records: Mapping[int, int]) -> ConsumerMetrics:
        """The counts as of now. For any thread."""
        return ConsumerMetrics(
            records_consumed=self.records,
            bytes_consumed=self.bytes,
            answers=self.answers,
            errors=dict(self.errors),
            fetch=self.fetch.latencies(),
            lag_records=dict(lag_records),
        )
