"""Addresses of SCs as users write them: ``host:port``, several separated by commas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from schemas.errors import InvalidRequestError

DEFAULT_SC_PORT: Final = 9003


@dataclass(frozen=True, slots=True)
class Address:
    """One host and port; ``str`` gives back ``host:port`` (IPv6 hosts in brackets)."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_address(text: str) -> Address:
    """``host:port``; without a port, 9003. Raises InvalidRequestError that says what is wrong."""
    wanted = f"give HOST:PORT, for example localhost:{DEFAULT_SC_PORT}"
    stripped = text.strip()
    if "://" in stripped or "/" in stripped:
        raise InvalidRequestError(f"address {text!r} is a URL; {wanted}")
    if stripped.startswith("["):
        host, bracket, rest = stripped[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise InvalidRequestError(f"address {text!r} has no closing bracket; {wanted}")
        port = rest[1:]
    elif stripped.count(":") > 1:
        raise InvalidRequestError(f"address {text!r}: put an IPv6 host in brackets, [::1]:9003")
    else:
        host, _, port = stripped.partition(":")
    if not host or stripped.endswith(":"):
        missing = "host" if not host else "port"
        raise InvalidRequestError(f"address {text!r} has no {missing}; {wanted}")
    if not port:
        return Address(host, DEFAULT_SC_PORT)
    if not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65535):
        raise InvalidRequestError(f"address {text!r}: {port!r} is not a port (1 to 65535)")
    return Address(host, int(port))


def parse_addresses(text: str) -> tuple[Address, ...]:
    """One or more addresses of the SCs of one cluster, separated by commas."""
    return tuple(parse_address(part) for part in text.split(","))
