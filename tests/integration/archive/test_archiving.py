"""Archiving on a real cluster: what is due, two runs at once, runs that end in the middle."""

from __future__ import annotations

import os
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import runnel
from runnel.archive.manifest import ArchivedFile
from runnel.archive.store import ArchiveStore
from runnel.archiving.ranges import due_ranges
from runnel.archiving.upkeep import ORPHAN_S
from runnel.archiving.writing import ArchiveTask, write_file
from schemas.objects.partition import Partition
from tests.cold_topics import ROWS, fill, make, same, shrink
from tests.polling import eventually


def archived_before(cluster: runnel.Cluster, name: str) -> int | None:
    found = cluster.get("partition", f"{name}-0")
    assert isinstance(found, Partition)
    return found.spec.archived_before


def files(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*.parquet"))


def test_given_no_archive_then_said(cluster: runnel.Cluster) -> None:
    cluster.apply(runnel.Topic("plain"))
    with pytest.raises(runnel.InvalidRequestError, match="'plain' has no archive; apply it"):
        cluster.archive("plain")


def test_given_young_segments_then_they_wait(cluster: runnel.Cluster, tmp_path: Path) -> None:
    make(cluster, "young", tmp_path, archive={"after": "1h"})
    fill(cluster, "young", 1_000)
    assert not cluster.archive("young").files
    done = cluster.archive("young", everything=True)
    assert (done.rows, len(done.files)) == (1_000, 1)
    assert not cluster.archive("young", everything=True).files
    assert archived_before(cluster, "young") == done.files[0][1].end


def test_given_nothing_archived_then_retention_keeps_all(
    cluster: runnel.Cluster, tmp_path: Path
) -> None:
    make(cluster, "kept", tmp_path)
    fill(cluster, "kept")
    time.sleep(2.5)
    assert cluster.offsets("kept")[0].earliest == 0
    cluster.archive("kept")
    shrink(cluster, "kept")


def test_given_a_sealed_topic_then_all_of_it_is_archived(
    cluster: runnel.Cluster, tmp_path: Path
) -> None:
    make(cluster, "complete", tmp_path)
    fill(cluster, "complete")
    (sealed,) = cluster.seal("complete")
    before = cluster.read("complete")
    done = cluster.archive("complete", everything=True)
    assert (done.rows, done.failures) == (ROWS, {})
    assert archived_before(cluster, "complete") == sealed.end
    assert not cluster.archive("complete", everything=True).files
    shrink(cluster, "complete")
    assert same(cluster.read("complete"), before)


def test_given_a_list_that_cannot_be_written_then_the_sc_is_not_told(
    cluster: runnel.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(cluster, "unlisted", tmp_path)
    fill(cluster, "unlisted")
    before = cluster.read("unlisted")

    async def fails(*_: Any) -> None:
        raise runnel.DeadlineExceededError("nobody answers")

    with monkeypatch.context() as patched:
        patched.setattr(ArchiveStore, "update", fails)
        with pytest.raises(runnel.DeadlineExceededError):
            cluster.archive("unlisted")
    (orphan,) = files(tmp_path)
    assert archived_before(cluster, "unlisted") == 0
    time.sleep(2.5)
    assert cluster.offsets("unlisted")[0].earliest == 0
    # The next run lists what is there and whole.
    done = cluster.archive("unlisted")
    assert (done.relisted, done.files, done.failures) == (1, [], {})
    assert files(tmp_path) == [orphan]
    shrink(cluster, "unlisted")
    assert same(cluster.read("unlisted"), before)


def test_given_a_first_run_that_ended_before_its_first_file_then_no_record_is_passed_over(
    cluster: runnel.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(cluster, "headless", tmp_path)
    fill(cluster, "headless")
    before = cluster.read("headless")
    small = partial(due_ranges, most_bytes=32 << 10)

    async def fails_at_first(task: ArchiveTask, *more: Any) -> ArchivedFile:
        if task.base:
            return await write_file(task, *more)
        await eventually(lambda: bool(files(tmp_path)))
        raise runnel.StorageFailedError("no space is left")

    with monkeypatch.context() as patched:
        patched.setattr("runnel.archiving.run.due_ranges", small)
        patched.setattr("runnel.archiving.run.write_file", fails_at_first)
        assert cluster.archive("headless").failures
    assert files(tmp_path)
    assert archived_before(cluster, "headless") == 0
    done = cluster.archive("headless")
    assert (done.relisted, done.failures) == (0, {})
    shrink(cluster, "headless")
    assert same(cluster.read("headless"), before)
    assert cluster.offsets("headless")[0].first == 0


def test_given_a_file_that_nobody_lists_beside_a_list_then_it_goes_once_it_is_old(
    cluster: runnel.Cluster, tmp_path: Path
) -> None:
    make(cluster, "swept", tmp_path)
    fill(cluster, "swept")
    cluster.archive("swept")
    (listed,) = files(tmp_path)
    orphan = listed.with_name(listed.name.replace(listed.stem[-8:], "00000000"))
    orphan.write_bytes(listed.read_bytes())
    foreign = listed.with_name("notes.parquet")
    foreign.touch()
    assert cluster.archive("swept").removed == 0
    old = time.time() - ORPHAN_S - 60
    for path in (listed, orphan, foreign):
        os.utime(path, (old, old))
    assert cluster.archive("swept").removed == 1
    assert files(tmp_path) == sorted([listed, foreign])


def test_given_a_run_that_ended_before_the_sc_was_told_then_the_next_one_tells_it(
    cluster: runnel.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(cluster, "untold", tmp_path)
    fill(cluster, "untold")

    async def fails(*_: Any) -> None:
        raise runnel.UnreachableError("no SC answers")

    with monkeypatch.context() as patched:
        patched.setattr("runnel.archiving.run._tell", fails)
        assert cluster.archive("untold").failures
    assert archived_before(cluster, "untold") == 0
    assert not cluster.archive("untold").files
    assert archived_before(cluster, "untold") == cluster.archived("untold").listed.partition(0).end


def test_given_several_runs_at_once_then_each_record_is_listed_once(
    cluster: runnel.Cluster, tmp_path: Path
) -> None:
    make(cluster, "raced", tmp_path, partitions=2)
    fill(cluster, "raced")
    before = cluster.read("raced")
    runs: list[Any] = []

    def run() -> None:
        with runnel.connect(str(cluster._inner._sc.address)) as own:
            runs.append(own.archive("raced"))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(runs) == 4
    refused = [error for one in runs for error in one.failures.values()]
    assert all("another run meanwhile" in error.message for error in refused)
    listed = cluster.archived("raced").listed
    assert [len(listed.partition(index).files) for index in (0, 1)] == [1, 1]
    # A run may also list what another one has just written.
    assert sum(len(one.files) + one.relisted for one in runs) == 2
    shrink(cluster, "raced")
    assert same(cluster.read("raced"), before)
    assert not cluster.verify_archive("raced")


def test_given_a_truncation_then_files_show_no_more_than_the_log(
    cluster: runnel.Cluster, tmp_path: Path
) -> None:
    make(cluster, "cut", tmp_path)
    fill(cluster, "cut")
    before = cluster.read("cut")
    cluster.archive("cut")
    shrink(cluster, "cut")
    (done,) = cluster.truncate("cut", before=500)
    assert (done.first, done.removed) == (500, 500)
    after = cluster.read("cut")
    assert same(after, before.filter([at >= 500 for at in before["offset"].to_pylist()]))
    with pytest.raises(runnel.OffsetOutOfRangeError, match="first available one is 500"):
        cluster.read("cut", start=100)
    end = cluster.offsets("cut")[0].latest
    with pytest.raises(runnel.ConflictError, match="in no archive yet"):
        cluster.truncate("cut", before="latest")
    cluster.truncate("cut", before="latest", force=True)
    assert cluster.read("cut").num_rows == 0
    assert cluster.offsets("cut")[0].first == end


def test_given_a_retention_of_the_archive_then_its_oldest_files_go(
    cluster: runnel.Cluster, tmp_path: Path
) -> None:
    make(cluster, "ages", tmp_path)
    for part in range(3):
        fill(cluster, "ages", 400, 400 * part)
        cluster.archive("ages", everything=True)
    sizes = [file.size for file in cluster.archived("ages").listed.partition(0).files]
    assert len(sizes) == 3
    make(cluster, "ages", tmp_path, archive={"retention": {"size": sizes[1] + sizes[2]}})
    cluster.archive("ages")
    left = cluster.archived("ages").listed.partition(0)
    assert len(left.files) == 2
    assert cluster.offsets("ages")[0].archived == left.files[0].base


def test_given_damage_and_missing_files_then_verify_names_them_and_reading_says_so(
    cluster: runnel.Cluster, tmp_path: Path
) -> None:
    make(cluster, "hurt", tmp_path)
    fill(cluster, "hurt", 600)
    cluster.archive("hurt", everything=True)
    fill(cluster, "hurt", ROWS, 600)
    cluster.archive("hurt", everything=True)
    shrink(cluster, "hurt", beyond=700)
    first, second = files(tmp_path)
    data = bytearray(first.read_bytes())
    data[len(data) // 3] ^= 1
    first.write_bytes(data)
    second.rename(second.with_suffix(".away"))
    problems = {Path(one.path): one.reason for one in cluster.verify_archive("hurt")}
    assert problems[second] == "it is not there"
    assert "its CRC-32 is" in problems[first]
    with pytest.raises(runnel.StorageFailedError, match="Is its directory mounted on this host"):
        cluster.read("hurt", start=700)
    first.write_bytes(b"PAR1")
    with pytest.raises(runnel.CorruptBatchError, match=r"\.parquet is damaged"):
        cluster.read("hurt")


def test_given_another_directory_than_before_then_nothing_is_written_there(
    cluster: runnel.Cluster, tmp_path: Path
) -> None:
    directory = tmp_path / "archive"
    make(cluster, "away", directory, partitions=2)
    fill(cluster, "away", 300)
    cluster.archive("away", everything=True)
    directory.rename(tmp_path / "mounted elsewhere")
    fill(cluster, "away", 300, 300)
    with pytest.raises(runnel.StorageFailedError, match="Is its directory mounted on this host"):
        cluster.archive("away", everything=True)
    assert not files(directory)
    (tmp_path / "mounted elsewhere").rename(directory)
    newest = max(path for path in files(directory) if path.parent.name == "partition=1")
    newest.rename(newest.with_suffix(".away"))
    done = cluster.archive("away", everything=True)
    assert (list(done.failures), [index for index, _ in done.files]) == ([1], [0])


def test_given_a_directory_that_cannot_be_made_then_said(
    cluster: runnel.Cluster, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    make(cluster, "nowhere", tmp_path / "file" / "archive")
    fill(cluster, "nowhere", 100)
    done = cluster.archive("nowhere", everything=True)
    (error,) = done.failures.values()
    assert "cannot be written" in error.message
    assert str(tmp_path / "file" / "archive") in error.message


def test_given_a_lost_list_then_no_file_goes_and_files_are_listed_again(tmp_path: Path) -> None:
    with runnel.LocalCluster(spus=1) as own:
        make(own, "lost", tmp_path)
        fill(own, "lost", 600)
        own.archive("lost", everything=True)
        fill(own, "lost", ROWS, 600)
        own.archive("lost", everything=True)
        shrink(own, "lost")
        own.truncate("lost", before=300)
        before, address = own.read("lost"), repr(own).rpartition(" at ")[2].rstrip(">")
        archive = own.archived("lost").listed.partition(0)
        own.delete("topic", "_archive", force=True)
        own.wait("topic", "_archive", "deleted")
        old = time.time() - ORPHAN_S - 60
        for number, path in enumerate(reversed(files(tmp_path))):
            # A copy may have any times.
            os.utime(path, (old + number, old + number))
        with runnel.connect(address) as client:
            assert client.read("lost").num_rows < before.num_rows
            done = client.archive("lost")
            assert (done.relisted, done.removed, done.files, done.failures) == (2, 0, [], {})
            again = client.archived("lost").listed.partition(0)
            assert again.files == archive.files
            assert same(client.read("lost"), before)
