"""What all replicas of one SPU share: disk, threads, clocks, and the way to peers and the SC."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Protocol

from schemas.ids import PartitionUid
from spu.net.peer_connection import PeerConnection
from spu.replica.catch_up import CatchUpRate
from spu.replica.counters import ReplicaCounters
from spu.replica.held_produces import HeldBytes
from spu.replication.events import RequestElection, RequestLrsChange
from spu.storage.checkpoint_queue import IdleCheckpoints
from spu.storage.data_dir import PartitionMeta
from spu.storage.disk_space import SpaceWatch
from spu.storage.file_pool import FilePool
from spu.storage.journal_writer import JournalWriter


class PeerAccess(Protocol):
    """A replica's way to its peers and to the SC."""

    def connection(self, peer: int) -> PeerConnection | None:
        """The connection to another SPU, if there is one."""

    def ask(self, uid: PartitionUid, request: RequestLrsChange | RequestElection) -> None:
        """Ask the SC; the request may get lost."""


@dataclass(frozen=True, slots=True)
class ReplicaContext:
    """What all replicas of an SPU share. ``record_storage`` durably writes a new storage id into a
    replica's directory; it blocks."""

    spu_id: int
    files: FilePool
    storage: Executor
    reads: Executor
    journal: JournalWriter
    clock_us: Callable[[], int]
    clock_ms: Callable[[], int]
    peers: PeerAccess
    record_storage: Callable[[PartitionMeta], None]
    space: SpaceWatch
    checkpoints: IdleCheckpoints
    counters: ReplicaCounters = field(default_factory=ReplicaCounters)
    held: HeldBytes = field(default_factory=HeldBytes)
    catch_up: CatchUpRate = field(default_factory=CatchUpRate)
