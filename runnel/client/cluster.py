"""The asyncio client of one cluster; `runnel.aio` opens it, `runnel.blocking` wraps it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from runnel.admin.answers import ClusterInfo, text_or_none
from runnel.admin.calls import understood
from runnel.admin.health import health_rows
from runnel.admin.http import ScClient
from runnel.client.archives import Archives
from runnel.client.consumers import Consumers
from runnel.client.groups import ReaderGroups
from runnel.client.history import History
from runnel.client.shared_states import SharedStates
from runnel.groups.member import close_all
from schemas.objects.html import Row, html_table


class Cluster(Archives, Consumers, History, ReaderGroups, SharedStates):
    """A client of one cluster; close it, or use it with ``async with``.

    `Cluster.apply`, `Cluster.get`, `Cluster.watch` and their neighbours work on its objects.
    """

    @classmethod
    async def connect(
        cls, address: str, by: str | None = None, known: ClusterInfo | None = None
    ) -> Self:
        """Connect to the SC at ``host:port`` (or to any of several, separated by commas).

        ``by`` is the name that the history of objects shows for changes; ``runnel-python`` by
        default. ``known``: the `Cluster.info` of another client of it; the SC is then not asked.

        Raises InvalidRequestError if it is not an address, UnreachableError that names it.
        """
        sc = ScClient.parse(address, by)
        if known is not None:
            return cls(sc, known)
        try:
            answer = await sc.call("GET", "/v1/cluster")
            with understood("its name"):
                info = ClusterInfo(
                    str(answer["cluster"]),
                    str(answer["clusterUid"]),
                    str(answer["version"]),
                    text_or_none(answer.get("dashboard")),
                )
            return cls(sc, info)
        except BaseException:
            await sc.close()
            raise

    def __repr__(self) -> str:
        return f"<runnel.Cluster {self.info.cluster!r} at {self._sc.address}>"

    def _repr_html_(self) -> str:
        # A notebook asks in its own event loop, which must not wait for an SC.
        return html_table(*self._identity())

    def _identity(self) -> tuple[str, list[Row]]:
        rows: list[Row] = [
            ("address", str(self._sc.address)),
            ("version", self.info.version),
        ]
        if self.info.dashboard is not None:
            rows.append(("dashboard", self.info.dashboard))
        return f"Runnel cluster {self.info.cluster}", rows

    async def close(self) -> None:
        """Close all producers (flushing them) and consumers, then the connections.

        Raises the first thing that could not be delivered; everything is closed all the same.
        """
        try:
            await self._end_streams(None)
            failures = await asyncio.gather(
                *(opened.close() for opened in {*self._open, *self._consumers}),
                return_exceptions=True,
            )
        finally:
            await self._end()
        for failure in failures:
            if isinstance(failure, BaseException):
                raise failure

    async def leave(self, error: BaseException | None) -> None:
        """End of a ``with`` block: `close`. After an error, flush for a short time only; if
        interrupted, do not flush.
        """
        if error is None:
            await self.close()
            return
        try:
            await self._end_streams(error)
            await asyncio.gather(
                *(opened.leave(error) for opened in {*self._open, *self._consumers}),
                return_exceptions=True,
            )
        finally:
            await self._end()

    async def _end_streams(self, error: BaseException | None) -> None:
        """After an error, what users have in hand does not count as processed."""
        for opened in list(self._stream_consumers):
            await opened.close()
        await close_all(self._group_readers, commit=error is None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.leave(error)

    async def _end(self) -> None:
        # The last one first. Each is closed, even if this is cancelled.
        async with AsyncExitStack() as closing:
            closing.push_async_callback(self._sc.close)
            closing.push_async_callback(self._connections.close)
            closing.push_async_callback(self._positions.close)
            closing.push_async_callback(self._archives.close)
            closing.push_async_callback(self._groups.close)
            closing.push_async_callback(self._states.close)


async def health_html(cluster: Cluster) -> str:
    """What a notebook shows of a cluster; takes `runnel.admin.health.HEALTH_TIMEOUT_S` at most."""
    caption, rows = cluster._identity()
    return html_table(caption, [*rows, *await health_rows(cluster)])
