"""Commands of pages that are not ``runnel``: what runs each of them, or why nothing does.

Neighbour: ``ELSEWHERE`` in `tests/e2e/test_howto.py` says so of the commands of Runnel.
"""

from __future__ import annotations

import re
import textwrap
from typing import Final

import pytest

from tests.architecture.howto import FOLDER
from tests.architecture.source import ROOT

#: Programs that pages name; more than there are, so that a new one is noticed.
PROGRAMS: Final = (
    *("apt", "apt-get", "bash", "cat", "chmod", "chown", "cp", "curl", "docker", "dockerd", "echo"),
    *("etcd", "etcdctl", "export", "git", "helm", "install", "java", "kubectl", "make", "mkdir"),
    *("mv", "openssl", "pip", "pipx", "podman", "promtool", "psql", "python", "python3", "rm"),
    *("rsync", "scp", "sh", "spark-submit", "ssh", "sudo", "systemctl", "systemd-sysusers", "tar"),
    *("useradd", "uv", "wget"),
)
#: By the page and the beginning of the command: a test that runs it, or does the same in Python.
RUN_BY: Final = {
    ("backup", "tar -C ~/.runnel"): "tests/e2e/test_backup.py",
    ("containers", "make dist"): "tests/e2e/installed_wheel.py",
    ("containers", "docker build"): "tests/e2e/test_containers.py",
    ("containers", "docker compose"): "tests/e2e/test_containers.py",
    ("install", "make dist"): "tests/e2e/installed_wheel.py",
    ("install", "python3 -m venv"): "tests/e2e/installed_wheel.py",
    ("install", "python -m runnel._internal.spu"): "tests/e2e/test_wheel.py",
    ("install", "pip uninstall"): "tests/e2e/test_wheel.py",
    ("install", "pip install"): "tests/e2e/test_wheel.py",
    ("more-machines", "echo"): "tests/chaos/machines/test_more_machines.py",
    ("more-machines", "scp"): "tests/chaos/machines/test_more_machines.py",
    ("three-hosts", "echo"): "tests/chaos/machines/test_three_hosts.py",
    ("three-hosts", "etcd"): "tests/chaos/machines/test_three_hosts.py",
    ("three-hosts", "mkdir"): "tests/chaos/machines/test_three_hosts.py",
    ("three-hosts", "scp"): "tests/chaos/machines/test_three_hosts.py",
    ("monitoring", "curl"): "tests/integration/test_metrics_page.py",
}
#: By the page and the beginning of the command: why no test runs it.
NOT_RUN: Final = {
    ("containers", "export ETCD_IMAGE"): "the test gives the image that it built",
    ("etcd", "etcd --cert-file"): "shows which options matter, not a whole command",
    ("etcd", "etcdctl"): "etcd's own tool, which Debian has in a package of its own",
    ("etcd", "pip install"): "needs a published package; the lock has the extra",
    ("hosts", "scp"): "as on the page on three hosts, which a test follows",
    (
        "systemd",
        "",
    ): "needs systemd as the first process; its units are verified by systemd-analyze",
    ("upgrades", "pip install"): "tests/e2e/test_version_skew.py installs in another way",
}
_FENCED: Final = re.compile(r"^```(?:sh|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_OTHER: Final = re.compile(r"^```\w*\n.*?^```$", re.MULTILINE | re.DOTALL)
_INDENTED: Final = re.compile(r"(?:^    .*\n|^\n(?=    ))+", re.MULTILINE)


def commands(text: str) -> list[str]:
    """The commands of a page that are those of other programs."""
    blocks = [*_FENCED.findall(text), *_INDENTED.findall(_OTHER.sub("", text))]
    lines = [line for block in blocks for line in textwrap.dedent(block).splitlines()]
    return [line for line in lines if re.split(r"[\s;]", line.removeprefix("$ "))[0] in PROGRAMS]


OTHERS: Final = [
    (path.stem, command)
    for path in (*sorted(FOLDER.glob("*.md")), ROOT / "docs" / "tutorial" / "first-topic.md")
    for command in commands(path.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize(("page", "command"), OTHERS, ids=lambda one: str(one)[:60])
def test_each_is_run_by_a_test_or_has_its_reason(page: str, command: str) -> None:
    known = {**RUN_BY, **NOT_RUN}
    assert any(page == name and command.startswith(start) for name, start in known), command


def test_what_is_listed_is_there() -> None:
    for name, start in {**RUN_BY, **NOT_RUN}:
        found = [command for page, command in OTHERS if page == name and command.startswith(start)]
        assert found, f"{name}: {start}"
    assert [path for path in RUN_BY.values() if not (ROOT / path).is_file()] == []


def test_given_a_block_then_its_other_commands_are_found() -> None:
    text = "A page\n\n    runnel get topics\n    curl localhost\n\n```sh\nmake dist\n```\n"
    assert commands(text) == ["make dist", "curl localhost"]
