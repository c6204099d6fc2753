"""Between the replicas of one SPU, their peers on other SPUs, and the SC.

Which SPUs to be connected to follows from what is held. A connection that comes or goes is told to
all replicas, in order, a slice at a time: heartbeats are due in between.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from schemas.control.messages import ReplicaReport
from schemas.daemon.logs import get_logger
from schemas.ids import PartitionUid
from spu.net.peer_connection import PeerConnection
from spu.net.peers import Peers
from spu.replica.replica import Replica
from spu.replication.events import RequestElection, RequestLrsChange
from spu.replication.messages import Message
from spu.replication.wire import Damaged

_log = get_logger(__name__)

ItemT = TypeVar("ItemT")

#: So many replicas are told something before others have their turn.
SLICE: Final = 64


async def sliced(items: Iterable[ItemT]) -> AsyncIterator[ItemT]:
    """All items; others may run in between."""
    for number, item in enumerate(items, 1):
        yield item
        if number % SLICE == 0:
            await asyncio.sleep(0)


def parts_of(items: Sequence[ItemT]) -> Iterator[Sequence[ItemT]]:
    """All items, as many at a time as share a turn of the loop or of a thread."""
    for start in range(0, len(items), SLICE):
        yield items[start : start + SLICE]


class ScLink(Protocol):
    """The way to the SC. What is asked may get lost; it is asked again."""

    def report(self, report: ReplicaReport) -> None:
        """A replica's state changed."""

    def ask(self, uid: PartitionUid, request: RequestLrsChange | RequestElection) -> None:
        """A leader needs another live replica set, or another leader."""

    def find_peers(self, spu_ids: Iterable[int]) -> None:
        """Where do these SPUs listen for others?"""


class ReplicaNetwork:
    """``replicas`` are those that the SPU holds, as they come and go; ``cluster_uid`` gives the
    cluster that it belongs to, None before it has joined one."""

    def __init__(
        self,
        spu_id: int,
        replicas: Mapping[PartitionUid, Replica],
        sc: ScLink,
        cluster_uid: Callable[[], str | None],
    ) -> None:
        self.peers = Peers(spu_id, self)
        self._replicas = replicas
        self._sc = sc
        self._cluster_uid = cluster_uid
        # What is still to be told of connections, and who tells it.
        self._news: deque[tuple[Callable[[Replica, int], None], int]] = deque()
        self._teller: asyncio.Task[None] | None = None

    async def close(self) -> None:
        await self.peers.close()
        if self._teller is not None:
            self._teller.cancel()

    def keep(self, replicas: Iterable[Replica], *, others: bool) -> None:
        """Be connected to whoever holds another replica of ``replicas``, and to those that we are
        connected to already if there are ``others``."""
        wanted = set(self.peers.wanted) if others else set()
        for replica in replicas:
            wanted |= replica.peers
        self.peers.keep(wanted)

    def tell_connected(self, replica: Replica) -> None:
        """Let a replica that is new, or has new peers, know of the connections that there are."""
        for peer in replica.peers & self.peers.connected:
            replica.linked(peer)

    async def in_slices(self) -> AsyncIterator[Replica]:
        """All replicas; others may run in between."""
        async for replica in sliced(tuple(self._replicas.values())):
            yield replica

    # PeerHandler: what peers say and ask

    @property
    def cluster_uid(self) -> str | None:
        return self._cluster_uid()

    def peer_up(self, peer: int) -> None:
        self._tell(Replica.linked, peer)

    def peer_down(self, peer: int) -> None:
        self._tell(Replica.unlinked, peer)

    def peer_said(self, peer: int, uid: PartitionUid, message: Message | Damaged) -> None:
        if (replica := self._replicas.get(uid)) is not None:
            replica.said(peer, message)

    def find_peers(self, spu_ids: Iterable[int]) -> None:
        self._sc.find_peers(spu_ids)

    # PeerAccess: what replicas say

    def connection(self, peer: int) -> PeerConnection | None:
        return self.peers.connection(peer)

    def ask(self, uid: PartitionUid, request: RequestLrsChange | RequestElection) -> None:
        self._sc.ask(uid, request)

    # How

    def _tell(self, tell: Callable[[Replica, int], None], peer: int) -> None:
        """Tell all replicas, in order with what was told before, and without holding up the
        loop."""
        self._news.append((tell, peer))
        if self._teller is None:
            self._teller = asyncio.get_running_loop().create_task(self._tell_on(), name="links")

    async def _tell_on(self) -> None:
        try:
            while self._news:
                tell, peer = self._news.popleft()
                async for replica in self.in_slices():
                    try:
                        tell(replica, peer)
                    except Exception as error:
                        # The others are told all the same.
                        name = replica.meta.name
                        _log.error("a replica failed", partition=name, exc_info=error)
        finally:
            self._teller = None
