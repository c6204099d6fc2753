"""Which faults a seed stands for, and when. Pure: the same seed and minutes give the same plan.

A plan is a row of storms. In a storm faults overlap: one host has trouble for most of it, and
others have trouble beside it, each for a few seconds. So for moments more is broken than the
cluster can make progress with, and never for long. Between storms nothing is broken.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

HOSTS: Final = tuple(f"host-{number}" for number in range(1, 6))
#: Those that have a member of etcd and an SC as well.
CONTROLLERS: Final = HOSTS[:3]
CLIENTS: Final = "clients"

CALM_S: Final = 12.0
"""How long nothing is broken after a storm: longer than progress may take to come back."""
STORM_S: Final = (10.0, 18.0)
BRIEF_S: Final = (0.2, 4.0)
#: For so long at most, trouble on more than one host at a time.
TOO_MANY_S: Final = 6.0
_ATTEMPTS: Final = 100


class Kind(StrEnum):
    """What a fault is, as the report names it."""

    KILL = "kill -9"
    FREEZE = "freeze"
    LOSE_HOST = "host killed"
    LOSE_SPUS = "all SPUs killed"
    ISOLATE = "host cut off"
    PEERLESS = "host cut off from hosts"
    """Clients still reach it: a leader that commits alone would be found out."""
    CUT = "cut"
    CUT_ONE_WAY = "cut one way"
    SLOW = "slow link"
    SHORT_OF_ROOM = "disk short of room"
    FULL = "disk full"
    CLOCK = "clock jump"
    """The wall clock of one SPU or SC jumps, and jumps back in the end."""
    DRAIN = "drain"
    REBALANCE = "rebalance"
    STEP_DOWN = "step-down"
    TOPIC = "topic beside"


LONG: Final = (
    Kind.KILL,
    Kind.FREEZE,
    Kind.LOSE_HOST,
    Kind.ISOLATE,
    Kind.PEERLESS,
    Kind.CUT,
    Kind.CUT_ONE_WAY,
    Kind.SLOW,
    Kind.SHORT_OF_ROOM,
    Kind.FULL,
    Kind.CLOCK,
)
BRIEF: Final = (
    *(Kind.KILL, Kind.KILL, Kind.KILL, Kind.FREEZE, Kind.FREEZE, Kind.LOSE_HOST),
    *(
        Kind.LOSE_SPUS,
        Kind.ISOLATE,
        Kind.PEERLESS,
        Kind.PEERLESS,
        Kind.CUT,
        Kind.CUT_ONE_WAY,
        Kind.FULL,
        Kind.CLOCK,
    ),
)
JUMPS_S: Final = ("-3600", "-5", "+5", "+3600")
"""By how much clocks jump."""
ORDERS: Final = (Kind.DRAIN, Kind.REBALANCE, Kind.STEP_DOWN, Kind.TOPIC)
"""What an operator does: nobody's host is in trouble for it."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. ``begin_s`` and ``end_s`` count from the beginning of its storm.

    ``daemon`` is ``spu``, ``sc`` or ``etcd`` where one daemon is meant. ``peer`` is the other end
    of a link. A topic's ``peer`` is its name, and that of a clock by how many seconds it jumps.
    """

    kind: Kind
    begin_s: float
    end_s: float
    host: str = ""
    daemon: str = ""
    peer: str = ""

    def __str__(self) -> str:
        where = f"{self.daemon}@{self.host}" if self.daemon else self.host
        return " ".join(filter(None, (self.kind.value, where, self.peer)))


@dataclass(frozen=True, slots=True)
class Storm:
    """Faults that overlap, and how long the storm is planned to take."""

    faults: tuple[Fault, ...]
    length_s: float


def storms(seed: int, minutes: float) -> tuple[Storm, ...]:
    """The storms of a seed that fit into so many minutes, each with the calm after it; at least
    one."""
    rng = random.Random(seed)
    long, brief, orders = _Bag(rng, LONG), _Bag(rng, BRIEF), _Bag(rng, ORDERS)
    planned: list[Storm] = []
    used_s = 0.0
    while True:
        storm = _storm(rng, len(planned), long.draw(), brief, orders)
        used_s += storm.length_s + CALM_S
        if planned and used_s > minutes * 60:
            return tuple(planned)
        planned.append(storm)


def trouble_s(faults: Iterable[Fault], hosts: int) -> float:
    """The longest time during which at least so many hosts have trouble."""
    chosen = [fault for fault in faults if fault.kind not in ORDERS]
    edges = sorted({edge for fault in chosen for edge in (fault.begin_s, fault.end_s)})
    longest = since = 0.0
    for begin, end in itertools.pairwise(edges):
        now = [fault for fault in chosen if fault.begin_s < end and fault.end_s > begin]
        troubled = {host for fault in now for host in hosts_of(fault)}
        since = since + end - begin if len(troubled) >= hosts else 0.0
        longest = max(longest, since)
    return longest


def touched(fault: Fault) -> frozenset[str]:
    """What a fault lays hands on: two that touch the same do not overlap."""
    match fault.kind:
        case Kind.KILL | Kind.FREEZE:
            return frozenset((f"{fault.daemon}@{fault.host}",))
        case Kind.CLOCK:
            return frozenset((f"clock of {fault.daemon}@{fault.host}",))
        case Kind.LOSE_HOST:
            return frozenset(f"{daemon}@{fault.host}" for daemon in daemons_of(fault.host))
        case Kind.LOSE_SPUS:
            return frozenset(f"spu@{host}" for host in HOSTS)
        case Kind.ISOLATE | Kind.PEERLESS | Kind.CUT | Kind.CUT_ONE_WAY:
            # Two cuts that share a link would heal each other.
            return frozenset(("links",))
        case Kind.SLOW:
            return frozenset((f"speed@{fault.host}",))
        case Kind.SHORT_OF_ROOM | Kind.FULL:
            return frozenset((f"disk@{fault.host}",))
        case Kind.DRAIN | Kind.REBALANCE | Kind.STEP_DOWN | Kind.TOPIC:
            return frozenset((fault.kind.value,))


def hosts_of(fault: Fault) -> tuple[str, ...]:
    """The hosts that have trouble by a fault."""
    return HOSTS if fault.kind is Kind.LOSE_SPUS else (fault.host,)


def cut_links(fault: Fault) -> list[tuple[str, str]]:
    """Sender and receiver of each direction of a link that a fault cuts."""
    if fault.kind is Kind.CUT_ONE_WAY:
        return [(fault.host, fault.peer)]
    peers = (fault.peer,) if fault.peer else HOSTS
    if fault.kind is Kind.ISOLATE:
        peers = (*HOSTS, CLIENTS)
    others = [peer for peer in peers if peer != fault.host]
    return [pair for peer in others for pair in ((fault.host, peer), (peer, fault.host))]


def daemons_of(host: str) -> tuple[str, ...]:
    """The daemons of a host, in the order in which they are started."""
    return ("etcd", "sc", "spu") if host in CONTROLLERS else ("spu",)


class _Bag:
    """Draws each of its kinds before any of them comes again."""

    def __init__(self, rng: random.Random, kinds: Sequence[Kind]) -> None:
        self._rng = rng
        self._kinds = kinds
        self._left: list[Kind] = []

    def draw(self) -> Kind:
        if not self._left:
            self._left = list(self._kinds)
            self._rng.shuffle(self._left)
        return self._left.pop()


def _storm(rng: random.Random, number: int, main: Kind, brief: _Bag, orders: _Bag) -> Storm:
    length_s = round(rng.uniform(*STORM_S), 1)
    begin_s = round(rng.uniform(0.0, 2.0), 1)
    victim = rng.choice(HOSTS)
    faults = [_fault(rng, main, victim, begin_s, rng.uniform(0.6, 1.0) * (length_s - begin_s))]
    wanted = [(brief.draw(), BRIEF_S) for _ in range(rng.randint(4, 6))]
    wanted += [(orders.draw(), (3.0, 10.0)) for _ in range(rng.randint(1, 2))]
    for kind, (shortest_s, longest_s) in wanted:
        for _ in range(_ATTEMPTS):
            took_s = rng.uniform(shortest_s, longest_s)
            at_s = rng.uniform(0.0, length_s - took_s)
            fault = _fault(rng, kind, rng.choice(HOSTS), at_s, took_s, f"beside-{number}")
            if _fits(fault, faults):
                faults.append(fault)
                break
    return Storm(tuple(sorted(faults, key=lambda fault: fault.begin_s)), length_s)


def _fault(
    rng: random.Random, kind: Kind, host: str, begin_s: float, took_s: float, topic: str = ""
) -> Fault:
    daemon = peer = ""
    match kind:
        case Kind.KILL | Kind.FREEZE:
            daemon = rng.choice(daemons_of(host))
        case Kind.CLOCK:
            daemon = rng.choice([one for one in daemons_of(host) if one != "etcd"])
            peer = rng.choice(JUMPS_S)
        case Kind.CUT | Kind.CUT_ONE_WAY:
            peer = rng.choice([other for other in (*HOSTS, CLIENTS) if other != host])
        case Kind.REBALANCE | Kind.STEP_DOWN:
            host, took_s = "", 0.0
        case Kind.LOSE_SPUS:
            host = ""
        case Kind.TOPIC:
            host, peer = "", topic
        case _:
            pass
    return Fault(kind, round(begin_s, 1), round(begin_s + took_s, 1), host, daemon, peer)


def _is_vain(clock: Fault, kill: Fault) -> bool:
    """Whether a clock is to jump while its daemon is not there. It may be killed meanwhile."""
    return (
        clock.kind is Kind.CLOCK
        and kill.kind in (Kind.KILL, Kind.LOSE_HOST, Kind.LOSE_SPUS)
        and f"{clock.daemon}@{clock.host}" in touched(kill)
        and kill.begin_s <= clock.begin_s < kill.end_s + 1.0
    )


def _fits(fault: Fault, others: Sequence[Fault]) -> bool:
    """Whether it touches nothing that another one touches at the same time or shortly before, and
    leaves enough hosts in peace."""
    for other in others:
        if touched(fault) & touched(other) and not (
            fault.begin_s >= other.end_s + 1.0 or other.begin_s >= fault.end_s + 1.0
        ):
            return False
        if _is_vain(fault, other) or _is_vain(other, fault):
            return False
    return trouble_s((*others, fault), 2) <= TOO_MANY_S
