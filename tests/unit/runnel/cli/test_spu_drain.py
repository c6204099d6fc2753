"""What ``runnel spu drain`` and ``--cancel`` say of a drain that another has changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from runnel.cli import spu_drain
from schemas.errors import ConflictError, NotFoundError, RunnelError, UnreachableError
from schemas.objects.metadata import Metadata, Object
from schemas.objects.spu import Spu, SpuResolution, SpuSpec, SpuStatus, SpuType
from schemas.objects.spu_group import (
    SpuGroup,
    SpuGroupResolution,
    SpuGroupSpec,
    SpuGroupStatus,
)


def spu(spu_id: int, *, drain: bool | None, generation: int, group: str | None = "edge") -> Spu:
    return Spu(
        metadata=Metadata(name=f"spu-{spu_id}", generation=generation),
        spec=SpuSpec(
            spu_id=spu_id,
            spu_type=SpuType.CUSTOM if group is None else SpuType.MANAGED,
            group=group,
            drain=drain,
        ),
        status=SpuStatus(resolution=SpuResolution.ONLINE, observed_generation=generation),
    )


def group(
    replicas: int, *, min_id: int = 0, deleting: bool = False, valid: bool = True
) -> SpuGroup:
    how = SpuGroupResolution.RESERVED if valid else SpuGroupResolution.INVALID
    return SpuGroup(
        metadata=Metadata(
            name="edge", deletion_timestamp="2026-01-01T00:00:00Z" if deleting else None
        ),
        spec=SpuGroupSpec(replicas=replicas, min_id=min_id),
        status=SpuGroupStatus(resolution=how),
    )


class Cluster:
    """Shows one SPU as it is at each look, until it is gone. Its group is not known at first if
    ``trouble`` is given."""

    def __init__(
        self,
        asked: Spu,
        shown: Sequence[Spu],
        of: SpuGroup | None,
        trouble: RunnelError | None = None,
    ) -> None:
        self._trouble = trouble
        self._asked = asked
        self._shown = list(shown)
        self._group = of

    def patch(self, *_: object) -> Spu:
        return self._asked

    def get(self, plural: str, name: str) -> Object:
        if plural == SpuGroup.PLURAL:
            if self._trouble is not None:
                trouble, self._trouble = self._trouble, None
                raise trouble
            if self._group is None:
                raise NotFoundError(name)
            return self._group
        if not self._shown:
            raise NotFoundError(name)
        return self._shown.pop(0)


def serve(monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> None:
    @contextmanager
    def administered(_sc: str | None) -> Iterator[Cluster]:
        yield cluster

    monkeypatch.setattr(spu_drain, "administered", administered)
    monkeypatch.setattr(spu_drain, "_LOOK_S", 0)


NO_PLACE = "SpuGroup 'edge' has {} replicas, and no place for it"
STAYS: dict[str, tuple[int, SpuGroup | None, str | None]] = {
    "a place in its group": (3, group(4), None),
    "the first place": (2, group(1, min_id=2), None),
    "no place": (
        4,
        group(4),
        f"{NO_PLACE.format(4)}; to keep it: runnel scale spugroup edge --replicas 5",
    ),
    "no place, and other ids": (
        7,
        group(2, min_id=5),
        f"{NO_PLACE.format(2)}; to keep it: runnel scale spugroup edge --replicas 3",
    ),
    "below the first": (
        4,
        group(2, min_id=5),
        NO_PLACE.format(2),
    ),
    "a group that is invalid": (4, group(4, valid=False), None),
    "a group that ends": (
        3,
        group(4, deleting=True),
        "SpuGroup 'edge' is being deleted, which cannot be called off",
    ),
    "a group that is gone": (3, None, "SpuGroup 'edge' was deleted"),
}


@pytest.mark.parametrize(("spu_id", "of", "why"), STAYS.values(), ids=STAYS)
def test_given_a_group_then_cancel_says_whether_the_spu_stays(
    spu_id: int,
    of: SpuGroup | None,
    why: str | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    serve(monkeypatch, Cluster(spu(spu_id, drain=None, generation=2), (), of))
    name = f"spu-{spu_id}"
    if why is None:
        spu_drain.cancel(None, name)
        assert capsys.readouterr().out.startswith(f"spu/{name} keeps the replicas")
        return
    with pytest.raises(ConflictError) as raised:
        spu_drain.cancel(None, name)
    assert raised.value.message == f"spu {name!r} goes on draining: {why}"
    assert not capsys.readouterr().out


def test_given_an_spu_without_a_group_then_cancel_keeps_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    serve(monkeypatch, Cluster(spu(4, drain=None, generation=2, group=None), (), None))
    spu_drain.cancel(None, "spu-4")
    assert "keeps the replicas" in capsys.readouterr().out


def drained(monkeypatch: pytest.MonkeyPatch, shown: Sequence[Spu], of: SpuGroup) -> None:
    serve(monkeypatch, Cluster(spu(3, drain=True, generation=2), shown, of))
    spu_drain.drain(None, "spu-3", wait=True, timeout_s=60)


def test_given_a_drain_that_is_called_off_then_the_wait_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = [spu(3, drain=True, generation=2), spu(3, drain=None, generation=3)]
    with pytest.raises(ConflictError, match="the drain of spu 'spu-3' was called off: it keeps"):
        drained(monkeypatch, shown, group(4))


OTHERS = {
    "another SC shows the SPU as it was before": (spu(3, drain=None, generation=1), group(4)),
    "it has other targets": (spu(3, drain=True, generation=3), group(4)),
    "its group removes it all the same": (spu(3, drain=None, generation=3), group(3)),
}


@pytest.mark.parametrize(("shown", "of"), OTHERS.values(), ids=OTHERS)
def test_given_a_drain_that_goes_on_then_the_wait_does_too(
    shown: Spu,
    of: SpuGroup,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    drained(monkeypatch, [shown], of)
    assert capsys.readouterr().out == "spu/spu-3 was drained and removed\n"


def test_given_an_sc_that_is_away_for_a_moment_then_the_wait_asks_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = [spu(3, drain=None, generation=3)] * 2
    asked = spu(3, drain=True, generation=2)
    serve(monkeypatch, Cluster(asked, shown, group(4), UnreachableError("no SC answers")))
    with pytest.raises(ConflictError, match="was called off"):
        spu_drain.drain(None, "spu-3", wait=True, timeout_s=60)
