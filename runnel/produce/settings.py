"""The settings of a producer: when a record counts as delivered, how long batches wait, bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypedDict

from runnel.net.partition_count import METADATA_MAX_AGE_MS
from schemas.errors import InvalidRequestError
from schemas.objects.quantities import is_number
from schemas.objects.topic import MAX_BATCH_BYTES
from schemas.wire.batch import CODECS
from schemas.wire.record_requests import Acks

#: A batch is encoded, framed and copied: half of the size that every hop accepts leaves room for
#: all that.
MAX_CONFIGURED_BATCH_BYTES: Final = MAX_BATCH_BYTES // 2
MAX_IN_FLIGHT: Final = 5
#: How long a batch waits at most for those before it, by default.
LINGER_MS: Final = 5.0


#: What they are called there, and here.
_KAFKAS_ACKS: Final = {"all": "committed", "-1": "committed", "1": "leader", "0": "none"}


class ProducerOptions(TypedDict, total=False):
    """What `producer(topic, …)` takes; see `ProducerSettings` for meaning and defaults."""

    acks: Literal["committed", "leader", "none"]
    compression: Literal["none", "lz4", "zstd"] | None
    batch_bytes: int
    linger_ms: float | None
    buffer_bytes: int
    max_in_flight: int
    delivery_timeout_ms: int
    request_timeout_ms: int
    metadata_max_age_ms: int


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """``acks``: when a record counts as delivered. ``compression``: None means the topic's.

    ``linger_ms``: how long a batch waits for more records; None: not at all while no batch of this
    producer is in flight, and at most 5 ms otherwise. ``buffer_bytes`` bounds the records that are
    accepted and not acknowledged. At most ``max_in_flight`` batches per partition are in flight at
    once (leaders recognise duplicates among the last five); until one of them has an outcome, the
    next batch goes on gathering records. ``delivery_timeout_ms`` after its first record a batch
    fails; one attempt takes at most ``request_timeout_ms``. Partitions that are added to the topic
    get records at most ``metadata_max_age_ms`` after they have leaders.
    """

    acks: Literal["committed", "leader", "none"] = "committed"
    compression: Literal["none", "lz4", "zstd"] | None = None
    batch_bytes: int = 1 << 20
    linger_ms: float | None = None
    buffer_bytes: int = 64 << 20
    max_in_flight: int = MAX_IN_FLIGHT
    delivery_timeout_ms: int = 120_000
    request_timeout_ms: int = 30_000
    metadata_max_age_ms: int = METADATA_MAX_AGE_MS

    def __post_init__(self) -> None:
        bounds = (
            ("batch_bytes", self.batch_bytes, 1, MAX_CONFIGURED_BATCH_BYTES),
            ("linger_ms", 0 if self.linger_ms is None else self.linger_ms, 0, 60_000),
            ("buffer_bytes", self.buffer_bytes, 1, 1 << 40),
            ("max_in_flight", self.max_in_flight, 1, MAX_IN_FLIGHT),
            ("delivery_timeout_ms", self.delivery_timeout_ms, 1, 86_400_000),
            ("request_timeout_ms", self.request_timeout_ms, 1, 600_000),
            ("metadata_max_age_ms", self.metadata_max_age_ms, 1, 3_600_000),
        )
        for name, value, low, high in bounds:
            if not is_number(value) or not low <= value <= high:
                raise InvalidRequestError(f"{name} is {value!r}; {low} to {high} is possible")
        if str(self.acks).upper() not in Acks.__members__:
            kafkas = _KAFKAS_ACKS.get(str(self.acks))
            hint = f" (Kafka's {self.acks} is {kafkas})" if kafkas else ""
            raise InvalidRequestError(
                f"acks is {self.acks!r}; give 'committed', 'leader' or 'none'{hint}"
            )
        if self.compression is not None and self.compression not in CODECS:
            raise InvalidRequestError(
                f"compression is {self.compression!r}; give {', '.join(CODECS)}"
            )
