"""What keeps a cluster from being at rest, and that a cluster at rest is seen to be so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.chaos.settled import held, unfinished, unsettled


def partition(
    spec: dict[str, Any] | None = None, status: dict[str, Any] | None = None
) -> dict[str, Any]:
    live = [{"spuId": 2, "storageId": "b"}, {"spuId": 1, "storageId": "a"}]
    return {
        "metadata": {"name": "t-0", "uid": "u"},
        "spec": {"replicas": [1, 2]} | (spec or {}),
        "status": {"lrs": live, "resolution": "online", "leader": 1} | (status or {}),
    }


THERE = {"u": {1, 2}}


@pytest.mark.parametrize(
    ("one", "there", "why"),
    [
        (partition(), THERE, []),
        (partition({"joining": [2]}), THERE, ["t-0: joining [2]"]),
        (partition({"leaving": [3]}), THERE, ["t-0: leaving [3]"]),
        (
            partition(status={"lrs": [{"spuId": 1}]}),
            THERE,
            ["t-0: live are [1] of [1, 2]"],
        ),
        (partition(status={"resolution": "offline"}), THERE, ["t-0 is offline"]),
        (
            partition(status={"leader": None}),
            THERE,
            ["t-0 is led by None, not by one of [1, 2]"],
        ),
        (partition(), {"u": {1}}, ["t-0 has directories on the SPUs [1], not on [1, 2]"]),
        (
            partition(),
            {"u": {1, 2, 3}},
            ["t-0 has directories on the SPUs [1, 2, 3], not on [1, 2]"],
        ),
        (partition(), {}, ["t-0 has directories on the SPUs [], not on [1, 2]"]),
        (partition(), THERE | {"old": {3}}, ["old has directories on the SPUs [3], not on []"]),
    ],
)
def test_what_keeps_a_partition_from_being_at_rest(
    one: dict[str, Any], there: dict[str, set[int]], why: list[str]
) -> None:
    assert unsettled([one], there) == why


def test_spus_that_are_away_and_rebalances_that_go_on() -> None:
    def those(**states: str) -> list[dict[str, Any]]:
        return [{"metadata": {"name": n}, "status": {"resolution": s}} for n, s in states.items()]

    assert unfinished(those(a="online", b="online"), those(r="done")) == []
    assert unfinished(those(a="online", b="offline"), those(r="done", s="moving")) == [
        "SPU b is offline",
        "rebalance s is moving",
    ]


def test_which_spus_have_a_directory_of_a_partition(tmp_path: Path) -> None:
    for spu, uid in (("a", "u"), ("a", "v"), ("b", "u")):
        (tmp_path / spu / "partitions" / uid).mkdir(parents=True)
        (tmp_path / spu / "partitions" / uid / "meta.json").touch()
    # Nothing is in it: it is being deleted.
    (tmp_path / "b" / "partitions" / "v").mkdir()
    assert held({1: tmp_path / "a", 2: tmp_path / "b"}) == {"u": {1, 2}, "v": {1}}
