"""What the replicas of a partition say to each other.

Every message names the full term of the leadership it belongs to and the number of the attachment
within it: what belongs to another one is dropped, however late it comes. What a leader says after
the follower's `LogEnd` repeats the ``boot`` that it named, the process it runs as: a follower
that restarted knows no numbers any more, and would truncate by the comparison of an older
attachment.

A leader attaches (`Attach`), the follower answers with where its log ends (`LogEnd`), the leader
has it truncate what differs (`Truncate`) until both agree, or start over behind the log's beginning
(`Reset`). Then batches flow (`Append`, `CommitUpdate`) and are acknowledged (`AppendAck`). `Reject`
answers a term that is over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from schemas.wire.batch import Buffer
from spu.replication.producer_state import ProducerDump


class Batch(NamedTuple):
    """Records ``base`` up to ``end`` (exclusive) of one term, as they lie in the log."""

    base: int
    end: int
    term: int
    data: Buffer


@dataclass(frozen=True, slots=True)
class Attach:
    """Leader to follower: follow me from now on; older terms are over."""

    term: int
    attach: int


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Follower to leader, once the term is on its disk: whose storage it is, and the last term and
    the end of its log. ``boot`` is random for each process; ``unfit`` says why it cannot follow."""

    term: int
    attach: int
    boot: str
    storage: str
    last_term: int
    leo: int
    unfit: str | None = None


@dataclass(frozen=True, slots=True)
class Truncate:
    """Leader to follower: your last term that I have as well is ``to_term``, and ends at ``end``
    with me."""

    term: int
    attach: int
    boot: str
    to_term: int
    end: int


@dataclass(frozen=True, slots=True)
class Reset:
    """Leader to follower: your log ends before mine begins, or you are unfit and no live replica;
    begin anew at ``start``, the record before which is of ``last_term``.

    ``producers`` is what is known of producers from records below ``start``, so that a duplicate
    of one of those is recognised by the follower as well. Whoever sends it fills that in.
    """

    term: int
    attach: int
    boot: str
    start: int
    last_term: int
    producers: ProducerDump = ()


@dataclass(frozen=True, slots=True)
class Append:
    """Leader to follower: batches without a gap between them. ``lac`` is the last committed offset,
    ``log_start`` the first that is kept."""

    term: int
    attach: int
    boot: str
    batches: tuple[Batch, ...]
    lac: int
    log_start: int


@dataclass(frozen=True, slots=True)
class CommitUpdate:
    """Leader to follower, when there is nothing to append: how far is committed."""

    term: int
    attach: int
    boot: str
    lac: int
    log_start: int


@dataclass(frozen=True, slots=True)
class AppendAck:
    """Follower to leader: it has all below ``leo``, and all below ``position`` as durably as the
    topic asks for. ``gap``: something before what came last is missing; send from ``leo`` again."""

    term: int
    attach: int
    leo: int
    position: int
    gap: bool = False


@dataclass(frozen=True, slots=True)
class Reject:
    """Follower to leader: ``term`` is over, as I know the higher term ``known``; or, where that is
    ``term`` itself, I left this attachment and do not hear what you say in it: begin another."""

    term: int
    attach: int
    known: int


Message = Attach | LogEnd | Truncate | Reset | Append | CommitUpdate | AppendAck | Reject
