"""Does what a plan says, and writes down when each fault began, when its repair did, when it was
over, and whether it was in force at all."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, assert_never

from tests.chaos.whole.cluster import ROOM_LEFT, Cluster
from tests.chaos.whole.plan import (
    CLIENTS,
    HOSTS,
    ORDERS,
    Fault,
    Kind,
    Storm,
    cut_links,
    daemons_of,
)
from tests.chaos.whole.recording import Recording

SLOW_KILOBITS: Final = 400


class Faults:
    """Has storms come over a cluster. `active` says which faults there are now, ``problems`` which
    could not be ended."""

    def __init__(self, cluster: Cluster, recording: Recording) -> None:
        self._cluster = cluster
        self._recording = recording
        self._lock = threading.Lock()
        self._active: list[Fault] = []
        self.problems: list[str] = []

    def active(self) -> tuple[Fault, ...]:
        with self._lock:
            return tuple(self._active)

    def try_out(self) -> None:
        """Write down which faults there cannot be on this machine."""
        if not self._cluster.machines.slow_down(CLIENTS, SLOW_KILOBITS):
            self._recording.write("cannot", kind=Kind.SLOW.value)
        self._cluster.machines.speed_up(CLIENTS)

    def storm(self, storm: Storm) -> float:
        """All faults of a storm; returns when the last one is over, and says when the last repair
        began: from then on nothing is broken by anybody."""
        begun_s = time.monotonic()
        with ThreadPoolExecutor(len(storm.faults)) as threads:
            done = [threads.submit(self._one, fault, begun_s) for fault in storm.faults]
            repaired = [one.result() for one in done]
        troubles = zip(storm.faults, repaired, strict=True)
        return max((at_s for f, at_s in troubles if f.kind not in ORDERS), default=begun_s)

    def _one(self, fault: Fault, begun_s: float) -> float:
        """Returns when the repair began."""
        _sleep_until(begun_s + fault.begin_s)
        with self._lock:
            self._active.append(fault)
        begin_s = time.monotonic()
        is_in_force = self._begin(fault)
        _sleep_until(begun_s + fault.end_s)
        repair_s = time.monotonic()
        try:
            self._end(fault)
        except TimeoutError as error:
            self.problems.append(f"{fault} has no end: {error}")
        with self._lock:
            self._active.remove(fault)
        self._recording.write(
            "fault",
            kind=fault.kind.value,
            what=str(fault),
            host=fault.host,
            begin=begin_s,
            repair=repair_s,
            end=time.monotonic(),
            in_force=is_in_force,
        )
        return repair_s

    def _begin(self, fault: Fault) -> bool:
        """Whether it is in force now: a daemon that ended by itself cannot be killed."""
        cluster, machines, host = self._cluster, self._cluster.machines, fault.host
        match fault.kind:
            case Kind.KILL:
                return self._kill([f"{fault.daemon}@{host}"])
            case Kind.FREEZE:
                return cluster.send_signal(f"{fault.daemon}@{host}", signal.SIGSTOP)
            case Kind.LOSE_HOST:
                return self._kill([f"{daemon}@{host}" for daemon in reversed(daemons_of(host))])
            case Kind.LOSE_SPUS:
                return self._kill([f"spu@{spu}" for spu in HOSTS])
            case Kind.ISOLATE | Kind.PEERLESS | Kind.CUT | Kind.CUT_ONE_WAY:
                for sender, receiver in cut_links(fault):
                    machines.cut(sender, receiver)
            case Kind.SLOW:
                return machines.slow_down(host, SLOW_KILOBITS)
            case Kind.SHORT_OF_ROOM:
                cluster.fill_disk(host, leave=ROOM_LEFT)
            case Kind.FULL:
                cluster.fill_disk(host, leave=0)
            case Kind.CLOCK:
                return cluster.set_wrong(f"{fault.daemon}@{host}", fault.peer)
            case Kind.DRAIN:
                return self._order(f"spu drain {host} --no-wait")
            case Kind.REBALANCE:
                return self._order("cluster rebalance --no-wait")
            case Kind.STEP_DOWN:
                return self._order("sc step-down")
            case Kind.TOPIC:
                return self._order(f"create topic {fault.peer} -p 2 -r 3 --no-wait")
            case _:
                assert_never(fault.kind)
        return True

    def _end(self, fault: Fault) -> None:
        cluster, machines, host = self._cluster, self._cluster.machines, fault.host
        match fault.kind:
            case Kind.KILL:
                self._start_again([f"{fault.daemon}@{host}"])
            case Kind.FREEZE:
                cluster.send_signal(f"{fault.daemon}@{host}", signal.SIGCONT)
            case Kind.LOSE_HOST:
                self._start_again([f"{daemon}@{host}" for daemon in daemons_of(host)])
            case Kind.LOSE_SPUS:
                self._start_again([f"spu@{spu}" for spu in HOSTS])
            case Kind.ISOLATE | Kind.PEERLESS | Kind.CUT | Kind.CUT_ONE_WAY:
                for sender, receiver in cut_links(fault):
                    machines.heal(sender, receiver)
            case Kind.SLOW:
                machines.speed_up(host)
            case Kind.SHORT_OF_ROOM | Kind.FULL:
                cluster.free_disk(host)
            case Kind.CLOCK:
                cluster.set_right(f"{fault.daemon}@{host}")
            case Kind.DRAIN:
                cluster.until(f"spu drain {host} --cancel")
            case Kind.TOPIC:
                self._order(f"delete topic {fault.peer} --no-wait")
            case Kind.REBALANCE | Kind.STEP_DOWN:
                pass
            case _:
                assert_never(fault.kind)

    def _kill(self, daemons: Sequence[str]) -> bool:
        """End daemons, and return whether any of them ran."""
        ran = [self._cluster.kill(daemon) for daemon in daemons]
        return any(ran)

    def _start_again(self, daemons: Sequence[str]) -> None:
        """Start daemons that were killed, and return when they listen. Raises TimeoutError."""
        for daemon in daemons:
            self._cluster.run_daemon(daemon)
        for daemon in daemons:
            self._cluster.await_daemon(daemon)

    def _order(self, words: str) -> bool:
        """Run a command once: while the cluster is in trouble it may fail, and is written down.
        Returns whether it succeeded."""
        code = None
        try:
            done = self._cluster.command(words)
            code, said = done.returncode, f"{done.returncode} {done.stdout}{done.stderr}"
        except subprocess.TimeoutExpired:
            said = "it did not end"
        self._recording.write("order", what=words, said=said)
        return code == 0


def _sleep_until(moment_s: float) -> None:
    time.sleep(max(0.0, moment_s - time.monotonic()))
