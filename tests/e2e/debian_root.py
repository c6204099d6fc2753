"""A Debian with Python, as the base of an image: no image is pulled.

``RUNNEL_TEST_DEBIAN_ROOT`` names a directory that holds one already; otherwise debootstrap makes
one, which takes root and about two minutes. Without either, tests are skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

RELEASE: Final = "bookworm"
PACKAGES: Final = ("python3", "python3-venv", "ca-certificates")
_TIMEOUT_S: Final = 900


def debian_root(directory: Path) -> Path:
    """The root of a Debian, below ``directory`` if it has to be made."""
    if ready := os.environ.get("RUNNEL_TEST_DEBIAN_ROOT"):
        return Path(ready)
    program = shutil.which("debootstrap")
    if program is None or os.geteuid() != 0:
        pytest.skip("NO DEBIAN ROOT: as root, apt-get install debootstrap")
    root = directory / "root"
    arguments = ["--variant=minbase", f"--include={','.join(PACKAGES)}", RELEASE, str(root)]
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=_TIMEOUT_S)
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr
    return root
