"""A typed topic by the command line: declared, filled, read, changed, and what is refused."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import PYTHON, TIMEOUT_S, Command

EXAMPLE = Path(__file__).parents[2] / "examples" / "03-typed-topics" / "orders.py"

MANIFEST = """\
apiVersion: runnel/v1
kind: Topic
metadata: {name: typed}
spec:
  partitions: 2
  schema:
    - {name: orderId, type: int64, nullable: false}
    - {name: amount, type: "decimal(12, 2)"}
    - {name: at, type: "timestamp(us, UTC)", nullable: false}
  keyColumn: orderId
  timestampColumn: at
"""
ROWS: list[dict[str, Any]] = [
    {"orderId": 1, "amount": "9.90", "at": "2026-01-31T12:00:00+00:00"},
    {"orderId": 2, "amount": None, "at": "2026-01-31T12:00:01+00:00"},
]
CSV = "orderId,amount,at\n1,9.9,2026-01-31T12:00:00Z\n2,,2026-01-31T12:00:01Z\n"
BAD = CSV + "x,1.234,2026-01-31T12:00:02Z\n3,1,yesterday\n"


def consumed(cluster: Command, *arguments: str) -> list[dict[str, Any]]:
    printed = cluster("consume", "typed", "-B", "--no-follow", *arguments)
    found = [json.loads(line) for line in printed.splitlines()]
    return sorted(found, key=lambda row: row.get("orderId") or row["value"]["orderId"])


@pytest.mark.long
def test_a_typed_topic_from_declaration_to_another_column(cluster: Command, tmp_path: Path) -> None:
    manifest, good, bad = (tmp_path / name for name in ("typed.yaml", "good.csv", "bad.csv"))
    manifest.write_text(MANIFEST)
    good.write_text(CSV)
    bad.write_text(BAD)
    assert cluster("apply", "-f", str(manifest)) == "topic/typed created\n"
    assert cluster("apply", "-f", str(manifest)) == "topic/typed unchanged\n"
    cluster("wait", "topic", "typed", "--for", "provisioned")

    said = cluster.fails("produce", "typed", "--file", str(bad), code=2)
    done, orderId, amount, at, end = said.splitlines()  # noqa: N806 - as the columns are called
    assert done == "0 records acknowledged before the error"
    assert orderId == f"error: {bad}:4: column orderId: 'x' is no int64"
    assert amount.startswith(f"{bad}:4: column amount: '1.234' is no decimal128(12, 2)")
    assert at.startswith(f"{bad}:5: column at: 'yesterday' is no timestamp(us, UTC)")
    assert end.startswith("2 rows did not fit; no row of the file was sent")
    assert consumed(cluster) == []

    assert cluster("produce", "typed", "--file", str(good)).startswith("produced 2 records")
    assert consumed(cluster) == ROWS
    (first, _) = consumed(cluster, "-o", "json")
    assert (first["timestamp"], first["value"]) == ("2026-01-31T12:00:00.000000+00:00", ROWS[0])
    table = cluster("consume", "typed", "-B", "--no-follow", "-o", "table")
    assert table.splitlines()[0].split() == [
        "PARTITION", "OFFSET", "TIMESTAMP", "orderId", "amount", "at",
    ]  # fmt: skip

    manifest.write_text(MANIFEST.replace("int64", "string"))
    said = cluster.fails("apply", "-f", str(manifest), code=2)
    assert "spec.schema[0].type: column orderId cannot change from int64 to string" in said

    note = "    - {name: note, type: string}\n  keyColumn"
    manifest.write_text(MANIFEST.replace("  keyColumn", note))
    assert cluster("apply", "-f", str(manifest)) == "topic/typed configured\n"
    line = json.dumps({**ROWS[0], "orderId": 3, "note": "n"})
    assert cluster("produce", "typed", stdin=line + "\n").startswith("produced 1 record")
    assert [row["note"] for row in consumed(cluster)] == [None, None, "n"]


def test_bad_lines_and_options(cluster: Command, tmp_path: Path) -> None:
    manifest, bad = tmp_path / "lines.yaml", tmp_path / "bad.csv"
    manifest.write_text(MANIFEST.replace("name: typed", "name: lines"))
    bad.write_text(BAD)
    cluster("apply", "-f", str(manifest))
    cluster("wait", "topic", "lines", "--for", "provisioned")
    good = json.dumps(ROWS[0])
    said = cluster.fails("produce", "lines", stdin=f"{good}\n\n{{}}\n{good}\n", code=2)
    assert said.splitlines() == [
        "1 record acknowledged before the error",
        "error: <stdin>:3: column orderId: is missing",
        "<stdin>:3: column at: is missing",
        "1 row did not fit; sent before it: 1 row",
    ]
    done = cluster.run("produce", "lines", "--file", str(bad), "--skip-bad-rows")
    assert done.returncode == 0
    assert done.stdout.decode().startswith("produced 2 records")
    assert done.stderr.decode().splitlines()[-1] == "2 rows did not fit and were skipped"
    printed = cluster("consume", "lines", "-B", "--no-follow", "-o", "value")
    assert sorted(json.loads(line)["orderId"] for line in printed.splitlines()) == [1, 1, 2]
    said = cluster.fails("produce", "lines", "--key-field", "amount", stdin=good, code=2)
    assert "the key of a typed topic is in its column orderId" in said


def test_the_example(cluster: Command) -> None:
    done = subprocess.run(
        [PYTHON, str(EXAMPLE)],
        env=cluster.environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "refused: the record does not fit the schema of topic 'typed-orders': " in done.stdout
    assert "column orderId: 'six' is no int64" in done.stdout
    assert done.stdout.splitlines()[-1] == "total: 33.65"
