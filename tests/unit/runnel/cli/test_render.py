"""What commands print, and the exit code of every failure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from runnel.cli import failure
from runnel.cli.records.output import shown
from runnel.cli.render import age, object_rows, print_rows
from runnel.cli.times import parse_time
from runnel.records.as_json import record_json
from schemas.errors import (
    ConflictError,
    DeadlineExceededError,
    FencedError,
    InvalidRequestError,
    ManifestError,
    NotEnoughReplicasError,
    NotFoundError,
    NotLeaderError,
    NotReadyError,
    OverloadedError,
    RunnelError,
    StorageFullError,
    UnreachableError,
    UnsupportedError,
)
from schemas.objects.manifest.manifest import load_text

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)

CODES: dict[str, tuple[BaseException, int]] = {
    "runnel": (RunnelError("x"), 1),
    "unsupported": (UnsupportedError("x"), 1),
    "fenced": (FencedError("x"), 4),
    "os": (OSError("x"), 1),
    "invalid": (InvalidRequestError("x"), 2),
    "manifest": (ManifestError("x"), 2),
    "not-found": (NotFoundError("x"), 3),
    "conflict": (ConflictError("x"), 4),
    "unreachable": (UnreachableError("x"), 5),
    "deadline": (DeadlineExceededError("x"), 5),
    "not-ready": (NotReadyError("x"), 5),
    "not-leader": (NotLeaderError("x"), 5),
    "overloaded": (OverloadedError("x"), 5),
    "few-replicas": (NotEnoughReplicasError("x"), 5),
    "full": (StorageFullError("x"), 5),
    "group": (ExceptionGroup("x", [NotFoundError("x"), UnreachableError("y")]), 5),
}


@pytest.mark.parametrize(("error", "code"), CODES.values(), ids=CODES)
def test_exit_codes(error: BaseException, code: int) -> None:
    assert failure.exit_code(error) == code


def test_every_error_of_a_group_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    group = ExceptionGroup("x", [NotFoundError("a [b]"), NotFoundError("a [b]"), OSError("c")])
    assert failure.report(group) == 3
    assert capsys.readouterr().err.splitlines() == ["error: a [b]", "error: OSError: c"]


TIMES = {
    "utc": ("2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
    "no-zone-is-utc": ("2026-01-31T12:00:00", datetime(2026, 1, 31, 12, tzinfo=UTC)),
    "day": ("2026-01-31", datetime(2026, 1, 31, tzinfo=UTC)),
    "ago": ("-1h30m", NOW - timedelta(hours=1, minutes=30)),
}


@pytest.mark.parametrize(("text", "expected"), TIMES.values(), ids=TIMES)
def test_times(text: str, expected: datetime) -> None:
    assert parse_time(text, NOW) == expected


@pytest.mark.parametrize("text", ["yesterday", "-1x", "12:00", "", "-99999999999d"])
def test_no_times(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="--at"):
        parse_time(text, NOW)


AGES = {
    "seconds": (59, "59s"),
    "minutes": (60, "1m"),
    "hours": (7_199, "1h"),
    "days": (172_800, "2d"),
}


@pytest.mark.parametrize(("seconds", "expected"), AGES.values(), ids=AGES)
def test_age(seconds: int, expected: str) -> None:
    assert age((NOW - timedelta(seconds=seconds)).isoformat(), NOW) == expected


def test_record_as_json_keeps_bytes_that_are_no_text() -> None:
    row: dict[str, Any] = {
        "partition": 1,
        "offset": 2,
        "timestamp": NOW,
        "key": None,
        "value": b"\xff\x00",
        "headers": [
            {"key": "h", "value": b"v"},
            {"key": "h", "value": None},
            {"key": "b", "value": b"\xff"},
        ],
    }
    assert record_json("t", row) == {
        "topic": "t",
        "partition": 1,
        "offset": 2,
        "timestamp": "2026-01-01T12:00:00.000000+00:00",
        "key": None,
        "valueBase64": "/wA=",
        "headers": [
            {"key": "h", "value": "v"},
            {"key": "h", "value": None},
            {"key": "b", "valueBase64": "/w=="},
        ],
    }


CELLS = {
    "given-null-then-a-dash": (None, "-"),
    "given-text-then-as-it-is": ("café → 東京".encode(), "café → 東京"),
    "given-lines-then-they-stay-in-one": (b"a\nb\r\tc", r"a\nb\r\tc"),
    "given-an-escape-sequence-then-it-is-spelled-out": (b"\x1b[31mred", r"\x1b[31mred"),
    "given-bytes-that-are-no-text-then-they-are-spelled-out": (b"\xffa", r"\xffa"),
    "given-a-direction-override-then-it-is-spelled-out": ("\u202ex".encode(), r"\u202ex"),
}


@pytest.mark.parametrize(("data", "expected"), CELLS.values(), ids=CELLS)
def test_cells_of_a_table_stay_in_their_line(data: bytes | None, expected: str) -> None:
    assert shown(data) == expected


MANIFESTS = {
    "spu": ("kind: Spu\nspec: {spuId: 7, rack: r}", ["NAME", "ID", "TYPE", "RACK", "ENDPOINT"]),
    "topic": (
        "kind: Topic\nspec: {partitions: 2}",
        ["NAME", "PARTITIONS", "REPLICAS", "RESOLUTION"],
    ),
    "group": ("kind: SpuGroup\nspec: {replicas: 2}", ["NAME", "REPLICAS"]),
}


@pytest.mark.parametrize(("text", "columns"), MANIFESTS.values(), ids=MANIFESTS)
def test_tables_of_every_kind_begin_with_their_columns(text: str, columns: list[str]) -> None:
    (loaded,) = load_text(f"apiVersion: runnel/v1\nmetadata: {{name: x}}\n{text}")
    headings, (row,) = object_rows([loaded.object], wide=False)
    assert headings[: len(columns)] == columns
    assert len(row) == len(headings)
    wide_headings, (wide_row,) = object_rows([loaded.object], wide=True)
    assert set(headings) <= set(wide_headings)
    assert len(wide_row) == len(wide_headings)


def test_columns_are_aligned_and_nothing_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(["A", "B"], [["x" * 200, "1"], ["y", ""]])
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["A" + " " * 201 + "B", "x" * 200 + "  1", "y"]
