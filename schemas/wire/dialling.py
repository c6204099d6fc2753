"""Connecting to another process of the cluster, in short attempts.

While a network is cut, TCP repeats its request to connect later and later, and one long attempt may
sleep for seconds after the cut is over. Short attempts with a backoff between them notice it soon.
Only the attempt itself is short: a name may take longer to be resolved.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final, TypeVar

RESOLVE_S: Final = 5.0
#: TCP asks at once and after a second. Two processes of a cluster are less than that apart.
CONNECT_S: Final = 1.5

ProtocolT = TypeVar("ProtocolT", bound=asyncio.BaseProtocol)


async def dial(
    protocol: Callable[[], ProtocolT], host: str, port: int, timeout_s: float = CONNECT_S
) -> ProtocolT:
    """Connect to the first address of a host that accepts within ``timeout_s``.

    Raises TimeoutError, another OSError, or ValueError and OverflowError for what is no host or no
    port.
    """
    loop = asyncio.get_running_loop()
    # Not by `create_connection`: it has one limit for both, and passes by what a loop overrides.
    async with asyncio.timeout(RESOLVE_S):
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    failure: OSError | None = None
    for family, _, _, _, address in found:
        try:
            async with asyncio.timeout(timeout_s):
                _, made = await loop.create_connection(
                    protocol, str(address[0]), port, family=family
                )
        except OSError as error:
            failure = failure or error
        else:
            return made
    raise failure or OSError(f"{host} has no address")
