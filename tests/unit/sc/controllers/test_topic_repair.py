"""The topic controller: a topic that was lost and is made again from its partitions."""

from __future__ import annotations

from typing import Any

import pytest

from sc.controllers.actions import Action, MarkDeleting, RestoreTopic
from sc.controllers.recovery import RESTORED
from sc.controllers.topic import reconcile
from sc.store.view import View
from schemas.objects.metadata import Metadata
from schemas.objects.partition import Partition
from schemas.objects.topic import Topic, TopicSpec, TopicStatus
from tests.unit.sc.builders import partition_of, topic_of
from tests.unit.sc.controllers.topics import (
    DONE,
    KEY,
    NOW,
    PENDING,
    TYPED_ROWS,
    cluster,
    creates,
    fresh,
    made,
    typed,
)


def restored(partition: Partition, **spec: Any) -> RestoreTopic:
    note = {RESTORED: "from its partitions; compression, archive and labels are lost"}
    return RestoreTopic(
        Topic(
            metadata=Metadata(name="t", uid=topic_of("t").uid, generation=1, annotations=note),
            spec=TopicSpec(min_in_sync_replicas=1, **spec),
            status=TopicStatus(resolution=PENDING, reason="restored from its partitions"),
        ),
        partition,
    )


@pytest.mark.parametrize(
    ("view", "actions"),
    [
        pytest.param(
            cluster(partition_of("t", 0, (1, 2)), partition_of("t", 3, (2, 3))),
            (restored(partition_of("t", 0, (1, 2)), partitions=4, replication_factor=2),),
            id="given-topic-removed-by-hand-then-restored-from-its-partitions",
        ),
        pytest.param(
            cluster(partition_of(typed(topic_of("t")), 0, (1, 2))),
            (
                restored(
                    partition_of(typed(topic_of("t")), 0, (1, 2)),
                    partitions=1,
                    replication_factor=2,
                    **TYPED_ROWS,
                ),
            ),
            id="given-typed-topic-removed-by-hand-then-its-columns-come-back",
        ),
        pytest.param(
            cluster(partition_of("t", 0, (1,), deleting=True), partition_of("t", 1)),
            (MarkDeleting(partition_of("t", 1)),),
            id="given-no-topic-and-some-of-its-partitions-going-then-the-others-go-too",
        ),
        pytest.param(
            cluster(partition_of("t", 0, (1,), deleting=True)),
            (),
            id="given-no-topic-and-partitions-going-then-nothing",
        ),
        pytest.param(
            cluster(made(DONE, partitions=2, replica_map=((1,), (3,))), partition_of("t", 0)),
            (
                creates(
                    made(DONE, partitions=2, replica_map=((1,), (3,))),
                    (
                        fresh(made(DONE, partitions=2), 1, (3,)).with_metadata(
                            annotations={RESTORED: "all its replicas are asked who leads"}
                        ),
                    ),
                    first=False,
                ),
            ),
            id="given-partition-removed-by-hand-then-it-comes-back-where-it-was",
        ),
    ],
)
def test_repair(view: View, actions: tuple[Action, ...]) -> None:
    assert reconcile(view, KEY, NOW) == actions
