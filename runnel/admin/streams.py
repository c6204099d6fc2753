"""One stream: its segments now and before, and requests to change them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from typing import Any, Final, TypeVar
from urllib.parse import quote

import pydantic

from runnel.admin.calls import object_path
from runnel.admin.http import ScClient
from schemas.control.streams import (
    Bounds,
    EpochInfo,
    Published,
    RequestState,
    ScaleRequest,
    ScalingEvents,
    SealRequest,
    SegmentHistory,
    StreamHead,
    StreamRequest,
    Subscribers,
    TruncateRequest,
)
from schemas.errors import (
    ConflictError,
    DeadlineExceededError,
    InvalidRequestError,
    RunnelError,
)
from schemas.model import Model
from schemas.objects.quantities import check_scoped_name
from schemas.objects.stream import Stream
from schemas.streams.cuts import StreamCut
from schemas.streams.epochs import parse_segment, segment_text
from schemas.streams.key_space import KeyRange, fraction

_AGAIN_S: Final = 0.02
_MOST_AGAIN_S: Final = 0.5
#: Each time it waits so many times as long.
_LONGER: Final = 1.3

M = TypeVar("M", bound=Model)


class StreamAdmin:
    """What can be asked of one stream and done to it. ``name`` is SCOPE/NAME, or NAME for one in
    the scope ``default``."""

    def __init__(self, sc: ScClient, name: str) -> None:
        self._sc = sc
        self.name = name

    async def epoch(self, number: int | None = None) -> EpochInfo:
        """An epoch by its number, or the current one. Raises NotFoundError, NotReadyError while
        the stream is being created."""
        below = "current" if number is None else str(number)
        return await self._get(EpochInfo, f"epochs/{below}")

    async def events(self, limit: int = 100) -> ScalingEvents:
        """When it was scaled, the newest last. Raises NotFoundError."""
        return await self._get(ScalingEvents, "epochs", {"limit": str(limit)})

    async def segment(self, segment: str) -> SegmentHistory:
        """A segment, EPOCH.NUMBER, with those before and after it. Raises NotFoundError,
        InvalidRequestError."""
        parse_segment(segment)
        return await self._get(SegmentHistory, f"segments/{segment}")

    async def head(self) -> StreamCut:
        """The beginning of the stream: the cut of its last truncation, or its first segments.
        Raises NotFoundError, NotReadyError."""
        return StreamCut.parse((await self._get(StreamHead, "head")).cut)

    async def request(self, request: str) -> StreamRequest:
        """How far a request is. Raises NotFoundError, also an hour after it was done."""
        return await self._get(StreamRequest, f"requests/{request}")

    async def scale(
        self,
        seal: Sequence[str],
        into: Sequence[tuple[float, float]],
        *,
        timeout: float = 60.0,
    ) -> StreamRequest:
        """Replace segments by others that have the same keys, and wait until that is done.

        ``into`` are the bounds of the new ones, from 0 to 1. Raises ConflictError if the segments
        are not current, or a request that waits replaces them; InvalidRequestError if the keys are
        not the same; DeadlineExceededError after ``timeout`` seconds: it goes on by itself.
        """
        try:
            bounds = tuple(Bounds(low=low, high=high) for low, high in into)
            body = ScaleRequest(id=uuid.uuid4().hex, seal=tuple(seal), into=bounds)
        except (ValueError, TypeError):
            raise InvalidRequestError(
                "seal, into: give names of segments, at least one, and pairs of bounds from 0 to 1:"
                ' scale(["0.0"], [(0, 0.5), (0.5, 1)])'
            ) from None
        return await self._finished(await self._post("scale", body), timeout)

    async def seal(self, *, timeout: float = 60.0) -> StreamRequest:
        """Seal the stream for good, and wait until that is done. Raises as `scale` does."""
        asked = await self._post("seal", SealRequest(id=uuid.uuid4().hex))
        return await self._finished(asked, timeout)

    async def subscribers(self) -> dict[str, StreamCut]:
        """The places that reader groups have published, by the names of the groups: retention keeps
        what lies behind them. Raises NotFoundError."""
        found = await self._get(Subscribers, "subscribers")
        return {one.group: StreamCut.parse(one.cut) for one in found.items}

    async def subscribe(self, group: str, cut: StreamCut) -> bool:
        """Have retention keep what lies behind a cut, up to which a reader group has read. Gives
        whether that is its place now: a place never goes back, so False says that a later one was
        published before. Raises NotFoundError, InvalidRequestError if the cut is no place in the
        stream, ConflictError if the stream takes no more subscribers."""
        path = object_path(Stream, self.name, _subscriber(group))
        try:
            body = Published(cut=str(cut)).to_json()
            await self._sc.call("PUT", path, body=body, repeatable=True)
        except ConflictError as error:
            if error.details.get("further"):
                return False
            raise
        return True

    async def unsubscribe(self, group: str) -> None:
        """Have retention wait for a reader group no more; nothing if it does not. Raises
        NotFoundError."""
        path = object_path(Stream, self.name, _subscriber(group))
        await self._sc.call("DELETE", path, repeatable=True)

    async def _truncate(self, cut: StreamCut, timeout: float) -> StreamRequest:
        body = TruncateRequest(id=uuid.uuid4().hex, cut=str(cut))
        return await self._finished(await self._post("truncate", body), timeout)

    async def _finished(self, asked: StreamRequest, timeout: float) -> StreamRequest:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        again_s = _AGAIN_S
        while asked.state in (RequestState.WAITING, RequestState.RUNNING):
            if loop.time() >= deadline:
                why = f": {asked.reason}" if asked.reason else ""
                raise DeadlineExceededError(
                    f"{asked.kind} of stream {self.name} is {asked.state} after {timeout:g} s{why};"
                    " it goes on by itself"
                )
            await asyncio.sleep(min(again_s, max(0.0, deadline - loop.time())))
            again_s = min(_LONGER * again_s, _MOST_AGAIN_S)
            asked = await self.request(asked.id)
        if asked.state is RequestState.FAILED:
            raise ConflictError(asked.reason or f"{asked.kind} of stream {self.name} failed")
        return asked

    async def _get(self, cls: type[M], below: str, query: dict[str, str] | None = None) -> M:
        path = object_path(Stream, self.name, below)
        return _parsed(cls, await self._sc.call("GET", path, query=query))

    async def _post(self, below: str, body: Model) -> StreamRequest:
        path = object_path(Stream, self.name, below)
        # It has an id, by which the SC knows it again.
        answer = await self._sc.call("POST", path, body=body.to_json(), repeatable=True)
        return _parsed(StreamRequest, answer)


def _subscriber(group: str) -> str:
    return f"subscribers/{quote(group, safe='')}"


def stream_name(name: str) -> str:
    """The whole name of a stream. Raises InvalidRequestError for what is no name."""
    try:
        return check_scoped_name(name)
    except ValueError as error:
        raise InvalidRequestError(f"stream: {error}") from None


def request_of(
    seal: Sequence[int], into: Sequence[KeyRange]
) -> tuple[tuple[str, ...], tuple[tuple[float, float], ...]]:
    """Segments and bounds as `StreamAdmin.scale` takes them."""
    bounds = tuple((fraction(keys.low), fraction(keys.high)) for keys in into)
    return tuple(map(segment_text, seal)), bounds


def _parsed(cls: type[M], answer: Any) -> M:
    try:
        return cls.model_validate(answer)
    except pydantic.ValidationError as error:
        raise RunnelError(f"the SC sent something else than {cls.__name__}: {error}") from error
