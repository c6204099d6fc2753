"""What an SPU group claims: ids, names and ports of its own, or why it is invalid. Every branch as
(view, key, now) → exact actions."""

from __future__ import annotations

from typing import Any

import pytest

from sc.controllers.actions import Action, Key
from sc.controllers.spu_group import reconcile
from sc.store.view import View
from schemas.objects.metadata import Object
from schemas.objects.spu import MAX_SPU_ID, Encryption, PrivateEndpoint
from schemas.objects.spu_group import SpuGroup, SpuGroupResolution, SpuGroupStatus, SpuTemplate
from tests.unit.sc.builders import group_of, member_of, spu_of, view_of
from tests.unit.sc.controllers.groups import (
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

INIT = SpuGroupResolution.INIT
OLDER, NEWER = "2025-12-31T23:59:59Z", "2026-01-01T00:00:01Z"
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


@pytest.mark.parametrize(("view", "actions"), CLAIM)
def test_claim(view: View, actions: tuple[Action, ...]) -> None:
    assert reconcile(view, KEY, NOW) == actions


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
            f"minId: the group needs ids up to {MAX_SPU_ID + 1}; the highest is {MAX_SPU_ID}",
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
            "metadata.name: too long by 1 characters: an SPU's name is it and the id",
        ),
        invalid(
            "name-of-another-daemon",
            group_of("sc", INIT),
            "metadata.name: another daemon on that host is called sc",
        ),
        invalid(
            "port-of-the-sc",
            group_of(resolution=INIT, template=template(8998, 8999)),
            "template: the SC uses port 9003",
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
