"""The topic controller: seals, archives, changed settings and deletion → exact actions."""

from __future__ import annotations

from typing import Any

import pytest

from sc.controllers.actions import Action, MarkDeleting, RemoveObject, WritePartitionSpec
from sc.controllers.recovery import RESTORED
from sc.controllers.topic import reconcile
from sc.store.view import View
from schemas.columns.topic_schema import Column
from schemas.objects.archive import ArchiveSettings
from schemas.objects.partition import DesiredState, Partition
from schemas.objects.topic import TopicResolution
from tests.unit.sc.builders import partition_of
from tests.unit.sc.controllers.topics import (
    BOTH,
    DONE,
    INVALID,
    KEY,
    NOW,
    PLACED,
    PLACED_ROWS,
    TYPED_ROWS,
    becomes,
    cluster,
    made,
    typed,
    unwritable,
)

DELETING_REASON = "waiting for its partitions to be removed"
BIGGER_RECORDS = made(DONE, partitions=1, replica_map=((1,),), max_record_size=1 << 21)
OLD_SETTINGS = partition_of(made(partitions=1), 0, (1,))
NEW_SETTINGS = OLD_SETTINGS.spec.model_copy(update={"log": BIGGER_RECORDS.spec.log_settings})
GOING = made(TopicResolution.DELETING, deleting=True, partitions=2, reason=DELETING_REASON)
TYPED = typed(made(DONE, partitions=1, replica_map=((1,),)))
WIDER = TYPED.model_copy(
    update={
        "spec": TYPED.spec.model_copy(
            update={"columns": (*TYPED_ROWS["columns"], Column(name="note", type="string"))}
        )
    }
)
TYPED_PARTITION = partition_of(TYPED, 0, (1,))
GROWN_SETTINGS = TYPED_PARTITION.spec.model_copy(update={"log": WIDER.spec.log_settings})


def archived(partition: Partition, before: int | None) -> Partition:
    """The partition, archived below an offset."""
    spec = partition.spec.model_copy(update={"archived_before": before})
    return partition.model_copy(update={"spec": spec})


ARCHIVE = ArchiveSettings(path="/mnt/archive")
PLAIN = made(DONE, partitions=1, replica_map=((1,),))
COLD = PLAIN.model_copy(update={"spec": PLAIN.spec.model_copy(update={"archive": ARCHIVE})})
PLAIN_PARTITION = partition_of(PLAIN, 0, (1,))
RESTORED_PLAIN = PLAIN.with_metadata(annotations={RESTORED: "from its partitions"})


def sealing(partition: Partition, end: int | None = None, **status: Any) -> Partition:
    """It is to be sealed, and is once it has an ``end``."""
    spec = partition.spec.model_copy(update={"desired": DesiredState.SEALED})
    more = {"sealed_offset": end, **status}
    return partition.model_copy(
        update={"spec": spec, "status": partition.status.model_copy(update=more)}
    )


SEALED = PLACED.model_copy(update={"spec": PLACED.spec.model_copy(update={"sealed": True})})
BEING_SEALED = "it is being sealed: not all of its partitions are sealed yet"
SEALING = [
    pytest.param(
        cluster(SEALED, sealing(BOTH[0], 5), sealing(BOTH[1])),
        (becomes(SEALED, DONE, BEING_SEALED, PLACED_ROWS),),
        id="given-a-partition-that-is-not-sealed-yet-then-said",
    ),
    pytest.param(
        cluster(SEALED, sealing(BOTH[0], 5), sealing(BOTH[1], writable=False)),
        (unwritable(SEALED, f"{BEING_SEALED}; 1 of 2 partitions commits nothing: t-1"),),
        id="given-one-that-cannot-be-sealed-then-both-are-said",
    ),
    pytest.param(
        cluster(SEALED, sealing(BOTH[0], 5), sealing(BOTH[1], 7, writable=False)),
        (),
        id="given-a-sealed-partition-whose-followers-are-gone-then-it-has-nothing-to-commit",
    ),
]
ARCHIVES = [
    pytest.param(
        cluster(COLD, PLAIN_PARTITION),
        (WritePartitionSpec(PLAIN_PARTITION, archived(PLAIN_PARTITION, 0).spec),),
        id="given-an-archive-then-nothing-is-archived-yet",
    ),
    pytest.param(
        cluster(COLD, archived(PLAIN_PARTITION, 7)), (), id="given-records-archived-then-it-stays"
    ),
    pytest.param(
        cluster(PLAIN, archived(PLAIN_PARTITION, 7)),
        (WritePartitionSpec(archived(PLAIN_PARTITION, 7), PLAIN_PARTITION.spec),),
        id="given-no-archive-any-more-then-retention-is-free",
    ),
    pytest.param(
        cluster(RESTORED_PLAIN, archived(PLAIN_PARTITION, 7)),
        (),
        id="given-a-topic-that-lost-its-archive-then-what-is-not-in-it-is-kept",
    ),
]
SETTINGS_AND_DELETION = [
    pytest.param(
        cluster(TYPED, TYPED_PARTITION), (), id="given-columns-that-partitions-know-then-nothing"
    ),
    pytest.param(
        cluster(WIDER, TYPED_PARTITION),
        (WritePartitionSpec(TYPED_PARTITION, GROWN_SETTINGS),),
        id="given-a-column-added-then-partitions-are-told",
    ),
    pytest.param(
        cluster(BIGGER_RECORDS, OLD_SETTINGS),
        (WritePartitionSpec(OLD_SETTINGS, NEW_SETTINGS),),
        id="given-log-settings-changed-then-partitions-follow",
    ),
    pytest.param(
        cluster(BIGGER_RECORDS, OLD_SETTINGS.with_metadata(deletion_timestamp="now")),
        (),
        id="given-log-settings-changed-and-partition-going-then-left-alone",
    ),
    pytest.param(
        cluster(made(DONE, partitions=1, deleting=True, replica_map=((1,),)), OLD_SETTINGS),
        (
            becomes(
                made(DONE, partitions=1, deleting=True, replica_map=((1,),)),
                TopicResolution.DELETING,
                DELETING_REASON,
                ((1,),),
            ),
            MarkDeleting(OLD_SETTINGS),
        ),
        id="given-deletion-then-deleting-and-partitions-marked",
    ),
    pytest.param(
        cluster(GOING, partition_of(GOING, 0, (1,), deleting=True), partition_of(GOING, 1, (2,))),
        (MarkDeleting(partition_of(GOING, 1, (2,))),),
        id="given-deleting-then-only-unmarked-partitions-are-marked",
    ),
    pytest.param(
        cluster(GOING, partition_of(GOING, 0, (1,), deleting=True)),
        (),
        id="given-deleting-and-all-marked-then-it-waits",
    ),
    pytest.param(
        cluster(GOING), (RemoveObject(GOING),), id="given-no-partitions-left-then-removed"
    ),
    pytest.param(
        cluster(made(deleting=True)),
        (RemoveObject(made(deleting=True)),),
        id="given-deleted-before-it-was-placed-then-removed",
    ),
    pytest.param(
        cluster(made(INVALID, rows={0: (9,)}, deleting=True)),
        (RemoveObject(made(INVALID, rows={0: (9,)}, deleting=True)),),
        id="given-invalid-topic-deleted-then-removed",
    ),
]


@pytest.mark.parametrize(("view", "actions"), [*SEALING, *ARCHIVES, *SETTINGS_AND_DELETION])
def test_topic(view: View, actions: tuple[Action, ...]) -> None:
    assert reconcile(view, KEY, NOW) == actions
