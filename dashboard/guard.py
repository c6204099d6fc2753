"""Which requests the dashboard answers: none that a foreign web page makes. Pure.

A page of another site can have a browser open a WebSocket here, and a page whose name resolves to
this machine can read answers. So the header ``Host`` must be a name of the dashboard, and
``Origin``, which browsers send with WebSockets and foreign requests, the address that the
dashboard was asked under.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from schemas.daemon.hosts import accepts
from schemas.errors import UnauthorizedError

#: With every answer. Nothing is loaded from, or shown in, another site.
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none';"
        " form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


def check_request(headers: Mapping[str, str], names: frozenset[str]) -> None:
    """Raise UnauthorizedError for a request that a foreign page may have made. ``names`` are host
    names of the dashboard in lower case."""
    host = headers.get("Host")
    if not accepts(host, names, ()):
        raise UnauthorizedError(
            f"Host: {host!r} is not a name of this dashboard; use its IP address, or add the name"
            " to allowedHosts in its configuration (--allow-host)"
        )
    origin = headers.get("Origin")
    if origin is not None and not _is_own(origin, host):
        raise UnauthorizedError(
            f"Origin: {origin!r} is not the dashboard; open the dashboard's own address"
        )
    site = headers.get("Sec-Fetch-Site", "").strip().lower()
    if site in ("cross-site", "same-site") and not _is_visit(headers):
        raise UnauthorizedError("a page of another site may not ask the dashboard")


def _is_own(origin: str, host: str | None) -> bool:
    scheme, _, netloc = origin.partition("://")
    return scheme in ("http", "https") and host is not None and _same(netloc, host)


def _same(netloc: str, host: str) -> bool:
    """Whether both are one host and port; a default port may be left out."""
    ends = (":80", ":443")

    def plain(text: str) -> str:
        text = text.strip().lower()
        return next((text.removesuffix(end) for end in ends if text.endswith(end)), text)

    return plain(netloc) == plain(host)


def _is_visit(headers: Mapping[str, str]) -> bool:
    """Whether a person follows a link to the dashboard from another page."""
    return headers.get("Sec-Fetch-Mode", "").strip().lower() == "navigate"
