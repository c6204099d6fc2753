"""An SPU does nothing that an SC tells it which has been replaced."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from connection_manager.session import Session
from schemas.control.messages import (
    AssignPartitions,
    DeleteReplicas,
    Lead,
    LeadPartitions,
    Message,
    ReplicaRole,
    Stamp,
    Tombstone,
    Welcome,
)
from schemas.errors import FencedError
from schemas.ids import make_term
from schemas.objects.partition import LiveReplica
from spu.control import SpuControl
from spu.storage.journal import Seen
from tests.unit.spu.builders import CLUSTER, UID, Spu, assignment_of, new_uid, open_spu

OLD, NEW = Stamp(revision=10, office="old"), Stamp(revision=20, office="new")
NEXT = Stamp(revision=15, office="next", incarnation=1)


def welcome_of(stamp: Stamp) -> Welcome:
    return Welcome(
        version=1,
        cluster="test",
        cluster_uid=CLUSTER,
        generation=1,
        heartbeat_ms=1_000,
        misses=3,
        stamp=stamp,
    )


def controlled(spu: Spu, path: Path) -> SpuControl:
    control = SpuControl(1, "0.1.0", path / "secret")
    control.attach(spu.host)
    return control


def lead_of(spu: Spu) -> Lead:
    me = LiveReplica(spu_id=1, storage_id=spu.storage_id())
    return Lead(uid=UID, term=make_term(9, 0), lrs=(me,), revision=90)


@pytest.mark.parametrize(
    "message",
    [
        lambda _: AssignPartitions(complete=True, stamp=OLD),
        lambda _: AssignPartitions(removed=(UID,), stamp=OLD),
        lambda _: AssignPartitions(assignments=(assignment_of(new_uid()),), stamp=OLD),
        lambda spu: LeadPartitions(leads=(lead_of(spu),), stamp=OLD),
        lambda _: DeleteReplicas(tombstones=(Tombstone(uid=UID, spu_id=1),), stamp=OLD),
    ],
    ids=["complete", "removed", "assigned", "lead", "delete"],
)
@pytest.mark.parametrize("heard_by", ["welcome", "order", "order-before-a-restart"])
async def test_given_an_sc_that_leads_since_then_an_earlier_one_changes_nothing(
    tmp_path: Path, message: Callable[[Spu], Message], heard_by: str
) -> None:
    spu = await open_spu(tmp_path, assignment_of())
    if heard_by == "welcome":
        await controlled(spu, tmp_path).welcomed(welcome_of(NEW), cast(Session, None))
    else:
        order = AssignPartitions(assignments=(assignment_of(revision=6),), stamp=NEW)
        await spu.host.assign(order)
    if heard_by == "order-before-a-restart":
        await spu.host.close()
        spu = await open_spu(tmp_path)
    before = spu.host.reports()
    with pytest.raises(FencedError, match="from revision 20 on"):
        await controlled(spu, tmp_path).handle(message(spu))
    assert spu.host.reports() == before
    assert before[0].role is ReplicaRole.IDLE
    await spu.host.close()


async def test_given_a_welcome_of_an_earlier_one_then_there_is_no_session(tmp_path: Path) -> None:
    spu = await open_spu(tmp_path)
    control = controlled(spu, tmp_path)
    await control.welcomed(welcome_of(NEW), cast(Session, None))
    with pytest.raises(FencedError, match="leads no more: SPU 1 has heard"):
        await control.welcomed(welcome_of(OLD), cast(Session, object()))
    assert not control.connected
    # The same one again, and one after a recovery, whose revisions begin anew.
    for stamp in (NEW, NEXT):
        await control.welcomed(welcome_of(stamp), cast(Session, None))
    await spu.host.close()


async def test_what_a_hello_says_of_the_sc_that_was_heard_last(tmp_path: Path) -> None:
    """If the KV is restored from a backup after a welcome, the SC of then must find that out."""
    spu = await open_spu(tmp_path, assignment_of())
    control = controlled(spu, tmp_path)
    await control.welcomed(welcome_of(NEW), cast(Session, None))
    assert spu.host.seen == Seen(20, NEW)
    assert (control.hello().kv_revision, control.hello().stamp) == (20, NEW)
    order = AssignPartitions(assignments=(assignment_of(revision=25),), stamp=NEW)
    await spu.host.assign(order)
    assert spu.host.seen == Seen(25, NEW)
    await control.welcomed(welcome_of(NEW), cast(Session, None))
    assert spu.host.seen == Seen(25, NEW)
    await spu.host.assign(AssignPartitions(stamp=NEXT))
    assert spu.host.seen == Seen(15, NEXT)
    await spu.host.close()
    again = await open_spu(tmp_path)
    assert again.host.seen == Seen(15, NEXT)
    await again.host.close()
