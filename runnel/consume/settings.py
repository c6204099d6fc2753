"""The settings of a consumer: bounds of memory and time, which replicas to read, when to commit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from runnel.net.partition_count import METADATA_MAX_AGE_MS
from schemas.errors import InvalidRequestError
from schemas.objects.quantities import is_number

OnTruncated = Literal["error", "earliest"]


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """``give_up_ms``: how long to retry a partition whose leader does not answer.

    ``max_wait_ms``: how long an SPU holds a fetch when there is nothing new. ``speculative_reads``:
    if a partition has followers, send an overdue fetch to one of them as well, and take the first
    answer; this adds at most a tenth to the requests. ``follower_reads``: read from followers in
    general, which relieves leaders. The records are the same, but come a little later. ``push``:
    leaders push records as they come, instead of answering one request for each batch of records.
    ``transaction_ids``: Arrow batches have a column ``transaction_id``, null for a record without
    one; records read one by one have theirs in any case. ``metadata_max_age_ms``: a consumer that
    follows all partitions of its topic reads added ones, from their beginning, at most so long
    after they have leaders. ``columns``: only these columns of records are decoded, which saves
    time where there are many; the others may be null in all that is handed out. ``short_circuit``:
    where a partition's leader runs on this host and its files can be read, records that are in them
    already are taken from there; without it, everything is fetched.
    """

    read_ahead_bytes: int = 64 << 20
    max_wait_ms: int = 1_000
    give_up_ms: int = 120_000
    speculative_reads: bool = True
    follower_reads: bool = False
    push: bool = True
    transaction_ids: bool = False
    on_truncated: OnTruncated = "error"
    auto_commit_ms: int | None = 5_000
    metadata_max_age_ms: int = METADATA_MAX_AGE_MS
    columns: tuple[str, ...] | None = None
    short_circuit: bool = True

    def __post_init__(self) -> None:
        if self.on_truncated not in get_args(OnTruncated):
            raise InvalidRequestError(
                f"on_truncated is {self.on_truncated!r}; give 'error' or 'earliest'"
            )
        bounds = (
            ("read_ahead_bytes", self.read_ahead_bytes, 1, 1 << 40),
            ("max_wait_ms", self.max_wait_ms, 0, 3_600_000),
            ("give_up_ms", self.give_up_ms, 0, 86_400_000),
            ("metadata_max_age_ms", self.metadata_max_age_ms, 1, 3_600_000),
        )
        for name, value, low, high in bounds:
            if not is_number(value) or not low <= value <= high:
                raise InvalidRequestError(f"{name} is {value!r}; {low} to {high} is possible")
        commit_ms = self.auto_commit_ms
        if commit_ms is not None and not (is_number(commit_ms) and commit_ms > 0):
            raise InvalidRequestError(
                f"auto_commit_ms is {commit_ms!r}; give a number above 0, or None"
            )


def checked_settings(settings: object) -> ConsumerSettings:
    """The settings, or the default ones for None. Raises InvalidRequestError for anything else."""
    if settings is None:
        return ConsumerSettings()
    if isinstance(settings, ConsumerSettings):
        return settings
    raise InvalidRequestError(f"settings is {settings!r}; give runnel.ConsumerSettings(…)")
