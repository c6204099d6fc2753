"""``partition elect``: what a user is asked before anything is lost."""

from __future__ import annotations

import pytest
import typer

from runnel.admin import client
from runnel.cli.objects.reasons import explain_state
from runnel.cli.partition import partition as command
from runnel.cli.render import object_rows
from schemas.errors import ConflictError, InvalidRequestError
from schemas.ids import make_term
from schemas.objects.metadata import Metadata, OwnerReference
from schemas.objects.partition import LiveReplica, Partition, PartitionSpec, PartitionStatus

TERM = make_term(1, 4)


def partition(**status: object) -> Partition:
    owner = OwnerReference(kind="Topic", name="t", uid="u")
    return Partition(
        metadata=Metadata(name="t-0", uid="p", generation=1),
        spec=PartitionSpec(owner=owner, index=0, replicas=(1, 2), preferred_leader=1),
        status=PartitionStatus.model_validate({"observed_generation": 1, **status}),
    )


OFFLINE = partition(reason="SPU 1 is gone", lrs=(LiveReplica(spu_id=1, storage_id="s"),), term=TERM)


@pytest.mark.parametrize(
    ("leader", "question"),
    [
        (None, "let the replica that holds most of the others lead"),
        (2, "let SPU 2 lead"),
    ],
)
def test_asks_with_what_is_known(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    leader: int | None,
    question: str,
) -> None:
    asked: list[str] = []
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr(typer, "confirm", lambda text, abort: asked.append(text))
    command._ask(OFFLINE, leader)
    said = capsys.readouterr().out
    assert "SPU 1 is gone" in said
    assert "hold every committed record: 1" in said
    assert asked[0].startswith(question)


def test_given_nobody_to_ask_then_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    with pytest.raises(InvalidRequestError, match="--yes"):
        command._ask(OFFLINE, None)


def test_unclean_terms_are_shown() -> None:
    unclean = partition(unclean_term=TERM, term=make_term(1, 5))
    assert "elected uncleanly at term 1:4: records that were committed may be lost" in (
        explain_state(unclean)
    )
    assert not any("uncleanly" in line for line in explain_state(OFFLINE))
    headings, (old, new) = object_rows([unclean, OFFLINE], wide=True)
    column = headings.index("UNCLEAN")
    assert (old[column], new[column]) == ("1:4", "-")


def test_given_the_controller_refused_then_a_conflict_with_its_reason() -> None:
    refused = partition(term=TERM, reason="turned down: unclean election: SPU 1 is live")
    with pytest.raises(ConflictError, match="SPU 1 is live"):
        client._elected(refused, TERM)
    earlier = partition(term=TERM, unclean_term=TERM, reason="SPU 1 is live")
    with pytest.raises(ConflictError, match="SPU 1 is live"):
        client._elected(earlier, TERM)
    elected = partition(term=make_term(1, 5), unclean_term=make_term(1, 5))
    assert client._elected(elected, TERM) is elected
