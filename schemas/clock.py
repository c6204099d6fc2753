"""The clock that leases go by: it goes on while the host is suspended, where the platform has one.

Others count a suspended host as dead, and take what its leases were for. A clock that stands still
meanwhile would let it go on when it wakes up.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final

LEASE_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

boottime_s: Final[Callable[[], float]] = partial(time.clock_gettime, LEASE_CLOCK)
"""Seconds since some moment. It cannot be compared with the clock of an event loop. Readers ask it
for each record, so it is no function in Python: a call of it costs what `time.monotonic` does."""
