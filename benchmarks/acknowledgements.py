"""A producer for `benchmarks.healing`: sends one record after another to each partition of a topic.

    python benchmarks/acknowledgements.py SC TOPIC PARTITIONS

It is a process of its own, so that it can run on another host and with another build. It prints
when each record was acknowledged, by the clock that all processes of a machine share: partition,
seconds. It ends with its input.
"""

from __future__ import annotations

import sys
import threading
import time

import runnel

#: Records of a partition are at least this far apart.
_EVERY_S = 0.01
_DELIVERY_S = 150.0


def _send_on(producer: runnel.Producer, partition: int) -> None:
    while True:
        try:
            producer.send(b"a record", partition=partition).result(_DELIVERY_S)
        except runnel.RunnelError as error:
            sys.stderr.write(f"partition {partition}: {error}\n")
        else:
            # One write: other threads print as well.
            sys.stdout.write(f"{partition} {time.monotonic()}\n")
            sys.stdout.flush()
        time.sleep(_EVERY_S)


def main() -> None:
    """Send until the input ends."""
    address, topic, partitions = sys.argv[1:]
    with runnel.connect(address) as cluster:
        producer = cluster.producer(topic)
        for partition in range(int(partitions)):
            threading.Thread(target=_send_on, args=(producer, partition), daemon=True).start()
        sys.stdin.read()


if __name__ == "__main__":
    main()
