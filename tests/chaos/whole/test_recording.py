"""What one process writes down, another one reads, also while it is being written."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.whole.recording import Growing, Recording, entries


def test_given_a_file_that_grows_then_each_entry_comes_once(tmp_path: Path) -> None:
    path = tmp_path / "clerk.jsonl"
    growing = Growing(path)
    assert list(growing.new()) == []
    recording = Recording(path)
    recording.write("sent", below=3)
    assert [entry["below"] for entry in growing.new()] == [3]
    recording.write("sent", below=4)
    recording.close()
    assert [entry["below"] for entry in growing.new()] == [4]
    assert [entry["below"] for entry in entries(path)] == [3, 4]


def test_given_a_line_that_was_cut_off_then_it_is_left_out_until_it_is_whole(
    tmp_path: Path,
) -> None:
    path = tmp_path / "clerk.jsonl"
    growing = Growing(path)
    path.write_text('{"do": "sent", "below": 3}\n{"do": "se')
    assert [entry["below"] for entry in growing.new()] == [3]
    assert [entry["below"] for entry in entries(path)] == [3]
    with path.open("a") as file:
        file.write('nt", "below": 4}\n')
    assert [entry["below"] for entry in growing.new()] == [4]
