"""Connects the replicas of one SPU with their peers on other SPUs, and with the SC.

The replicas that an SPU holds decide which SPUs it connects to. When a connection comes or goes,
all replicas are told in order, a slice of them at a time, so that heartbeats are sent in between.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from schemas.control.messages import ReplicaReport
from schemas.daemon.logs import get_logger
from schemas.ids import PartitionUid
from spu.net.peer_connection import PeerConnection
from spu.net.peers import Peers
from spu.replica.replica import Replica
from spu.replication.events import RequestElection, RequestLrsChange
from spu.replication.messages import Attach, Message
from spu.replication.wire import Damaged

_log = get_logger(__name__)

ItemT = TypeVar("ItemT")

#: How many replicas are handled before other tasks get a turn.
SLICE: Final = 64
#: So many replicas that are not here yet may have been attached.
MOST_EARLY: Final = 10_000


async def sliced(items: Iterable[ItemT]) -> AsyncIterator[ItemT]:
    """All items; other tasks may run in between."""
    for number, item in enumerate(items, 1):
        yield item
        if number % SLICE == 0:
            await asyncio.sleep(0)


def parts_of(items: Sequence[ItemT]) -> Iterator[Sequence[ItemT]]:
    """All items, in parts as large as one turn of the loop or of a thread handles."""
    for start in range(0, len(items), SLICE):
        yield items[start : start + SLICE]


class ScLink(Protocol):
    """The way to the SC. A request may get lost; callers ask again."""

    def report(self, report: ReplicaReport) -> None:
        """Tell the SC that a replica's state changed."""

    def ask(self, uid: PartitionUid, request: RequestLrsChange | RequestElection) -> None:
        """Ask the SC for another live replica set, or for another leader."""

    def find_peers(self, spu_ids: Iterable[int]) -> None:
        """Ask the SC where these SPUs listen for other SPUs."""

    def obstacles_changed(self) -> None:
        """Tell the SC what keeps records from being committed."""


class ReplicaNetwork:
    """``replicas`` is the SPU's own, changing mapping; ``cluster_uid`` returns the cluster that
    the SPU belongs to, None before it has joined one."""

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
        # Connections that replicas have not been told of yet, and the task that tells them.
        self._news: deque[tuple[Callable[[Replica, int], None], int]] = deque()
        self._teller: asyncio.Task[None] | None = None
        #: What leaders sent for replicas that are not here yet, the oldest first, with the
        #: connection on which it came.
        self._early: OrderedDict[PartitionUid, tuple[int, PeerConnection | None, Attach]] = (
            OrderedDict()
        )

    async def close(self) -> None:
        await self.peers.close()
        if self._teller is not None:
            self._teller.cancel()

    def keep(self, replicas: Iterable[Replica], *, others: bool) -> None:
        """Stay connected to the SPUs that hold another replica of ``replicas``; with ``others``,
        also to the SPUs that were wanted before."""
        wanted = set(self.peers.wanted) if others else set()
        for replica in replicas:
            wanted |= replica.peers
        self.peers.keep(wanted)

    def tell_connected(self, replica: Replica) -> None:
        """Tell a replica that is new, or has new peers, which of its peers are connected."""
        for peer in replica.peers & self.peers.connected:
            replica.linked(peer)
        if (early := self._early.pop(replica.meta.uid, None)) is not None:
            peer, connection, attach = early
            if connection is not None and self.connection(peer) is connection:
                replica.said(peer, attach)

    async def in_slices(self) -> AsyncIterator[Replica]:
        """All replicas; other tasks may run in between."""
        async for replica in sliced(tuple(self._replicas.values())):
            yield replica

    # PeerHandler: what comes from peers

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
        elif isinstance(message, Attach):
            # A new partition: its leader was told before this SPU. It asks again only after a
            # second, in which the partition may lack live replicas.
            self._early.pop(uid, None)
            self._early[uid] = peer, self.connection(peer), message
            while len(self._early) > MOST_EARLY:
                self._early.popitem(last=False)

    def find_peers(self, spu_ids: Iterable[int]) -> None:
        self._sc.find_peers(spu_ids)

    # PeerAccess: what comes from replicas

    def connection(self, peer: int) -> PeerConnection | None:
        return self.peers.connection(peer)

    def ask(self, uid: PartitionUid, request: RequestLrsChange | RequestElection) -> None:
        self._sc.ask(uid, request)

    # How

    def _tell(self, tell: Callable[[Replica, int], None], peer: int) -> None:
        """Tell all replicas, after everything that they were told before, without holding up the
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
                        # The other replicas are told all the same.
                        name = replica.meta.name
                        _log.error("a replica failed", partition=name, exc_info=error)
        finally:
            self._teller = None
