"""Whether both ends of a TCP connection are on one host. Pure."""

from __future__ import annotations

from typing import Any, Protocol


class Ends(Protocol):
    """What is asked of a transport of asyncio."""

    def get_extra_info(self, name: str) -> Any: ...


def is_on_one_host(connection: Ends) -> bool:
    """Do both ends have the same IP address? A tunnel may pretend so: ask for more than that."""
    ours, theirs = connection.get_extra_info("sockname"), connection.get_extra_info("peername")
    return bool(ours) and bool(theirs) and ours[0] == theirs[0]
