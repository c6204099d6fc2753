"""The SPU-group controller: from a number of SPUs to SPU objects.

``init`` → ``reserved`` if no other group has its ids and its template is valid, else ``invalid``
with the reason; existing SPUs stay as they are while the group is invalid. A reserved group gets
one managed SPU object for each id from ``minId`` on; the SPU controller has their processes
started. A changed template changes the SPUs, and where that restarts their processes, one after the
other (`sc.controllers.spu_restarts`). SPUs outside the range are removed, the highest id
first, and only when they hold no replica and have deleted those that they held: the first one that
still holds replicas keeps the others, and the status names it. Until it is removed, its replicas
move to other SPUs (`sc.controllers.membership.drain`), and no new one is placed on it.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from functools import lru_cache

from sc.controllers.actions import (
    Action,
    CreateSpu,
    Key,
    RemoveObject,
    RemoveSpu,
    WakeAt,
    WriteSpuSpec,
    WriteStatus,
)
from sc.controllers.spu_restarts import NAMED, awaited, follows_when, is_run_by, runs_by
from sc.store.local_store import LocalStore
from sc.store.view import Provisioning, View
from schemas.objects.metadata import Metadata
from schemas.objects.quantities import MAX_NAME_LENGTH
from schemas.objects.spu import MAX_SPU_ID, Encryption, Spu, SpuSpec, SpuType
from schemas.objects.spu_group import (
    CHANGED,
    NOT_FOLLOWED,
    SpuGroup,
    SpuGroupResolution,
    SpuGroupStatus,
)

#: Where SPUs of a group reach each other, unless its template says otherwise: they run on one host.
GROUP_HOST = "localhost"
#: Ports that an SPU uses from its public one on.
PORTS = 3
_NAMESPACE = uuid.UUID("5a2f4a64-93f0-4a0e-8f43-0f4f2c6a3d10")


def reconcile(view: View, key: Key, now_ms: int) -> tuple[Action, ...]:
    """Take one group a step closer to having its SPUs."""
    group = view.store.get(SpuGroup, key.name)
    if group is None:
        return ()
    if group.deleting:
        return _delete(view, group)
    invalid = _invalid(view, group)
    if invalid is not None:
        return _set(group, SpuGroupResolution.INVALID, invalid)
    if not _settled(group):
        # First the claim, so that another group with the same ids sees it.
        return _set(group, SpuGroupResolution.RESERVED, None)
    actions: list[Action] = []
    restarts: list[WriteSpuSpec] = []
    existing = {spu.spec.spu_id: spu for spu in view.store.spus_of(group.name)}
    step = view.provisioning.port_step if view.provisioning is not None else 0
    for spu_id in _ids(group):
        wanted = managed_spu(group, spu_id, step)
        spu = existing.pop(spu_id, None)
        if spu is None:
            actions.append(CreateSpu(wanted, group))
        elif spu.spec != (spec := wanted.spec.draining_as(spu.spec)):
            if runs_by(spec) == runs_by(spu.spec) or is_run_by(view, spu.name, spec):
                actions.append(WriteSpuSpec(spu, spec))
            else:
                restarts.append(WriteSpuSpec(spu, spec))
    changes, waits = _restart(view, restarts, now_ms)
    actions.extend(changes)
    known = (spu.spec.spu_id for spu in view.store.objects(Spu)) if restarts else ()
    if (decided_at_ms := view.decided_at_ms(known, now_ms)) is not None:
        # Whether they are there is known then, and nothing else may tell.
        actions.append(WakeAt(Key("SpuGroup", group.name), decided_at_ms))
    removals, kept = _end(view, list(existing.values()))
    actions.extend(removals)
    changing = {a.spu.name for a in (*actions, *restarts) if isinstance(a, WriteSpuSpec)}
    goes_on = _goes_on(view, group, changing, now_ms)
    reason = _all(kept, waits, goes_on, _trouble(view, group) if kept is None else None)
    return (*actions, *_set(group, SpuGroupResolution.RESERVED, reason))


def leaving(store: LocalStore, spu: Spu) -> bool:
    """Whether an SPU is outside the range of its group, or its group is being deleted."""
    if spu.spec.group is None:
        return False
    group = store.get(SpuGroup, spu.spec.group)
    if group is None or group.deleting:
        return True
    # While a group is invalid all its SPUs stay, even those outside its range.
    invalid = group.status.resolution is SpuGroupResolution.INVALID
    return not invalid and spu.spec.spu_id not in _ids(group)


def is_draining(store: LocalStore, spu: Spu) -> bool:
    """Whether the replicas of an SPU are to move to others."""
    return bool(spu.spec.drain) or leaving(store, spu)


def managed_spu(group: SpuGroup, spu_id: int, port_step: int) -> Spu:
    """The SPU object of one id of a group. It is the same whenever it is made."""
    template, name = group.spec.template, _spu_name(group, spu_id)
    ports = port_step * (spu_id - group.spec.min_id)
    log_dir = template.storage.log_dir
    public, private = template.public_endpoint, template.private_endpoint
    return Spu(
        metadata=Metadata(
            name=name,
            labels={"spugroup": group.name},
            uid=str(uuid.uuid5(_NAMESPACE, f"{group.uid}/{spu_id}")),
        ),
        spec=SpuSpec(
            spu_id=spu_id,
            spu_type=SpuType.MANAGED,
            group=group.name,
            rack=template.rack,
            region=template.region,
            storage=template.storage.model_copy(
                update={"log_dir": f"{log_dir}/{name}" if log_dir is not None else None}
            ),
            public_endpoint=public.model_copy(update={"port": public.port + ports}),
            private_endpoint=private.model_copy(
                update={"port": private.port + ports, "host": private.host or GROUP_HOST}
            ),
            catch_up_rate=template.catch_up_rate,
        ),
    )


def _spu_name(group: SpuGroup, spu_id: int) -> str:
    return f"{group.name}-{spu_id}"


def _ids(group: SpuGroup) -> range:
    return range(group.spec.min_id, group.spec.last_id + 1)


def _restart(
    view: View, restarts: list[WriteSpuSpec], now_ms: int
) -> tuple[list[WriteSpuSpec], str | None]:
    """Which SPUs get a spec now that restarts their processes, of those that are connected one at
    most, and what the others wait for."""
    now: list[WriteSpuSpec] = []
    left: list[str] = []
    first = restarted = None
    for change in restarts:
        spu = change.spu
        connected = spu.spec.spu_id in view.sessions
        why = awaited(view, spu, change.spec, now_ms)
        if why is None and connected and restarted is not None:
            why = f"{restarted} is back"
        if why is not None:
            left.append(spu.name)
            first = first or why
            continue
        now.append(change)
        if connected:
            restarted = spu.name
    return now, None if first is None else f"{CHANGED} {_named(left)}: waiting until {first}"


def _goes_on(view: View, group: SpuGroup, changing: set[str], now_ms: int) -> str | None:
    """Which processes run by another spec than their SPUs have, and what the first waits for; apart
    from SPUs that are to get another spec anyway."""
    waits = {
        spu.name: why
        for spu in view.store.spus_of(group.name)
        if spu.name not in changing and (why := follows_when(view, spu, now_ms)) is not None
    }
    if not waits:
        return None
    first = next(iter(waits.values()))
    return f"{NOT_FOLLOWED} {_named([*waits])}: waiting until {first}"


def _named(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _all(*said: str | None) -> str | None:
    return "; ".join(one for one in said if one is not None) or None


def _delete(view: View, group: SpuGroup) -> tuple[Action, ...]:
    spus = view.store.spus_of(group.name)
    if not spus and not view.recovering:
        return (RemoveObject(group),)
    removals, kept = _end(view, spus)
    return (*removals, *_set(group, group.status.resolution, kept or "removing its SPUs"))


def _end(view: View, spus: list[Spu]) -> tuple[list[Action], str | None]:
    """Removals from the highest id down to the first SPU that must stay for now, and why."""
    removals: list[Action] = []
    if view.recovering:
        return (
            removals,
            "SPUs are removed when the recovery of the cluster is over" if spus else None,
        )
    leaving_ones = sorted(spus, key=lambda s: -s.spec.spu_id)
    for number, spu in enumerate(leaving_ones, 1):
        spu_id = spu.spec.spu_id
        if view.store.holds_replicas(spu_id):
            held = [p.name for p in view.store.partitions_on(spu_id)]
            more = f" and {len(held) - 3} more" if len(held) > 3 else ""
            names = ", ".join(held[:3]) + more
            after = "".join(f", then {other.name}" for other in leaving_ones[number:])
            return removals, f"{spu.name} is removed once its replicas have moved: {names}{after}"
        if spu_id in view.sessions and view.store.tombstones_of(spu_id):
            but = view.undeleted(spu_id)
            return removals, f"{spu.name} is deleting its replicas before it is removed{but}"
        removals.append(RemoveSpu(spu))
    return removals, None


def _invalid(view: View, group: SpuGroup) -> str | None:
    """Why the group is invalid, or None."""
    if view.provisioning is None:
        return "this SC starts no SPUs: it has no `provisioning` in its configuration"
    if group.spec.last_id > MAX_SPU_ID:
        return f"minId: the group needs ids up to {group.spec.last_id}; the highest is {MAX_SPU_ID}"
    too_long = len(_spu_name(group, group.spec.last_id)) - MAX_NAME_LENGTH
    if group.spec.replicas and too_long > 0:
        return f"metadata.name: too long by {too_long} characters: an SPU's name is it and the id"
    if group.name in view.provisioning.groups:
        return f"metadata.name: another daemon on that host is called {group.name}"
    unusable = _unusable(view.provisioning, group)
    return unusable or _contest(view.store, view.provisioning, group)


def _unusable(provisioning: Provisioning, group: SpuGroup) -> str | None:
    """What is wrong with the group, regardless of other groups and SPUs, or None."""
    wrong = _bad_template(provisioning, group)
    if wrong is None and (both := _ports_of(group, provisioning.port_step) & provisioning.ports):
        return f"template: the SC uses port {min(both)}"
    return wrong


def _bad_template(provisioning: Provisioning, group: SpuGroup) -> str | None:
    template = group.spec.template
    for name, endpoint, ports in (
        ("publicEndpoint", template.public_endpoint, PORTS),
        ("privateEndpoint", template.private_endpoint, 1),
    ):
        if endpoint.encryption is Encryption.TLS:
            return f"template.{name}.encryption: TLS is not available in this version"
        last = endpoint.port + provisioning.port_step * (group.spec.replicas - 1) + ports - 1
        if group.spec.replicas and last > 65_535:
            return (
                f"template.{name}.port: {group.spec.replicas} SPUs on one host need ports up to"
                f" {last}"
            )
    return None


def _contest(store: LocalStore, provisioning: Provisioning, group: SpuGroup) -> str | None:
    """Which group or SPU has ids, names or ports of this group already, or None.

    Groups claim in one fixed order, and each gets what it wants if none before it has some of it.
    So the answer does not depend on the order of reconciles, and of two groups that want the same,
    one always gets it. A group that is invalid by itself claims nothing.
    """
    rivals = [other for other in store.objects(SpuGroup) if not other.deleting]
    holders: dict[str, SpuGroup] = {}
    for rival in sorted(rivals, key=lambda one: _rank(store, one)):
        overlaps = (_overlap(holder, rival, provisioning.port_step) for holder in holders.values())
        against = next(filter(None, overlaps), None)
        obstacle, leaves = _obstacle(store, rival, holders)
        if rival.name == group.name:
            return obstacle or against
        unusable = _unusable(provisioning, rival) is not None
        if against is None and not unusable and (obstacle is None or leaves):
            holders[rival.name] = rival
    raise AssertionError(f"{group.name} is none of the groups there are")


def _obstacle(
    store: LocalStore, group: SpuGroup, holders: Mapping[str, SpuGroup]
) -> tuple[str | None, bool]:
    """The first SPU that has an id or a name of the group, and whether all such SPUs will be
    removed: their groups are being deleted, or are among ``holders`` and exclude them."""
    found, leave = None, True
    for spu_id in _ids(group):
        by_id, by_name = store.spu(spu_id), store.get(Spu, _spu_name(group, spu_id))
        for spu in (by_id, by_name):
            if spu is None or (spu.spec.group, spu.spec.spu_id) == (group.name, spu_id):
                continue
            found = (
                found or f"spuId {spu_id}: SPU {spu.name} (spuId {spu.spec.spu_id}) is in the way"
            )
            leave = leave and _leaves(store, spu, holders)
    return found, leave


def _leaves(store: LocalStore, spu: Spu, holders: Mapping[str, SpuGroup]) -> bool:
    if spu.spec.group is None:
        return False
    group = store.get(SpuGroup, spu.spec.group)
    if group is None or group.deleting:
        return True
    return group.name in holders and spu.spec.spu_id not in _ids(group)


def _overlap(holder: SpuGroup, group: SpuGroup, step: int) -> str | None:
    """What two groups both want, and the first has. ``step`` is 0 if each SPU has its own host."""
    first = max(holder.spec.min_id, group.spec.min_id)
    last = min(holder.spec.last_id, group.spec.last_id)
    if first <= last:
        return f"ids {first} to {last} belong to SpuGroup {holder.name}"
    if step and (both := _ports_of(group, step) & _ports_of(holder, step)):
        return f"template: port {min(both)} belongs to SpuGroup {holder.name}"
    return None


def _ports_of(group: SpuGroup, step: int) -> frozenset[int]:
    template = group.spec.template
    public, private = template.public_endpoint.port, template.private_endpoint.port
    return _ports(public, private, step, group.spec.replicas)


@lru_cache(maxsize=256)
def _ports(public: int, private: int, step: int, spus: int) -> frozenset[int]:
    """All ports of ``spus`` SPUs that count up from these two."""
    firsts = range(0, step * spus, step)
    near = {public + first + i for first in firsts for i in range(PORTS)}
    return frozenset(near | {private + first for first in firsts})


def _settled(group: SpuGroup) -> bool:
    return (
        group.status.resolution is SpuGroupResolution.RESERVED
        and group.status.observed_generation == group.generation
    )


def _rank(store: LocalStore, group: SpuGroup) -> tuple[bool, bool, str, str]:
    """Of two groups that want the same, the lower rank gets it: the one that has SPUs, then a
    reserved one, then the older one. A running group that changes stays ahead of a waiting one.
    """
    created = group.metadata.creation_timestamp or ""
    return (not store.spus_of(group.name), not _settled(group), created, group.name)


def _trouble(view: View, group: SpuGroup) -> str | None:
    """What keeps an SPU of the group from running or connecting, the lowest id's first."""
    provisioned = view.provisioning.spus if view.provisioning is not None else {}
    for spu in view.store.spus_of(group.name):
        found = provisioned.get(spu.name)
        if found is not None and found.trouble is not None:
            return f"{spu.name}: {found.trouble}"
        if (refused := view.refusal(spu.spec.spu_id)) is not None:
            return f"{spu.name}: {refused}"
    return None


def _set(group: SpuGroup, resolution: SpuGroupResolution, reason: str | None) -> tuple[Action, ...]:
    status = SpuGroupStatus(
        resolution=resolution, reason=reason, observed_generation=group.generation
    )
    return () if status == group.status else (WriteStatus(group, status),)
