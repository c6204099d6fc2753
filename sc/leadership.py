"""Which SC leads: the cluster's identity, and the stamp that fences an SC that lost its leadership.

The first SC of a cluster gives it a uid. Every SC that acquires the leadership adds a tenure to a
list and writes itself as the leader (the key is called ``office``, and so are the fields of stamps
and answers). Every write of its controllers compares that key, so an SC that another one has
replaced cannot change a status any more. Where several SCs may lead in turn, one acquires the
leadership only while nobody holds the key `ClusterKeys.leader`, which is attached to its lease;
each write compares that key, too: an SC whose lease has ended writes nothing, although no other
one has begun.

The list of tenures is the KV's record of the cluster's history: an SPU reports the highest revision
that it has seen and the stamp that came with it, and that revision must lie within the tenure of
that stamp (`sc.restored_kv`). For this reason an SC sends nothing of a revision at which another SC
led. The list keeps the last `MAX_TENURES`; stamps of older ones are not checked.

A recovery begins a new tenure of the same SC, in a higher incarnation of the cluster. The identity
holds the incarnation, whether the recovery is still going on, and who began the last one and why.

No SC acquires the leadership over a store that the cluster was moved out of, or that a move has not
filled yet (`sc.transfer`).
"""

from __future__ import annotations

import json
import secrets
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from sc.kv.interface import (
    KV,
    Compare,
    CreateRevisionIs,
    Delete,
    Get,
    GetResponse,
    KeyValue,
    ModRevisionIs,
    Op,
    Put,
    range_all,
)
from sc.store.buckets import DEFAULT_BUCKETS
from schemas.control.messages import Stamp
from schemas.errors import ConflictError, DeadlineExceededError, FencedError
from schemas.objects.keys import ClusterKeys

MAX_TENURES = 1_000

BACKUP: Final = "backup "
"""How the mark of a store begins that a backup is restored into, before the file's name."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """The beginning of a recovery: ``by`` whom (``sc``, if by the SC itself), when (ISO 8601 in UTC
    with milliseconds), why, and the causality id."""

    by: str
    at: str
    why: str
    cause: str


@dataclass(frozen=True, slots=True)
class Identity:
    """What the cluster is: its uid, how often it has recovered from a restored KV, whether it is
    recovering now, and the beginning of the last recovery, as far as that is known. ``buckets``:
    into how many parts its streams are divided, since it was made."""

    uid: str
    incarnation: int = 0
    recovering: bool = False
    recovery: Recovery | None = None
    buckets: int = DEFAULT_BUCKETS

    def encode(self) -> bytes:
        """The stored form; values of a new cluster are left out."""
        data: dict[str, Any] = {"uid": self.uid}
        if self.incarnation:
            data["incarnation"] = self.incarnation
        if self.recovering:
            data["recovering"] = True
        if self.recovery is not None:
            data["recovery"] = asdict(self.recovery)
        if self.buckets != DEFAULT_BUCKETS:
            data["buckets"] = self.buckets
        return json.dumps(data).encode()

    @classmethod
    def decode(cls, value: bytes) -> Identity:
        data = json.loads(value)
        found = data.get("recovery")
        recovery = Recovery(**found) if found is not None else None
        incarnation, recovering = data.get("incarnation", 0), data.get("recovering", False)
        buckets = int(data.get("buckets", DEFAULT_BUCKETS))
        return cls(str(data["uid"]), incarnation, recovering, recovery, buckets)


@dataclass(frozen=True, slots=True)
class Leadership:
    """The state of an SC that leads: its stamp, what its writes compare, its name in the key
    ``office``, and the revision at which each listed tenure began.

    ``guard`` compares ``office``, ``entry`` the tenure in the list (its name is random, and a KV
    that was restored from a backup may come to the same revision again), and ``held`` the key that
    is attached to the lease; None where there is no lease.
    """

    identity: Identity
    stamp: Stamp
    guard: ModRevisionIs
    holder: str
    tenures: dict[str, int]
    entry: ModRevisionIs | None = None
    held: CreateRevisionIs | None = None

    @property
    def guards(self) -> tuple[Compare, ...]:
        """What each write compares."""
        return tuple(one for one in (self.guard, self.entry, self.held) if one is not None)

    @property
    def cluster_uid(self) -> str:
        return self.identity.uid

    def ended_by(self, key: str, found: KeyValue | None) -> bool:
        """Whether what a key holds now (None: nothing) says that this leadership is over: another
        SC took over later, or the lease has ended."""
        if self.held is not None and key == self.held.key:
            return found is None or found.create_revision != self.held.revision
        if key != self.guard.key or found is None:
            return False
        later = found.mod_revision > self.guard.revision
        return later and found.value.decode(errors="replace") != self.holder

    def remembers(self, stamp: Stamp, revision: int) -> bool:
        """Whether a revision that came with a stamp of this incarnation belongs to the history of
        this KV: no other tenure had begun by then."""
        began = self.tenures.get(stamp.office)
        if began is None:
            oldest = min(self.tenures.values())
            return len(self.tenures) >= MAX_TENURES and stamp.revision < oldest
        return all(revision < other for other in self.tenures.values() if other > began)


@dataclass(frozen=True, slots=True)
class Claim:
    """The lease of an SC that wants to lead, and what it says of itself meanwhile."""

    lease: int
    value: bytes


async def acquire(kv: KV, keys: ClusterKeys, buckets: int | None = None) -> Leadership:
    """Become the SC that leads, whoever led before. The uid of a new cluster is decided by a
    create-if-absent.

    ``buckets``: of a new cluster; None for the default. Raises ConflictError when the cluster lives
    in another store, or has another number of buckets.
    """
    found = await _acquire(kv, keys, buckets, None)
    if found is None:
        raise DeadlineExceededError("acquiring the leadership was interrupted; start the SC again")
    return found


async def stand(
    kv: KV, keys: ClusterKeys, claim: Claim, buckets: int | None = None
) -> Leadership | None:
    """Become the SC that leads if nobody does; None if somebody does. Raises as `acquire` does, and
    NotFoundError when the lease has ended."""
    return await _acquire(kv, keys, buckets, claim)


async def check_place(kv: KV, keys: ClusterKeys, buckets: int | None) -> None:
    """Raise ConflictError when the cluster lives in another store, or has another number of buckets
    than an SC is told: before the SC serves anybody."""
    await _check_here(kv, keys)
    if buckets is not None:
        await _check_buckets(kv, keys, buckets)


async def _acquire(
    kv: KV, keys: ClusterKeys, buckets: int | None, claim: Claim | None
) -> Leadership | None:
    here = [ModRevisionIs(keys.moved, 0), ModRevisionIs(keys.arriving, 0)]
    fresh = Identity(str(uuid.uuid4()), buckets=buckets or DEFAULT_BUCKETS)
    await kv.txn([*here, ModRevisionIs(keys.identity, 0)], [Put(keys.identity, fresh.encode())])
    if buckets is not None:
        await _check_buckets(kv, keys, buckets)
    holder = secrets.token_hex(8)
    # Its own entry makes the transaction safe to repeat when an answer is lost.
    compares: list[Compare] = [*here, ModRevisionIs(keys.office(holder), 0)]
    puts: list[Op] = [Put(keys.current_office, holder.encode()), Put(keys.office(holder), b"")]
    if claim is not None:
        compares.append(CreateRevisionIs(keys.leader, 0))
        puts.append(Put(keys.leader, claim.value, claim.lease))
    result = await kv.txn(compares, puts)
    revision = result.revision
    if not result.succeeded:
        await _check_here(kv, keys)
        entry = await kv.get(keys.office(holder))
        if entry is None:
            return None
        # An earlier attempt was applied, and its answer was lost.
        revision = entry.mod_revision
    guard = ModRevisionIs(keys.current_office, revision)
    # No other SC changes it from now on.
    identity = await _identity(kv, keys)
    stamp = Stamp(revision=revision, office=holder, incarnation=identity.incarnation)
    held = None if claim is None else CreateRevisionIs(keys.leader, revision)
    entry_guard = ModRevisionIs(keys.office(holder), revision)
    leadership = Leadership(identity, stamp, guard, holder, {}, entry_guard, held)
    return replace(leadership, tenures=await _tenures(kv, keys, leadership.guards))


async def begin_recovery(
    kv: KV, keys: ClusterKeys, leadership: Leadership, incarnation: int, recovery: Recovery
) -> Leadership:
    """Mark the cluster as recovering, in a higher incarnation, and begin a new tenure.

    Decisions that are not written yet will fail, because the guard changes. If the answer of an
    earlier attempt was lost, gives the incarnation that it began. Raises FencedError when another
    SC has taken over. If the answer of this attempt is lost, `read_back` tells what came of it.
    """
    identity = replace(
        leadership.identity, incarnation=incarnation, recovering=True, recovery=recovery
    )
    tenure = f"{leadership.holder}-{incarnation}"
    result = await kv.txn(
        leadership.guards,
        [
            Put(keys.identity, identity.encode()),
            Put(keys.current_office, leadership.holder.encode()),
            Put(keys.office(tenure), b""),
        ],
    )
    if not result.succeeded:
        return await read_back(kv, keys, leadership)
    return _recovering(keys, leadership, identity, result.revision)


async def read_back(kv: KV, keys: ClusterKeys, leadership: Leadership) -> Leadership:
    """The leadership as the KV has it: the same, or that of a recovery whose answer was lost.

    Raises FencedError when another SC has taken over.
    """
    result = await kv.txn([], [Get(keys.current_office), Get(keys.identity), Get(keys.leader)])
    current, identity, held = (r.kv for r in result.responses if isinstance(r, GetResponse))
    if current is None or current.value != leadership.holder.encode():
        raise FencedError(deposed_text(keys, current))
    if leadership.ended_by(keys.leader, held):
        raise FencedError(LEASE_OVER)
    if current.mod_revision == leadership.guard.revision:
        return leadership
    return _recovering(keys, leadership, _decoded(keys, identity), current.mod_revision)


REPLACED: Final = "another SC has taken over; this one stops"
LEASE_OVER: Final = "the lease of this SC has ended; it leads no more"


def deposed_text(keys: ClusterKeys, current: KeyValue | None) -> str:
    """Why an SC stops whose leadership the KV does not show any more."""
    if current is None:
        return (
            f"the key {keys.current_office}, which names the SC that leads, was deleted from the"
            " KV; this SC stops: start it again, and it writes the key anew"
        )
    return REPLACED


def _recovering(
    keys: ClusterKeys, leadership: Leadership, identity: Identity, revision: int
) -> Leadership:
    """The tenure that the beginning of a recovery began at a revision."""
    tenure = f"{leadership.holder}-{identity.incarnation}"
    return replace(
        leadership,
        identity=identity,
        stamp=Stamp(revision=revision, office=tenure, incarnation=identity.incarnation),
        guard=ModRevisionIs(leadership.guard.key, revision),
        tenures=leadership.tenures | {tenure: revision},
        entry=ModRevisionIs(keys.office(tenure), revision),
    )


async def end_recovery(kv: KV, keys: ClusterKeys, leadership: Leadership) -> Leadership:
    """Mark the recovery as over. Raises FencedError when another SC has taken over."""
    identity = replace(leadership.identity, recovering=False)
    result = await kv.txn(leadership.guards, [Put(keys.identity, identity.encode())])
    if not result.succeeded:
        raise FencedError(REPLACED)
    return replace(leadership, identity=identity)


async def _identity(kv: KV, keys: ClusterKeys) -> Identity:
    return _decoded(keys, await kv.get(keys.identity))


def _decoded(keys: ClusterKeys, found: KeyValue | None) -> Identity:
    """Raises ConflictError that says what to do if the identity is missing or does not parse."""
    what_to_do = (
        "stop the SC, restore the KV from a backup, or put the key back:"
        f' {keys.identity} = {{"uid": "UID"}}; each SPU has the uid of its cluster in'
        " identity.json in its data directory"
    )
    if found is None:
        raise ConflictError(f"the identity of the cluster was deleted from the KV; {what_to_do}")
    try:
        return Identity.decode(found.value)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConflictError(
            f"the identity of the cluster in the KV does not parse ({type(error).__name__}:"
            f" {error}); {what_to_do}"
        ) from error


async def _tenures(kv: KV, keys: ClusterKeys, guards: Sequence[Compare]) -> dict[str, int]:
    """When each listed tenure began. Those beyond the bound are removed, the oldest first."""
    prefix = keys.office("")
    found: dict[str, int] = {}
    async for page in range_all(kv, prefix):
        found.update((item.key.removeprefix(prefix), item.mod_revision) for item in page.items)
    kept = sorted(found.items(), key=lambda entry: -entry[1])[:MAX_TENURES]
    for name in found.keys() - dict(kept).keys():
        await kv.txn(guards, [Delete(keys.office(name))])
    return dict(kept)


async def _check_buckets(kv: KV, keys: ClusterKeys, buckets: int) -> None:
    """Raise ConflictError when the cluster was made with another number, before another SC is
    replaced."""
    found = await kv.get(keys.identity)
    if found is not None and (there := _decoded(keys, found).buckets) != buckets:
        raise ConflictError(
            f"buckets: cluster {keys.cluster!r} was made with {there}, and the configuration says"
            f" {buckets}; the number is fixed when a cluster is made: write {there}, or leave it"
            " out"
        )


async def _check_here(kv: KV, keys: ClusterKeys) -> None:
    """Raise ConflictError when the cluster lives in another store."""
    if (moved := await kv.get(keys.moved)) is not None:
        to = json.loads(moved.value)["to"]
        raise ConflictError(
            f"cluster {keys.cluster!r} was moved to {to}: start the SC with `kv: {to}`"
        )
    if (arriving := await kv.get(keys.arriving)) is not None:
        mark = json.loads(arriving.value)
        source = mark["from"]
        if source.startswith(BACKUP):
            raise ConflictError(
                f"{source} of cluster {keys.cluster!r} is being restored here, and not all of it is"
                " there: repeat `runnel cluster restore`"
            )
        raise ConflictError(
            f"cluster {keys.cluster!r} is being moved here from {source}, and not all of it has"
            " arrived: repeat `runnel cluster migrate`"
        )
