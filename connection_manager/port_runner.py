"""Runs what serves an HTTP port that strangers can reach, and keeps them from filling the log.

aiohttp logs a traceback for each request that is no HTTP. Here that is one short line, and only as
often as `connection_manager.turned_away` allows.

Neighbour: `connection_manager.guarded_site` bounds the connections.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from connection_manager.turned_away import TurnedAway
from schemas.daemon.logs import get_logger

log = get_logger(__name__)


def port_runner(app: web.Application) -> web.AppRunner:
    """What serves an application, without a log of its requests."""
    return web.AppRunner(app, access_log=None, shutdown_timeout=1.0, logger=PortLogger())


class PortLogger(logging.LoggerAdapter[logging.Logger]):
    """The logger of aiohttp for one port."""

    def __init__(self) -> None:
        super().__init__(logging.getLogger("aiohttp.server"))
        self._malformed = TurnedAway()

    def exception(self, msg: object, *args: object, exc_info: Any = True, **more: Any) -> None:
        """As of `logging.Logger`. aiohttp gives the address of the other end in ``args``, except
        for the rest of a body that nobody reads."""
        if not isinstance(exc_info, HttpProcessingError | web.RequestPayloadError):
            super().exception(msg, *args, exc_info=exc_info, **more)
            return
        remote = str(args[0]) if args else ""
        # Its message repeats what the stranger sent.
        reason = type(exc_info).__name__
        times = self._malformed.due(remote, reason, time.monotonic())
        if times is not None:
            log.warning("a request is no HTTP", reason=reason, remote=remote, times=times)
