"""What the clusters that tests look at hold: topics of all sorts, and a consumer with a name."""

from __future__ import annotations

import json
from typing import Final

import pyarrow as pa

import runnel
from tests.e2e.conftest import Command

ORDERS: Final = 60
TYPED: Final = """\
apiVersion: runnel/v1
kind: Topic
metadata: {name: typed}
spec:
  partitions: 1
  replicationFactor: 2
  schema:
    - {name: orderId, type: int64, nullable: false}
    - {name: customer, type: string}
  keyColumn: customer
"""

PIPELINE: Final = """\
apiVersion: runnel/v1
kind: Pipeline
metadata: {name: delays}
spec:
  source: {topics: [orders, binary]}
  query: SELECT value FROM orders
  sink: {topic: binary}
  checkpoint: /var/lib/delays
"""


def fill(command: Command) -> None:
    """Make ``orders`` (three partitions, three replicas), ``binary``, ``typed`` and a pipeline; let
    ``billing`` read a part of ``orders``. ``shop/carts`` is a stream in its second epoch."""
    # Its many events come first: the latest ones are shown.
    command("create", "scope", "shop")
    command("create", "stream", "shop/carts", "-r", "2", "--tag", "web")
    command("wait", "stream", "shop/carts", "--for", "active")
    command("stream", "scale", "shop/carts", "--segments", "2")
    command("create", "topic", "orders", "--partitions", "3", "-r", "3")
    command("create", "topic", "binary", "--partitions", "1", "-r", "2")
    command("apply", "-f", "-", stdin=TYPED)
    command("apply", "-f", "-", stdin=PIPELINE)
    for topic in ("orders", "binary", "typed"):
        command("wait", "topic", topic, "--for", "provisioned")
    lines = [
        json.dumps({"customer": f"c{number % 7}", "number": number}) for number in range(ORDERS)
    ]
    command("produce", "orders", "--key-field", "customer", stdin="\n".join(lines) + "\n")
    with runnel.connect(command.sc) as cluster:
        cluster.write("binary", pa.table({"key": [b"\x00\xff"], "value": [b"\x80\x81\xfe raw"]}))
        rows = {"orderId": range(20), "customer": [f"c{number % 3}" for number in range(20)]}
        cluster.write("typed", pa.table({name: [*values] for name, values in rows.items()}))
        with cluster.consumer("orders", name="billing") as consumer:
            for _ in range(ORDERS // 3):
                next(consumer)
            consumer.commit()
