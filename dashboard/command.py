"""The command line of the dashboard process: a configuration file, or options, or both."""

from __future__ import annotations

import argparse
import errno
import sys

from dashboard.config import DashboardConfig
from dashboard.main import run
from schemas.daemon.config_file import load_config
from schemas.daemon.daemon import EXIT_FAILED, EXIT_USAGE, Listen
from schemas.daemon.log_lines import write_last_words
from schemas.daemon.log_options import LogFormat, LogLevel
from schemas.errors import InvalidRequestError, RunnelError

_LOWEST_PORT, _HIGHEST_PORT = 0, 65_535


def main() -> int:
    """Run. Gives the exit code: 0 after a clean stop, 1 when it fails, 2 for bad options."""
    arguments = _parser().parse_args()
    try:
        run(_config(arguments))
    except InvalidRequestError as error:
        write_last_words(sys.stderr, str(error))
        return EXIT_USAGE
    except OSError as error:
        hint = ""
        if error.errno == errno.EADDRINUSE:
            hint = "; another dashboard may run there: open it, or choose another one with --port"
        write_last_words(sys.stderr, f"the dashboard cannot run: {error.strerror or error}{hint}")
        return EXIT_FAILED
    except RunnelError as error:
        write_last_words(sys.stderr, f"the dashboard cannot run: {error}")
        return EXIT_FAILED
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="runnel dashboard", description="Run a dashboard.")
    parser.add_argument("-c", "--config", metavar="FILE", help="YAML configuration")
    parser.add_argument("--sc", metavar="ADDRESS", help="instead of sc in FILE")
    parser.add_argument("--host", help="instead of http.host in FILE")
    parser.add_argument("--port", type=int, help="instead of http.port in FILE")
    parser.add_argument("--allow-host", action="append", default=[], metavar="NAME")
    parser.add_argument("--no-records", action="store_true", help="show no records")
    parser.add_argument("--log-level", choices=[*map(str, LogLevel)])
    parser.add_argument("--log-format", choices=[*map(str, LogFormat)])
    return parser


def _config(arguments: argparse.Namespace) -> DashboardConfig:
    config = DashboardConfig()
    if arguments.config is not None:
        config = load_config(arguments.config, DashboardConfig)
    port = config.http.port if arguments.port is None else arguments.port
    if not _LOWEST_PORT <= port <= _HIGHEST_PORT:
        raise InvalidRequestError(f"--port: {port} is not a port; 0 to {_HIGHEST_PORT} are")
    changes: dict[str, object] = {
        "http": Listen(host=arguments.host or config.http.host, port=port),
        "allowed_hosts": (*config.allowed_hosts, *arguments.allow_host),
    }
    if arguments.sc is not None:
        changes["sc"] = arguments.sc
    if arguments.no_records:
        changes["records"] = False
    if arguments.log_level is not None:
        changes["log_level"] = LogLevel(arguments.log_level)
    if arguments.log_format is not None:
        changes["log_format"] = LogFormat(arguments.log_format)
    return config.model_copy(update=changes)
