"""What the command lines of the daemons share: options, error messages, exit codes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field

from schemas.daemon.config_file import load_config
from schemas.daemon.log_lines import write_last_words
from schemas.daemon.log_options import LogFormat, LogLevel
from schemas.errors import InvalidRequestError, RunnelError
from schemas.model import Model

EXIT_FAILED = 1
EXIT_USAGE = 2

M = TypeVar("M", bound=Model)


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


#: A level in a configuration file, in upper or lower case.
AnyCaseLogLevel = Annotated[LogLevel, BeforeValidator(_lower)]


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
    parser.add_argument(
        "--log-level", choices=[*map(str, LogLevel)], help="instead of logLevel in FILE"
    )
    parser.add_argument(
        "--log-format", choices=[*map(str, LogFormat)], help="instead of logFormat in FILE"
    )
    arguments = parser.parse_args()
    chosen: dict[str, object] = {}
    if arguments.log_level is not None:
        chosen["log_level"] = LogLevel(arguments.log_level)
    if arguments.log_format is not None:
        chosen["log_format"] = LogFormat(arguments.log_format)
    try:
        run(load_config(arguments.config, config).model_copy(update=chosen))
    except InvalidRequestError as error:
        write_last_words(sys.stderr, str(error))
        return EXIT_USAGE
    except (RunnelError, OSError) as error:
        write_last_words(sys.stderr, f"{what} cannot run: {error}")
        return EXIT_FAILED
    return 0
