"""Results to look at, without measuring anything."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from runnel.bench.cpu import Usage
from runnel.bench.floor import Floor
from runnel.bench.latency import Latency
from runnel.bench.result import Result
from runnel.bench.settings import Mode, Settings

FLOOR = Floor(write_mb_per_s=400.0, loopback_mb_per_s=1000.0, fsync_ms=2.0)
#: Half a machine of two cores is idle.
USAGE = Usage(wall_s=10.0, client_s=4.0, daemons={"sc-0": 0.5, "spu-0": 3.5}, machine=0.5, cores=2)


def result(mode: Mode = Mode.PRODUCE, **changes: Any) -> Result:
    """A million records of 1 kB in 10 s, with these of `Result`'s fields, or of its usage."""
    usage = {k: changes.pop(k) for k in ("client_s", "daemons", "machine") if k in changes}
    rate = changes.pop("rate", 100_000 if mode is Mode.E2E else None)
    made = Result(
        settings=Settings(mode=mode, records=1_000_000, record_size=1000, rate=rate),
        records=1_000_000,
        seconds=10.0,
        latency=Latency(p50=8.0, p99=30.0, max=41.5),
        usage=replace(USAGE, **usage),
        floor=FLOOR,
        floor_directory=Path("/data"),
    )
    return replace(made, **changes)
