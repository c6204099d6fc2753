"""What users have: a wheel of these sources in an environment without them.

``python -m tests.e2e.installed_wheel DIRECTORY`` makes one there and prints its interpreter. Its
dependencies are those of the environment that runs this, so nothing is downloaded.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
from pathlib import Path

from tests.architecture.source import PACKAGES, ROOT

TIMEOUT_S = 300
_BUILT_FROM = ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE")
_BUILD = "import sys, build_backend; build_backend.build_{what}(sys.argv[1])"


def copy_sources(directory: Path) -> Path:
    """What the build reads, where it may write beside it."""
    for package in (*PACKAGES, "build_backend"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, directory / package, ignore=ignored)
    for name in _BUILT_FROM:
        shutil.copy2(ROOT / name, directory / name)
    return directory


def build_wheel(sources: Path, directory: Path) -> Path:
    """The wheel of a tree, or of an unpacked sdist."""
    return _build("wheel", sources, directory, "*.whl")


def build_sdist(sources: Path, directory: Path) -> Path:
    """The sdist of a tree, unpacked."""
    with tarfile.open(_build("sdist", sources, directory, "*.tar.gz")) as archive:
        archive.extractall(directory, filter="data")
    (unpacked,) = (path for path in directory.iterdir() if path.is_dir())
    return unpacked


def _build(what: str, sources: Path, directory: Path, pattern: str) -> Path:
    directory.mkdir(parents=True)
    command = [sys.executable, "-c", _BUILD.format(what=what), str(directory.absolute())]
    done = subprocess.run(command, cwd=sources, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = directory.glob(pattern)
    return built


def install(wheel: Path, directory: Path) -> Path:
    """The interpreter of a new environment with a wheel."""
    venv.create(directory, symlinks=True)
    python = directory / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    arguments = ["install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    done = subprocess.run([*pip, *arguments], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    (packages,) = directory.glob("lib/python*/site-packages")
    # Its own files with such lines are not read again: an editable install stays out of this.
    (packages / "dependencies.pth").write_text(f"{sysconfig.get_paths()['purelib']}\n")
    return python


if __name__ == "__main__":
    target = Path(sys.argv[1]).absolute()
    tree = copy_sources(target / "sources")
    print(install(build_wheel(tree, target / "wheel"), target / "environment"))
