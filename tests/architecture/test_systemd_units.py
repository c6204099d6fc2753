"""The units of systemd are accepted by systemd, hardened, and fit what the daemons do."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from runnel.cli.failure import EXIT_NOT_FOUND, EXIT_USAGE
from schemas.daemon.process import STOP_TIMEOUT_S
from spu.storage.file_limits import divide
from tests.architecture.howto import parse
from tests.architecture.source import ROOT

FOLDER = ROOT / "packaging" / "systemd"
UNITS = sorted(FOLDER.glob("*.service"))
DAEMONS = [FOLDER / "runnel-sc.service", FOLDER / "runnel-spu.service"]
PROGRAM = "/opt/runnel/bin/runnel"
PAGE = (ROOT / "docs" / "howto" / "systemd.md").read_text()
#: Exposure by `systemd-analyze security`, in tenths: 0 is nothing, 100 everything.
MOST_EXPOSED = 20


def service(unit: Path) -> configparser.SectionProxy:
    """The section of a unit that says how its process runs; no key is in it twice."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(unit)
    return parser["Service"]


def analyzed(command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What systemd-analyze says. Skips where it is not installed."""
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("NO systemd-analyze: on Debian, apt-get install systemd")
    return subprocess.run(
        [program, command, *arguments], capture_output=True, text=True, timeout=60
    )


def verified(text: str, unit: Path, directory: Path) -> str:
    """What systemd does not like of a unit with this text. The program is where this Python is."""
    copy = directory / unit.name
    copy.write_text(text.replace(PROGRAM, str(Path(sys.executable).with_name("runnel"))))
    done = analyzed("verify", "--man=no", str(copy))
    # It also tells what it does not like of other units of the machine.
    return "\n".join(line for line in done.stderr.splitlines() if unit.stem in line)


def test_there_are_units_for_all_that_runs_for_ever() -> None:
    assert [unit.stem for unit in UNITS] == ["runnel-dashboard", "runnel-sc", "runnel-spu"]
    for unit in UNITS:
        assert unit.stem in PAGE


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_accepts_the_unit(unit: Path, tmp_path: Path) -> None:
    assert verified(unit.read_text(), unit, tmp_path) == ""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("ProtectSystem=", "ProtectSistem="),
        ("Restart=on-failure", "Restart=sometimes"),
        (PROGRAM, "/opt/nowhere/runnel"),
    ],
    ids=["given-an-unknown-key", "given-an-unknown-value", "given-no-such-program"],
)
def test_a_wrong_unit_is_found(before: str, after: str, tmp_path: Path) -> None:
    unit = DAEMONS[0]
    text = unit.read_text()
    assert before in text
    assert verified(text.replace(before, after), unit, tmp_path) != ""


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_the_unit_is_hardened(unit: Path) -> None:
    done = analyzed(
        "security", "--offline=true", f"--threshold={MOST_EXPOSED}", "--no-pager", str(unit)
    )
    assert done.returncode == 0, done.stdout.splitlines()[-1:] + done.stderr.splitlines()


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_the_command_of_the_unit_is_accepted(unit: Path) -> None:
    program, *words = service(unit)["ExecStart"].split()
    assert program == PROGRAM
    parse(["runnel", *words])


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_failed_process_is_started_again_unless_only_a_person_can_help(unit: Path) -> None:
    found = service(unit)
    assert found["Restart"] == "on-failure"
    codes = set(map(int, found["RestartPreventExitStatus"].split()))
    assert codes == ({EXIT_USAGE, EXIT_NOT_FOUND} if unit in DAEMONS else {EXIT_USAGE})


@pytest.mark.parametrize("unit", DAEMONS, ids=lambda unit: unit.stem)
def test_a_daemon_has_time_to_stop_and_files_to_open(unit: Path) -> None:
    found = service(unit)
    seconds = int(found["TimeoutStopSec"].removesuffix("s"))
    assert seconds > STOP_TIMEOUT_S
    assert f"{seconds}" in re.sub(r"\s+", " ", PAGE)
    limit = int(found["LimitNOFILE"])
    # More would not be used.
    assert divide(limit) == divide(2 * limit)
    assert str(limit) in PAGE


@pytest.mark.parametrize("unit", DAEMONS, ids=lambda unit: unit.stem)
def test_what_the_page_configures_is_where_the_unit_may_write(unit: Path) -> None:
    found = service(unit)
    assert (found["User"], found["StateDirectory"]) == ("runnel", "runnel")
    users = (FOLDER / "runnel.sysusers.conf").read_text()
    assert re.search(r"^u runnel - .* /var/lib/runnel$", users, re.MULTILINE)
    stored = re.findall(r"^(?:kv: sqlite:|logDir: )(\S+)", PAGE, re.MULTILINE)
    assert len(stored) == 2
    assert all(path.startswith("/var/lib/runnel/") for path in stored)
