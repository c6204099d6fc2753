"""The metrics of an SPU as a whole, read from its parts at each scrape.

A scrape runs on the event loop, so it looks at each replica only briefly. Neighbours:
`spu.metrics.definitions`; `spu.replica.counters` and `spu.server.counters` count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from schemas.control.messages import ReplicaRole
from spu.control import SpuControl
from spu.host.host import ReplicaHost
from spu.metrics import definitions as metric
from spu.server.counters import ListenerCounters


class SpuCollector(Collector):
    """Reads the counters of the public port, the replicas' state, and the session with the SC."""

    def __init__(self, host: ReplicaHost, served: ListenerCounters, control: SpuControl) -> None:
        self._host = host
        self._served = served
        self._control = control

    def collect(self) -> Iterator[Metric]:
        yield from self._public_port()
        yield from self._records()
        yield from self._replicas()
        yield from self._room()
        yield from self._scrubbing()
        yield metric.CONNECTED.of(self._control.connected)

    def _public_port(self) -> Iterator[Metric]:
        served = self._served
        yield metric.REQUESTS.by({(api,): count for api, count in served.requests.items()})
        yield metric.RECEIVED_BYTES.of(served.bytes_in)
        yield metric.SENT_BYTES.of(served.bytes_out)
        yield metric.ERRORS.by({(code,): count for code, count in served.errors.items()})
        yield metric.CONNECTIONS.of(served.connections)
        yield metric.ACCEPTED_CONNECTIONS.of(served.connections_total)
        yield metric.PRODUCE.latencies({(): served.produce})

    def _records(self) -> Iterator[Metric]:
        counters = self._host.counters
        yield metric.APPENDED_RECORDS.of(counters.appended_records)
        yield metric.APPENDED_BYTES.of(counters.appended_bytes)
        yield metric.REPLICATED_BYTES.of(counters.replicated_bytes)
        yield metric.APPEND.latencies({(): counters.append})
        yield metric.FSYNC.latencies({(): counters.fsync})
        yield metric.FETCH.latencies(
            {("cache",): counters.cached_read, ("disk",): counters.disk_read}
        )

    def _replicas(self) -> Iterator[Metric]:
        replicas, unreadable = self._host.replicas(), self._host.unreadable_replicas
        roles = Counter(replica.role for replica in replicas)
        roles[ReplicaRole.STOPPED] += unreadable
        yield metric.REPLICAS.by({(role.value,): roles[role] for role in ReplicaRole})
        unfit = sum(not replica.fit for replica in replicas)
        yield metric.UNFIT_REPLICAS.of(unfit + unreadable)
        yield metric.STALLED_REPLICAS.of(len(self._host.obstacles.stalled))
        yield metric.UNREACHABLE_PEERS.of(len(self._host.obstacles.unreachable))

    def _room(self) -> Iterator[Metric]:
        try:
            space = self._host.space.seen
        except OSError:
            # The disk does not say; the SPU's log says why. Missing series are true, zeros are not.
            return
        yield metric.LOG_BYTES.of(space.used)
        yield metric.AVAILABLE_BYTES.of(space.available)
        yield metric.DISK_FREE_BYTES.of(space.free)
        yield metric.DISK_BYTES.of(space.total)
        yield metric.REFUSES_RECORDS.of(self._host.space.refuses_because is not None)

    def _scrubbing(self) -> Iterator[Metric]:
        scrubber = self._host.scrubber
        yield metric.SCRUBBED_BYTES.of(scrubber.checked_bytes)
        yield metric.SCRUB_PASSES.of(scrubber.passes)
        yield metric.SCRUB_DAMAGED_REPLICAS.of(scrubber.damaged)
