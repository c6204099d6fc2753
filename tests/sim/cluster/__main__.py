"""``python -m tests.sim.cluster --seeds N --seed S``: live N clusters and sum up what happened.

With ``--bug NAME`` they live with one of the deliberate bugs, until a seed shows it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Final

from tests.sim import mutants as core
from tests.sim.cluster.mutants import CORE, MUTANTS
from tests.sim.cluster.world import FailureError, run

#: The deliberate bugs that lives can show.
BUGS: Final = {**MUTANTS, **{name: core.MUTANTS[name] for name in CORE}}
#: How often to say how far it is.
PROGRESS_S = 5.0


def main(arguments: Sequence[str]) -> int:
    """Gives 1 where a seed showed a violation, after all seeds are through."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.cluster", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--bug", choices=sorted(BUGS), help="a deliberate bug to look for")
    asked = parser.parse_args(arguments)
    counts: Counter[str] = Counter()
    virtual_ms, failed = 0, []
    began = said = time.monotonic()
    for seed in range(asked.seed, asked.seed + asked.seeds):
        try:
            with BUGS[asked.bug]() if asked.bug else nullcontext():
                result = run(seed)
        except FailureError as error:
            failed.append(seed)
            print(f"{error}\n", file=sys.stderr)
            if asked.bug:
                break
            continue
        counts.update(result.counts)
        virtual_ms += result.virtual_ms
        if time.monotonic() - said > PROGRESS_S:
            said = time.monotonic()
            done = seed - asked.seed + 1
            rate = done / (said - began)
            print(f"{done} of {asked.seeds} seeds, {rate:.1f} a second", flush=True)
    print(summary(asked.seeds, virtual_ms, counts, failed))
    return 1 if failed else 0


def summary(seeds: int, virtual_ms: int, counts: Counter[str], failed: list[int]) -> str:
    """A table of what happened in all lives together."""
    faults = {kind: n for kind, n in counts.items() if kind.startswith("fault: ")}
    rows = [
        ("seeds", seeds),
        ("virtual time, s", virtual_ms // 1000),
        ("faults", sum(faults.values())),
        *((f"  {kind.removeprefix('fault: ')}", faults[kind]) for kind in sorted(faults)),
        *((kind, counts[kind]) for kind in sorted(set(counts) - set(faults))),
        ("violations", len(failed)),
    ]
    lines = [f"{what:<40} {number:>10,}" for what, number in rows]
    if failed:
        lines.append(f"failed: {', '.join(map(str, failed))}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
