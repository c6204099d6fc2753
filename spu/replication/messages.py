"""The messages between the replicas of a partition.

Every message names the full term of its leadership and the number of the attachment within it. A
message of another attachment is dropped, however late it comes. After the follower's `LogEnd`, the
leader repeats the ``boot`` from it, which identifies the follower's process: a follower that has
restarted knows no attachment numbers any more, and could otherwise truncate its log by the
comparison of an older attachment.

A leader attaches (`Attach`), and the follower answers with the end of its log (`LogEnd`). A leader
that has proved its own log (`spu.replication.proof`) orders it to cut what differs (`Truncate`)
until both agree, or to begin again with an empty log at the leader's log start (`Reset`); it tells
a live replica that lacks committed records that its disk is old (`Outdated`). Then batches flow
(`Append`, `CommitUpdate`) and are acknowledged (`AppendAck`). `Reject` answers a term that is over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from schemas.wire.batch import Buffer
from spu.replication.producer_state import ProducerDump


class Batch(NamedTuple):
    """Records ``base`` up to ``end`` (exclusive) of one term, as they are stored in the log.
    ``seals``: it is the control record that seals the log."""

    base: int
    end: int
    term: int
    data: Buffer
    seals: bool = False


@dataclass(frozen=True, slots=True)
class Attach:
    """Leader to follower: follow me from now on; older terms are over. ``leader_boot`` identifies
    the leader's process; it is empty if an earlier version sent the message."""

    term: int
    attach: int
    leader_boot: str = ""


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Follower to leader, once the term is on its disk: its storage id, and the last term and the
    end of its log. ``boot`` is random for each process; ``unfit`` says why it cannot follow.

    ``lac`` is the last offset that it knows to be committed, and ``lac_term`` the term of that
    record, which says something only below ``leo`` and if it is not 0: the follower may no longer
    have the record.
    ``promised_boot`` is the leader's process that it promised the term to. An earlier version sends
    none of them (None, 0, "").

    ``version`` is the last revision of the SC that it knows, with the incarnation first, and
    ``holders`` are the SPUs that hold the partition by it. An earlier version sends neither.
    """

    term: int
    attach: int
    boot: str
    storage: str
    last_term: int
    leo: int
    unfit: str | None = None
    lac: int | None = None
    lac_term: int = 0
    promised_boot: str = ""
    version: tuple[int, int] = (0, 0)
    holders: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Truncate:
    """Leader to follower: ``to_term`` is your last term that my log holds as well, and it ends at
    ``end`` there."""

    term: int
    attach: int
    boot: str
    to_term: int
    end: int


@dataclass(frozen=True, slots=True)
class Reset:
    """Leader to follower: your log ends before mine begins, or parts from it before that, or you
    are unfit and not in the LRS; begin again with an empty log at ``start``. The record before it
    is of ``last_term``.

    ``producers`` is the producer state of the records below ``start``, so that the follower, too,
    recognises duplicates of them. The runner fills it in when it sends the message. ``aside``: keep
    what the log holds, because an unclean election may have taken away committed records of it. An
    earlier version does not say so.
    """

    term: int
    attach: int
    boot: str
    start: int
    last_term: int
    producers: ProducerDump = ()
    aside: bool = False


@dataclass(frozen=True, slots=True)
class Outdated:
    """Leader to follower: you are in the live replica set, but your log lacks records up to
    ``lac``, which are committed. Your disk is old."""

    term: int
    attach: int
    boot: str
    lac: int


@dataclass(frozen=True, slots=True)
class Append:
    """Leader to follower: batches without a gap between them. ``lac`` is the last committed offset,
    ``log_start`` the first offset that the log keeps."""

    term: int
    attach: int
    boot: str
    batches: tuple[Batch, ...]
    lac: int
    log_start: int


@dataclass(frozen=True, slots=True)
class CommitUpdate:
    """Leader to follower, when there is nothing to append: the last committed offset."""

    term: int
    attach: int
    boot: str
    lac: int
    log_start: int


@dataclass(frozen=True, slots=True)
class AppendAck:
    """Follower to leader: I have all below ``leo``, and all below ``position`` as durably as the
    topic asks for. ``gap``: a batch before the last one is missing; send from ``leo`` on again."""

    term: int
    attach: int
    leo: int
    position: int
    gap: bool = False


@dataclass(frozen=True, slots=True)
class Reject:
    """Follower to leader: ``term`` is over, because I know the higher term ``known``. If ``known``
    is ``term`` itself: I have left this attachment and ignore its messages; begin another."""

    term: int
    attach: int
    known: int


Message = Attach | LogEnd | Truncate | Reset | Outdated | Append | CommitUpdate | AppendAck | Reject
