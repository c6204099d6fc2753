"""What a client may append: schema ids of batches against the schema of their topic."""

from __future__ import annotations

import pytest

from schemas.batch import BatchHeader, build, read_header
from schemas.columns import Column, TopicSchema, schema_id
from schemas.errors import InvalidRequestError, NotReadyError, RunnelError
from spu.admission import admit_schema

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
