"""What producers count. Each batch is counted once for its producer and once for its client.

The event loop counts, per batch and per attempt, never per record. Neighbours:
`runnel.produce.sender` counts, `runnel.metrics` shows the counts to Prometheus.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from schemas.daemon.latency import Latencies, LatencyHistogram
from schemas.errors import RunnelError


@dataclass(frozen=True, slots=True)
class ProducerMetrics:
    """Counts since the producer was opened; bytes are as sent, after compression.

    ``errors``: attempts to send a batch that failed, by code of the error; most are repeated.
    ``acknowledgement``: for each batch that was delivered, the time from its first record to the
    acknowledgement.
    """

    records_sent: int
    bytes_sent: int
    batches_sent: int
    records_failed: int
    retries: int
    buffered_bytes: int
    errors: Mapping[str, int]
    acknowledgement: Latencies

    @property
    def mean_batch_bytes(self) -> float:
        """Bytes of a batch on average; 0 before the first one."""
        return self.bytes_sent / self.batches_sent if self.batches_sent else 0.0


@dataclass(slots=True)
class SendCounts:
    """The counts of a producer, or of all producers of a client for one topic. What is counted here
    is counted in ``total``, too."""

    total: SendCounts | None = None
    records: int = 0
    bytes: int = 0
    batches: int = 0
    retries: int = 0
    failed_records: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    acknowledgement: LatencyHistogram = field(default_factory=LatencyHistogram)

    def delivered(self, records: int, size: int, after_s: float) -> None:
        """A batch of so many records and bytes was acknowledged."""
        self.records += records
        self.bytes += size
        self.batches += 1
        self.acknowledgement.observe(after_s)
        if self.total is not None:
            self.total.delivered(records, size, after_s)

    def failed(self, records: int) -> None:
        """A batch failed for good."""
        self.failed_records += records
        if self.total is not None:
            self.total.failed(records)

    def refused(self, error: RunnelError) -> None:
        """An attempt to send a batch failed."""
        self.errors[error.code.name] = self.errors.get(error.code.name, 0) + 1
        if self.total is not None:
            self.total.refused(error)

    def repeated(self) -> None:
        """A batch is sent once more."""
        self.retries += 1
        if self.total is not None:
            self.total.repeated()

    def metrics(self, buffered_bytes: int) -> ProducerMetrics:
        """The counts as of now. For any thread."""
        return ProducerMetrics(
            records_sent=self.records,
            bytes_sent=self.bytes,
            batches_sent=self.batches,
            records_failed=self.failed_records,
            retries=self.retries,
            buffered_bytes=buffered_bytes,
            errors=dict(self.errors),
            acknowledgement=self.acknowledgement.latencies(),
        )
