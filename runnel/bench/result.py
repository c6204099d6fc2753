"""The result of a measurement: its figures, their ratios to the floor, and what limits them. Pure.

1 MB is 10^6 bytes of payload: keys and values, before compression, counted once however many
replicas there are.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from runnel.bench.cpu import Usage
from runnel.bench.floor import Floor
from runnel.bench.latency import Latency
from runnel.bench.settings import Mode, Settings

#: From this share on, a resource counts as used up.
_THREAD_FULL: Final = 0.85
_MACHINE_FULL: Final = 0.9
_FLOOR_REACHED: Final = 0.7
#: The share of the machine that other work may use before it is named.
_OTHERS_SHARE: Final = 0.25
#: A rate counts as kept if it is missed by less than this.
_RATE_KEPT: Final = 0.98


@dataclass(frozen=True, slots=True)
class Result:
    """One measurement. ``records`` of ``settings.record_size`` bytes in ``seconds``."""

    settings: Settings
    records: int
    seconds: float
    latency: Latency | None
    usage: Usage
    floor: Floor
    floor_directory: Path

    @property
    def records_per_s(self) -> float:
        return self.records / self.seconds

    @property
    def mb_per_s(self) -> float:
        return self.records_per_s * self.settings.record_size / 1e6

    @property
    def cpu_s_per_million(self) -> float | None:
        """Processor seconds of client and daemons for a million records, if all are here."""
        total = self.usage.total_s
        return None if total is None else total / self.records * 1e6

    @property
    def of_write(self) -> float | None:
        """Share of the floor's write; None for a workload that does not write."""
        if self.settings.mode is Mode.CONSUME:
            return None
        return self.mb_per_s / self.floor.write_mb_per_s

    @property
    def of_loopback(self) -> float:
        return self.mb_per_s / self.floor.loopback_mb_per_s

    @property
    def in_fsyncs(self) -> float | None:
        """The median latency as a number of fsyncs; None where it is not that of a write alone."""
        if self.settings.mode is not Mode.E2E or self.latency is None:
            return None
        return self.latency.p50 / self.floor.fsync_ms

    def to_json(self) -> dict[str, Any]:
        """As ``runnel bench --json`` prints it."""
        cpu = self.cpu_s_per_million
        return {
            "mb_per_s": round(self.mb_per_s, 3),
            "records_per_s": round(self.records_per_s, 1),
            "latency_ms": {
                name: None if self.latency is None else round(getattr(self.latency, name), 3)
                for name in ("p50", "p99", "max")
            },
            "cpu_s_per_million": None if cpu is None else round(cpu, 3),
            "floor": {name: round(value, 3) for name, value in asdict(self.floor).items()},
            "of_floor": {
                "write_mb_per_s": _rounded(self.of_write),
                "loopback_mb_per_s": _rounded(self.of_loopback),
                "fsync_ms": _rounded(self.in_fsyncs),
            },
            "settings": {
                **self.settings.to_json(),
                "floor_directory": str(self.floor_directory),
            },
        }

    def limit(self) -> str:
        """What limits the speed, in one line, as far as that is known."""
        usage, rate = self.usage, self.settings.rate
        if rate is not None and self.records_per_s >= _RATE_KEPT * rate:
            return "the rate that was asked for, which was kept"
        missed = "" if rate is None else f"the rate of {rate:,}/s was not kept; "
        known = usage.total_s if usage.total_s is not None else usage.client_s
        ours = known / usage.wall_s / usage.cores
        if usage.machine >= _MACHINE_FULL and usage.machine - ours >= _OTHERS_SHARE:
            return (
                f"{missed}other work on this machine: its {usage.cores} cores are"
                f" {usage.machine:.0%} busy, {ours:.0%} for this"
            )
        threads = {"the client": usage.client_s, **(usage.daemons or {})}
        name, busiest_s = max(threads.items(), key=lambda item: item[1])
        if busiest_s / usage.wall_s >= _THREAD_FULL:
            return f"{missed}{name}, which is busy {busiest_s / usage.wall_s:.0%} of one core"
        if usage.machine >= _MACHINE_FULL:
            return f"{missed}the processors: {usage.cores} cores are {usage.machine:.0%} busy"
        if self.of_write is not None and self.of_write >= _FLOOR_REACHED:
            return f"{missed}the disk: a bare write is not much faster"
        if self.of_loopback >= _FLOOR_REACHED:
            return f"{missed}the network: a bare socket is not much faster"
        return (
            f"{missed}nothing that was measured here is used up; so the parts wait for each other"
        )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
