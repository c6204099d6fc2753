"""Reads pages of daemons, such as ``/metrics``, as text and up to a bound."""

from __future__ import annotations

from typing import Final

import aiohttp
from yarl import URL

from runnel.net.address import Address
from schemas.errors import UnreachableError

MAX_PAGE_BYTES: Final = 8 << 20
TIMEOUT_S: Final = 10.0
_CONNECT_TIMEOUT_S: Final = 3.0
_PIECE_BYTES: Final = 1 << 16


async def read_page(session: aiohttp.ClientSession, address: Address, path: str) -> str:
    """The body of an answer, whatever its status. Raises UnreachableError."""
    patience = aiohttp.ClientTimeout(total=TIMEOUT_S, sock_connect=_CONNECT_TIMEOUT_S)
    try:
        async with session.get(
            URL(f"http://{address}{path}", encoded=True), timeout=patience, allow_redirects=False
        ) as response:
            body = bytearray()
            async for piece in response.content.iter_chunked(_PIECE_BYTES):
                body += piece
                if len(body) > MAX_PAGE_BYTES:
                    body += b"\n[the page goes on]\n"
                    break
            return body.decode(errors="replace")
    except (aiohttp.ClientError, OSError, ValueError) as error:
        why = "no answer in time" if isinstance(error, TimeoutError) else str(error)
        raise UnreachableError(f"http://{address}{path}: {why or type(error).__name__}") from error
