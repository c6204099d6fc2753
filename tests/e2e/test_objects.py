"""Day-two work with the objects of a real cluster: diff, edit, watch, wait, describe, check."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.e2e.conftest import Command

pytestmark = pytest.mark.wheel


def manifest(name: str, spec: str, labels: str = "") -> str:
    return (
        "apiVersion: runnel/v1\nkind: Topic\n"
        f"metadata: {{name: {name}, labels: {{{labels}}}}}\nspec: {spec}\n"
    )


FAR = """\
apiVersion: runnel/v1
kind: Spu
metadata: {name: far}
spec: {spuId: 90, publicEndpoint: {port: 1, ingress: [{ip: 127.0.0.1}]}}
---
apiVersion: runnel/v1
kind: Topic
metadata: {name: away}
spec: {assignment: [{id: 0, replicas: [90]}]}
"""


def with_editor(monkeypatch: pytest.MonkeyPatch, script: Path, text: str) -> None:
    script.write_text(f"#!/bin/sh\n{text}\n")
    script.chmod(0o755)
    monkeypatch.setenv("EDITOR", str(script))


def test_diff_then_apply_then_no_difference(cluster: Command, tmp_path: Path) -> None:
    file = tmp_path / "m.yaml"
    cluster("create", "topic", "differ", "--no-wait")
    file.write_text(manifest("differ", "{partitions: 2, retention: {time: 1h}}"))
    assert cluster("apply", "-f", str(file), "--dry-run") == "topic/differ configured (dry run)\n"
    said = cluster("diff", "-f", str(file), code=1)
    assert "-  partitions: 1\n" in said
    assert "+  partitions: 2\n" in said
    cluster("apply", "-f", str(file))
    assert cluster("diff", "-f", str(file)) == ""
    file.write_text(manifest("differ", "{partitions: 1}"))
    assert "cannot shrink" in cluster.fails("diff", "-f", str(file), code=2)


def test_dry_runs_of_create_and_delete(cluster: Command) -> None:
    assert cluster("create", "topic", "dry", "--dry-run") == "topic/dry created (dry run)\n"
    assert cluster("delete", "topic", "differ", "--dry-run") == "topic/differ deleted (dry run)\n"
    names = cluster("get", "topics", "-o", "name").splitlines()
    assert ("topics/dry" in names, "topics/differ" in names) == (False, True)


def test_scale_and_label(cluster: Command) -> None:
    cluster("create", "topic", "scaled", "--label", "team=a")
    assert cluster("scale", "topic", "scaled", "--partitions", "3", "--dry-run") == (
        "topic/scaled scaled from 1 to 3 partitions (dry run)\n"
    )
    cluster("scale", "topic", "scaled", "--partitions", "2")
    cluster("wait", "partition", "scaled-1", "--for", "online")
    fewer = cluster.fails("scale", "topic", "scaled", "--partitions", "1", code=2)
    assert "cannot shrink from 2 to 1" in fewer
    assert cluster("scale", "spugroup", "spu", "--replicas", "3", "--dry-run") == (
        "spugroup/spu scaled from 2 to 3 SPUs (dry run)\n"
    )
    assert cluster("label", "topic", "scaled", "team-", "tier=gold") == "topic/scaled labeled\n"
    assert cluster("get", "topics", "-l", "tier=gold,!team", "-o", "name") == "topics/scaled\n"
    cluster.fails("label", "partition", "scaled-0", "tier=gold", code=2)
    by_size = r'jsonpath={range .items[?(@.spec.partitions>=2)]}{.metadata.name}{"\n"}{end}'
    assert "scaled" in cluster("get", "topics", "-o", by_size).splitlines()
    cluster("delete", "topic", "scaled")


def test_edit_and_who_did_it(
    cluster: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster("create", "topic", "edited")
    editor = tmp_path / "editor.sh"
    with_editor(monkeypatch, editor, 'sed -i "s/partitions: 1/partitions: 2/" "$1"')
    assert cluster("edit", "topic", "edited") == "topic/edited configured\n"
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with_editor(monkeypatch, editor, 'sed -i "s/partitions: 2/partitions: 1/" "$1"')
    said = cluster.fails("edit", "topic", "edited", code=2)
    assert "cannot shrink from 2 to 1" in said
    (kept,) = tmp_path.glob("runnel-edit-*")
    assert f"your text is kept in {kept}" in said
    assert kept.read_text().startswith("#: spec.partitions: cannot shrink from 2 to 1")
    cluster("wait", "topic", "edited", "--for", "provisioned")
    told = cluster("describe", "topic", "edited")
    assert "State:        provisioned: all of its partitions are placed" in told
    history = told[told.index("History:") :].splitlines()
    assert history[1].split() == ["AGE", "REVISION", "BY", "CHANGE", "REASON", "CAUSE"]
    (change,) = [line for line in history if "spec.partitions" in line]
    assert "@" in change
    assert "api-" in change
    assert "created" in history[-1]


def test_watch_and_wait_and_describe(cluster: Command) -> None:
    cluster("apply", "-f", "-", stdin=manifest("watched", "{partitions: 1}", "tier: gold"))
    watching = cluster.start(
        "get", "topics", "-w", "-o", "json", "-l", "tier in (gold, silver), !old",
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert watching.stdout is not None
        first = json.loads(watching.stdout.readline())
        assert (first["type"], first["object"]["metadata"]["name"]) == ("added", "watched")
        cluster("apply", "-f", "-", stdin=manifest("watched", "{partitions: 2}", "tier: gold"))
        cluster("wait", "topic", "watched", "--for", "provisioned")
        cluster("wait", "partition", "watched-1", "--for", "online")
        cluster("delete", "topic", "watched")
        types: list[str] = []
        while types[-1:] != ["deleted"]:
            event = json.loads(watching.stdout.readline())
            types.append(event["type"])
            last = event["object"]
        assert set(types) == {"modified", "deleted"}
        assert (last["spec"]["partitions"], last["status"]["observedGeneration"]) == (2, 2)
    finally:
        watching.send_signal(signal.SIGINT)
        watching.communicate(timeout=30)
    assert watching.returncode == 130


def test_given_an_spu_that_never_comes_then_check_says_so_and_force_deletes_it(
    cluster: Command,
) -> None:
    fine = json.loads(cluster("cluster", "check", "-o", "json"))
    assert {row["check"].split()[0] for row in fine["checks"]} >= {"sc", "spu", "endpoint", "disk"}
    assert {row["result"] for row in fine["checks"]} == {"ok"}
    cluster("apply", "-f", "-", stdin=FAR)
    cluster("wait", "topic", "away", "--for", "provisioned")
    found = json.loads(cluster("cluster", "check", "-o", "json", code=1))["checks"]
    checks = {row["check"]: row for row in found}
    assert {name for name, row in checks.items() if row["result"] == "failed"} == {
        "spu far", "endpoint far", "partition away-0",
    }  # fmt: skip
    assert "runnel edit spu far" in checks["endpoint far"]["detail"]
    said = cluster.fails("delete", "spu", "far", code=4)
    assert "away-0" in said
    assert "--force" in said
    assert cluster("delete", "spu", "far", "--force") == "spu/far deleted\n"
    assert cluster("delete", "topic", "away") == "topic/away deleted\n"


def test_given_no_sc_then_check_is_exit_code_5(cluster: Command) -> None:
    assert "no SC answers" in cluster("cluster", "check", "--sc", "127.0.0.1:1", code=5)
