"""What must never be, of one partition; and what is excused.

A ledger hears what replicas write and call committed, what clients are told and what they read. It
keeps its own copy of everything that was ever committed, which only grows, and compares disks with
that. It knows nothing of how the rest of the simulation works.

- One leader a term; a term and an offset name one batch.
- What any replica calls committed is what all others called so before.
- The set that the leader of the KV's term needs for a commit contains the KV's live replica set,
  and the disk of every fit member of that holds every committed record, as durably as the topic
  asks for.
- Who is live or leads holds the partition by its spec. No SC has the last member that may be fit
  leave the live replica set, by what it has heard.
- An answer names a record that is committed, at its offset. A producer's batch is committed once.
- Nobody reads anything but what is committed, and always the same.

While the KV is behind, restored from a backup, what it says of live replicas is the past: that ends
with the first election of the cluster's next incarnation.

Unfit members hold less: that is what unfit means. So does a member whose disk has gone back in
time, until somebody finds out: others must hold what it lacks. If power is lost by all members at
once, a partition that keeps records in page caches loses some: that is the one excuse, and counted.
From then on committed is what its next leader has.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from schemas.control.messages import ReplicaReport
from schemas.ids import election_term, format_term
from schemas.objects.partition import LiveReplica, Partition, PartitionStatus
from schemas.wire.batch import BatchHeader
from spu.replication.messages import Batch
from spu.replication.state import UNCLEAN_BOOT, Member, ReplicaState
from tests.sim.cluster.disk import CONTROL, ReplicaDisk


class ViolationError(AssertionError):
    """Something that must never be. The message says what."""


@dataclass(slots=True)
class Holder:
    """A replica as the ledger sees it: ``verified`` is how many of all committed batches its disk
    was found to have, in an unbroken row from its log's start on."""

    spu: int
    disk: ReplicaDisk
    verified: int = 0


BatchKey = tuple[int, int, int]


@dataclass(slots=True)
class Ledger:
    """One partition. ``headers`` are those of all batches that producers made, by their data."""

    name: str
    headers: dict[bytes, BatchHeader]
    holders: dict[int, Holder] = field(default_factory=dict)
    committed: list[Batch] = field(default_factory=list)
    bases: list[int] = field(default_factory=list)
    acknowledged: set[BatchKey] = field(default_factory=set)
    refused: set[BatchKey] = field(default_factory=set)
    sealed: int | None = None
    told_end: int = 0
    kv_is_behind: bool = False
    _retracted_by: int = 0
    _unfit: set[tuple[int, str]] = field(default_factory=set)
    _heard: dict[int, tuple[str, bool]] = field(default_factory=dict)
    _leaders: dict[int, int] = field(default_factory=dict)
    _written: dict[tuple[int, int], Batch] = field(default_factory=dict)
    _offsets: dict[BatchKey, int] = field(default_factory=dict)
    _seen: dict[int, Batch] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """The offset after the last committed record."""
        return self.committed[-1].end if self.committed else 0

    # -- what replicas do -------------------------------------------------------------------

    def begins(self, spu: int, term: int) -> None:
        """A replica begins to lead."""
        if term in self._leaders:
            other = self._leaders[term]
            self._fail(f"SPUs {other} and {spu} begin to lead in term {format_term(term)}")
        self._leaders[term] = spu

    def retracts(self, spu: int, term: int) -> int:
        """A replica that lost its memory was elected in spite of that: what it lacks is lost. Gives
        how many batches."""
        holder = self.holders[spu]
        self._verify(holder)
        lost, kept = self.committed[holder.verified :], holder.verified
        if lost:
            self._retracted_by = term
        for batch in lost:
            self._seen.pop(batch.base, None)
        self._offsets = {key: at for key, at in self._offsets.items() if at < holder.disk.leo}
        self.acknowledged &= set(self._offsets)
        del self.committed[kept:], self.bases[kept:]
        if self.sealed is not None and self.sealed >= self.end:
            self.sealed = None
        self.told_end = min(self.told_end, self.end)
        for other in self.holders.values():
            other.verified = min(other.verified, kept)
        return len(lost)

    def recalls(self, spu: int, lac: int) -> None:
        """A replica that lost its memory leads. What it still knows to be committed is so again,
        also where one that was elected before it lacked that."""
        if lac >= self.end:
            self._extend(self.holders[spu], lac)

    def forgets(self, spu: int) -> None:
        """The disk of an SPU has gone back in time. It may use a term again in which it led, if no
        other replica knows of that: nothing of it is anywhere."""
        known = max(h.disk.hard_state.term for h in self.holders.values() if h.spu != spu)
        forgotten = {term for term, led in self._leaders.items() if led == spu and term > known}
        self._leaders = {t: led for t, led in self._leaders.items() if t not in forgotten}
        self._written = {at: b for at, b in self._written.items() if at[0] not in forgotten}

    def lost_with_memory(self, leader: int, members: Collection[int]) -> bool:
        """Whether no live replica has all that is committed any more, a host that was relied on to
        remember it went down, and ``leader`` has as much of it as any. Others may have more by
        chance: nobody knows what of it was committed."""
        found = [h for spu, h in self.holders.items() if spu in members]
        for holder in found:
            self._verify(holder)
        most = max(holder.verified for holder in found)
        forgot = any(h.disk.damage == UNCLEAN_BOOT for h in found)
        gone = forgot and most < len(self.committed)
        return gone and self.holders[leader].verified == most

    def wrote(self, spu: int, batches: Iterable[Batch]) -> None:
        """A replica has written batches at its log's end."""
        for batch in batches:
            if self._written.setdefault((batch.term, batch.base), batch) != batch:
                other = self._written[batch.term, batch.base]
                self._fail(f"SPU {spu} writes {batch}, {other} was written in that term")

    def calls_committed(self, spu: int, state: ReplicaState, partition: Partition | None) -> None:
        """A replica has raised its last add confirmed."""
        holder, lac = self.holders[spu], state.lac
        if lac >= holder.disk.leo:
            self._fail(f"SPU {spu} calls {lac} committed, its log ends at {holder.disk.leo}")
        if state.leading is not None:
            self._extend(holder, lac)
            if partition is not None:
                self.leads_rightly(spu, state, partition)
                self.members_hold_all(partition)
        elif lac >= self.end:
            if holder.disk.last_term < self._retracted_by:
                # It knows what was committed before that was lost, and has not heard of it yet.
                return
            self._fail(f"SPU {spu} follows and calls {lac} committed, leaders only {self.end - 1}")
        self._verify(holder)
        if self._end_verified(holder) <= lac:
            self._fail(f"SPU {spu} calls {lac} committed: {self._difference(holder)}")

    def _extend(self, holder: Holder, lac: int) -> None:
        disk = holder.disk
        self._verify(holder)
        if holder.verified < len(self.committed):
            if self._end_verified(holder) <= lac:
                self._fail(f"SPU {holder.spu} commits {lac}: {self._difference(holder)}")
            return
        at = holder.verified - disk.first
        for batch in disk.batches[at:]:
            if batch.end > lac + 1:
                break
            if batch.data != CONTROL:
                self._note(batch)
                if self.sealed is not None:
                    self._fail(f"SPU {holder.spu} commits {batch} behind the seal {self.sealed}")
            if batch.seals:
                if self.sealed is not None:
                    self._fail(f"SPU {holder.spu} seals at {batch.base}, and it is {self.sealed}")
                self.sealed = batch.base
            self.committed.append(batch)
            self.bases.append(batch.base)
        holder.verified = len(self.committed)

    def _note(self, batch: Batch) -> None:
        header = self.headers[bytes(batch.data)]
        key = (header.producer_id, header.producer_epoch, header.sequence)
        if key in self._offsets:
            self._fail(f"{key} is committed at {self._offsets[key]} and at {batch.base}")
        self._offsets[key] = batch.base

    def _verify(self, holder: Holder) -> None:
        """Compare further, as far as it is alike."""
        disk, committed = holder.disk, self.committed
        at, end = (
            max(holder.verified, disk.first),
            min(len(committed), disk.first + len(disk.batches)),
        )
        while at < end and disk.batches[at - disk.first] == committed[at]:
            at += 1
        holder.verified = at

    def _end_verified(self, holder: Holder) -> int:
        """The offset up to which a replica has what is committed."""
        at = holder.verified
        if at <= holder.disk.first:
            return holder.disk.start
        return self.committed[at - 1].end if at else 0

    def _difference(self, holder: Holder) -> str:
        at = holder.verified
        mine = holder.disk.batches[max(0, at - holder.disk.first) :][:1]
        return f"SPU {holder.spu} has {mine} where {self.committed[at : at + 1]} is committed"

    def shortened(self, spu: int) -> None:
        """A log was cut, or lost something."""
        holder = self.holders[spu]
        disk = holder.disk
        holder.verified = min(holder.verified, disk.first + len(disk.batches))

    def index_of(self, offset: int) -> int:
        """How many committed batches lie below an offset."""
        return bisect_left(self.bases, offset)

    # -- the live replica set ---------------------------------------------------------------

    def leads_rightly(self, spu: int, state: ReplicaState, partition: Partition) -> None:
        """A leader of the KV's term needs the KV's live replica set for a commit."""
        status, leading = partition.status, state.leading
        if leading is None or election_term(leading.term) != status.term or self.kv_is_behind:
            return
        if leading.proving:
            # It commits nothing.
            return
        lrs = {Member(m.spu_id, m.storage_id) for m in status.lrs}
        if not state.required >= lrs:
            self._fail(
                f"SPU {spu} commits in term {format_term(leading.term)} with"
                f" {sorted(state.required)}, the KV has {sorted(lrs)} at {partition.revision}"
            )

    def members_hold_all(self, partition: Partition) -> None:
        """Every fit member of the live replica set holds every committed record."""
        if self.kv_is_behind:
            return
        durably = partition.spec.log.durability == "fsync"
        for member in partition.status.lrs:
            holder = self.holders.get(member.spu_id)
            if holder is None or not is_fit(holder.disk, member.storage_id):
                continue
            self._verify(holder)
            if holder.disk.old:
                # Nobody may know yet. Once it holds everything, it is a disk like any other.
                whole = max(self.end, holder.disk.held)
                if holder.verified < len(self.committed) or holder.disk.synced < whole:
                    continue
                holder.disk.old = False
            if holder.verified < len(self.committed):
                self._fail(
                    f"SPU {member.spu_id} is live at {partition.revision} without what is"
                    f" committed: {self._difference(holder)}"
                )
            if durably and holder.disk.synced < self.end:
                self._fail(
                    f"SPU {member.spu_id} is live at {partition.revision}; durable are its records"
                    f" below {holder.disk.synced}, committed those below {self.end}"
                )

    def gives_up(self, spu: int, storage: str, partition: Partition | None) -> None:
        """A replica is about to discard its log."""
        members = [] if partition is None or self.kv_is_behind else partition.status.lrs
        if any((m.spu_id, m.storage_id) == (spu, storage) for m in members):
            self._fail(f"SPU {spu} gives up its seat as a live replica with {storage}")

    def is_unfit(self, spu: int, storage: str) -> None:
        """A replica serves no more, and may say so."""
        self._unfit.add((spu, storage))

    def hears(self, spu: int, report: ReplicaReport) -> None:
        """An SC has heard what an SPU says of its replica."""
        self._heard[spu] = (report.storage_id, report.fit)

    def decides(self, before: PartitionStatus, after: PartitionStatus) -> None:
        """An SC has decided on another live replica set. By what SCs have heard, a member that may
        be fit leaves only where a fit one stays: also one that is away stays rather than that only
        unfit ones are left, whoever leads them. An unclean election without an operator is no
        exception: it needs all members, each of them unfit."""
        if before.leader is None or self.kv_is_behind or after.incarnation > before.incarnation:
            return
        gone = [m for m in before.lrs if m not in after.lrs and not self._is_known_unfit(m)]
        if gone and all(map(self._is_known_unfit, after.lrs)):
            self._fail(f"{gone} leave, and only unfit ones stay: {after}")

    def _is_known_unfit(self, member: LiveReplica) -> bool:
        storage, fit = self._heard.get(member.spu_id, (member.storage_id, True))
        return storage != member.storage_id or not fit

    def moves_on(self, was: Partition, now: Partition) -> None:
        """The KV has another status: leader and term change together, the leader is a live replica,
        an election adds nobody, and of those that may be fit nobody leaves a set that is too small
        without them."""
        self.is_held(was, now)
        before, after, minimum = was.status, now.status, now.spec.log.min_in_sync_replicas
        if after.incarnation > before.incarnation:
            # The first election after a recovery: by what all replicas hold.
            self.kv_is_behind = False
            return
        if before.leader is None or self.kv_is_behind:
            return
        gone = [m for m in before.lrs if m not in after.lrs]
        fit = [m for m in gone if self._may_be_fit(m)]
        if fit and len(after.lrs) < minimum:
            self._fail(f"{fit} leave, {len(after.lrs)} stay, the minimum is {minimum}: {after}")
        if (before.leader != after.leader) > (before.term < after.term):
            self._fail(f"another leader in one term: {before}, then {after}")
        if after.term < before.term:
            self._fail(f"the term goes back: {before}, then {after}")
        if after.term > before.term and not set(after.lrs) <= set(before.lrs):
            self._fail(f"an election adds a replica: {before}, then {after}")
        if after.leader not in {m.spu_id for m in after.lrs}:
            self._fail(f"the leader is no live replica: {after}")

    def is_held(self, was: Partition, now: Partition) -> None:
        """The SC has written a partition: who leads or is live holds it by the spec, once. Nobody
        else comes to hold it than who joins, or is found to hold it while nobody knows who was
        live: by a backup, or where the object was lost."""
        spec, status = now.spec, now.status
        holders = set(spec.holders)
        if len(holders) < len(spec.holders):
            self._fail(f"an SPU holds it twice: {spec}")
        if not {m.spu_id for m in status.lrs} <= holders or status.leader not in (*holders, None):
            self._fail(f"who is live or leads does not hold it: {spec}, {status}")
        if self.kv_is_behind or was.status.leader is None:
            return
        if strangers := holders - set(was.spec.holders) - set(spec.joining or ()):
            self._fail(f"{strangers} come to hold it and do not join: {was.spec}, then {spec}")

    def _may_be_fit(self, member: LiveReplica) -> bool:
        holder, key = self.holders.get(member.spu_id), (member.spu_id, member.storage_id)
        if holder is None or key in self._unfit or holder.disk.old:
            # What the SC has heard of it may be of the disk that was there before.
            return False
        return is_fit(holder.disk, member.storage_id)

    # -- what clients see -------------------------------------------------------------------

    def acknowledges(self, spu: int, header: BatchHeader, base: int) -> bool:
        """A producer is answered. Gives whether that is news."""
        key = (header.producer_id, header.producer_epoch, header.sequence)
        if self._offsets.get(key) != base:
            found = self._offsets.get(key)
            self._fail(f"SPU {spu} acknowledges {key} at {base}, it is committed at {found}")
        self.told_end = max(self.told_end, base + header.record_count)
        news = key not in self.acknowledged
        self.acknowledged.add(key)
        return news

    def says_latest(self, spu: int, state: ReplicaState, partition: Partition | None) -> None:
        """The leader of now is asked for the end of what is committed."""
        leading = state.leading
        if leading is None or partition is None:
            return
        newest = election_term(leading.term) == partition.status.term
        if newest and not self.kv_is_behind and state.lac + 1 < self.told_end:
            self._fail(f"SPU {spu} says that {state.lac + 1} is next, {self.told_end} was told")

    def is_sealed(self, at: int) -> None:
        """The KV says where the records end."""
        if at != self.sealed and not self.kv_is_behind and not self._retracted_by:
            self._fail(f"the KV says that it is sealed at {at}, committed is {self.sealed}")

    def refuses(self, header: BatchHeader) -> None:
        """A producer was told that the log is sealed, and this batch not in it."""
        self.refused.add((header.producer_id, header.producer_epoch, header.sequence))

    def reads(self, spu: int, batches: Iterable[Batch]) -> None:
        """A consumer was given batches."""
        if self.holders[spu].disk.last_term < self._retracted_by:
            # It has not heard yet what is lost: its leader may still compare their logs.
            return
        for batch in batches:
            at = bisect_left(self.bases, batch.base)
            found = self.committed[at] if at < len(self.committed) else None
            if found != batch:
                self._fail(f"SPU {spu} gives readers {batch}, committed is {found}")
            if self._seen.setdefault(batch.base, batch) != batch:
                self._fail(
                    f"SPU {spu} gives readers {batch}, before it was {self._seen[batch.base]}"
                )

    # -- the end ----------------------------------------------------------------------------

    def all_alike(self, replicas: Collection[int]) -> str | None:
        """Once nothing happens any more: why the replicas that are to be are not alike, if they are
        not."""
        for holder in self.holders.values():
            if holder.spu not in replicas:
                continue
            disk = holder.disk
            if disk.leo != self.end:
                return f"SPU {holder.spu} ends at {disk.leo}, committed is {self.end}"
            if disk.batches != self.committed[disk.first :]:
                return f"SPU {holder.spu} has other records than what is committed"
        return None

    def keys_are_right(self) -> None:
        """All that was acknowledged is committed, and each batch of a producer once."""
        keys = [
            (h.producer_id, h.producer_epoch, h.sequence)
            for batch in self.committed
            if batch.data != CONTROL
            for h in (self.headers[bytes(batch.data)],)
        ]
        if len(keys) != len(set(keys)):
            self._fail("batches of producers are committed twice")
        if taken := self.refused & set(keys):
            self._fail(f"refused because the log is sealed, and committed: {sorted(taken)}")
        if lost := self.acknowledged - set(keys):
            self._fail(f"acknowledged and not committed: {sorted(lost)}")

    def survivors(self) -> int:
        """How many of the committed batches the best of the disks still has."""
        for holder in self.holders.values():
            self._verify(holder)
        return max((holder.verified for holder in self.holders.values()), default=0)

    def _fail(self, what: str) -> None:
        raise ViolationError(f"{self.name}: {what}")


def is_fit(disk: ReplicaDisk, storage: str) -> bool:
    """Whether a disk is that of a member, and nothing is wrong with it."""
    hard_state = disk.hard_state
    return hard_state.storage == storage and hard_state.unfit is None and disk.damage is None
