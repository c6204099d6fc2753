"""``python -m tests.sim.leases --seeds N --seed S``: live N times, and sum up what happened."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence

from schemas.daemon.log_options import LogLevel
from schemas.daemon.logs import configure_logs
from tests.sim.leases.world import ViolationError, run


def main(arguments: Sequence[str]) -> int:
    """Gives 1 where a seed showed a violation."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.leases", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    asked = parser.parse_args(arguments)
    configure_logs("sim", level=LogLevel.ERROR)
    counts: Counter[str] = Counter()
    failed = 0
    for seed in range(asked.seed, asked.seed + asked.seeds):
        try:
            counts.update(run(seed))
        except ViolationError as error:
            print(error, file=sys.stderr)
            failed += 1
    for what, number in sorted({**counts, "violations": failed}.items()):
        print(f"{what:<40} {number:>10,}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
