"""What answers of the SC warn of: everything about writes, and once what questions repeat."""

from __future__ import annotations

from runnel.admin.one_shot import _BlockingCalls


def header(text: str) -> str:
    return f'299 - "{text}"'


def test_what_questions_repeat_is_said_once_until_it_is_over() -> None:
    said: list[str] = []
    calls = _BlockingCalls.parse("localhost:1")
    calls.on_warning = said.append
    calls.warn("GET", [header("old")])
    calls.warn("GET", [header("old"), header("new")])
    assert said == ["old", "new"]
    calls.warn("GET", [])
    calls.warn("GET", [header("old")])
    assert said == ["old", "new", "old"]


def test_the_same_of_more_seconds_is_no_other_warning() -> None:
    said: list[str] = []
    calls = _BlockingCalls.parse("localhost:1")
    calls.on_warning = said.append
    for seconds in (9, 10, 11):
        calls.warn("GET", [header(f"no KV for {seconds} s")])
    assert said == ["no KV for 9 s"]


def test_what_is_said_of_a_write_is_said_of_each() -> None:
    said: list[str] = []
    calls = _BlockingCalls.parse("localhost:1")
    calls.on_warning = said.append
    for _ in range(2):
        calls.warn("POST", [header(f"row {row}: SPU 9 is not registered") for row in range(2)])
    assert said == ["row 0: SPU 9 is not registered", "row 1: SPU 9 is not registered"] * 2
