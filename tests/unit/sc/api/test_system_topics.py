"""How many replicas a topic of the system gets when it is made."""

from __future__ import annotations

import pytest

from sc.api.system_topics import system_topic
from schemas.objects.spu import SpuResolution
from tests.unit.sc.builders import session_of, spu_of, view_of

ONLINE, INIT = SpuResolution.ONLINE, SpuResolution.INIT


@pytest.mark.parametrize(
    ("spus", "there", "grace_ms", "replicas"),
    [
        pytest.param({}, [], 0, 1, id="given-no-spu-then-one-that-waits"),
        pytest.param({1: ONLINE}, [1], 0, 1, id="given-one-then-one"),
        pytest.param({1: ONLINE, 2: ONLINE}, [1, 2], 0, 2, id="given-two-then-two"),
        pytest.param(dict.fromkeys(range(5), ONLINE), [0, 1, 2, 3, 4], 0, 3, id="given-5-then-3"),
        pytest.param(
            {1: ONLINE, 2: ONLINE, 3: ONLINE}, [1, 2], 0, 2, id="given-one-of-three-away-then-two"
        ),
        pytest.param(
            {1: ONLINE, 2: ONLINE, 3: ONLINE},
            [1],
            0,
            2,
            id="given-two-of-three-away-then-two-still",
        ),
        pytest.param(
            {1: ONLINE, 2: ONLINE, 3: ONLINE}, [], 9, 3, id="given-all-may-return-then-three"
        ),
        pytest.param({1: ONLINE, 2: INIT}, [1], 0, 1, id="given-one-that-never-came-then-one"),
    ],
)
def test_replicas(
    spus: dict[int, SpuResolution], there: list[int], grace_ms: int, replicas: int
) -> None:
    view = view_of(
        *(spu_of(spu_id, resolution) for spu_id, resolution in spus.items()),
        sessions=[session_of(spu_id) for spu_id in there],
        grace_until_ms=grace_ms,
    )
    assert system_topic("_positions", view, 0).spec.replica_count == replicas
