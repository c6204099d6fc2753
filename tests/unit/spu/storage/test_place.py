"""Where batches lie: the bytes that a read would give, and nothing that is not committed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.daemon.boot import boot_id
from schemas.daemon.page_cache import CAN_REFUSE_TO_WAIT
from schemas.errors import OffsetOutOfRangeError
from schemas.wire.located_batches import Place
from spu.storage import reader as reader_module
from tests.laws import examples
from tests.unit.spu.builders import TERM, OpenLog, batch_of, headers, new_log_directory, open_log
from tests.unit.spu.builders import settings_of as log_settings


@pytest.fixture(autouse=True)
def _few_bytes_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "LEAST_LOCATED_BYTES", 1)


def logged(path: Path, *counts: int, segment: int = 1 << 20) -> OpenLog:
    opened = open_log(new_log_directory(path), log_settings(segment=segment))
    for count in counts:
        opened.append(batch_of(count))
    return opened


def content(place: Place) -> bytes:
    with Path(place.path).open("rb") as file:
        file.seek(place.batches.position)
        return file.read(place.batches.length)


def test_given_batches_then_their_file_and_its_identity(tmp_path: Path) -> None:
    opened = logged(tmp_path, 3, 1, 2)
    place = opened.log.place(0, 6, wait=False)
    assert place is not None
    assert content(place) == opened.log.read(0, 1 << 20, 6, wait=True).data
    file = os.stat(place.path)
    found = place.batches
    assert (found.device, found.inode, found.term) == (file.st_dev, file.st_ino, TERM)
    assert found.boot_id == boot_id()
    assert os.path.isabs(place.path)
    opened.crash()


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=30),
    st.integers(0, 120),
    st.integers(0, 120),
    st.sampled_from([1, 500, 1 << 20]),
)
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_law_it_is_what_reads_give_whole_batches_of_one_segment(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], offset: int, upto: int, most: int
) -> None:
    opened = logged(tmp_path_factory.mktemp("log"), *counts, segment=1 << 11)
    log = opened.log
    # A last add confirmed is the last offset of a batch.
    ends = [0]
    for count in counts:
        ends.append(ends[-1] + count)
    offset, upto = offset % ends[-1], ends[upto % len(ends)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader_module, "_MOST_LOCATED_BYTES", most)
        place = log.place(offset, upto, wait=True)
    read = log.read(offset, 1 << 20, upto, wait=True)
    assert bool(read.data) == (place is not None)
    if place is not None:
        assert read.data[: place.batches.length] == content(place)
        assert place.batches.length == len(read.data) or most < len(read.data)
        found = headers(memoryview(content(place)))
        assert found[0].base_offset <= offset < found[0].next_offset
        assert found[-1].next_offset <= upto
    opened.crash()


def test_given_a_cut_below_the_start_then_as_a_read(tmp_path: Path) -> None:
    opened = logged(tmp_path, *[2] * 30, segment=1 << 10)
    opened.log.truncate_prefix(20)
    opened.sync()
    with pytest.raises(OffsetOutOfRangeError):
        opened.log.place(19, 60, wait=True)
    assert opened.log.place(20, 60, wait=True) is not None
    opened.crash()


def test_given_few_bytes_or_a_system_without_boots_then_they_are_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = logged(tmp_path, 3, 1, 2)
    size = opened.log.size_bytes
    monkeypatch.setattr(reader_module, "LEAST_LOCATED_BYTES", size)
    assert opened.log.place(0, 6, wait=False) is not None
    assert opened.log.place(0, 4, wait=False) is None
    monkeypatch.setattr(reader_module, "LEAST_LOCATED_BYTES", size + 1)
    assert opened.log.place(0, 6, wait=False) is None
    monkeypatch.setattr(reader_module, "LEAST_LOCATED_BYTES", 1)
    monkeypatch.setattr(reader_module, "boot_id", lambda: None)
    assert opened.log.place(0, 6, wait=False) is None
    opened.crash()


def test_given_the_index_on_disk_then_a_question_that_must_not_wait_says_so(tmp_path: Path) -> None:
    if not CAN_REFUSE_TO_WAIT:
        pytest.skip("this system cannot read without waiting")
    opened = logged(tmp_path, *[2] * 30, segment=1 << 10)
    opened.sync()
    with pytest.raises(BlockingIOError):
        opened.log.place(3, 60, wait=False)
    assert opened.log.place(3, 60, wait=True) is not None
    opened.crash()
