"""Tells the SC once a second what the SPU counts, if anything changed."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from connection_manager.session import Session
from schemas.causality import caused_by, new_cause
from schemas.control.messages import LATENCIES_PROTOCOL, STATISTICS_PROTOCOL, understands
from schemas.control.statistics import SpuNumbers, Statistics
from schemas.daemon.latency import RecentLatencies
from schemas.errors import RunnelError
from spu.control import SpuControl
from spu.host.host import ReplicaHost
from spu.server.listener import Listener

INTERVAL_S: Final = 1.0
#: Within an interval so many messages follow each other, each of a few replicas: what is computed
#: and sent at once keeps records waiting.
_MESSAGES: Final = 10
AT_ONCE: Final = 100
#: Percentiles are those of so many intervals.
_RECENT: Final = 10
_PERCENTILE: Final = 0.99
#: Free space of a disk that others use changes all the time: a smaller part of it is no news.
_STEPS_OF_DISK: Final = 1 << 10


def spu_numbers(host: ReplicaHost, listener: Listener) -> SpuNumbers:
    """What an SPU has counted until now."""
    counters, space = listener.counters, host.space.seen
    step = max(1, space.total // _STEPS_OF_DISK)
    return SpuNumbers(
        received_bytes=counters.bytes_in,
        sent_bytes=counters.bytes_out,
        requests=sum(counters.requests.values()),
        errors=sum(counters.errors.values()),
        connections=counters.connections,
        log_bytes=space.used,
        free_bytes=space.free // step * step,
        disk_bytes=space.total,
    )


async def tell_statistics(host: ReplicaHost, listener: Listener, control: SpuControl) -> None:
    """Send statistics for as long as the SPU runs: the first of each session are complete, though
    they may take many seconds; later ones are what changed."""
    told_to: Session | None = None
    told: SpuNumbers | None = None
    appends = RecentLatencies(host.counters.append, _RECENT)
    fsyncs = RecentLatencies(host.counters.fsync, _RECENT)
    sent = 0
    while True:
        await asyncio.sleep(INTERVAL_S * (1 - sent / _MESSAGES))
        sent = 0
        latencies = {
            "append_p99_us": _microseconds(appends.read(_PERCENTILE)),
            "fsync_p99_us": _microseconds(fsyncs.read(_PERCENTILE)),
        }
        session = control.session_with(STATISTICS_PROTOCOL)
        if session is not told_to:
            host.numbers.forget()
            told_to, told = session, None
        if session is None:
            continue
        try:
            now = spu_numbers(host, listener)
        except OSError:
            # The disk does not even say its size; the host's ticks log that.
            continue
        if understands(session.protocol, LATENCIES_PROTOCOL):
            now = now.model_copy(update=latencies)
        while sent < _MESSAGES and ((changed := host.changed_numbers(AT_ONCE)) or now != told):
            sent, told = sent + 1, now
            with caused_by(new_cause("statistics")), contextlib.suppress(RunnelError):
                await session.notify(Statistics(spu=now, replicas=changed))
            await asyncio.sleep(INTERVAL_S / _MESSAGES)


def _microseconds(latency_s: float | None) -> int | None:
    return None if latency_s is None else round(latency_s * 1e6)
