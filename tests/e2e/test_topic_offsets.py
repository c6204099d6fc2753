"""``runnel topic offsets``, as users call it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.conftest import SQLITE_ALONE, Command

pytestmark = SQLITE_ALONE


@pytest.mark.long
def test_given_times_and_ids_then_their_places_are_shown(cluster: Command, tmp_path: Path) -> None:
    cluster("create", "topic", "placed")
    rows = tmp_path / "rows.ndjson"
    rows.write_text("".join(json.dumps({"v": "x", "id": id_}) + "\n" for id_ in (3, 3, 8)))
    cluster("produce", "placed", "-f", str(rows), "--transaction-id-field", "id")

    def places(*arguments: str) -> list[int]:
        (item,) = cluster.json("topic", "offsets", "placed", *arguments)["items"]
        return [
            item[name] for name in ("partition", "earliest", "latest", "offset") if name in item
        ]

    # Offset 0 is a leader's control record.
    assert places() == [0, 0, 4]
    assert places("--transaction-id", "1") == [0, 0, 4, 1]
    assert places("--transaction-id", "9") == [0, 0, 4, 4]
    assert places("-p", "0", "--at", "2999-01-01") == [0, 0, 4, 4]
    table = cluster("topic", "offsets", "placed", "--transaction-id", "3").splitlines()
    assert table[0].split() == ["PARTITION", "EARLIEST", "LATEST", "SIZE", "OFFSET"]
    assert table[1].split()[:3] == ["placed-0", "0", "4"]
    assert "did you mean 'placed'" in cluster.fails("topic", "offsets", "place", code=3)
    both = ("--at", "-1h", "--transaction-id", "1")
    refused = cluster.fails("topic", "offsets", "placed", *both, code=2)
    assert "one of --at and --transaction-id" in refused
