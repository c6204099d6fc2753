"""Something that opens when it is awaited, or entered."""

from __future__ import annotations

from collections.abc import (
    Awaitable,
    Callable,
    Generator,
)
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar


class _Leavable(Protocol):
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


T = TypeVar("T", bound=_Leavable)


class Opening(Generic[T]):
    """Something that opens when it is awaited, or entered with ``async with``."""

    def __init__(self, open_it: Callable[[], Awaitable[T]]) -> None:
        self._open = open_it
        self._opened: T | None = None

    def __await__(self) -> Generator[Any, None, T]:
        return self._open().__await__()

    async def __aenter__(self) -> T:
        self._opened = await self._open()
        return self._opened

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._opened is not None:
            await self._opened.__aexit__(kind, error, traceback)
