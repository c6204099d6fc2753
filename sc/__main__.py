"""``python -m sc -c sc.yaml``: run a streaming controller."""

from __future__ import annotations

import sys

from schemas.daemon.imports import importing

with importing():
    from sc.config import ScConfig
    from sc.main import run
    from schemas.daemon.daemon import daemon_main

if __name__ == "__main__":
    sys.exit(daemon_main("the SC", "runnel sc run", ScConfig, run))
