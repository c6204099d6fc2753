"""Every metric that clients have for Prometheus.

Names and labels are a promise to those who draw graphs and write alerts: add metrics, and do not
rename any. ``docs/reference/metrics.md`` is written from these tables. Neighbours:
`runnel.metrics.collector` and `runnel.metrics.lag` make samples of them.
"""

from __future__ import annotations

from typing import Final

from schemas.daemon.metrics import MetricDefinition

_TOPIC: Final = ("topic",)
_ERROR: Final = ("topic", "code")
PRODUCER_RECORDS: Final = MetricDefinition(
    "counter", "runnel_producer_records_total", "Records that were acknowledged.", _TOPIC
)
PRODUCER_BYTES: Final = MetricDefinition(
    "counter",
    "runnel_producer_bytes_total",
    "Bytes of the batches of those records, as sent: after compression.",
    _TOPIC,
)
PRODUCER_BATCHES: Final = MetricDefinition(
    "counter", "runnel_producer_batches_total", "Those batches.", _TOPIC
)
PRODUCER_FAILED_RECORDS: Final = MetricDefinition(
    "counter", "runnel_producer_failed_records_total", "Records that failed for good.", _TOPIC
)
PRODUCER_RETRIES: Final = MetricDefinition(
    "counter", "runnel_producer_retries_total", "Batches that were sent once more.", _TOPIC
)
PRODUCER_ERRORS: Final = MetricDefinition(
    "counter",
    "runnel_producer_errors_total",
    "Attempts to send a batch that failed, by code of the error.",
    _ERROR,
)
PRODUCER_BUFFERED_BYTES: Final = MetricDefinition(
    "gauge",
    "runnel_producer_buffered_bytes",
    "Bytes of records that were accepted and are not acknowledged yet.",
    _TOPIC,
)
PRODUCER_ACKNOWLEDGEMENT: Final = MetricDefinition(
    "histogram",
    "runnel_producer_acknowledgement_seconds",
    "Time from the first record of a batch to its acknowledgement.",
    _TOPIC,
)

PRODUCER_METRICS: Final = (
    *(PRODUCER_RECORDS, PRODUCER_BYTES, PRODUCER_BATCHES, PRODUCER_FAILED_RECORDS),
    *(PRODUCER_RETRIES, PRODUCER_ERRORS, PRODUCER_BUFFERED_BYTES, PRODUCER_ACKNOWLEDGEMENT),
)

CONSUMER_RECORDS: Final = MetricDefinition(
    "counter",
    "runnel_consumer_records_total",
    "Records that were fetched; up to two answers of each partition may not be handed out yet.",
    _TOPIC,
)
CONSUMER_BYTES: Final = MetricDefinition(
    "counter",
    "runnel_consumer_bytes_total",
    "Bytes of the batches of those records, as received.",
    _TOPIC,
)
CONSUMER_ANSWERS: Final = MetricDefinition(
    "counter",
    "runnel_consumer_answers_total",
    "Pushed frames, and answers to fetches, that were used.",
    _TOPIC,
)
CONSUMER_ERRORS: Final = MetricDefinition(
    "counter",
    "runnel_consumer_errors_total",
    "Attempts to read that failed, by code of the error.",
    _ERROR,
)
CONSUMER_FETCH: Final = MetricDefinition(
    "histogram",
    "runnel_consumer_fetch_seconds",
    "Time until records came that were known to exist, where the consumer had to wait for them.",
    _TOPIC,
)
CONSUMER_LAG: Final = MetricDefinition(
    "gauge",
    "runnel_consumer_lag_records",
    "How many records at most an open consumer has not handed out yet, as of the last answer.",
    ("topic", "partition"),
)

CONSUMER_METRICS: Final = (
    *(CONSUMER_RECORDS, CONSUMER_BYTES, CONSUMER_ANSWERS, CONSUMER_ERRORS),
    *(CONSUMER_FETCH, CONSUMER_LAG),
)

_NAMED: Final = ("consumer", "topic", "partition")
NAMED_CONSUMER_LAG: Final = MetricDefinition(
    "gauge",
    "runnel_named_consumer_lag_records",
    "By how many records the committed position is behind the end at most: offsets have gaps.",
    _NAMED,
)
NAMED_CONSUMER_COMMITTED: Final = MetricDefinition(
    "gauge",
    "runnel_named_consumer_committed_offset",
    "The committed position: the next offset to read.",
    _NAMED,
)
NAMED_CONSUMER_END: Final = MetricDefinition(
    "gauge",
    "runnel_named_consumer_end_offset",
    "Offset after the last committed record of the partition.",
    _NAMED,
)
NAMED_CONSUMER_COMMIT_AGE: Final = MetricDefinition(
    "gauge",
    "runnel_named_consumer_commit_age_seconds",
    "How long ago the position was committed.",
    _NAMED,
)
NAMED_CONSUMER_OPEN: Final = MetricDefinition(
    "gauge",
    "runnel_named_consumer_open",
    "1 if the consumer was opened and not closed since; its process may have ended all the same.",
    ("consumer", "topic"),
)

#: What a process shows that looks at the positions of all named consumers.
NAMED_CONSUMER_METRICS: Final = (
    *(NAMED_CONSUMER_LAG, NAMED_CONSUMER_COMMITTED, NAMED_CONSUMER_END),
    *(NAMED_CONSUMER_COMMIT_AGE, NAMED_CONSUMER_OPEN),
)
