"""``python -m sc.admin``: operations on a cluster's store while no SC uses it.

The CLI runs it, because it may not import the SC. It reads one JSON object from standard input, so
that the process list does not show passwords in URLs::

    {"verb": "census" | "erase" | "migrate", "cluster": NAME, "kv": URL, "to": URL,
     "most_offices": N}

and prints one JSON object a line: ``{"stage", "count", "total"}`` while it works, at the end
``{"done": …}`` or ``{"error": {code, message, details}}``. Exit codes: 0 done, 1 failed.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any, Literal

from sc.kv import open_kv
from sc.migration import Store, count_keys, erase, migrate
from schemas.daemon.kv_url import without_password
from schemas.daemon.log_options import LogLevel
from schemas.daemon.logs import configure_logs
from schemas.errors import InvalidRequestError, RunnelError
from schemas.model import Model
from schemas.objects.keys import ClusterKeys


class Request(Model):
    """What to do. ``to`` is for ``migrate`` only, ``most_offices`` for ``erase``."""

    verb: Literal["census", "erase", "migrate"]
    cluster: str
    kv: str
    to: str | None = None
    most_offices: int | None = None


def _say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


@asynccontextmanager
async def _opened(url: str) -> AsyncIterator[Store]:
    kv = await open_kv(url)
    try:
        yield Store(kv, without_password(url))
    finally:
        await kv.close()


async def _carry_out(request: Request) -> dict[str, Any]:
    keys = ClusterKeys(request.cluster)
    async with _opened(request.kv) as store:
        match request.verb:
            case "census":
                return asdict(await count_keys(store.kv, keys))
            case "erase":
                return {"keys": await erase(store.kv, keys, most_offices=request.most_offices)}
        if request.to is None:
            raise InvalidRequestError("migrate: `to` is missing")
        async with _opened(request.to) as target:
            return asdict(await migrate(store, target, keys, _progress))


def _progress(stage: str, count: int, total: int) -> None:
    _say({"stage": stage, "count": count, "total": total})


def main() -> int:
    """Carry out the request. Gives the exit code."""
    configure_logs("sc-admin", level=LogLevel.ERROR)
    try:
        request = Request.model_validate_json(sys.stdin.read())
        _say({"done": asyncio.run(_carry_out(request))})
    except RunnelError as error:
        _say({"error": error.to_json()})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
