"""How many files, sockets included, a daemon may have open."""

from __future__ import annotations

import contextlib
import resource


def raise_limit() -> int:
    """Raise this process's limit of open files as far as allowed; returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # Some systems lie about the hard limit: the current limit must do then.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    return 1 << 20 if soft == resource.RLIM_INFINITY else soft
