"""Answers of routes: what gives one, and how results and errors become responses of HTTP."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web

from sc.api.older_clients import is_older, known_to
from sc.api.requests import Query
from sc.api.routes import Route
from schemas.errors import ErrorCode, RunnelError
from schemas.objects.kinds import BY_PLURAL
from schemas.objects.metadata import Object

Answer = Callable[[web.Request, Route, Query], Awaitable[web.StreamResponse]]
"""Answers a request to a route, with the query that was read from it."""

JSON: Final = "application/json"

_STATUS: Final = {
    ErrorCode.NOT_FOUND: 404,
    ErrorCode.CONFLICT: 409,
    ErrorCode.FENCED: 409,
    ErrorCode.COMPACTED: 410,
    ErrorCode.UNAUTHORIZED: 403,
    ErrorCode.UNSUPPORTED: 422,
    ErrorCode.DEADLINE_EXCEEDED: 504,
    ErrorCode.NOT_READY: 503,
    ErrorCode.UNREACHABLE: 503,
    ErrorCode.OVERLOADED: 503,
    ErrorCode.INVALID_REQUEST: 400,
    ErrorCode.INVALID_MANIFEST: 400,
    ErrorCode.PROTOCOL: 400,
}


def as_json(data: Any, status: int = 200) -> web.Response:
    """A response whose body is ``data`` as JSON."""
    return web.json_response(data, status=status)


def as_text(body: str, status: int = 200) -> web.Response:
    """A response whose body is JSON already."""
    return web.Response(text=body, content_type=JSON, status=status)


def shown(request: web.Request, obj: Object, status: int = 200) -> web.Response:
    """An object, as the client can read it."""
    text = json.dumps(obj.to_json())
    return as_text(known_to(text, older=is_older(request.headers)), status)


def as_error(error: RunnelError, status: int | None = None) -> web.Response:
    """An error, with the status of its code unless another is given."""
    return as_json(error.to_json(), status or _STATUS.get(error.code, 500))


def http_error(request: web.Request, error: web.HTTPException) -> web.Response:
    """An error of aiohttp, in the form of all other errors."""
    code = "NOT_FOUND" if error.status == 404 else "INVALID_REQUEST"
    # As the client sent it: decoded, it may hold control characters that a terminal obeys.
    path = request.rel_url.raw_path
    message = f"{request.method} {path}: {error.reason}"
    kind = path.removeprefix("/v1/").partition("/")[0]
    if error.status == 404 and path.startswith("/v1/") and kind not in BY_PLURAL:
        message = f"there is no {path}; known kinds: {', '.join(BY_PLURAL)}"
    response = as_json({"code": code, "message": message, "details": {}}, error.status)
    if "Allow" in error.headers:
        response.headers["Allow"] = error.headers["Allow"]
    return response
