"""What one replica knows: its durable hard state, its log, and its part in replication.

Everything is immutable and comparable: a step gives a new state, a simulator can keep every state
it has seen, and two processes that start from the same state stay equal. Pure data.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, NamedTuple

from spu.replication.history import History, cut, forgotten, last_term
from spu.replication.producer_state import ProducerDump

#: A follower that was behind for so long leaves the live replica set.
REPLICA_LAG_TIME_MS: Final = 10_000
#: What was not answered is asked again after this.
RETRY_MS: Final = 1_000
#: A follower that lacks something and says nothing for so long is attached again.
STALLED_MS: Final = 3_000
#: Pushes on their way to one follower.
CREDITS: Final = 4

#: Why a replica is unfit whose host went down before the page cache, which its topic relies on, was
#: on the disk: it has what it has, and may lead by an unclean election.
UNCLEAN_BOOT: Final = "the host went down without a clean stop, and the topic relies on its memory"
#: How the reason of a replica begins whose leader does not have what it knows to be committed.
RETRACTED: Final = "committed records differ"


class Member(NamedTuple):
    """A member of the live replica set: an SPU with the storage that it had when it joined."""

    spu: int
    storage: str


Members = tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class HardState:
    """What the journal holds of a replica; written as one, and never half.

    ``term`` is the highest full term that it led or followed; ``replicas``, ``lrs`` and
    ``min_in_sync`` are those of one ``revision`` of the partition, and ``leading`` says whether it
    leads by that. ``pending`` is the set that it asked for as the leader, from this revision: until
    a later one is known, commits need both. ``incarnation`` is that of the cluster at ``revision``:
    it grows where the KV was restored from a backup, and revisions begin anew.
    """

    storage: str
    term: int = 0
    revision: int = 0
    replicas: tuple[int, ...] = ()
    lrs: Members = ()
    min_in_sync: int = 1
    pending: Members | None = None
    leading: bool = False
    unfit: str | None = None
    incarnation: int = 0

    @property
    def version(self) -> tuple[int, int]:
        """What the SC is known to have said last: revisions of a later incarnation are newer."""
        return self.incarnation, self.revision

    @property
    def required(self) -> frozenset[Member]:
        """Who must hold a record before it is committed."""
        return frozenset(self.lrs) | frozenset(self.pending or ())

    @property
    def smallest(self) -> int:
        """What counts against the minimum: the smaller of the set and the one asked for."""
        return min(len(self.lrs), len(self.lrs if self.pending is None else self.pending))


@dataclass(frozen=True, slots=True)
class LogView:
    """What a replica knows of its own log. ``durable`` is the offset up to which records are as
    durable as the topic asks for; ``history`` says which terms it holds."""

    start: int = 0
    leo: int = 0
    durable: int = 0
    history: History = ()

    @property
    def last_term(self) -> int:
        return last_term(self.history)

    def cut_to(self, leo: int) -> LogView:
        return replace(
            self, leo=leo, durable=min(self.durable, leo), history=cut(self.history, leo)
        )

    def begin_at(self, start: int) -> LogView:
        """Without what lies below ``start``, which is at most the log's end."""
        return replace(self, start=start, history=forgotten(self.history, start))


@dataclass(frozen=True, slots=True)
class Progress:
    """What a leader knows of one follower.

    ``attach`` is the number of the attachment, 0 without one. Only a ``matched`` follower, whose
    log is a beginning of the leader's, is sent anything, and only its ``match_offset`` counts.
    ``sent`` is the next offset to push, ``unacked`` are the ends of pushes on their way, ``acked``
    is the highest end that was acknowledged, and ``last_sent_lac`` the last add confirmed that was
    sent to it.
    """

    spu: int
    attach: int = 0
    boot: str = ""
    storage: str | None = None
    unfit: str | None = None
    matched: bool = False
    match_offset: int = 0
    sent: int = 0
    pushing: bool = False
    unacked: tuple[int, ...] = ()
    acked: int = 0
    last_sent_lac: int = -1
    heard_ms: int = 0
    caught_up_ms: int = 0

    @property
    def member(self) -> Member | None:
        return None if self.storage is None else Member(self.spu, self.storage)


@dataclass(frozen=True, slots=True)
class Leading:
    """One leadership. ``control`` is the offset of the control record that began it, or of the last
    record before it where it began without one.

    ``mark`` is where the log ended when time was looked at last: a follower that has that much
    is not behind. ``asked_ms``: when it asked for another live replica set last; ``refused`` are
    those that it asked for and did not get, the latest last. ``stuck_ms``: since when nothing was
    committed beyond ``stuck_at`` though there is something to commit.
    """

    term: int
    control: int
    began_ms: int
    mark: int
    attachments: int = 0
    followers: tuple[Progress, ...] = ()
    asked_ms: int = 0
    refused: tuple[Members, ...] = ()
    stuck_at: int = -1
    stuck_ms: int | None = None


class Phase(Enum):
    """How far a follower is with an attachment."""

    PROMISING = "the term, a cut or a new storage is being made durable"
    AGREEING = "the leader compares the logs"
    MATCHED = "the log is a beginning of the leader's"


@dataclass(frozen=True, slots=True)
class Following:
    """One attachment to a leader. ``heard_lac`` is the last add confirmed that it has heard in it,
    which may lie beyond what it holds."""

    leader: int
    term: int
    attach: int
    phase: Phase = Phase.PROMISING
    heard_lac: int = -1


@dataclass(frozen=True, slots=True)
class Rebuilding:
    """Where to begin anew, once ``storage``, the new id, is durable: at ``start``, the record
    before which is of ``last_term``, with what ``producers`` had appended before.
    ``begun``: the log is being replaced."""

    start: int
    last_term: int
    producers: ProducerDump = ()
    storage: str | None = None
    begun: bool = False


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """All of one replica.

    ``hard_state`` is durable; ``unpersisted`` is the newest one on its way to the disk.
    ``becoming`` is the term that it leads in once that is durable; a term that an earlier process
    persisted is never led in again. ``boot`` is random for each opening of the log; ``last_attach``
    is the newest attachment, as (term, number), that was followed since. While the log is being cut
    (``cutting``) or replaced (``rebuild``), nothing is written to it and nothing said of it.
    """

    spu: int
    boot: str
    hard_state: HardState
    log: LogView = field(default_factory=LogView)
    lac: int = -1
    unpersisted: HardState | None = None
    becoming: int | None = None
    leading: Leading | None = None
    following: Following | None = None
    last_attach: tuple[int, int] = (0, 0)
    cutting: bool = False
    rebuild: Rebuilding | None = None
    links: tuple[int, ...] = ()

    @property
    def newest(self) -> HardState:
        """The hard state that it will have when the journal has caught up."""
        return self.hard_state if self.unpersisted is None else self.unpersisted

    @property
    def me(self) -> Member:
        return Member(self.spu, self.newest.storage)

    @property
    def required(self) -> frozenset[Member]:
        """Who must hold a record before it is committed: by its hard state, and whom it decided to
        ask for since. Were these not needed before that is durable, one that holds all that is
        committed when it is chosen might not when it joins."""
        return self.hard_state.required | frozenset(self.newest.pending or ())

    @property
    def durable_lac(self) -> int:
        """How far the last add confirmed may be persisted: never beyond the durable end."""
        return min(self.lac, self.log.durable - 1)

    @property
    def log_is_steady(self) -> bool:
        """Whether the log on the disk is the one in the view."""
        return not self.cutting and self.rebuild is None

    @property
    def is_serving(self) -> bool:
        """Leading, and what its leadership began with is committed."""
        return self.leading is not None and self.lac >= self.leading.control


def recovered(spu: int, boot: str, hard_state: HardState, log: LogView, lac: int) -> ReplicaState:
    """A replica after a start, from what its disk holds; `Resume` comes next. ``log.durable`` is
    its end: recovery makes durable what it keeps before anything is said of it."""
    return ReplicaState(spu, boot, hard_state, replace(log, durable=log.leo), lac)
