"""Keeps a `ClusterState` up to date over one stream of the SC, through broken connections."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from random import SystemRandom
from typing import Any, Final

from runnel.admin.calls import understood
from runnel.admin.http import ScClient
from runnel.admin.sse import ServerEvent
from runnel.status.state import KINDS, STATISTICS, ClusterState
from schemas.backoff import backoff_s
from schemas.errors import (
    CompactedError,
    InvalidRequestError,
    RetryableError,
    RunnelError,
    UnreachableError,
)
from schemas.objects.stream import Stream

_BASE_MS: Final = 50.0
_CAP_MS: Final = 2_000.0
_PATH: Final = "/v1/watch"
_CATCHING_UP: Final = "catchingUp"


async def follow(
    sc: ScClient,
    state: ClusterState,
    changed: Callable[[], None],
    lost: Callable[[RunnelError | None], None],
) -> None:
    """Keep ``state`` up to date for ever: all objects and statistics, but numbers of partitions
    only where a replica is not live (`follow_partitions` has the others). ``changed`` is called
    when there is something new to show, ``lost`` with the reason when the connection breaks, and
    with None when it is back.

    Raises the error of an SC that refuses the stream, as one of an earlier version does, and
    UnreachableError if none answers at the beginning.
    """
    random = SystemRandom().random
    failures = 0
    broken = False
    kinds = [cls.PLURAL for cls in KINDS]
    query = {"kinds": ",".join((*kinds, STATISTICS)), _CATCHING_UP: "true"}
    while True:
        try:
            async with aclosing(_connection(sc, state, query)) as news:
                async for is_new in news:
                    failures = 0
                    if broken:
                        broken = False
                        lost(None)
                    if is_new:
                        changed()
            raise UnreachableError("the SC ended the stream")
        except CompactedError:
            state.forget_revision()
        except InvalidRequestError:
            # An SC of an earlier version knows no streams, or sends the numbers of all partitions.
            if Stream.PLURAL in kinds:
                kinds.remove(Stream.PLURAL)
                query["kinds"] = ",".join((*kinds, STATISTICS))
            elif query.pop(_CATCHING_UP, None) is None:
                raise
            continue
        except RetryableError as error:
            if state.revision is None:
                raise
            broken = True
            lost(error)
        await asyncio.sleep(backoff_s(failures, _BASE_MS, _CAP_MS, random()))
        failures += 1


async def follow_partitions(
    sc: ScClient, state: ClusterState, topics: Sequence[str], changed: Callable[[], None]
) -> None:
    """Keep the numbers of the partitions of these topics up to date, of no topics those of all,
    until the connection ends. ``changed`` is called when there is something new to show. Raises
    RunnelError."""
    query = {"kinds": STATISTICS, "topic": topics}
    async with aclosing(_events(sc, state, query)) as news:
        async for is_new in news:
            if is_new:
                changed()


def _connection(
    sc: ScClient, state: ClusterState, query: Mapping[str, str]
) -> AsyncGenerator[bool, None]:
    """Whether each event has something new to show, until the connection ends."""
    revision = state.begin()
    after = {} if revision is None else {"resourceVersion": str(revision)}
    return _events(sc, state, {**query, **after})


async def _events(
    sc: ScClient, state: ClusterState, query: Mapping[str, str | Sequence[str]]
) -> AsyncGenerator[bool, None]:
    async with aclosing(sc.stream(_PATH, query)) as events:
        async for event in events:
            data = _data(event)
            with understood("an event"):
                if event.name == "compacted":
                    raise CompactedError(
                        "the SC has forgotten changes that were not read",
                        first_available=int(data.get("firstAvailable", 0)),
                    )
                revision = int(event.id) if event.id else None
            yield state.take(event.name, data, revision)


def _data(event: ServerEvent) -> Any:
    try:
        return json.loads(event.data)
    except ValueError as error:
        raise UnreachableError(f"the SC sent an event that is not JSON: {error}") from error
