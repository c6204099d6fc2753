"""What the page of backups says, done: a copy of a whole cluster, a backup of what the SC keeps."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.architecture.howto import FOLDER
from tests.e2e.conftest import Command, KvChoice, running_cluster

WHOLE = (FOLDER / "backup.md").read_text(encoding="utf-8").partition("## A whole cluster")[2]
VALUES = [f"value-{number}" for number in range(50)]


@pytest.mark.slow
def test_given_the_copy_of_the_page_when_all_is_lost_then_it_brings_everything_back(
    tmp_path: Path,
) -> None:
    stop, copy, start = re.findall(r"^    (.+)$", WHOLE, re.MULTILINE)[:3]
    with running_cluster(tmp_path / "home", KvChoice("sqlite"), 2) as command:
        command("create", "topic", "orders", "--partitions", "3", "-r", "2")
        command("wait", "topic", "orders", "--for", "provisioned")
        command("produce", "orders", stdin="\n".join(VALUES) + "\n")
        command(*stop.split()[1:])
        run(copy, command, tmp_path)
        command(*start.split()[1:])
        command("delete", "topic", "orders")
        command(*stop.split()[1:])
        shutil.rmtree(command.home / "local")
        run("tar -C ~/.runnel -xzf cluster.tar.gz", command, tmp_path)
        command(*start.split()[1:])
        command("wait", "topic", "orders", "--for", "provisioned")
        told = command("consume", "orders", "--from-beginning", "--no-follow")
        assert sorted(told.splitlines()) == sorted(VALUES)


def run(shown: str, command: Command, directory: Path) -> None:
    """A command of the page, with the home of this cluster."""
    words = shown.replace("~/.runnel", str(command.home)).split()
    subprocess.run(words, cwd=directory, check=True, timeout=60)


@pytest.mark.slow
@pytest.mark.parametrize("kv", ["etcd"], indirect=True)
def test_given_a_backup_that_the_cluster_left_behind_then_no_record_is_lost(
    tmp_path: Path, kv: KvChoice
) -> None:
    with running_cluster(tmp_path / "home", kv, 2) as command:
        leave_behind(command, str(tmp_path / "backup.ndjson"))


def leave_behind(runnel: Command, file: str) -> None:
    """After the backup come records, other leaders, a topic more and one less."""
    runnel("create", "topic", "orders", "--partitions", "3", "-r", "2")
    runnel("create", "topic", "gone")
    runnel("wait", "topic", "orders", "--for", "provisioned")
    runnel("produce", "orders", stdin="\n".join(VALUES[:20]) + "\n")
    assert re.match(r"wrote .*: [\d,]+ keys .* at revision", runnel("cluster", "backup", file))
    assert "is there already" in runnel.fails("cluster", "backup", file, code=4)
    runnel("cluster", "restart")
    runnel("produce", "orders", stdin="\n".join(VALUES[20:40]) + "\n")
    runnel("create", "topic", "later")
    runnel("delete", "topic", "gone")

    whole = runnel("cluster", "restore", file, "--dry-run")
    assert "is whole: cluster 'local'" in whole
    assert "spus 2, topics 2" in whole
    refused = runnel.fails("cluster", "restore", file, code=2)
    assert "add --yes to confirm" in refused
    assert "recovers in incarnation 1" in runnel("cluster", "restore", file, "--yes")

    runnel("wait", "topic", "orders", "--for", "writable")
    runnel("produce", "orders", stdin="\n".join(VALUES[40:]) + "\n")
    told = runnel("consume", "orders", "--from-beginning", "--no-follow")
    assert sorted(told.splitlines()) == sorted(VALUES)
    topics = [one["metadata"]["name"] for one in runnel.json("get", "topics")["items"]]
    assert topics == ["gone", "orders"]
    # It was deleted, and might have moved to where the backup knows nobody: nobody guesses.
    (gone,) = (
        one
        for one in runnel.json("get", "partitions")["items"]
        if one["metadata"]["name"] == "gone-0"
    )
    assert "it was deleted after the backup, or has moved to an SPU" in gone["status"]["reason"]
    runnel("partition", "elect", "gone-0", "--unclean", "--yes")
    runnel("wait", "topic", "gone", "--for", "writable")
