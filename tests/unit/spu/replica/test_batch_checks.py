"""What a client may append: schema ids of batches against the schema of their topic."""

from __future__ import annotations

import pytest

from schemas.columns.topic_schema import Column, TopicSchema, schema_id
from schemas.errors import InvalidRequestError, NotReadyError, RunnelError
from schemas.wire.batch import CONTROL_FLAG, TRANSACTION_IDS_FLAG, BatchHeader, build, read_header
from spu.replica.batch_checks import admit, admit_schema

ID = Column(name="orderId", type="int64", nullable=False)
NOTE = Column(name="note", type="string")
TAGS = Column(name="tags", type="list<string>")
OTHER = Column(name="other", type="string")

ORDERS = TopicSchema(columns=(ID, NOTE))


def header_of(*columns: Column) -> BatchHeader:
    id_ = schema_id(columns) if columns else 0
    return read_header(
        build(b"", record_count=1, first_timestamp_us=0, last_timestamp_us=0, schema_id=id_)
    )


ADMITTED = {
    "given-no-schema-then-plain-records": (None, header_of()),
    "given-a-schema-then-batches-of-it": (ORDERS, header_of(ID, NOTE)),
    "given-columns-that-were-added-then-older-batches": (ORDERS, header_of(ID)),
}


@pytest.mark.parametrize(("rows", "header"), ADMITTED.values(), ids=ADMITTED)
def test_admitted(rows: TopicSchema | None, header: BatchHeader) -> None:
    admit_schema(header, rows, "orders-0")


REFUSED = {
    "given-columns-for-a-plain-topic-then-refused": (
        None,
        header_of(ID),
        InvalidRequestError,
        "orders-0 takes plain records: its topic has no schema",
    ),
    "given-plain-records-for-a-typed-topic-then-refused": (
        ORDERS,
        header_of(),
        InvalidRequestError,
        "plain records, which is no version of the schema of orders-0; its columns are orderId,",
    ),
    "given-other-columns-then-refused-by-their-id": (
        ORDERS,
        header_of(ID, OTHER),
        InvalidRequestError,
        f"the batch is of schema id {schema_id([ID, OTHER]):#010x}, which is no version",
    ),
    "given-another-order-then-refused": (
        ORDERS,
        header_of(NOTE, ID),
        InvalidRequestError,
        "no ver",
    ),
    "given-too-few-columns-then-refused": (
        TopicSchema(columns=(NOTE, ID)),
        header_of(NOTE),
        InvalidRequestError,
        "no version of the schema",
    ),
    "given-more-columns-than-are-known-then-later": (
        ORDERS,
        header_of(ID, NOTE, TAGS),
        NotReadyError,
        "the batch has 3 columns",
    ),
}


@pytest.mark.parametrize(("rows", "header", "error", "says"), REFUSED.values(), ids=REFUSED)
def test_refused(
    rows: TopicSchema | None, header: BatchHeader, error: type[RunnelError], says: str
) -> None:
    with pytest.raises(error) as caught:
        admit_schema(header, rows, "orders-0")
    assert says in caught.value.message


def test_the_refusal_names_the_id_that_is_right() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        admit_schema(header_of(OTHER), ORDERS, "orders-0")
    assert caught.value.details == {"schemaId": ORDERS.schema_id}


# Flags and transaction ids

IDS = TRANSACTION_IDS_FLAG


@pytest.mark.parametrize(
    ("flags", "first", "last", "says"),
    [
        pytest.param(0, -1, -1, None, id="given-no-ids-then-admitted"),
        pytest.param(IDS, 0, 0, None, id="given-the-smallest-id-then-admitted"),
        pytest.param(IDS, 7, 9, None, id="given-rising-ids-then-admitted"),
        pytest.param(IDS, 9, 7, "ids are 9 to 7", id="given-falling-ids-then-refused"),
        pytest.param(IDS, -1, 7, "ids are -1 to 7", id="given-a-first-below-0-then-refused"),
        pytest.param(IDS, -1, -1, "ids are -1 to -1", id="given-a-flag-alone-then-refused"),
        pytest.param(0, 7, 9, r"its flags say that it has none", id="given-ids-alone-then-refused"),
        pytest.param(
            0, -1, 9, r"its flags say that it has none", id="given-a-last-alone-then-refused"
        ),
        pytest.param(CONTROL_FLAG, -1, -1, "flags are 0x1", id="given-a-control-flag-then-refused"),
        pytest.param(IDS | 4, 7, 9, "flags are 0x6", id="given-an-unknown-flag-then-refused"),
    ],
)
def test_flags_and_transaction_ids(flags: int, first: int, last: int, says: str | None) -> None:
    batch = memoryview(
        build(
            b"",
            record_count=1,
            first_timestamp_us=0,
            last_timestamp_us=0,
            flags=flags,
            first_transaction_id=first,
            last_transaction_id=last,
        )
    )
    if says is None:
        assert admit(batch, 1 << 20, "orders-0").last_transaction_id == last
        return
    with pytest.raises(InvalidRequestError, match=says):
        admit(batch, 1 << 20, "orders-0")
