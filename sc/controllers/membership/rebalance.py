"""The rebalance controller: replicas move until SPUs hold equally many, then leaders.

What is to move follows from where replicas are, so nothing is stored of a plan: whoever takes over
goes on, and an SPU that comes or goes in between changes what is left. Moves go in rounds: as many
as may move at once (`budget`), and when all of them have ended, the next are planned. Elections of
leaders go the same way, and it is done when the leaders of the last round lead, or have not for
`TAKE_OVER_MS`; so long preferred leaders are waited for, too, that may not lead yet.
One rebalance works at a time, the first by name.

Partitions stay where they are whose rows a topic's owner wrote, that have no leader, or that move
for another reason; they count all the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sc.controllers.actions import Action, BeginMove, Key, WakeAt, WritePartitionSpec, WriteStatus
from sc.controllers.membership.begin import (
    able,
    begin,
    lost_newcomers,
    may_move,
    respecified,
)
from sc.controllers.membership.budget import MOST, Budget
from sc.controllers.placing import decided_at_ms, returning
from sc.controllers.preferred_leader import elect_now, may_lead_soon
from sc.controllers.spu_group import is_draining
from sc.scheduler.balance import Row, balanced_leaders, balanced_replicas
from sc.scheduler.row_changes import Seat
from sc.store.view import View
from schemas.objects.partition import Partition, PartitionStatus, is_led, is_taking_over
from schemas.objects.rebalance import (
    MAX_PLANNED,
    PlannedMove,
    Rebalance,
    RebalanceResolution,
    RebalanceStatus,
)
from schemas.objects.spu import Spu
from schemas.objects.topic import Topic

#: Leaders that move at once: each is a short pause for those who write.
LEADERS_AT_ONCE: Final = 16
#: How long one that was elected is waited for: an SPU whose disk hangs may never lead. And how long
#: those that may not lead yet are, since an SPU came or went, or a leader moved.
TAKE_OVER_MS: Final = 30_000
#: How often to look whether those may lead that are waited for: replicas that join wake nobody.
LOOK_MS: Final = 1_000
DONE: Final = RebalanceResolution.DONE
_ENDED = (DONE, RebalanceResolution.PLANNED)
#: The reason while leaders that were elected take over.
_LEADERS_MOVE: Final = "leaders move"
#: The reason while nothing moves. It looks by itself then: when an SPU is lost, thousands of
#: partitions change, and each look is at all of them.
LEADERS_WAIT: Final = "preferred leaders wait until they may lead"


def reconcile(view: View, key: Key, now_ms: int) -> tuple[Action, ...]:
    """Take one rebalance a step further."""
    rebalance = view.store.get(Rebalance, key.name)
    if rebalance is None or rebalance.deleting or rebalance.status.resolution in _ENDED:
        return ()
    waits = _waits(view, rebalance, now_ms)
    if isinstance(waits, str):
        at_ms = decided_at_ms(view, now_ms)
        again = () if at_ms is None else (WakeAt(key, at_ms),)
        return (*again, *_set(rebalance, RebalanceResolution.PENDING, waits))
    if not _may_hold(view) and view.store.objects(Partition):
        # Without a place nothing is balanced. An SPU that comes has it look again.
        nowhere = "nothing can move: no SPU is online that may hold replicas"
        return _set(rebalance, RebalanceResolution.MOVING, nowhere)
    if not rebalance.spec.plan_only and any(view.store.moving()):
        # Its own, or those of somebody else: the round ends with the last of them. Until then no
        # plan is of use.
        lost = lost_newcomers(view, view.store.moving(), now_ms)
        reason = "replicas move" if lost is None else f"replicas move; {lost}"
        return _set(rebalance, RebalanceResolution.MOVING, reason, rebalance.status.left)
    if rebalance.status.reason == _LEADERS_MOVE and (
        round_goes_on := _while_taking_over(view, rebalance, now_ms)
    ):
        # The same: each leader of the round that takes over has it look.
        return round_goes_on
    plan = make_plan(view, leaders_only=rebalance.spec.leaders_only)
    if rebalance.spec.plan_only:
        return _planned(view, rebalance, plan, now_ms)
    if plan.replicas:
        actions, why = _begin(view, plan)
        left = len(plan.replicas)
        reason = "replicas move" if actions else f"nothing can move: {why}"
        return (*actions, *_set(rebalance, RebalanceResolution.MOVING, reason, left))
    return _move_leaders(view, rebalance, plan, now_ms)


@dataclass(frozen=True, slots=True)
class Plan:
    """Partitions by name, and their replicas once they are balanced: ``replicas`` those that get
    others; ``leaders`` those that get only another order, which is meant for when the former have
    moved."""

    replicas: dict[str, tuple[int, ...]]
    leaders: dict[str, tuple[int, ...]]


def make_plan(view: View, *, leaders_only: bool) -> Plan:
    """What is to be moved, from where replicas are to be now."""
    seats = {
        spu.spec.spu_id: Seat(spu.spec.spu_id, spu.spec.rack, spu.spec.region)
        for spu in _may_hold(view)
    }
    topics = {topic.name: topic for topic in view.store.objects(Topic)}
    rows = [
        _row(view, partition, topics)
        for partition in view.store.objects(Partition)
        if not partition.deleting
    ]
    replicas = {} if leaders_only else balanced_replicas(rows, seats.values())
    then = [
        Row(row.name, replicas.get(row.name, row.replicas), row.ignore_racks, row.fixed)
        for row in rows
    ]
    leaders = balanced_leaders(then, seats)
    return Plan(
        {name: leaders.pop(name, row) for name, row in replicas.items()},
        leaders,
    )


def _may_hold(view: View) -> list[Spu]:
    """SPUs that may hold replicas: online, and not to be emptied."""
    return [
        spu
        for spu in view.store.objects(Spu)
        if spu.spec.spu_id in view.sessions and not is_draining(view.store, spu)
    ]


def _row(view: View, partition: Partition, topics: dict[str, Topic]) -> Row:
    owner = partition.spec.owner
    topic = topics.get(owner.name) if owner.kind == "Topic" else None
    spec = None if topic is None else topic.spec
    fixed = spec is not None and spec.assignment is not None
    fixed = fixed or partition.spec.moves or may_move(view, partition) is not None
    ignored = spec is not None and spec.ignore_rack_assignment
    first = partition.spec.preferred_leader
    order = (first, *(i for i in partition.spec.replicas if i != first))
    return Row(partition.name, order, ignored, fixed)


def _waits(view: View, rebalance: Rebalance, now_ms: int) -> str | None:
    """What a rebalance waits for before it plans anything."""
    if view.recovering:
        return "it begins when the recovery of the cluster is over"
    for other in view.store.objects(Rebalance):
        if other.name == rebalance.name or rebalance.spec.plan_only:
            break
        if other.status.resolution not in _ENDED and not other.spec.plan_only:
            return f"it begins when {other.name} is done"
    if away := returning(view, now_ms):
        return f"waiting for {', '.join(away)} to connect again"
    return None


def _taking_over_until_ms(view: View, now_ms: int) -> int | None:
    """Until when preferred leaders are waited for that were elected and do not lead yet; None if
    there are none."""
    elected = view.preferred_elections.by_partition
    until = [
        elected[p.uid][0] + TAKE_OVER_MS
        for p in view.store.objects(Partition)
        if is_taking_over(p.status)
        and not p.deleting
        and p.status.leader == p.spec.preferred_leader
        and p.status.leader in view.sessions
        and p.uid in elected
    ]
    return max((ms for ms in until if ms > now_ms), default=None)


def _while_taking_over(view: View, rebalance: Rebalance, now_ms: int) -> tuple[Action, ...]:
    """What is done while those take over that were elected; empty if there are none."""
    if (until_ms := _taking_over_until_ms(view, now_ms)) is None:
        return ()
    wake = WakeAt(Key("Rebalance", rebalance.name), until_ms)
    left = rebalance.status.left
    return (wake, *_set(rebalance, RebalanceResolution.MOVING, _LEADERS_MOVE, left))


def _planned(view: View, rebalance: Rebalance, plan: Plan, now_ms: int) -> tuple[Action, ...]:
    changes = sorted({**plan.replicas, **plan.leaders}.items())
    found = ((view.store.get(Partition, name), after) for name, after in changes[:MAX_PLANNED])
    moves = tuple(
        PlannedMove(partition=p.name, before=p.spec.replicas, after=after)
        for p, after in found
        if p is not None
    )
    status = RebalanceStatus(
        resolution=RebalanceResolution.PLANNED,
        reason=_counts(plan, [p.name for p, _ in _astray(view, now_ms)]) or _balanced(view),
        left=len(changes),
        moves=moves,
        observed_generation=rebalance.generation,
    )
    return (WriteStatus(rebalance, status),)


def _balanced(view: View) -> str:
    """That all is balanced, and how many partitions their preferred leaders do not lead."""
    partitions = [p for p in view.store.objects(Partition) if not p.deleting]
    left = sum(is_led(p.status) and p.status.leader != p.spec.preferred_leader for p in partitions)
    waiting = sum(
        is_taking_over(p.status) and p.status.leader == p.spec.preferred_leader for p in partitions
    )
    but = []
    if left:
        but.append(f"{_partitions(left)} cannot be led by the preferred leader now")
    if waiting:
        but.append(f"the leaders elected for {_partitions(waiting)} do not lead yet")
    return f"all is balanced, but {' and '.join(but)}" if but else "all is balanced"


def _counts(plan: Plan, astray: Iterable[str]) -> str:
    """What moves, and how many others of ``astray`` their preferred leaders take over; empty if
    nothing does."""
    said = []
    led = sum(name not in plan.replicas and name not in plan.leaders for name in astray)
    if plan.replicas:
        said.append(f"replicas of {_partitions(len(plan.replicas))} move")
    if plan.leaders:
        said.append(f"of {_partitions(len(plan.leaders))} only the leader moves")
    if led:
        said.append(f"the preferred leaders of {_partitions(led)} take over")
    return ", ".join(said)


def _partitions(number: int) -> str:
    return "1 partition" if number == 1 else f"{number} partitions"


def _begin(view: View, plan: Plan) -> tuple[list[BeginMove], str | None]:
    """The moves of one round, or why there are none."""
    budget, actions = Budget(view), list[BeginMove]()
    why: str | None = None
    for name, row in plan.replicas.items():
        if budget.is_spent:
            break
        partition = view.store.get(Partition, name)
        if partition is None:
            continue
        added = [i for i in row if i not in partition.spec.replicas]
        spus = (spu for i in added if (spu := view.store.spu(i)) is not None)
        there = {spu.spec.spu_id for spu in able(view, partition, spus)}
        if (full := next((i for i in added if i not in there), None)) is not None:
            why = why or f"SPU {full} has no room for {name}"
            continue
        found = begin(view, partition, respecified(partition, row), budget)
        if isinstance(found, BeginMove):
            actions.append(found)
        else:
            why = why or found
    return actions, why


def _move_leaders(view: View, rebalance: Rebalance, plan: Plan, now_ms: int) -> tuple[Action, ...]:
    """First the preferences, then the leaders: a few at once, as each move is a short pause."""
    written: list[Action] = []
    for name, row in list(plan.leaders.items())[:MOST]:
        partition = view.store.get(Partition, name)
        if partition is not None:
            update = {"replicas": row, "preferred_leader": row[0]}
            spec = partition.spec.model_copy(update=update)
            written.append(WritePartitionSpec(partition, spec))
    if written:
        left = len(plan.leaders)
        return (
            *written,
            *_set(rebalance, RebalanceResolution.MOVING, "preferred leaders change", left),
        )
    if round_goes_on := _while_taking_over(view, rebalance, now_ms):
        # Each look would begin more elections than may be under way, or find that all is done.
        return round_goes_on
    astray = _astray(view, now_ms)
    if not astray:
        return _none_may_lead(view, rebalance, now_ms)
    under_way = sum(
        is_taking_over(p.status) and not p.deleting for p in view.store.objects(Partition)
    )
    some = astray[: max(1, LEADERS_AT_ONCE - under_way)]
    elections = tuple(WriteStatus(partition, wish) for partition, wish in some)
    return (*elections, *_set(rebalance, RebalanceResolution.MOVING, _LEADERS_MOVE, len(astray)))


def _none_may_lead(view: View, rebalance: Rebalance, now_ms: int) -> tuple[Action, ...]:
    """Done, unless preferred leaders may lead in a moment: when replicas have joined that come from
    a restart, or when one has left, or is back, whose SPU was lost."""
    waiting = sum(
        may_lead_soon(view, partition, now_ms)
        for partition in view.store.objects(Partition)
        if not partition.deleting
    )
    since_ms = _changed_ms(view) if waiting else None
    if since_ms is None or now_ms >= (until_ms := since_ms + TAKE_OVER_MS):
        return _set(rebalance, DONE, _balanced(view))
    wake = WakeAt(Key("Rebalance", rebalance.name), min(until_ms, now_ms + LOOK_MS))
    return (wake, *_set(rebalance, RebalanceResolution.MOVING, LEADERS_WAIT, waiting))


def _changed_ms(view: View) -> int | None:
    """When an SPU came or went last, or a preferred leader took over from another one: more may
    lead after that. None if nothing of that is known."""
    # A partition's first election takes over from nobody. Where topics are made again and again,
    # a rebalance would not end.
    first = view.next_term(0)
    elections = view.preferred_elections.by_partition.values()
    times = [at_ms for at_ms, _, term in elections if term > first]
    if view.suspicions.came_or_went_ms is not None:
        times.append(view.suspicions.came_or_went_ms)
    return max(times, default=None)


def _astray(view: View, now_ms: int) -> list[tuple[Partition, PartitionStatus]]:
    """The partitions that their preferred leader does not lead and may, and their status then."""
    return [
        (partition, wish)
        for partition in view.store.objects(Partition)
        if not partition.deleting and (wish := elect_now(view, partition, now_ms)) is not None
    ]


def _set(
    rebalance: Rebalance, resolution: RebalanceResolution, reason: str, left: int | None = None
) -> tuple[Action, ...]:
    status = RebalanceStatus(
        resolution=resolution,
        reason=reason,
        left=left,
        observed_generation=rebalance.generation,
    )
    return () if status == rebalance.status else (WriteStatus(rebalance, status),)
