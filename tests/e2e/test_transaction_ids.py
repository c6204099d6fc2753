"""Transaction ids by the command line: from a field of rows, as a place to read from, refused."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import SQLITE_ALONE, Command

pytestmark = SQLITE_ALONE


def consumed(cluster: Command, *arguments: str) -> list[dict[str, Any]]:
    printed = cluster("consume", "changes", "--no-follow", "-o", "json", *arguments)
    return [json.loads(line) for line in printed.splitlines()]


@pytest.mark.long
def test_ids_from_a_file_to_a_reader(cluster: Command, tmp_path: Path) -> None:
    cluster("create", "topic", "changes", "--partitions", "1")
    changes = tmp_path / "changes.ndjson"
    changes.write_text("".join(f'{{"lsn": {10 * n}, "row": {n}}}\n' for n in range(50)))
    cluster("produce", "changes", "-f", str(changes), "--transaction-id-field", "lsn")
    cluster("produce", "changes", stdin=b"without\n")
    found = consumed(cluster, "--transaction-id", "455")
    assert [one.get("transactionId") for one in found] == [460, 470, 480, 490, None]
    assert json.loads(found[0]["value"]) == {"lsn": 460, "row": 46}
    assert cluster("consume", "changes", "--transaction-id", "495", "--no-follow") == ""
    said = cluster.fails("consume", "changes", "--transaction-id", "1", "--from-beginning", code=2)
    assert "give one of" in said

    # The id is the log's: it is known again after a crash.
    leader = cluster.json("get", "partition", "changes-0")["status"]["leader"]
    (spu,) = [one for one in cluster.json("cluster", "status")["spus"] if one["id"] == leader]
    os.kill(spu["pid"], signal.SIGKILL)
    low = b'{"lsn": 480}\n'
    said = cluster.fails("produce", "changes", "--transaction-id-field", "lsn", stdin=low, code=1)
    assert "begins with transaction id 480, but changes-0 is at 490" in said
    assert len(consumed(cluster, "-B")) == 51
    equal = b'{"lsn": 490}\n'
    cluster("produce", "changes", "--transaction-id-field", "lsn", stdin=equal)
    assert len(consumed(cluster, "--transaction-id", "490")) == 3


@pytest.mark.long
def test_ids_of_a_typed_topic(cluster: Command, tmp_path: Path) -> None:
    manifest, rows = tmp_path / "typed.yaml", tmp_path / "rows.csv"
    manifest.write_text(
        "apiVersion: runnel/v1\nkind: Topic\nmetadata: {name: rows}\n"
        "spec:\n  schema:\n    - {name: lsn, type: int64}\n    - {name: note, type: string}\n"
    )
    rows.write_text("lsn,note\n3,a\n5,b\n5,c\n")
    cluster("apply", "-f", str(manifest))
    cluster("wait", "topic", "rows", "--for", "provisioned")
    cluster("produce", "rows", "-f", str(rows), "--transaction-id-field", "lsn")
    line = b'{"lsn": 9, "note": "d"}\n'
    cluster("produce", "rows", "--transaction-id-field", "lsn", stdin=line)
    printed = cluster("consume", "rows", "--transaction-id", "5", "--no-follow", "-o", "json")
    found = [json.loads(line) for line in printed.splitlines()]
    assert [(one["transactionId"], one["value"]["note"]) for one in found] == [
        (5, "b"),
        (5, "c"),
        (9, "d"),
    ]
    said = cluster.fails("produce", "rows", "--transaction-id-field", "nope", stdin=line, code=2)
    assert "the topic has no column nope; there are lsn" in said
