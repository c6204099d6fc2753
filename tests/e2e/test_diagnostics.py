"""``runnel cluster diagnostics`` on real daemons: complete, without secrets, never fails whole.

Neighbour: `tests/unit/runnel/diagnostics` has the tables of what counts as a secret.
"""

from __future__ import annotations

import json
import os
import signal
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.conftest import Command
from tests.polling import eventually
from tests.ports import free_base_port

PLANTED = "hunter2-planted"


def unpacked(file: Path) -> dict[str, str]:
    """The texts of an archive by their paths below its folder."""
    with tarfile.open(file) as tar:
        found = {}
        for member in tar.getmembers():
            stream = tar.extractfile(member)
            assert stream is not None
            found[member.name.partition("/")[2]] = stream.read().decode()
    return found


def missing(found: Mapping[str, str]) -> dict[str, str]:
    named: dict[str, str] = json.loads(found["manifest.json"])["missing"]
    return named


def test_given_secrets_everywhere_then_the_archive_is_complete_and_holds_none(
    cluster: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = cluster.home / "local"
    topic = {
        "apiVersion": "runnel/v1",
        "kind": "Topic",
        "metadata": {
            "name": "diagnosed",
            "labels": {"password": PLANTED, "team": "a"},
            "annotations": {"note": f"the word is {PLANTED}"},
        },
    }
    (tmp_path / "topic.yaml").write_text(yaml.safe_dump(topic))
    cluster("apply", "-f", str(tmp_path / "topic.yaml"))
    secrets = [file.read_text().strip() for file in local.glob("spus/*/secret")]
    assert len(secrets) == 2
    # What an operator might leave in files, and in the environment of the command.
    config = local / "extra.yaml"
    config.write_text(f"# {PLANTED}\nkv: etcd://runnel:{PLANTED}@10.0.0.1:2379\ncluster: x\n")
    log = local / "logs" / "extra.log"
    log.write_text(
        f'{{"event": "dialled", "url": "etcd://a:{PLANTED}@h", "password": "{PLANTED}"}}\n'
        f"plain text --password {PLANTED} and {secrets[0]}\nkept line\n"
    )
    monkeypatch.setenv("SOME_API_TOKEN", f"{PLANTED}-env")
    file = tmp_path / "found.tar.gz"
    try:
        assert cluster("cluster", "diagnostics", "-o", str(file)) == f"{file}\n"
    finally:
        config.unlink()
        log.unlink()
        cluster("delete", "topic", "diagnosed")
    found = unpacked(file)
    for path, text in found.items():
        for secret in (PLANTED, *secrets):
            assert secret not in text, path
    # Daemons that have run for long tell of lines that they keep no more.
    assert not [path for path in missing(found) if not path.startswith("logs.jsonl (")]
    (topics,) = (
        doc
        for doc in yaml.safe_load_all(found["objects/topics.yaml"])
        if doc["metadata"]["name"] == "diagnosed"
    )
    assert topics["metadata"]["labels"] == {"password": "***", "team": "a"}
    assert topics["metadata"]["annotations"] == {"note": "***"}
    assert {p for p in found if p.startswith("objects/")} >= {
        f"objects/{kind}.yaml" for kind in ("spus", "topics", "partitions", "spugroups")
    }
    assert any('"name": "diagnosed"' in line for line in found["events.jsonl"].splitlines())
    processes = {json.loads(line)["process"] for line in found["logs.jsonl"].splitlines()}
    assert processes >= {"sc", "spu-0", "spu-1"}
    sc = next(path for path in found if path.startswith("daemons/sc-") and "metrics" in path)
    assert "runnel_sc_" in found[sc]
    for spu in ("spu-0", "spu-1"):
        assert json.loads(found[f"daemons/{spu}/health.json"])["controllerConnected"] is True
        assert "runnel_spu_" in found[f"daemons/{spu}/metrics.txt"]
    assert {row["result"] for row in json.loads(found["check.json"])} <= {"ok", "warning"}
    # An SPU tells its first numbers a second after it has joined.
    assert {"spus", "topics"} <= json.loads(found["statistics.json"]).keys()
    assert json.loads(found["command.json"])["versions"]["runnel"]
    host = json.loads(found["host.json"])
    assert [daemon["program"] for daemon in host["daemons"]] == ["sc", "spu", "spu"]
    (extra,) = (text for path, text in found.items() if path.endswith("/extra.yaml"))
    assert yaml.safe_load(extra) == {"kv": "etcd://runnel:***@10.0.0.1:2379", "cluster": "x"}
    (lines,) = (text for path, text in found.items() if path.endswith("logs/extra.log"))
    assert "kept line" in lines
    assert file.stat().st_mode & 0o777 == 0o600
    assert "exists already" in cluster.fails("cluster", "diagnostics", "-o", str(file), code=4)


@pytest.mark.long
async def test_given_no_sc_then_what_this_host_has_is_collected(
    runnel: Command, tmp_path: Path
) -> None:
    base = _started(runnel, tmp_path)
    pids = {d["name"]: d["pid"] for d in _status(runnel, "sc") + _status(runnel, "spus")}
    for name in ("sc-0", "spu-1"):
        os.kill(pids[name], signal.SIGKILL)

    def killed() -> bool:
        return all(d["pid"] is None for d in (_status(runnel, "sc") + _status(runnel, "spus")[1:]))

    await eventually(killed)
    file = tmp_path / "found.tar.gz"
    said = runnel.fails("cluster", "diagnostics", "-o", str(file), code=5)
    assert "does not answer; what it would have told is missing" in said
    found = unpacked(file)
    assert f"localhost_{base}" in "".join(missing(found)) or f"127.0.0.1_{base}" in "".join(
        missing(found)
    )
    assert missing(found)["objects/"] == "no SC answers"
    assert json.loads(found["daemons/spu-0/health.json"])["controllerConnected"] is False
    assert {json.loads(line)["process"] for line in found["logs.jsonl"].splitlines()} == {"spu-0"}
    # The files of those that have ended are there.
    assert {p.rpartition("/")[2] for p in found if "/logs/" in p} >= {
        "sc-0.log",
        "spu-0.log",
        "spu-1.log",
    }
    assert "`objects/`: no SC answers" in found["README.md"]


def _started(runnel: Command, directory: Path) -> int:
    base = free_base_port(directory, 2)
    runnel("cluster", "start", "--spus", "2", "--base-port", str(base))
    return base


def _status(runnel: Command, daemons: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = runnel.json("cluster", "status")[daemons]
    return found
