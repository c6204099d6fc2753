"""Which header ``Host`` an HTTP port accepts: the guard against DNS rebinding. Pure.

A web page can have its own host name resolve to a daemon's address, and then its scripts may read
and write like a user who sits at that browser. The browser sends that name as ``Host``. So a port
answers only to names that an attacker does not own: IP addresses, ``localhost``, the name of this
machine, names in the configuration, and names that SPUs advertise.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Final

#: In a configuration: every name is accepted.
ANY: Final = "*"


def host_name(header: str) -> str:
    """The host in a header ``Host``, in lower case, without port and brackets."""
    name = header.strip().lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    if name.count(":") > 1:
        return name
    name, _, port = name.partition(":")
    if port and not (port.isascii() and port.isdigit()):
        # No browser sends this; it is nobody's name.
        return ""
    return name.removesuffix(".")


def accepts(header: str | None, names: frozenset[str], advertised: Iterable[str]) -> bool:
    """Whether to answer a request with this ``Host``; a request without one is not a browser's.

    ``names`` are in lower case; ``advertised`` is looked at only if nothing else matches.
    """
    if header is None or ANY in names:
        return True
    name = host_name(header)
    if name == "localhost" or name in names:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return any(name == one.lower() for one in advertised)
    return True
