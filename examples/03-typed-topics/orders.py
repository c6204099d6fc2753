"""Send rows to a typed topic, and read typed columns from it.

Needs a running cluster (``runnel cluster start``); uses the one that was started last, or
the one that ``RUNNEL_SC`` names.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import yaml

import runnel

TOPIC = "typed-orders"
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@dataclass
class Order:
    """A row: its fields have the names of the columns."""

    orderId: int  # noqa: N815
    at: datetime
    customer: str | None = None
    amount: Decimal | None = None


def main() -> None:
    manifest = yaml.safe_load((Path(__file__).parent / "orders.yaml").read_text())
    with runnel.connect() as cluster:
        cluster.apply(manifest)
        cluster.wait("topic", TOPIC, "provisioned")
        with cluster.producer(TOPIC) as producer:
            producer.send({"orderId": 1, "amount": Decimal("9.90"), "at": NOON, "tags": ["new"]})
            producer.send(Order(2, NOON, "bob", Decimal(20)))
            producer.send_table(
                pa.table(
                    {
                        "at": [NOON + timedelta(minutes=n) for n in range(3)],
                        "orderId": [3, 4, 5],
                        "amount": [1.25, 2.5, None],
                    }
                )
            )
            try:
                producer.send({"orderId": "six", "amount": 1.5, "at": NOON})
            except runnel.InvalidRequestError as error:
                print(f"refused: {error}")
        table = cluster.read(TOPIC, ["orderId", "customer", "amount", "timestamp"])
        print(table.sort_by("orderId"))
        print(f"total: {pc.sum(table['amount'])}")


if __name__ == "__main__":
    main()
