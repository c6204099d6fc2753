"""Sends spans to a collector of OpenTelemetry over HTTP, as JSON.

Jaeger, Tempo and the OpenTelemetry Collector take them at port 4318. Neighbour:
`runnel.logs.spans` makes what is sent.
"""

from __future__ import annotations

import json
from typing import Any, Final

import aiohttp
from yarl import URL

from schemas.errors import InvalidRequestError, UnreachableError

_TIMEOUT_S: Final = 10.0
_PATH: Final = "/v1/traces"
_MOST_SHOWN: Final = 300


def otlp_url(text: str) -> URL:
    """Where to send: the address of a collector, to which the path is added, or a whole URL.

    Raises InvalidRequestError.
    """
    try:
        url = URL(text)
    except ValueError as error:
        raise InvalidRequestError(f"--otlp: {text!r} is no URL: {error}") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise InvalidRequestError(
            f"--otlp: {text!r} is no URL of a collector; write http://HOST:4318"
        )
    return url.with_path(_PATH) if url.path in ("", "/") else url


async def send_spans(url: URL, request: dict[str, Any]) -> None:
    """Export spans. Raises UnreachableError if no collector answers, InvalidRequestError if it does
    not take all of them."""
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S)) as session,
            session.post(url, json=request) as response,
        ):
            text = await response.text(errors="replace")
            status = response.status
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        why = str(error) or f"no answer within {_TIMEOUT_S:g} s"
        raise UnreachableError(f"no collector answers at {_shown(url)}: {why}") from error
    if status >= 500:
        raise UnreachableError(f"the collector at {_shown(url)} answers {status}: {_short(text)}")
    if status >= 300:
        raise InvalidRequestError(
            f"{_shown(url)} does not take spans of OTLP as JSON: it answers {status}:"
            f" {_short(text)}"
        )
    try:
        refused = json.loads(text or "{}").get("partialSuccess") or {}
        count = int(refused.get("rejectedSpans") or 0)
    except (ValueError, AttributeError, TypeError):
        raise InvalidRequestError(
            f"{_shown(url)} is no collector of OTLP: it answers {_short(text)}"
        ) from None
    if count:
        raise InvalidRequestError(
            f"the collector at {_shown(url)} refused {count} spans:"
            f" {_short(str(refused.get('errorMessage', '')))}"
        )


def _shown(url: URL) -> str:
    # A password in it is nobody's business.
    return str(url.with_user(None))


def _short(text: str) -> str:
    return " ".join(text.split())[:_MOST_SHOWN] or "nothing"
