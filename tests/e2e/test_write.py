"""One call that makes a topic and fills it, on real processes."""

from __future__ import annotations

import pandas as pd  # type: ignore[import-untyped]
import pytest

import runnel
from tests.e2e.conftest import SQLITE_ALONE, Command

pytestmark = SQLITE_ALONE


def test_a_frame_is_written_in_one_line(cluster: Command) -> None:
    frame = pd.DataFrame({"id": range(1000), "kind": pd.Categorical(["a", "b"] * 500)})
    with runnel.connect(cluster.sc) as connected:
        written = connected.write("written", frame, partitions=2, key_column="id")
        assert (written.records, written.created) == (1000, True)
        assert sum(len(offsets) for offsets in written.offsets.values()) == 1000
        committed = {i: found.latest for i, found in connected.offsets("written").items()}
        assert committed == {i: offsets.stop for i, offsets in written.offsets.items()}
        back = connected.read("written", ["id", "kind"]).to_pandas().sort_values("id")
        assert back["kind"].tolist() == frame["kind"].tolist()
        connected.delete("topic", "written")


def test_a_topic_that_cannot_be_placed_is_named(cluster: Command) -> None:
    with runnel.connect(cluster.sc) as connected:
        with pytest.raises(runnel.DeadlineExceededError) as caught:
            connected.write("placeless", {"id": [1]}, replication_factor=30, timeout=3.0)
        connected.delete("topic", "placeless")
    assert caught.value.message.startswith(
        "nothing was written; topic 'placeless' was created and stays. topic 'placeless'"
    )
    assert "30" in caught.value.message
