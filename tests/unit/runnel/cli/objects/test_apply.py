"""``apply`` and ``create``: what the SC warns of is printed, with file and line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from runnel.admin.blocking import BlockingAdmin
from schemas.errors import ConflictError, DeadlineExceededError, NotReadyError, RunnelError
from tests.unit.runnel.cli.conftest import CommandLine

MANIFESTS = """\
apiVersion: runnel/v1
kind: Topic
metadata: {name: a}
spec:
  partitions: 2
  retention:
    size: 1
---
apiVersion: runnel/v1
kind: Topic
metadata: {name: b}
"""


def test_apply_prints_warnings_with_their_lines_and_goes_on(
    command: CommandLine, tmp_path: Path
) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(MANIFESTS)
    command.sc.warnings = ['299 - "spec.retention.size: [too] small"']
    done = command("apply", "-f", str(file))
    assert (done.code, done.out) == (0, "topic/a created\ntopic/b created\n")
    assert done.err == (
        f"warning: {file}:7: spec.retention.size: [too] small\n"
        f"warning: {file}:9: spec.retention.size: [too] small\n"
    )
    # Nothing is written, so the SC is not asked.
    assert command("apply", "-f", str(file)).err == ""


@pytest.mark.parametrize(
    ("refused", "code", "out", "lines"),
    [
        pytest.param(
            {"a": ConflictError("no")}, 4, "topic/b created\n", [1], id="given-one-then-the-others"
        ),
        pytest.param(
            {"a": ConflictError("no"), "b": ConflictError("nor this")},
            4,
            "",
            [1, 9],
            id="given-several-then-each-is-named",
        ),
        pytest.param(
            {"a": NotReadyError("no SC leads")}, 5, "", [1], id="given-nobody-there-then-no-more"
        ),
    ],
)
def test_given_what_the_sc_refuses_then_the_others_are_applied(
    command: CommandLine,
    tmp_path: Path,
    refused: dict[str, RunnelError],
    code: int,
    out: str,
    lines: list[int],
) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(MANIFESTS)
    command.sc.refused_objects = refused
    done = command("apply", "-f", str(file))
    assert (done.code, done.out) == (code, out)
    said = zip(lines, (error.message for error in refused.values()), strict=True)
    rest = "; not sent: 1 more" if code == 5 else ""
    assert done.err == "".join(f"error: {file}:{line}: {why}{rest}\n" for line, why in said)


def test_create_prints_warnings(command: CommandLine) -> None:
    command.sc.warnings = ['299 - "spec.x: y"']
    done = command("create", "topic", "t", "--no-wait", "--segment-time", "1h")
    assert (done.code, done.out, done.err) == (0, "topic/t created\n", "warning: spec.x: y\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["topic", "nosuch"], "topic 'nosuch' does not exist"),
        (
            ["topic/nosuch", "spugroup/gone"],
            "topic 'nosuch' does not exist; spugroup 'gone' does not exist",
        ),
    ],
    ids=["one", "several"],
)
def test_delete_names_what_does_not_exist(
    command: CommandLine, words: list[str], said: str
) -> None:
    done = command("delete", *words)
    assert (done.code, done.out, done.err) == (3, "", f"error: {said}\n")


def test_delete_deletes_what_exists_beside_what_does_not(command: CommandLine) -> None:
    command.sc.add_topic("orders")
    done = command("delete", "topic", "nosuch", "orders", "--no-wait")
    assert (done.code, done.out) == (3, "topic/orders deleted\n")
    assert done.err == "error: topic 'nosuch' does not exist\n"


def test_delete_goes_on_after_one_that_is_refused_and_deletes_each_once(
    command: CommandLine,
) -> None:
    for name in ("a", "b", "c"):
        command.sc.add_topic(name)
    command.sc.refused_objects = {"b": ConflictError("it is in use")}
    done = command("delete", "topic", "a", "b", "nosuch", "c", "a", "--no-wait")
    assert (done.code, done.out) == (4, "topic/a deleted\ntopic/c deleted\n")
    assert done.err == "error: topic 'nosuch' does not exist\nerror: it is in use\n"


def test_given_an_sc_that_goes_away_then_delete_says_what_it_did_and_what_it_did_not_send(
    command: CommandLine,
) -> None:
    for name in ("a", "b", "c", "d"):
        command.sc.add_topic(name)
    command.sc.refused_objects = {"b": NotReadyError("the SC stops")}
    done = command("delete", "topic", "nosuch", "a", "b", "c", "d", "--no-wait")
    assert (done.code, done.out) == (5, "topic/a deleted\n")
    assert done.err == (
        "error: topic 'nosuch' does not exist\nerror: topic/b: the SC stops; not sent: 2 more\n"
    )


def test_given_a_wait_then_it_is_said_what_for(
    command: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    @contextmanager
    def progress(text: str) -> Iterator[Callable[[str], None]]:
        said.append(text)
        yield said.append

    monkeypatch.setattr("runnel.cli.objects.apply.progress", progress)
    command.sc.add_topic("a")
    command.sc.add_partition("a")
    assert command("wait", "topic", "a", "--for", "sealed", "--timeout", "300ms").code == 5
    assert said == ["waiting for topic/a", "partition 'a-0' is online"]


def test_given_one_that_does_not_go_in_time_then_delete_waits_for_the_others_all_the_same(
    command: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, waited = 100.0, list[float]()

    def wait(
        _: BlockingAdmin, _kind: str, name: str, _wanted: str, timeout: float, on_state: object
    ) -> None:
        nonlocal now_s
        assert callable(on_state)
        waited.append(timeout)
        now_s += 50
        if name != "a":
            raise DeadlineExceededError(f"{name} is there after {timeout:g} s")

    monkeypatch.setattr(BlockingAdmin, "wait", wait)
    for name in ("a", "b", "c"):
        command.sc.add_topic(name)
    with monkeypatch.context() as patched:
        patched.setattr("runnel.cli.objects.apply.time", SimpleNamespace(monotonic=lambda: now_s))
        done = command("delete", "topic", "a", "b", "c")
    assert waited == [60, 10, 0]
    assert (done.code, done.out) == (5, "topic/a deleted\n")
    assert done.err == "error: b is there after 60 s\nerror: c is there after 60 s\n"
