"""A copy of a whole cluster, taken as its page says, brings everything back."""

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
