"""The process behind ``--dir``: which directories it takes, and that no SPU runs beside it."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import ConflictError, InvalidRequestError, NotFoundError
from schemas.objects.topic import LogSettings
from spu import admin
from spu.admin import left_alone, main, partition_directories
from spu.storage.data_dir import DataDir
from tests.unit.spu.builders import CLUSTER, UID, new_uid
from tests.unit.spu.storage.test_verification import filled, flip

OTHER = new_uid()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The log directory of a stopped SPU with two partitions, one of them empty."""
    opened = DataDir.open(tmp_path, 1, CLUSTER)
    metas = [opened.new_meta(UID, "orders-0", "orders", 0, LogSettings())]
    metas.append(opened.new_meta(OTHER, "orders-1", "orders", 1, LogSettings()))
    opened.create_partitions(metas)
    filled(opened.partition_path(UID)).crash()
    opened.close()
    return tmp_path


def asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], verb: str, path: Path
) -> tuple[int, dict[str, Any]]:
    """Exit code and last line."""
    # Loggers are of the whole process, and standard error is the test's.
    monkeypatch.setattr(admin, "configure_logs", lambda *_, **__: None)
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps({"verb": verb, "path": str(path)})))
    code = main()
    return code, json.loads(capsys.readouterr().out.splitlines()[-1])


def test_both_kinds_of_directories_are_taken(home: Path, tmp_path: Path) -> None:
    one = home / "partitions" / UID
    assert partition_directories(one) == [one]
    assert set(partition_directories(home)) == {one, home / "partitions" / OTHER}
    with pytest.raises(NotFoundError):
        partition_directories(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidRequestError, match="holds no segments"):
        partition_directories(tmp_path / "empty")


def test_given_a_running_spu_then_it_is_left_alone(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    running = DataDir.open(home, 1)
    for path in (home, home / "partitions" / UID):
        code, line = asked(monkeypatch, capsys, "verify", path)
        assert code == 1
        assert line["error"]["code"] == ConflictError.code.name
        assert "stop that SPU first" in line["error"]["message"]
    running.close()
    assert asked(monkeypatch, capsys, "verify", home)[0] == 0


def test_while_it_looks_the_spu_cannot_start_and_the_lock_stays_whose_it_was(home: Path) -> None:
    before = (home / "lock").read_bytes()
    with left_alone(home / "partitions" / UID), pytest.raises(Exception, match="is in use"):
        DataDir.open(home, 1)
    assert (home / "lock").read_bytes() == before
    DataDir.open(home, 1).close()


def test_given_a_copy_then_there_is_no_lock(home: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    (home / "partitions" / UID).rename(copy)
    with left_alone(copy):
        pass


def test_all_partitions_are_verified(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flip(home / "partitions" / UID / f"{8:020d}.log", 300)
    code, line = asked(monkeypatch, capsys, "verify", home)
    found = {one["meta"]["name"]: one for one in line["done"]["partitions"]}
    assert code == 0
    assert found["orders-1"]["problems"] == []
    (problem,) = found["orders-0"]["problems"]
    assert (problem["file"], problem["position"]) == (f"{8:020d}.log", 256)
    assert (found["orders-0"]["end"], found["orders-0"]["batches"]) == (24, 9)


def test_all_partitions_are_described(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _code, line = asked(monkeypatch, capsys, "describe", home)
    assert {one["meta"]["partitionUid"] for one in line["done"]["partitions"]} == {UID, OTHER}


def test_progress_is_said_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    progress = admin._Progress(200)
    progress._said_at -= 1
    progress.before = 100
    progress.within(50, 100)
    progress.within(60, 100)
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line) == {"stage": "verify", "count": 150, "total": 200}


def test_given_a_disk_that_fails_then_its_error(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(_directory: Path) -> None:
        raise OSError(5, "Input/output error", "disk")

    monkeypatch.setattr(admin, "open_stopped", fails)
    code, line = asked(monkeypatch, capsys, "describe", home)
    assert code == 1
    assert line["error"]["message"] == "disk: Input/output error"
