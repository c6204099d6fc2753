"""What an answer says of whether the batch may be in the log."""

from __future__ import annotations

import pytest

from runnel.produce.sender import _may_stand
from schemas.errors import (
    InvalidRequestError,
    NotEnoughReplicasError,
    NotReadyError,
    RunnelError,
    UnreachableError,
)


@pytest.mark.parametrize(
    ("error", "may"),
    [
        pytest.param(UnreachableError("it broke"), True, id="given-no-answer"),
        pytest.param(NotReadyError("leads no more"), True, id="given-an-end-of-its-leadership"),
        pytest.param(NotReadyError("early", expectedSequence=3), False, id="given-a-gap-before-it"),
        pytest.param(NotEnoughReplicasError("1 of 2"), False, id="given-too-few-replicas"),
        pytest.param(InvalidRequestError("no"), False, id="given-a-refusal"),
    ],
)
def test_whether_a_batch_may_stand(error: RunnelError, may: bool) -> None:
    assert _may_stand(error) is may
