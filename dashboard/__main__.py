"""``python -m dashboard``: run a status dashboard."""

from __future__ import annotations

import sys

from schemas.daemon.imports import importing

with importing():
    from dashboard.command import main

if __name__ == "__main__":
    sys.exit(main())
