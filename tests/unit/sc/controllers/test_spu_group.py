"""The SPU objects of a group: created, changed and ended as its spec says. Every branch as (view,
key, now) → exact actions."""

from __future__ import annotations

import pytest

from sc.controllers.actions import Action, CreateSpu, Key, RemoveObject, RemoveSpu, WriteSpuSpec
from sc.controllers.spu_group import leaving, reconcile
from sc.store.view import Provisioned, View
from schemas.objects.metadata import Metadata, Object
from schemas.objects.spu import PrivateEndpoint, PublicEndpoint, Spu, SpuSpec, SpuType, Storage
from schemas.objects.spu_group import MAX_REPLICAS, SpuGroup
from tests.unit.sc.builders import (
    group_of,
    member_of,
    partition_of,
    session_of,
    spu_of,
    tombstone_of,
    topic_of,
    view_of,
)
from tests.unit.sc.controllers.groups import (
    FOUR,
    GROUP,
    INVALID,
    KEY,
    NOW,
    ONE,
    RESERVED,
    THREE,
    TLS,
    TWO,
    becomes,
    seen,
    template,
)

GONE = partition_of("gone", 0, (3,))


def fresh(group: SpuGroup, spu_id: int) -> Spu:
    """The object that a group creates: nothing of it is set by a server but the uid."""
    made = member_of(group, spu_id)
    metadata = Metadata(name=made.name, labels={"spugroup": group.name}, uid=made.uid)
    return Spu(metadata=metadata, spec=made.spec)


def created(group: SpuGroup, *ids: int) -> tuple[Action, ...]:
    return tuple(CreateSpu(fresh(group, spu_id), group) for spu_id in ids)


def on(*ids: int, name: str = "t") -> Object:
    return partition_of(name, 0, ids)


MOVED = group_of(replicas=2, min_id=3)
GROWN = group_of(replicas=4)
SHRUNK = group_of(replicas=1)
EMPTY = group_of(replicas=0)
RACKED = group_of(template=template(rack="b"))


def with_drain(spu: Spu) -> Spu:
    return spu.model_copy(update={"spec": spu.spec.model_copy(update={"drain": True})})


SCALE = [
    pytest.param(
        seen(GROUP), created(GROUP, 1, 2), id="given-reserved-then-spus-created-from-min-id-on"
    ),
    pytest.param(seen(GROUP, ONE, TWO), (), id="given-all-there-then-nothing"),
    pytest.param(
        seen(GROUP, with_drain(ONE), TWO), (), id="given-an-spu-that-drains-then-it-goes-on"
    ),
    pytest.param(seen(GROUP, ONE), created(GROUP, 2), id="given-one-missing-then-made-again"),
    pytest.param(seen(EMPTY), (), id="given-no-replicas-then-nothing"),
    pytest.param(
        seen(GROWN, ONE, TWO), created(GROWN, 3, 4), id="given-grown-then-missing-spus-created"
    ),
    pytest.param(
        seen(SHRUNK, ONE, TWO, THREE),
        (RemoveSpu(THREE), RemoveSpu(TWO)),
        id="given-shrunk-then-highest-ids-end-first",
    ),
    pytest.param(
        seen(SHRUNK, ONE, TWO, THREE, FOUR, on(2, 1)),
        (
            RemoveSpu(FOUR),
            RemoveSpu(THREE),
            becomes(SHRUNK, RESERVED, "g-2 is removed once its replicas have moved: t-0"),
        ),
        id="given-replicas-on-a-lower-one-then-down-to-that",
    ),
    pytest.param(
        seen(SHRUNK, ONE, TWO, THREE, on(3)),
        (becomes(SHRUNK, RESERVED, "g-3 is removed once its replicas have moved: t-0, then g-2"),),
        id="given-replicas-on-the-highest-then-the-empty-one-below-stays",
    ),
    pytest.param(
        seen(SHRUNK, ONE, TWO, *(on(2, name=n) for n in "abc")),
        (becomes(SHRUNK, RESERVED, "g-2 is removed once its replicas have moved: a-0, b-0, c-0"),),
        id="given-three-partitions-then-all-named",
    ),
    pytest.param(
        seen(SHRUNK, ONE, TWO, *(on(2, name=n) for n in "abcde")),
        (
            becomes(
                SHRUNK,
                RESERVED,
                "g-2 is removed once its replicas have moved: a-0, b-0, c-0 and 2 more",
            ),
        ),
        id="given-five-partitions-then-three-named-and-the-rest-counted",
    ),
    pytest.param(
        seen(SHRUNK, ONE, TWO, partition_of("t", 0, (2,), deleting=True)),
        (becomes(SHRUNK, RESERVED, "g-2 is removed once its replicas have moved: t-0"),),
        id="given-partition-on-its-way-out-then-it-counts",
    ),
    pytest.param(
        seen(GROUP, ONE, TWO, THREE, sessions=[session_of(3)], tombstones=[tombstone_of(GONE, 3)]),
        (becomes(GROUP, RESERVED, "g-3 is deleting its replicas before it is removed"),),
        id="given-deletions-to-confirm-then-waits",
    ),
    pytest.param(
        seen(
            GROUP,
            ONE,
            TWO,
            THREE,
            sessions=[session_of(3, undeleted={GONE.uid: "/disk: Input/output error"})],
            tombstones=[tombstone_of(GONE, 3)],
        ),
        (
            becomes(
                GROUP,
                RESERVED,
                "g-3 is deleting its replicas before it is removed, but cannot: /disk: Input/output"
                " error; or stop the SPU: nobody waits for it then",
            ),
        ),
        id="given-deletions-that-fail-then-said-why",
    ),
    pytest.param(
        seen(GROUP, ONE, TWO, THREE, sessions=[session_of(2)], tombstones=[tombstone_of(GONE, 3)]),
        (RemoveSpu(THREE),),
        id="given-deletions-of-an-spu-that-is-not-there-then-no-wait",
    ),
    pytest.param(
        seen(GROUP, ONE, TWO, THREE, sessions=[session_of(3)], tombstones=[tombstone_of(GONE, 2)]),
        (RemoveSpu(THREE),),
        id="given-deletions-of-another-spu-then-no-wait",
    ),
    pytest.param(
        seen(group_of(reason="g-3 is removed once its replicas have moved: t-0"), ONE, TWO, THREE),
        (
            RemoveSpu(THREE),
            becomes(group_of(reason="g-3 is removed once its replicas have moved: t-0"), RESERVED),
        ),
        id="given-partition-gone-then-ended-and-the-reason-is-withdrawn",
    ),
    pytest.param(
        seen(MOVED, member_of(MOVED, 3), TWO, ONE),
        (*created(MOVED, 4), RemoveSpu(TWO), RemoveSpu(ONE)),
        id="given-min-id-moved-up-then-lower-ids-end",
    ),
    pytest.param(
        seen(GROUP, ONE, FOUR),
        (*created(GROUP, 2), RemoveSpu(FOUR)),
        id="given-min-id-moved-down-then-higher-ids-end",
    ),
    pytest.param(
        seen(MOVED, ONE, TWO, on(1)),
        (
            *created(MOVED, 3, 4),
            RemoveSpu(TWO),
            becomes(MOVED, RESERVED, "g-1 is removed once its replicas have moved: t-0"),
        ),
        id="given-min-id-moved-and-replicas-on-the-lowest-then-that-stays",
    ),
    pytest.param(
        seen(RACKED, ONE, member_of(RACKED, 2)),
        (WriteSpuSpec(ONE, member_of(RACKED, 1).spec),),
        id="given-template-changed-then-spus-follow",
    ),
]


@pytest.mark.parametrize(("view", "actions"), SCALE)
def test_group(view: View, actions: tuple[Action, ...]) -> None:
    assert reconcile(view, KEY, NOW) == actions


def test_given_template_then_the_spu_has_all_of_it_and_its_own_name_id_ports_and_directory() -> (
    None
):
    made = template(
        9100,
        9200,
        rack="b",
        region="eu",
        storage=Storage(size=7 << 30, log_dir="/data"),
        catch_up_rate=9 << 20,
    )
    group = group_of("edge", min_id=11, template=made)
    first, second = reconcile(seen(group), Key("SpuGroup", "edge"), NOW)
    assert isinstance(first, CreateSpu)
    assert isinstance(second, CreateSpu)
    assert second.spu.spec == SpuSpec(
        spu_id=12,
        spu_type=SpuType.MANAGED,
        group="edge",
        rack="b",
        region="eu",
        storage=Storage(size=7 << 30, log_dir="/data/edge-12"),
        public_endpoint=PublicEndpoint(port=9103),
        private_endpoint=PrivateEndpoint(port=9203, host="localhost"),
        catch_up_rate=9 << 20,
    )
    assert second.spu.metadata.name == "edge-12"
    assert second.spu.metadata.labels == {"spugroup": "edge"}
    assert (first.spu.spec.public_endpoint.port, first.spu.spec.private_endpoint.port) == (
        9100,
        9200,
    )
    assert first.spu.uid != second.spu.uid


def test_given_the_same_group_then_the_same_uid_and_another_for_its_successor() -> None:
    again = GROUP.with_metadata(uid="another group of this name")
    uids = {fresh(GROUP, 1).uid, fresh(GROUP, 1).uid, fresh(again, 1).uid}
    assert len(uids) == 2


def test_given_the_largest_group_then_each_id_once() -> None:
    group = group_of(replicas=MAX_REPLICAS, min_id=500)
    actions = reconcile(seen(group), KEY, NOW)
    assert all(isinstance(a, CreateSpu) for a in actions)
    ids = [a.spu.spec.spu_id for a in actions if isinstance(a, CreateSpu)]
    assert ids == list(range(500, 500 + MAX_REPLICAS))
    spus = [member_of(group, i) for i in ids]
    assert reconcile(seen(group, *spus), KEY, NOW) == ()


BROKEN = "its process ended 3 times in a row (exit code 1): no such directory"
REFUSED = "its last attempt to connect was refused: it has no proof"
GOING = group_of(deleting=True)
ENDING = "removing its SPUs"


def troubled(*spus: Spu, why: str | None = BROKEN) -> dict[str, Provisioned]:
    return {spu.name: Provisioned(spu.spec, why) for spu in spus}


TROUBLE = [
    pytest.param(
        seen(GROUP, ONE, TWO, provisioned=troubled(TWO)),
        (becomes(GROUP, RESERVED, f"g-2: {BROKEN}"),),
        id="given-spu-that-does-not-run-then-the-reason-says-so",
    ),
    pytest.param(
        seen(GROUP, ONE, TWO, provisioned=troubled(TWO, ONE)),
        (becomes(GROUP, RESERVED, f"g-1: {BROKEN}"),),
        id="given-two-then-the-lowest-id",
    ),
    pytest.param(
        seen(group_of(reason=f"g-2: {BROKEN}"), ONE, TWO, provisioned=troubled(TWO, why=None)),
        (becomes(group_of(reason=f"g-2: {BROKEN}"), RESERVED),),
        id="given-it-runs-again-then-no-reason",
    ),
    pytest.param(
        seen(GROUP, ONE, TWO, provisioned=troubled(member_of(group_of("other"), 1))),
        (),
        id="given-trouble-of-another-group-then-nothing",
    ),
    pytest.param(
        seen(GROUP, ONE, TWO, refusals={2: "it has no proof"}),
        (becomes(GROUP, RESERVED, f"g-2: {REFUSED}"),),
        id="given-spu-that-was-turned-away-then-the-reason-says-so",
    ),
    pytest.param(
        seen(GROUP, ONE, TWO, sessions=[session_of(2)], refusals={2: "it has no proof"}),
        (),
        id="given-an-old-refusal-of-a-connected-spu-then-nothing",
    ),
    pytest.param(
        seen(SHRUNK, ONE, TWO, on(2), provisioned=troubled(ONE)),
        (becomes(SHRUNK, RESERVED, "g-2 is removed once its replicas have moved: t-0"),),
        id="given-blocked-and-trouble-then-what-blocks",
    ),
]


@pytest.mark.parametrize(("view", "actions"), TROUBLE)
def test_trouble(view: View, actions: tuple[Action, ...]) -> None:
    assert reconcile(view, KEY, NOW) == actions


DELETION = [
    pytest.param(seen(GOING), (RemoveObject(GOING),), id="given-no-spus-then-removed"),
    pytest.param(
        seen(GOING, ONE, TWO),
        (RemoveSpu(TWO), RemoveSpu(ONE), becomes(GOING, RESERVED, ENDING)),
        id="given-spus-then-they-end-first",
    ),
    pytest.param(
        seen(group_of(deleting=True, reason=ENDING), ONE),
        (RemoveSpu(ONE),),
        id="given-it-said-so-then-not-again",
    ),
    pytest.param(
        seen(GOING, ONE, TWO, on(1)),
        (
            RemoveSpu(TWO),
            becomes(GOING, RESERVED, "g-1 is removed once its replicas have moved: t-0"),
        ),
        id="given-replicas-then-waits-for-them",
    ),
    pytest.param(
        seen(GOING, ONE, sessions=[session_of(1)], tombstones=[tombstone_of(GONE, 1)]),
        (becomes(GOING, RESERVED, "g-1 is deleting its replicas before it is removed"),),
        id="given-deletions-to-confirm-then-waits",
    ),
    pytest.param(
        seen(group_of(resolution=INVALID, template=TLS, deleting=True), ONE),
        (
            RemoveSpu(ONE),
            becomes(group_of(resolution=INVALID, template=TLS, deleting=True), INVALID, ENDING),
        ),
        id="given-invalid-then-ends-all-the-same",
    ),
    pytest.param(
        view_of(GOING, ONE),
        (RemoveSpu(ONE), becomes(GOING, RESERVED, ENDING)),
        id="given-nothing-that-starts-spus-then-ends-all-the-same",
    ),
]


@pytest.mark.parametrize(("view", "actions"), DELETION)
def test_deletion(view: View, actions: tuple[Action, ...]) -> None:
    assert reconcile(view, KEY, NOW) == actions


@pytest.mark.parametrize(
    ("group", "spu", "leaves"),
    [
        pytest.param(GROUP, spu_of(9), False, id="given-custom-then-no"),
        pytest.param(GROUP, ONE, False, id="given-lowest-id-then-no"),
        pytest.param(GROUP, TWO, False, id="given-highest-id-then-no"),
        pytest.param(GROUP, THREE, True, id="given-above-the-range-then-yes"),
        pytest.param(MOVED, TWO, True, id="given-below-the-range-then-yes"),
        pytest.param(GOING, ONE, True, id="given-group-on-its-way-out-then-yes"),
        pytest.param(None, ONE, True, id="given-no-group-then-yes"),
        pytest.param(
            group_of(resolution=INVALID, template=TLS), THREE, False, id="given-invalid-then-no"
        ),
        pytest.param(
            group_of(replicas=1, generation=2, observed=1),
            TWO,
            True,
            id="given-change-that-is-not-claimed-yet-then-yes",
        ),
    ],
)
def test_leaving(group: SpuGroup | None, spu: Spu, leaves: bool) -> None:
    objects = [group] if group is not None else []
    assert leaving(seen(*objects, spu, topic_of()).store, spu) is leaves
