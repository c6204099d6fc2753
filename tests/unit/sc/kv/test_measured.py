"""A KV that measures: every request reaches the KV below and is counted, and so are errors."""

from __future__ import annotations

import inspect
from unittest import mock

import pytest

from sc.kv.interface import KV
from sc.kv.measured import MeasuredKV
from sc.metrics.instruments import ScMetrics
from schemas.daemon.metrics import exposition
from schemas.errors import DeadlineExceededError

#: Watches wait for events, and to close is no request.
NOT_MEASURED = {"watch", "close"}
OPERATIONS = sorted(
    name
    for name, method in vars(KV).items()
    if inspect.isfunction(method) and not name.startswith("_")
)
ARGUMENTS: dict[str, tuple[object, ...]] = {
    "get": ("key",),
    "range": ("prefix",),
    "txn": ([], []),
    "watch": ("prefix", 7),
    "lease_grant": (7,),
    "lease_keep_alive": (7,),
    "lease_revoke": (7,),
    "compact": (7,),
}


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_given_a_request_then_the_kv_below_gets_it_and_it_is_counted(operation: str) -> None:
    below, metrics = mock.create_autospec(KV, instance=True), ScMetrics()
    answer = getattr(MeasuredKV(below, metrics.kv_request), operation)(
        *ARGUMENTS.get(operation, ())
    )
    if inspect.isawaitable(answer):
        answer = await answer
    called = getattr(below, operation)
    called.assert_called_once()
    assert called.call_args.args[: len(ARGUMENTS.get(operation, ()))] == ARGUMENTS.get(
        operation, ()
    )
    if operation not in {"lease_revoke", "compact", "check_writable", "close"}:
        assert answer is called.return_value
    text = exposition(metrics.registry).decode()
    counted = f'runnel_sc_kv_seconds_count{{operation="{operation}"}} 1.0' in text
    assert counted == (operation not in NOT_MEASURED)


async def test_given_an_error_then_it_is_raised_and_counted() -> None:
    below, metrics = mock.create_autospec(KV, instance=True), ScMetrics()
    below.txn.side_effect = DeadlineExceededError("no answer")
    with pytest.raises(DeadlineExceededError):
        await MeasuredKV(below, metrics.kv_request).txn([], [])
    text = exposition(metrics.registry).decode()
    assert 'runnel_sc_kv_seconds_count{operation="txn"} 1.0' in text
    assert 'runnel_sc_kv_errors_total{code="DEADLINE_EXCEEDED",operation="txn"} 1.0' in text
