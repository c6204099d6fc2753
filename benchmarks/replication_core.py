"""What a record costs the replication core: a leader and two followers, without disks and networks.

    python -m benchmarks.replication_core [PYTHON] [--rounds 9] [--json]

PYTHON is the interpreter of an environment that has another build installed, for example
``.venv/bin/python`` of a second clone; without it this build is measured alone. The builds take
turns, each round in a process of its own. Measured is processor time: a leader appends a record,
both followers store and acknowledge it, it is committed, and they hear of that. The table shows the
least of the rounds, in microseconds a record: what the code costs when nothing disturbs it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from time import process_time
from typing import Any, Final

_RECORDS: Final = 2_000
_TERM: Final = 1 << 16


def measure() -> float:
    """Seconds a record, in this process and with the build that it imports."""
    from spu.replication.core import step
    from spu.replication.events import (
        AppendControl,
        Appended,
        Elected,
        Flushed,
        HardStatePersisted,
        Input,
        LinkUp,
        PartitionUpdated,
        PersistHardState,
        Push,
        Pushed,
        Received,
        Send,
    )
    from spu.replication.messages import Append, Batch
    from spu.replication.state import HardState, Member, ReplicaState

    members = tuple(Member(spu, f"storage {spu}") for spu in range(3))
    replicas = [
        ReplicaState(spu, f"{spu:016x}", HardState(members[spu].storage), proven=True)
        for spu in range(3)
    ]
    now_ms = 0

    def tell(spu: int, event: Input) -> None:
        """Tell a replica, and carry out what follows from it: every write is durable at once."""
        waiting: list[tuple[int, Any]] = [(spu, event)]
        while waiting:
            at, told = waiting.pop(0)
            replicas[at], outputs = step(replicas[at], told, now_ms)
            for output in outputs:
                match output:
                    case PersistHardState(hard_state):
                        waiting.append((at, HardStatePersisted(hard_state)))
                    case AppendControl():
                        waiting.append((at, Flushed(replicas[at].log.leo)))
                    case Send(to, message):
                        waiting.append((to, Received(at, message)))
                    case Push(to=to):
                        leo = replicas[at].log.leo
                        batch = Batch(output.start, leo, _TERM, b"")
                        appended = Append(
                            output.term,
                            output.attach,
                            output.boot,
                            (batch,),
                            output.lac,
                            output.log_start,
                        )
                        waiting += [
                            (at, Pushed(to, output.attach, leo)),
                            (to, Received(at, appended)),
                            (to, Flushed(leo)),
                        ]
                    case _:
                        pass

    for spu in range(3):
        for peer in range(3):
            if peer != spu:
                tell(spu, LinkUp(peer))
        tell(spu, PartitionUpdated(1, _TERM, 0, members, (0, 1, 2), 2))
    tell(0, Elected(1, _TERM, members, (0, 1, 2), 2))
    began = process_time()
    for _ in range(_RECORDS):
        leo = replicas[0].log.leo + 1
        tell(0, Appended(leo))
        tell(0, Flushed(leo))
    took = process_time() - began
    ends = {(replica.log.leo, replica.lac) for replica in replicas}
    if ends != {(_RECORDS + 1, _RECORDS)}:
        raise AssertionError(f"the replicas differ, or something is not committed: {ends}")
    return took / _RECORDS


def _round(python: str) -> float:
    told = subprocess.run(
        [python, "-P", str(Path(__file__).resolve()), "--one"],
        capture_output=True,
        text=True,
        check=True,
    )
    found: float = json.loads(told.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replication_core")
    parser.add_argument("python", nargs="?", help="the interpreter of another build")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(measure()))
        return
    builds = {
        "this build": sys.executable,
        **({"other build": asked.python} if asked.python else {}),
    }
    rounds: dict[str, list[float]] = {name: [] for name in builds}
    for number in range(asked.rounds):
        order = list(builds.items())
        for name, python in order if number % 2 else reversed(order):
            rounds[name].append(_round(python))
    least = {name: 1e6 * min(found) for name, found in rounds.items()}
    if asked.json:
        print(json.dumps(least))
        return
    for name, found in least.items():
        print(f"{name:<14}{found:8.1f} us a record")
    if asked.python:
        print(f"{'ratio':<14}{least['this build'] / least['other build']:8.2f}")


if __name__ == "__main__":
    main()
