"""``python -m spu -c spu.yaml``: run a streaming processing unit."""

from __future__ import annotations

import argparse
import sys

from schemas.config_file import load_config
from schemas.errors import InvalidRequestError, RunnelError
from spu.config import SpuConfig
from spu.main import run

EXIT_FAILED = 1
EXIT_USAGE = 2


def main() -> int:
    """Exit code 0 after a clean stop, 1 when it fails, 2 for a bad configuration."""
    parser = argparse.ArgumentParser(prog="runnel spu run", description="Run an SPU.")
    parser.add_argument("-c", "--config", required=True, metavar="FILE", help="YAML configuration")
    arguments = parser.parse_args()
    try:
        run(load_config(arguments.config, SpuConfig))
    except InvalidRequestError as error:
        print(error, file=sys.stderr)
        return EXIT_USAGE
    except (RunnelError, OSError) as error:
        print(f"the SPU cannot run: {error}", file=sys.stderr)
        return EXIT_FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
