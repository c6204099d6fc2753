"""A group of two SPUs, and what tables of the SPU-group controller are written with."""

from __future__ import annotations

from typing import Any

from sc.controllers.actions import Key, WriteStatus
from sc.store.view import Provisioned, View
from schemas.objects.metadata import Object
from schemas.objects.spu import Encryption, PrivateEndpoint, PublicEndpoint
from schemas.objects.spu_group import SpuGroup, SpuGroupResolution, SpuGroupStatus, SpuTemplate
from tests.unit.sc.builders import group_of, member_of, view_of

KEY = Key("SpuGroup", "g")
NOW = 1_000
INVALID = SpuGroupResolution.INVALID
RESERVED = SpuGroupResolution.RESERVED
GROUP = group_of()
ONE, TWO, THREE, FOUR = (member_of(GROUP, i) for i in (1, 2, 3, 4))
#: A template that no group may have.
TLS = SpuTemplate(public_endpoint=PublicEndpoint(encryption=Encryption.TLS))


def becomes(
    group: SpuGroup, resolution: SpuGroupResolution, reason: str | None = None
) -> WriteStatus:
    """The write of a status of the spec there is."""
    status = SpuGroupStatus(
        resolution=resolution, reason=reason, observed_generation=group.generation
    )
    return WriteStatus(group, status)


def seen(*objects: Object, provisioned: dict[str, Provisioned] | None = None, **more: Any) -> View:
    """A view in which managed SPUs can be started."""
    return view_of(*objects, provisioned=provisioned or {}, **more)


def template(port: int = 9005, private: int = 9006, **more: Any) -> SpuTemplate:
    """The ports are those of the first SPU."""
    return SpuTemplate(
        public_endpoint=PublicEndpoint(port=port),
        private_endpoint=PrivateEndpoint(port=private),
        **more,
    )
