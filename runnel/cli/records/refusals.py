"""When to stop reading records that nobody takes any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from schemas.errors import NotFoundError, SealedError

if TYPE_CHECKING:
    import runnel


def stop_if_refused(producer: runnel.Producer) -> None:
    """Raise the first failure if the topic was sealed or deleted: an input that has no end would
    otherwise be read, and lost, for ever."""
    if isinstance(producer.first_failure, SealedError | NotFoundError):
        producer.flush()
