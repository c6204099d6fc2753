"""The server keeps to its OpenAPI document, whatever it is sent: generated requests.

Every answer's status, media type and body must be those of the document, and none may be a fault
of the server.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import CheckFunction, load_all_checks, not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from sc.api.openapi import document
from sc.kv import open_kv
from tests.integration.sc.calls import call, created, online
from tests.integration.sc.conftest import run_sc

load_all_checks()
CHECKS: list[CheckFunction] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
EXAMPLES = 12
#: Of each kind one that exists; requests may change it, and delete it in dry runs only.
KNOWN = {"topics": "t", "spus": "spu-1", "partitions": "t-0"}

schema = schemathesis.openapi.from_dict(document())


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """An SC with some objects, in a thread of its own."""
    started: Future[str] = Future()
    stop = asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        kv = await open_kv("memory:")
        try:
            async with run_sc(kv) as sc:
                async with online(sc, 1):
                    await created(sc, "Topic", "t", {"partitions": 1}, labels={"team": "x"})
                    await sc.until("partitions", "t-0", "online")
                await sc.until("spus", "spu-1", "offline")
                assert (await call(sc, "GET", "/health"))[0] == 200
                started.set_result(sc.public)
                await stop.wait()
        except BaseException as error:
            if not started.done():
                started.set_exception(error)
            raise
        finally:
            await kv.close()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), name="sc")
    thread.start()
    try:
        yield started.result(timeout=30)
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(timeout=30)
        loop.close()
    assert not thread.is_alive()


OPERATIONS = {
    one.ok().label: one.ok() for one in schema.get_all_operations() if isinstance(one, Ok)
}


# Not by `schema.parametrize`: its tests share one id, and pytest-xdist runs one of those.
@pytest.mark.parametrize("label", OPERATIONS)
def test_given_any_request_then_an_answer_of_the_document(label: str, address: str) -> None:
    @given(case=OPERATIONS[label].as_strategy(), known=st.booleans())
    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    def keeps_to_the_document(case: schemathesis.Case[Any], known: bool) -> None:
        # Streams do not end.
        case.query.pop("watch", None)
        plural = case.operation.path.removeprefix("/v1/").partition("/")[0]
        if known and "name" in case.path_parameters and plural in KNOWN:
            case.path_parameters["name"] = KNOWN[plural]
            _name(case.body, KNOWN[plural])
            if case.method == "DELETE":
                case.query["dryRun"] = "true"
        _bound(case.body)
        response = case.call(base_url=address, timeout=10)
        case.validate_response(response, checks=CHECKS)

    keeps_to_the_document()


def _bound(body: Any) -> None:
    """Not hundreds of SPUs for each group."""
    spec = body.get("spec") if isinstance(body, dict) else None
    if isinstance(spec, dict) and isinstance(spec.get("replicas"), int):
        spec["replicas"] = min(spec["replicas"], 3)


def _name(body: Any, name: str) -> None:
    """Make a body that of the object in the address."""
    if isinstance(body, dict) and isinstance(body.get("metadata"), dict):
        body["metadata"]["name"] = name
