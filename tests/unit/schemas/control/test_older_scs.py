"""What an SC of an earlier version is told of sealed logs, loads and unclean elections: nothing."""

from __future__ import annotations

import pytest

from schemas.control.messages import (
    ARCHIVE_PROTOCOL,
    CONTROLLERS_PROTOCOL,
    LOAD_PROTOCOL,
    SEAL_PROTOCOL,
    UNCLEAN_PROTOCOL,
    Heartbeat,
    Hello,
    HelloPart,
    LoadReport,
    Message,
    ReplicaReport,
    Report,
)
from schemas.control.older_scs import for_protocol, hello_for
from schemas.ids import StorageId, make_term
from tests.unit.spu.builders import UID

OPEN = ReplicaReport(uid=UID, storage_id=StorageId("s"), leo=9)
SEALED = OPEN.model_copy(update={"sealed": 7})


def hello(report: ReplicaReport, *, seals: bool | None) -> Hello:
    return Hello(software="x", spu_id=1, instance="i", replicas=(report,), seals=seals)


@pytest.mark.parametrize(
    ("message", "older"),
    [
        pytest.param(hello(SEALED, seals=True), hello(OPEN, seals=None), id="hello"),
        pytest.param(HelloPart(replicas=(SEALED,)), HelloPart(replicas=(OPEN,)), id="its-parts"),
        pytest.param(Report(replicas=(OPEN, SEALED)), Report(replicas=(OPEN, OPEN)), id="report"),
        pytest.param(Heartbeat(), Heartbeat(), id="another-message"),
    ],
)
def test_for_protocol(message: Message, older: Message) -> None:
    assert for_protocol(message, SEAL_PROTOCOL) == message
    for protocol in (ARCHIVE_PROTOCOL, None):
        assert for_protocol(message, protocol) == older
        if isinstance(message, Hello):
            assert hello_for(message, protocol) == older


def test_given_an_sc_that_knows_no_loads_then_it_hears_of_none() -> None:
    hot = SEALED.model_copy(update={"load": LoadReport(parts=2)})
    message = hello(hot, seals=True)
    assert for_protocol(message, LOAD_PROTOCOL) == message
    assert for_protocol(message, SEAL_PROTOCOL) == hello(SEALED, seals=True)
    assert hello_for(message, SEAL_PROTOCOL) == hello(SEALED, seals=True)
    assert for_protocol(Report(replicas=(hot,)), ARCHIVE_PROTOCOL) == Report(replicas=(OPEN,))


def test_given_an_sc_that_does_not_ask_for_unclean_elections_then_it_hears_of_none() -> None:
    hot = SEALED.model_copy(update={"load": LoadReport(parts=2)})
    report = hot.model_copy(update={"unclean_term": make_term(0, 3)})
    message = hello(report, seals=True)
    assert for_protocol(message, UNCLEAN_PROTOCOL) == message
    assert for_protocol(message, CONTROLLERS_PROTOCOL) == hello(hot, seals=True)
    assert hello_for(message, CONTROLLERS_PROTOCOL) == hello(hot, seals=True)
    assert for_protocol(Report(replicas=(report,)), None) == Report(replicas=(OPEN,))
