"""The state of one replica: its durable hard state, its log, and its part in replication.

Everything is immutable and comparable: a step returns a new state, a simulator can keep every state
that it has seen, and two replicas in the same state that get the same inputs stay equal. Pure data.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from schemas.replacing import replace
from spu.replication.history import History, cut, forgotten, last_term
from spu.replication.messages import LogEnd
from spu.replication.producer_state import ProducerDump

#: A follower that was behind for this long leaves the live replica set.
REPLICA_LAG_TIME_MS: Final = 10_000
#: A request that was not answered is sent again after this time.
RETRY_MS: Final = 1_000
#: The longest time after which a leader asks again for a live replica set that the SC refused.
REFUSED_MAX_MS: Final = 8_000
#: A follower that lacks records and sends nothing for this long is attached again.
STALLED_MS: Final = 3_000
#: How long a leader that must prove its log waits for connected replicas that are not live.
PROOF_MS: Final = 1_000
#: How long a leader that must prove its log waits for the election of a live replica whose log is
#: ahead. The SC cannot elect one that does not reach it, however long its log.
AHEAD_MS: Final = 30_000
#: How many pushes to one follower may be in flight.
CREDITS: Final = 4

#: Why a replica is unfit if its topic relies on the page cache, and its host went down before the
#: cache was written to the disk. Such a replica may lead by an unclean election.
UNCLEAN_BOOT: Final = "the host went down without a clean stop, and the topic relies on its memory"
#: The beginning of the reason if the disk lacks what others know to have been on it.
OLD: Final = "its disk is old"
#: The beginning of the reason if the leader lacks records that the replica knows to be committed.
RETRACTED: Final = "committed records differ"


def is_excused(unfit: str | None) -> bool:
    """Whether an unfit replica may lead by an unclean election: its log is whole."""
    return unfit is not None and (unfit == UNCLEAN_BOOT or unfit.startswith(OLD))


class Member(NamedTuple):
    """A member of the live replica set: an SPU, and the storage id that it had when it joined."""

    spu: int
    storage: str


Members = tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class HardState:
    """A replica's state in the journal; it is written as a whole.

    ``term`` is the highest full term that the replica led or followed; ``replicas``, ``lrs`` and
    ``min_in_sync`` are those of one ``revision`` of the partition, and ``leading`` says whether the
    replica leads by that revision. ``pending`` is the LRS that it asked for, as the leader, from
    this revision: until it knows a later revision, commits need both sets. ``incarnation`` is the
    cluster's at ``revision``: it grows when the KV was restored from a backup, where revisions
    start again at a lower number. ``leader_boot`` is the process of the leader to which ``term``
    was promised; it is empty if an earlier version wrote it. ``unclean_term`` is the election term
    of the last unclean election that the replica was told of.
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
    leader_boot: str = ""
    unclean_term: int = 0

    @property
    def version(self) -> tuple[int, int]:
        """The last known revision of the SC: those of a later incarnation are newer."""
        return self.incarnation, self.revision

    @property
    def required(self) -> frozenset[Member]:
        """The members that must hold a record before it is committed."""
        return frozenset(self.lrs) | frozenset(self.pending or ())

    @property
    def smallest(self) -> int:
        """The size to compare with the minimum: of the LRS or the one asked for, the smaller."""
        return min(len(self.lrs), len(self.lrs if self.pending is None else self.pending))


@dataclass(frozen=True, slots=True)
class LogView:
    """What a replica knows of its own log. ``durable`` is the offset up to which records are as
    durable as the topic asks for; ``history`` says which terms it holds; ``sealed`` is the offset
    of the control record that seals it, behind which only control records stand."""

    start: int = 0
    leo: int = 0
    durable: int = 0
    history: History = ()
    sealed: int | None = None

    @property
    def last_term(self) -> int:
        return last_term(self.history)

    def cut_to(self, leo: int) -> LogView:
        return replace(
            self,
            leo=leo,
            durable=min(self.durable, leo),
            history=cut(self.history, leo),
            sealed=None if self.sealed is None or self.sealed >= leo else self.sealed,
        )

    @property
    def durable_part(self) -> LogView:
        """Without what a failure may still take away. A follower may remove committed records
        before it has synced them: then nothing is left."""
        return self.cut_to(max(self.durable, self.start))

    def begin_at(self, start: int) -> LogView:
        """Without what lies below ``start``, which is at most the log's end."""
        return replace(self, start=start, history=forgotten(self.history, start))


@dataclass(frozen=True, slots=True)
class Progress:
    """What a leader knows of one follower.

    ``attach`` is the number of the attachment, 0 without one. A follower is ``matched`` if its log
    is a prefix of the leader's; only then is it sent batches, and does its ``match_offset`` count.
    ``sent`` is the next offset to push, ``unacked`` are the ends of pushes in flight, ``acked`` is
    the highest end that was acknowledged, and ``last_sent_lac`` the last add confirmed that was
    sent to it. ``answer`` is the last answer to an attachment of this leadership.
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
    answer: LogEnd | None = None

    @property
    def member(self) -> Member | None:
        return None if self.storage is None else Member(self.spu, self.storage)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A live replica set that a leader asked for at ``asked_ms`` and did not get. It does not ask
    for it again for ``wait_ms``, which doubles with each refusal: each request writes to the KV."""

    wanted: Members
    asked_ms: int
    wait_ms: int

    @property
    def until_ms(self) -> int:
        return self.asked_ms + self.wait_ms


@dataclass(frozen=True, slots=True)
class Leading:
    """One leadership. ``control`` is the offset of the control record that began it, or of the last
    record before it where it began without one.

    ``mark`` is where the log ended at the last tick: a follower that has that much is not behind.
    ``asked_ms``: when it last asked for another live replica set; ``refused`` are those that it
    did not get, the latest last. ``stuck_ms``: since when nothing was committed
    beyond ``stuck_at``, although there are records to commit.

    ``proving``: it must first prove its log (`spu.replication.proof`) and has appended nothing;
    ``stuck_ms`` is then when it last asked for another leader.
    """

    term: int
    control: int
    began_ms: int
    mark: int
    attachments: int = 0
    followers: tuple[Progress, ...] = ()
    asked_ms: int = 0
    refused: tuple[Refusal, ...] = ()
    stuck_at: int = -1
    stuck_ms: int | None = None
    proving: bool = False


class Phase(Enum):
    """How far an attachment has come, as the follower sees it."""

    PROMISING = "the term, a cut or a new storage is being made durable"
    AGREEING = "the leader compares the logs"
    MATCHED = "the log is a beginning of the leader's"


@dataclass(frozen=True, slots=True)
class Following:
    """One attachment to a leader. ``heard_lac`` is the last add confirmed that the leader sent in
    it, which may be beyond the end of this log. ``refuses_cut``: why it has not cut its log as the
    leader ordered; None if it has, or was not ordered to."""

    leader: int
    term: int
    attach: int
    phase: Phase = Phase.PROMISING
    heard_lac: int = -1
    refuses_cut: str | None = None


@dataclass(frozen=True, slots=True)
class Rebuilding:
    """Where to begin again, once the new storage id ``storage`` is durable: at ``start``, after a
    record of ``last_term``, with the producer state ``producers``. ``aside``: what the log held is
    kept. ``begun``: the log is being replaced."""

    start: int
    last_term: int
    producers: ProducerDump = ()
    aside: bool = False
    storage: str | None = None
    begun: bool = False


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """All of one replica.

    ``hard_state`` is durable; ``unpersisted`` is the newest one that is not durable yet.
    ``becoming`` is the term in which the replica will lead once the term is durable; it never leads
    again in a term that an earlier process persisted. ``boot`` is random for each opening of the
    log; ``last_attach`` is the newest attachment since then, as (term, number). While the log is
    being cut (``cutting``) or replaced (``rebuild``), nothing is written to it, and no message
    tells of it.

    ``proven``: since the log was opened, it was found to be as new as the replica set knows it.
    ``confirmed``: since then, the SC has told the newest revision. ``witnesses`` are all replicas
    that answered a leader which proved its log without the SC: commits need them until it confirms.

    ``to_seal``: the SC wants the log to be sealed.
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
    proven: bool = False
    confirmed: bool = False
    witnesses: frozenset[Member] = frozenset()
    to_seal: bool = False

    @property
    def newest(self) -> HardState:
        """The hard state that it will have when the journal has caught up."""
        return self.hard_state if self.unpersisted is None else self.unpersisted

    @property
    def me(self) -> Member:
        return Member(self.spu, self.newest.storage)

    @property
    def required(self) -> frozenset[Member]:
        """The members that must hold a record before it is committed: those of the hard state, and
        those of one that is not durable yet, with the set to ask for. If commits did not need the
        latter, a replica that holds all committed records when it is chosen might lack some when
        it joins; and the SC may elect who is live by a later revision than that of an old disk."""
        if self.unpersisted is None:
            return self.hard_state.required | self.witnesses
        return self.hard_state.required | self.unpersisted.required | self.witnesses

    @property
    def durable_lac(self) -> int:
        """The last add confirmed that may be persisted: never beyond the durable end."""
        return min(self.lac, self.log.durable - 1)

    @property
    def may_append(self) -> bool:
        """Whether it leads, and its log is proven."""
        return self.leading is not None and not self.leading.proving

    @property
    def is_to_seal(self) -> bool:
        """Whether its log is to be sealed and has no seal: an election may have removed that. A
        leader writes it as soon as it serves, and no client's record comes before it."""
        return self.to_seal and self.log.sealed is None

    @property
    def answers_producers(self) -> bool:
        """Whether it may say what becomes of a batch: it appends it, or refuses it."""
        return self.may_append and not self.is_to_seal

    @property
    def sealed_end(self) -> int | None:
        """Where the records of a sealed log end: a committed fact. None if it may get more."""
        sealed = self.log.sealed
        return None if sealed is None or sealed > self.lac else sealed

    @property
    def log_is_steady(self) -> bool:
        """Whether the log on the disk is the one in the view."""
        return not self.cutting and self.rebuild is None

    @property
    def is_serving(self) -> bool:
        """Whether it leads, and has committed the records that its leadership began with."""
        leading = self.leading
        return leading is not None and not leading.proving and self.lac >= leading.control


def recovered(
    spu: int,
    boot: str,
    hard_state: HardState,
    log: LogView,
    lac: int,
    *,
    fresh: bool = False,
    to_seal: bool = False,
) -> ReplicaState:
    """A replica after a start, from what its disk holds; `Resume` comes next. ``log.durable`` is
    the log's end: recovery makes all that it keeps durable before the log is used. ``fresh``: this
    process has created the log, so that it cannot be an old one. ``to_seal``: by the last word of
    the SC, the log is to be sealed."""
    log = replace(log, durable=log.leo)
    return ReplicaState(spu, boot, hard_state, log, lac, proven=fresh, to_seal=to_seal)
