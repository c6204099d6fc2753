"""The inputs and outputs of a step.

Persist before send: outputs are applied in order. If an output needs something to be durable, the
core returns it only after the input that confirms it (`HardStatePersisted` after
`PersistHardState`, `LogTruncated` after `TruncateLog`, `LogReset` after `ResetLog`, `Flushed` after
writes). `AppendBatches`, `AppendControl` and `AppendSeal` are written before the next step; the
state relies on that. A write that fails is a `Failed`.
"""

from __future__ import annotations

from dataclasses import dataclass

from spu.replication.messages import Batch, Message
from spu.replication.producer_state import ProducerDump
from spu.replication.state import HardState, Members


@dataclass(frozen=True, slots=True)
class PartitionUpdated:
    """The SC sent a revision of the partition: its leader, election term and LRS, all of this
    revision, in an incarnation of the cluster. ``unclean_term`` is the term of the last
    unclean election, 0 if there was none. ``sealed``: the log is to be sealed."""

    revision: int
    term: int
    leader: int | None
    lrs: Members
    replicas: tuple[int, ...]
    min_in_sync: int
    incarnation: int = 0
    unclean_term: int = 0
    sealed: bool = False


@dataclass(frozen=True, slots=True)
class Elected:
    """The SC made it the leader, by this revision; the rest is as in `PartitionUpdated`. An
    ``unclean`` election may choose a replica that is unfit only because of an unclean boot or an
    old disk; the election makes it fit."""

    revision: int
    term: int
    lrs: Members
    replicas: tuple[int, ...]
    min_in_sync: int
    incarnation: int = 0
    unclean: bool = False


@dataclass(frozen=True, slots=True)
class Unassigned:
    """It is no longer assigned: it neither leads nor follows until it is assigned again."""


@dataclass(frozen=True, slots=True)
class Resume:
    """It has restarted: its first input. It goes on leading if it led."""


@dataclass(frozen=True, slots=True)
class HardStatePersisted:
    """A `PersistHardState` is durable."""

    hard_state: HardState


@dataclass(frozen=True, slots=True)
class Appended:
    """The leader appended clients' batches: the log now ends at ``leo``. No other input may come
    between the write and this input."""

    leo: int


@dataclass(frozen=True, slots=True)
class Flushed:
    """All below ``leo`` is as durable as the topic asks for. A sync that began before a cut or a
    rebuild must not be reported after it."""

    leo: int


@dataclass(frozen=True, slots=True)
class LogTruncated:
    """A `TruncateLog` is durable."""


@dataclass(frozen=True, slots=True)
class StorageIdChosen:
    """A storage id that was never used; the answer to `NewStorageId`."""

    storage: str


@dataclass(frozen=True, slots=True)
class LogReset:
    """A `ResetLog` under this storage id is durable."""

    storage: str


@dataclass(frozen=True, slots=True)
class LogStartAdvanced:
    """The leader's retention or truncation has moved the log's start to ``start``."""

    start: int


@dataclass(frozen=True, slots=True)
class Received:
    """A message from another replica."""

    sender: int
    message: Message


@dataclass(frozen=True, slots=True)
class Pushed:
    """A `Push` was sent, up to an offset."""

    follower: int
    attach: int
    upto: int


@dataclass(frozen=True, slots=True)
class LinkUp:
    """There is a connection to another SPU."""

    peer: int


@dataclass(frozen=True, slots=True)
class LinkDown:
    peer: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Damage, or a failed write or fsync: this replica is unfit from now on."""

    reason: str


Input = (
    PartitionUpdated
    | Elected
    | Unassigned
    | Resume
    | HardStatePersisted
    | Appended
    | Flushed
    | LogTruncated
    | StorageIdChosen
    | LogReset
    | LogStartAdvanced
    | Received
    | Pushed
    | LinkUp
    | LinkDown
    | Tick
    | Failed
)


@dataclass(frozen=True, slots=True)
class PersistHardState:
    """Make a hard state durable, after all earlier ones; then `HardStatePersisted`."""

    hard_state: HardState


@dataclass(frozen=True, slots=True)
class AppendControl:
    """Append the control record of a term at the log's end."""

    term: int


@dataclass(frozen=True, slots=True)
class AppendSeal:
    """Append the control record that seals the log, in the leader's term, at the log's end. No
    client's record may follow."""

    term: int


@dataclass(frozen=True, slots=True)
class LeadsOn:
    """After a restart, it leads in this term, and needs no control record for it."""

    term: int


@dataclass(frozen=True, slots=True)
class AppendBatches:
    """Append a leader's batches at the log's end."""

    batches: tuple[Batch, ...]


@dataclass(frozen=True, slots=True)
class TruncateLog:
    """Remove everything from ``leo`` on, durably. Producer state is rolled back with it. Then
    `LogTruncated`."""

    leo: int


@dataclass(frozen=True, slots=True)
class AdvanceLogStart:
    """Move the log's start to ``start``."""

    start: int


@dataclass(frozen=True, slots=True)
class NewStorageId:
    """Choose a new storage id; then `StorageIdChosen`."""


@dataclass(frozen=True, slots=True)
class ResetLog:
    """Replace the log by an empty one that begins at ``start``, after a record of ``last_term``.
    All records before it are committed; ``producers`` is their producer state. ``aside``: keep what
    the log held in a place of its own. Then `LogReset`."""

    start: int
    last_term: int
    storage: str
    producers: ProducerDump = ()
    aside: bool = False


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message. It may get lost."""

    to: int
    message: Message


@dataclass(frozen=True, slots=True)
class Push:
    """Send batches from ``start`` on in an `Append`, as many as fit one; then `Pushed`."""

    to: int
    term: int
    attach: int
    boot: str
    start: int
    lac: int
    log_start: int


@dataclass(frozen=True, slots=True)
class RequestLrsChange:
    """Ask the SC for another live replica set, if the partition is at this revision."""

    revision: int
    term: int
    lrs: Members
    reason: str


@dataclass(frozen=True, slots=True)
class RequestElection:
    """Ask the SC for another leader, because this one cannot commit."""

    term: int
    reason: str


@dataclass(frozen=True, slots=True)
class Committed:
    """The last add confirmed is now ``lac``. `ReplicaState.durable_lac` says how much of it may be
    persisted."""

    lac: int


@dataclass(frozen=True, slots=True)
class SteppedDown:
    """It no longer leads."""

    reason: str


Output = (
    PersistHardState
    | AppendControl
    | AppendSeal
    | LeadsOn
    | AppendBatches
    | TruncateLog
    | AdvanceLogStart
    | NewStorageId
    | ResetLog
    | Send
    | Push
    | RequestLrsChange
    | RequestElection
    | Committed
    | SteppedDown
)
