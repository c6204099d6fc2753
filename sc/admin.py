"""``python -m sc.admin``: operations on a cluster's store beside its SCs, or while none uses it.

The CLI runs it, because it may not import the SC. It reads one JSON object from standard input, so
that the process list does not show passwords in URLs::

    {"verb": "census" | "erase" | "migrate" | "backUp" | "restore", "kv": URL, …}

and prints one JSON object a line: ``{"stage", "count", "total"}`` while it works, at the end
``{"done": …}`` or ``{"error": {code, message, details}}``. Exit codes: 0 done, 1 failed.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from sc.kv import KV, open_copy, open_kv
from sc.transfer.backup import back_up
from sc.transfer.contents import Store, count_keys, erase
from sc.transfer.migration import migrate
from sc.transfer.restore import Restored, restore
from schemas.daemon.kv_url import without_password
from schemas.daemon.log_options import LogLevel
from schemas.daemon.logs import configure_logs
from schemas.errors import InvalidRequestError, NotFoundError, RunnelError
from schemas.model import Model
from schemas.objects.keys import ClusterKeys


class Request(Model):
    """What to do. ``cluster`` is not for ``restore``, whose file says it; ``to`` is for ``migrate``
    only, ``most_offices`` for ``erase``, ``path`` for ``backUp`` and ``restore``, the rest for
    ``restore``."""

    verb: Literal["census", "erase", "migrate", "backUp", "restore"]
    kv: str
    cluster: str = ""
    to: str | None = None
    most_offices: int | None = None
    path: Path = Path()
    may_replace: bool = False
    by: str = ""
    dry_run: bool = False


def _say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


@asynccontextmanager
async def _opened(
    url: str, opening: Callable[[str], Awaitable[KV]] = open_kv
) -> AsyncIterator[Store]:
    kv = await opening(url)
    try:
        yield Store(kv, without_password(url))
    finally:
        await kv.close()


async def _carry_out(request: Request) -> dict[str, Any]:
    match request.verb:
        case "backUp":
            keys = ClusterKeys(request.cluster)
            async with _opened(request.kv, open_copy) as source:
                return asdict(await back_up(source, keys, request.path, _progress))
        case "restore":
            opening = _as_it_is if request.dry_run else open_kv
            async with _opened(request.kv, opening) as target:
                return asdict(await _restored(request, target))
        case _:
            async with _opened(request.kv) as store:
                return await _on_store(request, store)


async def _as_it_is(url: str) -> KV:
    """A store to look at while others use it; empty where there is none yet."""
    try:
        return await open_copy(url)
    except NotFoundError:
        return await open_kv("memory:")


async def _restored(request: Request, target: Store) -> Restored:
    return await restore(
        request.path,
        target,
        may_replace=request.may_replace,
        by=request.by,
        dry_run=request.dry_run,
        progress=_progress,
    )


async def _on_store(request: Request, store: Store) -> dict[str, Any]:
    keys = ClusterKeys(request.cluster)
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
