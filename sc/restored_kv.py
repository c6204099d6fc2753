"""Finding out that the KV was restored from a backup: an SPU has seen more than the KV has. Pure.

The hello of an SPU holds the highest KV revision that it has seen, with its stamp, and the term and
revision of each replica. If the KV is behind any of these, or the revision lies outside the tenure
of that stamp (the KV has another history since), the terms and live replica sets in the KV are
outdated: electing or deleting by them would lose records. The cluster then begins a new incarnation
(`sc.leadership.begin_recovery`), in which every partition gets a new leader, chosen from what its
replicas hold (`sc.controllers.recovery`).

Reports of an earlier incarnation are not compared: it is known that an SPU which returns after a
recovery has seen more than the KV has.

What an SPU says may be false, and a recovery ends all sessions and elects every partition
uncleanly. So the SC begins one by itself only within bounds (`refusal`): on the word of an SPU that
has proven who it is, into the next incarnation, and not soon after another one. Beyond them it
turns the SPU away, and an operator decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sc.leadership import Leadership
from sc.store.local_store import LocalStore
from schemas.control.messages import Hello, ReplicaReport
from schemas.errors import ConflictError
from schemas.ids import election_term, format_term
from schemas.objects.partition import incarnation_of

_MAX_INCARNATION: Final = (1 << 16) - 1
#: The SC begins no recovery by itself for so long after the last one that it began by itself.
RECOVERY_PAUSE_MS: Final = 600_000


@dataclass(frozen=True, slots=True)
class Divergence:
    """What an SPU has seen that the KV does not know, and the incarnation in which the cluster
    would recover from that."""

    spu_id: int
    why: str
    incarnation: int


def refusal(found: Divergence, ours: int, since_ms: int | None, *, proven: bool) -> str | None:
    """Why the SC may not begin this recovery without an operator; None if it may.

    ``proven``: the SPU has proven who it is. ``ours`` is the incarnation of now. ``since_ms`` is
    the time since an SC began the last recovery by itself, None if the last one on record is none
    of these; it is negative after the clock was set back, which allows a recovery too early rather
    than never.
    """
    if not proven:
        why = f"SPU {found.spu_id} has not proven who it is"
    elif found.incarnation > ours + 1:
        why = f"the recovery would leap from incarnation {ours} to {found.incarnation}"
    elif since_ms is not None and 0 <= since_ms < RECOVERY_PAUSE_MS:
        minutes = RECOVERY_PAUSE_MS // 60_000
        why = f"another recovery began {since_ms // 1000} s ago, less than {minutes} minutes"
    else:
        return None
    return (
        f"{found.why}, but {why}: if the KV was restored from a backup, tell the SC to recover:"
        f" runnel cluster recover --spu {found.spu_id}; if not, something else speaks as"
        f" SPU {found.spu_id}"
    )


def divergence(
    hello: Hello, kv_revision: int, leadership: Leadership, store: LocalStore
) -> str | None:
    """What an SPU has seen that the KV, now at ``kv_revision``, does not know; None if nothing.

    ``store`` mirrors the KV since it was as it is now or later.
    """
    ours, stamp = leadership.stamp.incarnation, hello.stamp
    seen = hello.kv_revision
    who = f"SPU {hello.spu_id}"
    incarnation = stamp.incarnation if stamp is not None else 0
    if incarnation > ours:
        return f"{who} has seen incarnation {incarnation}, the KV is in {ours}"
    if incarnation == ours:
        if seen > kv_revision:
            return f"{who} has seen KV revision {seen}, the KV is at {kv_revision}"
        if stamp is not None and not leadership.remembers(stamp, seen):
            return f"{who} has seen revision {seen} of an SC that did not lead then"
    for report in hello.replicas:
        if (why := _of_replica(report, ours, store)) is not None:
            return f"{who} {why}"
    return None


def _of_replica(report: ReplicaReport, ours: int, store: LocalStore) -> str | None:
    incarnation = max(report.incarnation, incarnation_of(report.term))
    if incarnation > ours:
        return f"has a replica of incarnation {incarnation}, the KV is in {ours}"
    partition = store.partition_by_uid(report.uid)
    if partition is None or partition.status.leader is None:
        # One whose object was lost alone asks all its replicas by itself.
        return None
    if report.incarnation == ours and report.revision > partition.revision:
        return (
            f"knows {partition.name} at revision {report.revision}, the KV has it at"
            f" {partition.revision}"
        )
    term = partition.status.term
    if incarnation_of(report.term) == ours and election_term(report.term) > term:
        return (
            f"knows {partition.name} at term {format_term(report.term)}, the KV has it at"
            f" {format_term(term)}"
        )
    return None


def next_incarnation(hello: Hello, leadership: Leadership) -> int:
    """An incarnation above the KV's own and every one that an SPU reports.

    Raises ConflictError when there is none left.
    """
    reported = [leadership.stamp.incarnation]
    if hello.stamp is not None:
        reported.append(hello.stamp.incarnation)
    for report in hello.replicas:
        terms = report.term, report.last_term
        reported += [report.incarnation, *map(incarnation_of, terms)]
    if max(reported) >= _MAX_INCARNATION:
        raise ConflictError(
            f"SPU {hello.spu_id} reports incarnation {max(reported)}, and there is none after it;"
            " start a new cluster"
        )
    return max(reported) + 1
