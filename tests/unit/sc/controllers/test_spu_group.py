"""The SPU-group controller: every branch as (view, key, now) → exact actions."""

from __future__ import annotations

from typing import Any

import pytest

from sc.controllers.actions import (
    Action,
    CreateSpu,
    Key,
    RemoveObject,
    RemoveSpu,
    WriteSpuSpec,
    WriteStatus,
)
from sc.controllers.spu_group import leaving, reconcile
from sc.store.view import Provisioned, View
from schemas.metadata import Metadata, Object
from schemas.spu import (
    MAX_SPU_ID,
    Encryption,
    PrivateEndpoint,
    PublicEndpoint,
    Spu,
    SpuSpec,
    SpuType,
    Storage,
)
from schemas.spu_group import (
    MAX_REPLICAS,
    SpuGroup,
    SpuGroupResolution,
    SpuGroupStatus,
    SpuTemplate,
)
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

KEY = Key("SpuGroup", "g")
NOW = 1_000
INIT = SpuGroupResolution.INIT
INVALID = SpuGroupResolution.INVALID
RESERVED = SpuGroupResolution.RESERVED
OLDER, NEWER = "2025-12-31T23:59:59Z", "2026-01-01T00:00:01Z"

GROUP = group_of()
ONE, TWO, THREE, FOUR = (member_of(GROUP, i) for i in (1, 2, 3, 4))
GONE = partition_of("gone", 0, (3,))


def becomes(
    group: SpuGroup, resolution: SpuGroupResolution, reason: str | None = None
) -> WriteStatus:
    status = SpuGroupStatus(
        resolution=resolution, reason=reason, observed_generation=group.generation
    )
    return WriteStatus(group, status)


def fresh(group: SpuGroup, spu_id: int) -> Spu:
    """The object that a group creates: nothing of it is set by a server but the uid."""
    made = member_of(group, spu_id)
    metadata = Metadata(name=made.name, labels={"spugroup": group.name}, uid=made.uid)
    return Spu(metadata=metadata, spec=made.spec)


def created(group: SpuGroup, *ids: int) -> tuple[Action, ...]:
    return tuple(CreateSpu(fresh(group, spu_id)) for spu_id in ids)


def seen(*objects: Object, provisioned: dict[str, Provisioned] | None = None, **more: Any) -> View:
    """A view in which managed SPUs can be started."""
    return view_of(*objects, provisioned=provisioned or {}, **more)


def on(*ids: int, name: str = "t") -> Object:
    return partition_of(name, 0, ids)


def template(port: int = 9005, private: int = 9006, **more: Any) -> SpuTemplate:
    return SpuTemplate(
        public_endpoint=PublicEndpoint(port=port),
        private_endpoint=PrivateEndpoint(port=private),
        **more,
    )


NEW = group_of(resolution=INIT)

CLAIM = [
    pytest.param(seen(), (), id="given-no-object-then-nothing"),
    pytest.param(seen(NEW), (becomes(NEW, RESERVED),), id="given-init-then-reserved"),
    pytest.param(
        seen(group_of(replicas=3, generation=2, observed=1), ONE, TWO),
        (becomes(group_of(replicas=3, generation=2, observed=1), RESERVED),),
        id="given-changed-spec-then-claimed-anew-before-anything-else",
    ),
    pytest.param(
        seen(group_of(resolution=INVALID, reason="ids 1 to 2 belong to SpuGroup other")),
        (
            becomes(
                group_of(resolution=INVALID, reason="ids 1 to 2 belong to SpuGroup other"), RESERVED
            ),
        ),
        id="given-invalid-and-the-way-is-free-then-reserved",
    ),
    pytest.param(
        seen(group_of(resolution=INIT, replicas=0)),
        (becomes(group_of(resolution=INIT, replicas=0), RESERVED),),
        id="given-no-replicas-then-reserved-all-the-same",
    ),
    pytest.param(
        seen(NEW, spu_of(2)),
        (becomes(NEW, INVALID, "spuId 2: SPU spu-2 (spuId 2) is in the way"),),
        id="given-id-of-a-custom-spu-then-invalid",
    ),
]


TLS = SpuTemplate(public_endpoint=PublicEndpoint(encryption=Encryption.TLS))
PRIVATE_TLS = SpuTemplate(private_endpoint=PrivateEndpoint(encryption=Encryption.TLS))
NO_TLS = "encryption: TLS is not available in this version"
LONG = "g" * 248


def invalid(case: str, group: SpuGroup, reason: str, *others: Object) -> Any:
    return pytest.param(group, others, reason, id=f"given-{case}-then-invalid")


@pytest.mark.parametrize(
    ("group", "others", "reason"),
    [
        invalid(
            "id-above-the-maximum",
            group_of(resolution=INIT, min_id=MAX_SPU_ID),
            f"minId: ids up to {MAX_SPU_ID + 1}; the highest is {MAX_SPU_ID}",
        ),
        invalid(
            "tls-for-clients",
            group_of(resolution=INIT, template=TLS),
            f"template.publicEndpoint.{NO_TLS}",
        ),
        invalid(
            "tls-between-spus",
            group_of(resolution=INIT, template=PRIVATE_TLS),
            f"template.privateEndpoint.{NO_TLS}",
        ),
        invalid(
            "public-ports-that-end-too-high",
            group_of(resolution=INIT, replicas=3, template=template(65_528)),
            "template.publicEndpoint.port: 3 SPUs on one host need ports up to 65536",
        ),
        invalid(
            "private-ports-that-end-too-high",
            group_of(resolution=INIT, replicas=3, template=template(private=65_530)),
            "template.privateEndpoint.port: 3 SPUs on one host need ports up to 65536",
        ),
        invalid(
            "custom-spu-with-a-name-of-it",
            NEW,
            "spuId 1: SPU g-1 (spuId 77) is in the way",
            spu_of(77, name="g-1"),
        ),
        invalid(
            "custom-spu-with-both",
            NEW,
            "spuId 1: SPU g-1 (spuId 1) is in the way",
            spu_of(1, name="g-1"),
        ),
        invalid(
            "spu-of-another-group-that-shrinks",
            NEW,
            "spuId 2: SPU other-2 (spuId 2) is in the way",
            group_of("other", replicas=1, min_id=7),
            member_of(group_of("other"), 2),
        ),
        invalid(
            "reserved-group-that-is-newer",
            NEW,
            "ids 2 to 2 belong to SpuGroup other",
            group_of("other", min_id=2, created=NEWER),
        ),
        invalid(
            "new-group-that-is-older",
            NEW,
            "ids 1 to 2 belong to SpuGroup other",
            group_of("other", INIT, replicas=9, min_id=0, created=OLDER),
        ),
        invalid(
            "new-group-of-the-same-second-with-a-lower-name",
            NEW,
            "ids 1 to 1 belong to SpuGroup a",
            group_of("a", INIT, replicas=1),
        ),
        invalid(
            "reserved-group-and-its-own-spec-changed-onto-it",
            group_of(min_id=3, created=OLDER, generation=2, observed=1),
            "ids 4 to 4 belong to SpuGroup other",
            group_of("other", min_id=4, created=NEWER),
        ),
        invalid(
            "names-that-get-too-long",
            group_of(LONG, INIT),
            "metadata.name: too long by 1 characters: SPUs are named by it and their id",
        ),
        invalid(
            "name-of-another-daemon",
            group_of("sc", INIT),
            "metadata.name: sc is what another daemon on that host is called",
        ),
        invalid(
            "port-of-the-sc",
            group_of(resolution=INIT, template=template(8998, 8999)),
            "template: port 9003 is the SC's",
        ),
        invalid(
            "ports-of-another-group",
            NEW,
            "template: port 9010 belongs to SpuGroup other",
            group_of("other", min_id=3, template=template(9010, 9020)),
        ),
        invalid(
            "private-port-of-another-group",
            NEW,
            "template: port 9009 belongs to SpuGroup other",
            group_of("other", min_id=3, template=template(9100, 9009)),
        ),
    ],
)
def test_invalid(group: SpuGroup, others: tuple[Object, ...], reason: str) -> None:
    key = Key("SpuGroup", group.name)
    assert reconcile(seen(group, *others), key, NOW) == (becomes(group, INVALID, reason),)
    # Said once, it is not said again, and nothing happens.
    told = group.with_status(
        SpuGroupStatus(resolution=INVALID, reason=reason, observed_generation=group.generation)
    )
    assert reconcile(seen(told, *others), key, NOW) == ()


def test_given_nothing_that_starts_spus_then_invalid() -> None:
    reason = "this SC starts no SPUs: it has no `provisioning` in its configuration"
    # What was reserved by an SC that did start SPUs is left as it is.
    for group in (NEW, GROUP):
        assert reconcile(view_of(group, ONE, THREE), KEY, NOW) == (becomes(group, INVALID, reason),)


def test_given_invalid_then_its_spus_stay_as_they_are() -> None:
    bad = group_of(replicas=1, template=TLS, generation=2, observed=1)
    view = seen(bad, ONE, THREE)
    reason = f"template.publicEndpoint.{NO_TLS}"
    assert reconcile(view, KEY, NOW) == (becomes(bad, INVALID, reason),)


@pytest.mark.parametrize(
    ("group", "others"),
    [
        pytest.param(
            group_of(resolution=INIT, min_id=MAX_SPU_ID - 1), (), id="given-the-highest-ids"
        ),
        pytest.param(
            group_of(resolution=INIT, replicas=3, template=template(65_527, 65_529)),
            (),
            id="given-ports-up-to-the-highest",
        ),
        pytest.param(
            group_of(resolution=INIT, replicas=0, template=template(65_535, 65_535)),
            (spu_of(1),),
            id="given-no-replicas-then-no-ports-and-no-ids",
        ),
        pytest.param(NEW, (spu_of(0), spu_of(3)), id="given-custom-spus-beside-its-ids"),
        pytest.param(
            NEW,
            (
                group_of("below", min_id=0, replicas=1, template=template(9000, 9001)),
                group_of("above", min_id=3, template=template(9011, 9012)),
            ),
            id="given-groups-beside-its-ids-and-ports",
        ),
        pytest.param(
            NEW, (group_of("other", INIT, created=NEWER),), id="given-new-group-that-is-newer"
        ),
        pytest.param(
            NEW, (group_of("z", INIT),), id="given-new-group-of-the-same-second-with-a-higher-name"
        ),
        pytest.param(
            group_of(resolution=INIT, created=OLDER),
            (group_of("other", generation=2, observed=1),),
            id="given-newer-group-whose-claim-is-of-an-older-spec",
        ),
        pytest.param(
            NEW, (group_of("other", deleting=True),), id="given-group-on-its-way-out-without-spus"
        ),
        pytest.param(
            NEW, (group_of("other", replicas=0, min_id=2),), id="given-group-without-replicas"
        ),
        pytest.param(group_of("g" * 247, INIT), (), id="given-the-longest-name"),
    ],
)
def test_not_in_the_way(group: SpuGroup, others: tuple[Object, ...]) -> None:
    found = reconcile(seen(group, *others), Key("SpuGroup", group.name), NOW)
    assert found == (becomes(group, RESERVED),)


def test_given_reserved_and_an_older_group_wants_its_ids_then_it_keeps_them() -> None:
    older = group_of("older", INIT, created=OLDER)
    assert reconcile(seen(GROUP, ONE, TWO, older), KEY, NOW) == ()
    assert reconcile(seen(GROUP, ONE, TWO, older), Key("SpuGroup", "older"), NOW) == (
        becomes(older, INVALID, "spuId 1: SPU g-1 (spuId 1) is in the way"),
    )
    # Before its SPUs exist, too.
    assert reconcile(seen(GROUP, older), Key("SpuGroup", "older"), NOW) == (
        becomes(older, INVALID, "ids 1 to 2 belong to SpuGroup g"),
    )


def test_given_running_group_is_changed_then_an_older_one_that_waits_for_its_ids_gets_none() -> (
    None
):
    changed = group_of(template=template(rack="b"), generation=2, observed=1)
    waits = group_of("older", INVALID, min_id=2, reason="waits", created=OLDER)
    assert reconcile(seen(changed, ONE, TWO, waits), KEY, NOW) == (becomes(changed, RESERVED),)


def test_given_several_reasons_then_the_one_that_no_other_object_can_change_is_named() -> None:
    group = group_of(resolution=INIT, template=TLS)
    found = reconcile(seen(group, spu_of(1)), KEY, NOW)
    assert found == (becomes(group, INVALID, f"template.publicEndpoint.{NO_TLS}"),)


MOVED = group_of(replicas=2, min_id=3)
GROWN = group_of(replicas=4)
SHRUNK = group_of(replicas=1)
EMPTY = group_of(replicas=0)
RACKED = group_of(template=template(rack="b"))

SCALE = [
    pytest.param(
        seen(GROUP), created(GROUP, 1, 2), id="given-reserved-then-spus-created-from-min-id-on"
    ),
    pytest.param(seen(GROUP, ONE, TWO), (), id="given-all-there-then-nothing"),
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
            becomes(SHRUNK, RESERVED, "g-2 cannot end: it holds t-0"),
        ),
        id="given-replicas-on-a-lower-one-then-down-to-that",
    ),
    pytest.param(
        seen(SHRUNK, ONE, TWO, THREE, on(3)),
        (becomes(SHRUNK, RESERVED, "g-3 cannot end: it holds t-0"),),
        id="given-replicas-on-the-highest-then-the-empty-one-below-stays",
    ),
    pytest.param(
        seen(SHRUNK, ONE, TWO, *(on(2, name=n) for n in "abc")),
        (becomes(SHRUNK, RESERVED, "g-2 cannot end: it holds a-0, b-0, c-0"),),
        id="given-three-partitions-then-all-named",
    ),
    pytest.param(
        seen(SHRUNK, ONE, TWO, *(on(2, name=n) for n in "abcde")),
        (becomes(SHRUNK, RESERVED, "g-2 cannot end: it holds a-0, b-0, c-0 and 2 more"),),
        id="given-five-partitions-then-three-named-and-the-rest-counted",
    ),
    pytest.param(
        seen(SHRUNK, ONE, TWO, partition_of("t", 0, (2,), deleting=True)),
        (becomes(SHRUNK, RESERVED, "g-2 cannot end: it holds t-0"),),
        id="given-partition-on-its-way-out-then-it-counts",
    ),
    pytest.param(
        seen(GROUP, ONE, TWO, THREE, sessions=[session_of(3)], tombstones=[tombstone_of(GONE, 3)]),
        (becomes(GROUP, RESERVED, "g-3 is deleting replicas before it ends"),),
        id="given-deletions-to-confirm-then-waits",
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
        seen(group_of(reason="g-3 cannot end: it holds t-0"), ONE, TWO, THREE),
        (
            RemoveSpu(THREE),
            becomes(group_of(reason="g-3 cannot end: it holds t-0"), RESERVED),
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
            becomes(MOVED, RESERVED, "g-1 cannot end: it holds t-0"),
        ),
        id="given-min-id-moved-and-replicas-on-the-lowest-then-that-stays",
    ),
    pytest.param(
        seen(RACKED, ONE, member_of(RACKED, 2)),
        (WriteSpuSpec(ONE, member_of(RACKED, 1).spec),),
        id="given-template-changed-then-spus-follow",
    ),
]


@pytest.mark.parametrize(("view", "actions"), CLAIM + SCALE)
def test_group(view: View, actions: tuple[Action, ...]) -> None:
    assert reconcile(view, KEY, NOW) == actions


def test_given_template_then_the_spu_has_all_of_it_and_its_own_name_id_ports_and_directory() -> (
    None
):
    made = template(
        9100, 9200, rack="b", region="eu", storage=Storage(size=7 << 30, log_dir="/data")
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
        private_endpoint=PrivateEndpoint(port=9203),
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
GOING = group_of(deleting=True)
ENDING = "ending its SPUs"


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
        seen(SHRUNK, ONE, TWO, on(2), provisioned=troubled(ONE)),
        (becomes(SHRUNK, RESERVED, "g-2 cannot end: it holds t-0"),),
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
        (RemoveSpu(TWO), becomes(GOING, RESERVED, "g-1 cannot end: it holds t-0")),
        id="given-replicas-then-waits-for-them",
    ),
    pytest.param(
        seen(GOING, ONE, sessions=[session_of(1)], tombstones=[tombstone_of(GONE, 1)]),
        (becomes(GOING, RESERVED, "g-1 is deleting replicas before it ends"),),
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
