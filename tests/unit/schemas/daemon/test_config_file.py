"""Configuration files of daemons are checked like manifests."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import Field

from schemas.daemon.config_file import load_config
from schemas.errors import ManifestError
from schemas.model import Model


class Listen(Model):
    port: int = Field(default=1, ge=0, le=65535)


class Config(Model):
    log_dir: str
    listen: Listen = Listen()
    log_level: str = "info"


class Defaults(Model):
    listen: Listen = Listen()


def test_given_a_good_file_then_the_config(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("logDir: /data\nlisten: {port: 9}\n")
    assert load_config(str(path), Config) == Config(log_dir="/data", listen=Listen(port=9))


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n"], ids=repr)
def test_given_nothing_then_the_defaults(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    assert load_config(str(path), Defaults) == Defaults()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(b"", ":1: logDir: is required", id="given-nothing"),
        pytest.param(
            b"logDir: /d\nlogLevl: x\n",
            ":2: logLevl: unknown field; did you mean logLevel?",
            id="given-a-typo",
        ),
        pytest.param(
            b"log_dir: /d\n",
            ":1: log_dir: unknown field; did you mean logDir?",
            id="given-snake-case",
        ),
        pytest.param(
            b"logDir: /d\nlisten:\n  port: 70000\n",
            ":3: listen.port: must be at most 65535, it is 70000",
            id="given-a-port-out-of-range",
        ),
        pytest.param(
            b"logDir: /d\nlogDir: /e\n",
            ":1: logDir: appears twice, in lines 1 and 2",
            id="given-a-field-twice",
        ),
        pytest.param(b"- a\n", ":1: must be a mapping of fields, not a list", id="given-a-list"),
        pytest.param(
            b"logDir: /d\n---\nlogDir: /e\n",
            ": a configuration is one YAML document, not 2",
            id="given-two-documents",
        ),
        pytest.param(
            b"logDir: [\n",
            ":2: not valid YAML: expected the node content, but found '<stream end>'",
            id="given-no-yaml",
        ),
        pytest.param(b"a: 1\n\xff", ":2: not UTF-8 text", id="given-no-text"),
    ],
)
def test_what_is_wrong(tmp_path: Path, text: bytes, expected: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(text)
    with pytest.raises(ManifestError) as raised:
        load_config(str(path), Config)
    assert expected in [line.removeprefix(str(path)) for line in raised.value.message.split("\n")]


def test_given_a_missing_file_then_said(tmp_path: Path) -> None:
    path = str(tmp_path / "absent.yaml")
    with pytest.raises(ManifestError) as raised:
        load_config(path, Config)
    assert raised.value.message == f"{path}: cannot be read: No such file or directory"
