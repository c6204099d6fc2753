"""Contexts: their table, what earlier versions wrote and read, and what takes precedence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runnel.contexts import (
    Context,
    Contexts,
    change_contexts,
    combined,
    current_context,
    default_sc,
    forget_cluster,
    load_contexts,
    local_data_dirs,
    remember_cluster,
)
from schemas.errors import ConflictError, InvalidRequestError, NotFoundError, RunnelError

LAB = Context("lab", "lab:1")
PROD = Context("prod", "a:1,b:1")
LOCAL = Context("local", "localhost:9003", "/d")
LAB_ENTRY = {"sc": "lab:1", "data_dir": None}
BOTH = Contexts((LAB, LOCAL), "lab")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RUNNEL_HOME", str(tmp_path / "home"))
    for name in ("RUNNEL_SC", "RUNNEL_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "home"


FILES: dict[str, tuple[Any, Any, Contexts]] = {
    "given-nothing": (None, None, Contexts()),
    "given-a-table-only-then-none-is-in-use": (
        {"contexts": {"lab": LAB_ENTRY}}, None, Contexts((LAB,)),
    ),
    "given-both-then-the-named-one-is-in-use": (
        {"contexts": {"lab": LAB_ENTRY}}, {**LAB_ENTRY, "context": "lab"}, Contexts((LAB,), "lab"),
    ),
    "given-a-stale-copy-then-the-table-counts": (
        {"contexts": {"lab": LAB_ENTRY}}, {"sc": "old:1", "context": "lab"},
        Contexts((LAB,), "lab"),
    ),
    "given-a-profile-that-the-table-lacks-then-it-is-a-context": (
        None, {**LAB_ENTRY, "context": "lab"}, Contexts((LAB,), "lab"),
    ),
    "given-an-earlier-version's-profile-then-it-is-a-context": (
        None, {"sc": "localhost:9003", "data_dir": "/d"}, Contexts((LOCAL,), "local"),
    ),
    "given-an-earlier-version's-profile-of-a-known-cluster-then-its-address-is-updated": (
        {"contexts": {"mine": {"sc": "localhost:1", "data_dir": "/d"}}},
        {"sc": "localhost:9003", "data_dir": "/d"},
        Contexts((Context("mine", "localhost:9003", "/d"),), "mine"),
    ),
    "given-an-earlier-version's-profile-of-another-cluster-then-both-are-kept": (
        {"contexts": {"local": {"sc": "localhost:1", "data_dir": "/e"}}},
        {"sc": "localhost:9003", "data_dir": "/d"},
        Contexts(
            (Context("local", "localhost:1", "/e"), Context("local-2", "localhost:9003", "/d")),
            "local-2",
        ),
    ),
    "given-an-earlier-version's-profile-without-a-directory-then-the-context-of-its-address": (
        {"contexts": {"lab": LAB_ENTRY}}, {"sc": "lab:1"}, Contexts((LAB,), "lab"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("table", "profile", "expected"), FILES.values(), ids=FILES)
def test_what_the_files_say(table: Any, profile: Any, expected: Contexts) -> None:
    assert combined(table, profile) == expected


STEPS: dict[str, tuple[Callable[[Contexts], Contexts], Contexts]] = {
    "given-an-addition": (lambda c: c.added(PROD), Contexts((LAB, LOCAL, PROD), "lab")),
    "given-the-same-again-then-nothing-changes": (lambda c: c.added(LAB), BOTH),
    "given-another-to-use": (lambda c: c.used("local"), Contexts((LAB, LOCAL), "local")),
    "given-a-removal": (lambda c: c.removed("local"), Contexts((LAB,), "lab")),
    "given-a-removal-of-the-one-in-use-then-none-is": (
        lambda c: c.removed("lab"), Contexts((LOCAL,)),
    ),
    "given-a-start-of-a-known-directory-then-its-context-is-updated": (
        lambda c: c.started("other", "localhost:7", "/d"),
        Contexts((LAB, Context("local", "localhost:7", "/d")), "local"),
    ),
    "given-a-start-elsewhere-then-a-new-context": (
        lambda c: c.started("west", "localhost:7", "/w"),
        Contexts((LAB, LOCAL, Context("west", "localhost:7", "/w")), "west"),
    ),
    "given-a-start-under-a-name-that-is-taken-then-a-number": (
        lambda c: c.started("lab", "localhost:7", "/w"),
        Contexts((LAB, LOCAL, Context("lab-2", "localhost:7", "/w")), "lab-2"),
    ),
    "given-a-cluster's-name-that-no-context-may-have": (
        lambda c: c.started("my cluster!", "localhost:7", "/w"),
        Contexts((LAB, LOCAL, Context("my-cluster-", "localhost:7", "/w")), "my-cluster-"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("step", "expected"), STEPS.values(), ids=STEPS)
def test_steps(step: Callable[[Contexts], Contexts], expected: Contexts) -> None:
    assert step(BOTH) == expected


REFUSED: dict[str, tuple[Callable[[Contexts], object], type[RunnelError], str]] = {
    "given-a-typo": (lambda c: c.used("lob"), NotFoundError, "did you mean lab?"),
    "given-a-removal-of-nothing": (
        lambda c: c.removed("x"), NotFoundError, "no context 'x'; Known: lab, local",
    ),
    "given-another-cluster-of-that-name": (
        lambda c: c.added(Context("lab", "x:1")), ConflictError, "runnel context remove lab",
    ),
    "given-a-bad-name": (lambda c: c.added(Context("a b", "x:1")), InvalidRequestError, "letters"),
    "given-an-option-for-a-name": (
        lambda c: c.added(Context("-x", "x:1")), InvalidRequestError, "begin with a letter",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("step", "error", "said"), REFUSED.values(), ids=REFUSED)
def test_refused_steps(
    step: Callable[[Contexts], object], error: type[RunnelError], said: str
) -> None:
    with pytest.raises(error) as refused:
        step(BOTH)
    assert said in str(refused.value)


def test_given_no_context_at_all_then_a_name_says_how_to_add_it() -> None:
    with pytest.raises(NotFoundError, match=r"runnel context add lab --sc HOST:PORT"):
        Contexts().find("lab")


def test_changes_are_stored_and_an_earlier_version_reads_the_one_in_use(home: Path) -> None:
    change_contexts(lambda contexts: contexts.added(LAB).added(PROD).used("prod"))
    assert load_contexts() == Contexts((LAB, PROD), "prod")
    profile = json.loads((home / "profile.json").read_text())
    assert (profile["sc"], profile["data_dir"]) == ("a:1,b:1", None)
    change_contexts(lambda contexts: contexts.removed("prod"))
    assert load_contexts() == Contexts((LAB,))
    assert not (home / "profile.json").exists()


def test_given_a_step_that_is_refused_then_nothing_is_stored(home: Path) -> None:
    with pytest.raises(NotFoundError):
        change_contexts(lambda contexts: contexts.added(LAB).used("x"))
    assert list(home.iterdir()) == []


def test_given_an_earlier_version_starts_a_cluster_then_no_context_is_lost(home: Path) -> None:
    change_contexts(lambda contexts: contexts.added(LAB).used("lab"))
    (home / "profile.json").write_text('{"sc": "localhost:9003", "data_dir": "/d"}')
    assert load_contexts() == Contexts((LAB, LOCAL), "local")
    assert change_contexts(lambda contexts: contexts) == Contexts((LAB, LOCAL), "local")
    assert load_contexts() == Contexts((LAB, LOCAL), "local")


def test_a_started_cluster_is_remembered_and_forgotten(home: Path) -> None:
    remember_cluster("local", "localhost:1", home / "a")
    remember_cluster("local", "localhost:2", home / "b")
    assert load_contexts().current == "local-2"
    assert local_data_dirs() == [home / "b", home / "a", home / "local"]
    forget_cluster(home / "c")
    forget_cluster(home / "a")
    assert load_contexts() == Contexts(
        (Context("local-2", "localhost:2", str(home / "b")),), "local-2"
    )
    forget_cluster(home / "b")
    assert load_contexts() == Contexts()


def test_given_the_last_one_is_removed_then_no_file_is_left(home: Path) -> None:
    remember_cluster("local", "localhost:9003", Path("/d"))
    assert {path.name for path in home.iterdir()} == {"contexts.json", "profile.json"}
    forget_cluster(Path("/d"))
    assert list(home.iterdir()) == []
    assert load_contexts() == Contexts()


def test_given_nothing_to_forget_then_nothing_is_written(home: Path) -> None:
    forget_cluster(home / "a")
    assert not home.exists()


PRECEDENCE = {
    "given-neither-then-the-one-in-use": ({}, "a:1,b:1"),
    "given-a-context-then-it": ({"RUNNEL_CONTEXT": "lab"}, "lab:1"),
    "given-an-address-then-it": ({"RUNNEL_SC": "x:1"}, "x:1"),
    "given-both-then-the-address": ({"RUNNEL_SC": "x:1", "RUNNEL_CONTEXT": "lab"}, "x:1"),
    "given-empty-variables-then-the-one-in-use": (
        {"RUNNEL_SC": "", "RUNNEL_CONTEXT": ""}, "a:1,b:1",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("variables", "address"), PRECEDENCE.values(), ids=PRECEDENCE)
def test_precedence(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], address: str
) -> None:
    change_contexts(lambda contexts: contexts.added(LAB).added(PROD).used("prod"))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert default_sc() == address


def test_given_a_variable_that_names_no_context_then_it_is_wrong_usage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RUNNEL_CONTEXT", "lab")
    with pytest.raises(InvalidRequestError, match="RUNNEL_CONTEXT: there is no context 'lab'"):
        default_sc()


def test_given_no_contexts_then_the_default_address() -> None:
    assert (default_sc(), current_context()) == ("localhost:9003", None)


DAMAGED = {
    "given-no-json": "{",
    "given-a-list": "[]",
    "given-no-contexts": "{}",
    "given-a-context-without-an-address": '{"contexts": {"lab": {}}}',
    "given-a-text-for-a-context": '{"contexts": {"lab": "x"}}',
    "given-a-list-of-contexts": '{"contexts": [1]}',
    "given-brackets-without-end": "[" * 100_000,
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED)
def test_damaged_table(home: Path, text: str) -> None:
    home.mkdir()
    (home / "contexts.json").write_text(text)
    with pytest.raises(InvalidRequestError, match="delete"):
        load_contexts()


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"sc": "x", "context": 1}'])
def test_damaged_profile(home: Path, text: str) -> None:
    home.mkdir()
    (home / "profile.json").write_text(text)
    with pytest.raises(InvalidRequestError, match="delete"):
        load_contexts()


ENTRIES = {
    "given-no-address": ({"sc": None}, "the sc of context 'a' is None, not HOST:PORT"),
    "given-an-empty-address": ({"sc": ""}, "the sc of context 'a' is '', not HOST:PORT"),
    "given-a-number": ({"sc": 9003}, "the sc of context 'a' is 9003, not HOST:PORT"),
    "given-no-path": ({"sc": "x:1", "data_dir": []}, "the data_dir of context 'a' is [], not a"),
}


@pytest.mark.parametrize(("entry", "said"), ENTRIES.values(), ids=ENTRIES)
def test_an_entry_that_is_none_is_named_with_its_file(home: Path, entry: Any, said: str) -> None:
    home.mkdir()
    (home / "contexts.json").write_text(json.dumps({"contexts": {"a": entry}}))
    with pytest.raises(InvalidRequestError) as refused:
        load_contexts()
    assert f"contexts.json: {said}" in refused.value.message
    (home / "contexts.json").unlink()
    (home / "profile.json").write_text(json.dumps({**entry, "context": "a"}))
    with pytest.raises(InvalidRequestError) as refused:
        load_contexts()
    assert f"profile.json: {said}" in refused.value.message


#: RUNNEL_HOME, HOME, what is said of reading and of a change; None: it is as if there were none.
NO_HOMES = {
    "given-no-such-user": ("~nosuch", "/", "RUNNEL_HOME is '~nosuch', and there is no", "RUNNEL_"),
    "given-a-home-of-no-such-user": ("", "~x", "HOME is '~x', which is no home", "HOME is '~x'"),
    "given-a-file": (
        "/dev/null", "/", "/dev/null/contexts.json cannot be read: Not a directory; name a",
        "/dev/null cannot be the directory of contexts: File exists; name another in RUNNEL_HOME",
    ),
    "given-a-home-that-is-a-file": (
        "", "/dev/null", "/dev/null/.runnel/contexts.json cannot be read: Not a directory; name",
        "/dev/null/.runnel cannot be the directory of contexts: Not a directory; name another in",
    ),
    "given-a-home-without-directories": (
        "", "/proc", None, "/proc/.runnel cannot be the directory of contexts: ",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("named", "user", "read", "changed"), NO_HOMES.values(), ids=NO_HOMES)
def test_where_no_contexts_can_be(
    monkeypatch: pytest.MonkeyPatch, named: str, user: str, read: str | None, changed: str
) -> None:
    monkeypatch.setenv("RUNNEL_HOME", named)
    monkeypatch.setenv("HOME", user)
    if read is None:
        assert load_contexts() == Contexts()
    else:
        with pytest.raises(InvalidRequestError) as refused:
            load_contexts()
        assert refused.value.message.startswith(read)
    with pytest.raises(InvalidRequestError) as refused:
        change_contexts(lambda contexts: contexts.added(LAB))
    assert refused.value.message.startswith(changed)


def test_given_a_directory_for_the_table_then_it_is_not_to_be_deleted(home: Path) -> None:
    (home / "contexts.json").mkdir(parents=True)
    with pytest.raises(InvalidRequestError, match=r"contexts\.json is a directory.*move it away"):
        load_contexts()


READING = {
    "given-no-permission": (PermissionError(13, "Permission denied"), "let this user read it"),
    "given-a-broken-disk": (OSError(5, "Input/output error"), "Input/output error; name a"),
}


@pytest.mark.parametrize(("error", "said"), READING.values(), ids=READING)
def test_a_table_that_cannot_be_read_is_not_to_be_deleted(
    monkeypatch: pytest.MonkeyPatch, error: OSError, said: str
) -> None:
    def fail(path: Path) -> str:
        raise error

    monkeypatch.setattr(Path, "read_text", fail)
    with pytest.raises(InvalidRequestError) as refused:
        load_contexts()
    assert said in refused.value.message
    assert "delete" not in refused.value.message


def test_given_no_room_then_a_change_says_where(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path, data: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("runnel.contexts.write_json", fail)
    with pytest.raises(RunnelError, match=f"stored in {home}: No space left on device"):
        change_contexts(lambda contexts: contexts.added(LAB))
