"""What a batch of few records costs a client: from `send` to its bytes, and from its bytes to rows.

    python -m benchmarks.few_records [PYTHON] [--records 10] [--rounds 9] [--json]

PYTHON is the interpreter of an environment that has another build installed, for example
``.venv/bin/python`` of a second clone; without it this build is measured alone. The builds take
turns, each round in a process of its own. Measured is processor time, without connections and
threads: the slots of a send buffer are filled, gathered and encoded; a cursor takes the batch, and
its records are handed out one by one. The table shows the least of the rounds, in microseconds a
batch: what the code costs when nothing disturbs it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic, process_time
from typing import Final

_REPEATS: Final = 1_000
_MOST: Final = 64
_VALUE: Final = b"x" * 100
_TERM: Final = 1 << 16


def measure(records: int) -> dict[str, float]:
    """Seconds a batch, by step, in this process and with the build that it imports."""
    from runnel.consume.delivered import records_of
    from runnel.produce.accumulator import Accumulator
    from runnel.produce.batch import ProducerBatch
    from runnel.produce.send_buffer import SendBuffer
    from runnel.records.cursor import Cursor
    from schemas.wire.batch import set_offset_and_term

    accumulator: Accumulator[None] = Accumulator(
        "orders",
        1,
        max_record_bytes=1 << 20,
        batch_bytes=1 << 20,
        linger_s=0.0,
        clock=monotonic,
        new_outcome=lambda: None,
    )
    buffer = SendBuffer(
        "orders",
        accumulator,  # type: ignore[arg-type]
        buffer_bytes=1 << 26,
        max_record_bytes=1 << 20,
        waits=True,
        wake=lambda: None,
    )

    def sent() -> ProducerBatch[None]:
        for _ in range(records):
            indices, keys, values, chunk = buffer.fields
            index = next(indices)
            keys[index], values[index] = None, _VALUE
            if not index:
                buffer.begun(chunk)
        (batch,), _due = buffer.take(monotonic() + 1)
        return batch  # type: ignore[return-value]

    def sent_and_encoded() -> bytearray:
        batch = sent()
        data = bytearray().join(batch.encode("none", 1, 0, 0))
        accumulator.release(batch)
        return data

    stored = sent_and_encoded()
    set_offset_and_term(stored, 0, _TERM)
    fetched = memoryview(bytes(stored))
    (rows,) = Cursor("orders", 0, 0).take(fetched)
    return {
        "send to bytes": _seconds(sent_and_encoded),
        "bytes to columns": _seconds(lambda: Cursor("orders", 0, 0).take(fetched)),
        "columns to records": _seconds(lambda: list(records_of("orders", rows))),
    }


def _seconds(call: Callable[[], object]) -> float:
    call()
    began = process_time()
    for _ in range(_REPEATS):
        call()
    return (process_time() - began) / _REPEATS


def _round(python: str, records: int) -> dict[str, float]:
    told = subprocess.run(
        [python, "-P", str(Path(__file__).resolve()), "--one", "--records", str(records)],
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(told.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.few_records")
    parser.add_argument("python", nargs="?", help="the interpreter of another build")
    parser.add_argument("--records", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if not 1 <= asked.records <= _MOST:
        parser.error(
            f"--records is {asked.records}; 1 to {_MOST} fit the first chunk of a producer"
        )
    if asked.one:
        print(json.dumps(measure(asked.records)))
        return
    builds = {
        "this build": sys.executable,
        **({"other build": asked.python} if asked.python else {}),
    }
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in builds}
    for number in range(asked.rounds):
        order = list(builds.items())
        for name, python in order if number % 2 else reversed(order):
            rounds[name].append(_round(python, asked.records))
    least = {
        name: {step: 1e6 * min(one[step] for one in found) for step in found[0]}
        for name, found in rounds.items()
    }
    if asked.json:
        print(json.dumps(least))
        return
    print(f"{f'us a batch of {asked.records} records':<32}" + "".join(f"{n:>14}" for n in least))
    for step in next(iter(least.values())):
        print(f"{step:<32}" + "".join(f"{found[step]:14.1f}" for found in least.values()))


if __name__ == "__main__":
    main()
