"""What all producers and consumers of one client counted, by topic. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from runnel.consume.consumer import Consumer
from runnel.consume.counts import ConsumerMetrics, FetchCounts
from runnel.produce.counts import ProducerMetrics, SendCounts
from runnel.produce.producer import Producer


@dataclass(frozen=True, slots=True)
class ClientMetrics:
    """Metrics by topic, since the client was connected: closed producers and consumers are counted,
    too. Where several consumers read a partition, its lag is the largest of theirs."""

    producers: Mapping[str, ProducerMetrics]
    consumers: Mapping[str, ConsumerMetrics]


def client_metrics(
    sent: Mapping[str, SendCounts],
    fetched: Mapping[str, FetchCounts],
    opened: Iterable[Producer | Consumer],
) -> ClientMetrics:
    """The metrics of counts by topic; what is only true now, buffers and lags, is that of producers
    and consumers which are open."""
    buffered: dict[str, int] = {}
    lags: dict[str, dict[int, int]] = {}
    for one in opened:
        if isinstance(one, Producer):
            buffered[one.topic] = buffered.get(one.topic, 0) + one.metrics.buffered_bytes
            continue
        known = lags.setdefault(one.topic, {})
        for partition, lag in one.metrics.lag_records.items():
            known[partition] = max(lag, known.get(partition, 0))
    return ClientMetrics(
        {topic: counts.metrics(buffered.get(topic, 0)) for topic, counts in dict(sent).items()},
        {topic: counts.metrics(lags.get(topic, {})) for topic, counts in dict(fetched).items()},
    )
