"""``python -m spu -c spu.yaml``: run a streaming processing unit."""

from __future__ import annotations

import sys

from schemas.daemon.imports import importing

with importing():
    from schemas.daemon.daemon import daemon_main
    from spu.config import SpuConfig
    from spu.main import run

if __name__ == "__main__":
    sys.exit(daemon_main("the SPU", "runnel spu run", SpuConfig, run))
