"""An unclean election after archiving: readers get what the log holds, and files keep the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
import pytest

import runnel
from schemas.objects.system_topics import ARCHIVE
from tests.chaos.replication.spus import Fleet
from tests.chaos.torn import LEADER, OTHER, TornTopic

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(240)]

TOPIC: Final = "torn"


def test_given_an_unclean_election_then_the_archive_follows_the_log(
    fleet: Fleet, tmp_path: Path
) -> None:
    fleet.start()
    with runnel.connect(fleet.address) as cluster:
        topic = TornTopic(fleet, cluster, TOPIC)
        archive = tmp_path / "archive"
        archive.mkdir()
        topic.make(archive={"path": str(archive)})
        both = topic.send("both", 10)
        assert cluster.archive(TOPIC, everything=True).rows == 10
        fleet.until(lambda: fleet.is_whole(ARCHIVE), "the list of files has all its replicas")
        more = topic.send("more", 5)
        fleet.kill_spu(OTHER)
        topic.until_live(LEADER)
        lost_values = topic.send("one", 10)
        assert cluster.archive(TOPIC, everything=True).rows == 15
        fleet.kill_spu(LEADER)
        fleet.start_spu(OTHER)
        topic.elect_other()
        others = topic.send("other", 3)
        # They are not due yet, and still archived: their file proves what the log holds.
        done = cluster.archive(TOPIC)
        assert (done.failures, done.rows) == ({}, 3)
        (at,) = done.diverged.values()
        assert topic.values() == both + more + others
        # Once the log has let go of them, too.
        cluster.truncate(TOPIC, before=1)
        assert cluster.offsets(TOPIC)[0].first == 1
        assert topic.values() == both + more + others
        found = cluster.archived(TOPIC)
        listed = found.listed.partition(0)
        first, cut, last = listed.files
        assert first.until == first.end < at
        assert (cut.until, last.base, listed.diverged_at) == (at, at, at)
        assert not cluster.verify_archive(TOPIC)
        # The records that the election lost are still in their file.
        kept = pq.read_table(found.place.file(0, cut.name))["value"].to_pylist()
        assert kept == [value.encode() for value in more + lost_values]
