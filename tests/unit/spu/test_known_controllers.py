"""Which SCs an SPU knows, and what it keeps of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spu.known_controllers import FILE, KnownControllers


def test_given_what_an_sc_named_then_it_is_known_after_a_restart(tmp_path: Path) -> None:
    known = KnownControllers(["a:1", "b:1"], tmp_path)
    assert known.addresses() == ("a:1", "b:1")
    known.hear(["b:1", "c:1"])
    assert known.addresses() == ("a:1", "b:1", "c:1")
    assert KnownControllers(["z:1"], tmp_path).addresses() == ("z:1", "b:1", "c:1")


def test_given_an_sc_that_names_none_then_what_was_heard_stays(tmp_path: Path) -> None:
    known = KnownControllers(["a:1"], tmp_path)
    known.hear(["b:1"])
    known.hear([])
    assert known.addresses() == ("a:1", "b:1")


def test_given_the_same_again_then_nothing_is_written(tmp_path: Path) -> None:
    known = KnownControllers(["a:1"], tmp_path)
    known.hear(["b:1", "c:1"])
    (tmp_path / FILE).unlink()
    known.hear(["c:1", "b:1"])
    assert not (tmp_path / FILE).exists()


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b"[1, null]", b"\xff", b"[" * 100_000])
def test_given_a_file_that_does_not_parse_then_the_configuration_counts(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / FILE).write_bytes(content)
    assert KnownControllers(["a:1"], tmp_path).addresses() == ("a:1",)


def test_given_very_many_then_the_first_are_kept(tmp_path: Path) -> None:
    KnownControllers([], tmp_path).hear([f"h{n}:1" for n in range(1_000)])
    assert len(json.loads((tmp_path / FILE).read_text())) == 32


def test_given_no_room_on_the_disk_then_they_are_known_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_path: Path, _content: bytes) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("spu.known_controllers.replace_file", full)
    known = KnownControllers([], tmp_path)
    known.hear(["a:1"])
    assert known.addresses() == ("a:1",)
