"""What the command lines of the daemons share: ``-c FILE``, error messages, exit codes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TypeVar

from pydantic import Field

from schemas.daemon.config_file import load_config
from schemas.daemon.log_lines import write_last_words
from schemas.errors import InvalidRequestError, RunnelError
from schemas.model import Model

EXIT_FAILED = 1
EXIT_USAGE = 2

M = TypeVar("M", bound=Model)


class Listen(Model):
    """An address to listen on. Port 0 takes a free one."""

    host: str = "127.0.0.1"
    """Host name or IP address to listen on; `0.0.0.0` for every interface."""
    port: int = Field(ge=0, le=65535)
    """Port to listen on; 0 takes a free one."""


def daemon_main(what: str, command: str, config: type[M], run: Callable[[M], None]) -> int:
    """Read the configuration and run. ``what`` is for example ``the SC``.

    Gives the exit code: 0 after a clean stop, 1 when it fails, 2 for a bad configuration.
    """
    parser = argparse.ArgumentParser(prog=command, description=f"Run {what}.")
    parser.add_argument("-c", "--config", required=True, metavar="FILE", help="YAML configuration")
    arguments = parser.parse_args()
    try:
        run(load_config(arguments.config, config))
    except InvalidRequestError as error:
        write_last_words(sys.stderr, str(error))
        return EXIT_USAGE
    except (RunnelError, OSError) as error:
        write_last_words(sys.stderr, f"{what} cannot run: {error}")
        return EXIT_FAILED
    return 0
