"""What a failed start leaves in the data directory: what was there before, and logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from runnel.local.cluster import ClusterDaemons
from runnel.local.state import DataDirectory
from schemas.errors import ConflictError, InvalidRequestError


def fill(path: Path, *files: str) -> None:
    for name in files:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(name)


def files_in(path: Path) -> list[str]:
    return sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file())


def test_given_a_command_that_makes_nothing_then_no_directory_is_left(tmp_path: Path) -> None:
    with pytest.raises(ConflictError), DataDirectory(tmp_path / "a" / "b").exclusive():
        raise ConflictError("port 1 is in use")
    assert list(tmp_path.iterdir()) == []


def test_given_a_directory_that_was_there_then_it_stays(tmp_path: Path) -> None:
    with DataDirectory(tmp_path).exclusive():
        pass
    assert tmp_path.is_dir()
    with DataDirectory(tmp_path / "a").exclusive():
        fill(tmp_path / "a", "sc-0.yaml")
    assert files_in(tmp_path / "a") == ["lock", "sc-0.yaml"]


def test_given_a_failed_start_then_only_what_it_made_is_removed_and_logs_stay(
    tmp_path: Path,
) -> None:
    fill(tmp_path, "etcd-0/member", "thesis.txt")
    directory = DataDirectory(tmp_path)
    with directory.exclusive():
        before = directory.names()
        fill(tmp_path, "sc-0.yaml", "sc-0/kv.db", "spus/spu-0/identity.json", "logs/sc-0.log")
        (tmp_path / "spus" / "spu-0" / "partitions").mkdir()
        (tmp_path / "cluster.json").symlink_to(tmp_path / "thesis.txt")
        directory.remove_new(before)
    assert files_in(tmp_path) == ["etcd-0/member", "lock", "logs/sc-0.log", "thesis.txt"]


def test_given_a_replica_then_everything_stays(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    made = ["sc-0/kv.db", "spus/spu-0/partitions/3f1c/meta.json"]
    fill(tmp_path, *made)
    directory.remove_new(frozenset())
    assert files_in(tmp_path) == made


def test_given_a_file_for_a_directory_then_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(InvalidRequestError) as refused:
            DataDirectory(path).load()
        assert refused.value.message == (
            f"{path} cannot hold a cluster: {tmp_path / 'file'} is a file; name a directory"
        )
        with pytest.raises(InvalidRequestError, match="name another dir"):
            DataDirectory(path).exclusive().__enter__()


@pytest.mark.parametrize("text", ["", "[]", "{}", "[" * 100_000, '{"processes": {}, "x": 1}'])
def test_given_a_damaged_state_then_it_says_so(tmp_path: Path, text: str) -> None:
    (tmp_path / "cluster.json").write_text(text)
    with pytest.raises(InvalidRequestError, match=r"cluster\.json is damaged"):
        DataDirectory(tmp_path).load()


def test_given_a_state_that_cannot_be_read_then_it_is_not_called_damaged(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").mkdir()
    with pytest.raises(InvalidRequestError, match=r"cluster\.json cannot be read: Is a directory"):
        DataDirectory(tmp_path).load()


def test_given_a_directory_of_no_such_user_then_it_says_so() -> None:
    with pytest.raises(InvalidRequestError, match=r"^~nosuch/x: the home directory that ~ stands"):
        ClusterDaemons(Path("~nosuch/x"))
