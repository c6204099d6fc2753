"""The configuration of a dashboard, from a YAML file or from options of the command.

The texts of the fields are the reference page ``docs/reference/dashboard-yaml.md``.
"""

from __future__ import annotations

from typing import Final

from pydantic import Field

from schemas.daemon.daemon import AnyCaseLogLevel, Listen
from schemas.daemon.log_options import LogFormat, LogLevel
from schemas.model import Model

DEFAULT_PORT: Final = 9009


class DashboardLimits(Model):
    """What the dashboard takes from browsers."""

    connections: int = Field(default=256, ge=1)
    """Most connections to `http`."""
    waiting_connections: int = Field(default=128, ge=1)
    """Most connections to `http` on which no request is being served. For one more, one of the
    address of which most wait is closed."""


class DashboardConfig(Model):
    """``runnel dashboard -c dashboard.yaml``."""

    sc: str = "localhost:9003"
    """Public address of the SC, `HOST:PORT`, or several with commas between them."""
    http: Listen = Listen(port=DEFAULT_PORT)
    """Where the dashboard listens to browsers. It asks nobody who they are: on an address that
    others reach, put a proxy in front of it that does."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names of the dashboard. A request whose header `Host` holds another name is refused, so
    that no web page reaches the dashboard by a name of its own (DNS rebinding). IP addresses,
    `localhost`, the host name of the machine and the name in `http.host` are always allowed; `"*"`
    allows all."""
    records: bool = True
    """Whether the dashboard shows records. `false`: it shows topics and their sizes only."""
    limits: DashboardLimits = DashboardLimits()
    """What the dashboard takes from browsers."""
    log_level: AnyCaseLogLevel = LogLevel.INFO
    """Least severe level that is logged. `--log-level` takes precedence."""
    log_format: LogFormat = LogFormat.AUTO
    """How log lines look: `text` for people, `json` for programs, or `auto`: text on a terminal,
    JSON elsewhere. `--log-format` takes precedence."""
