"""A process that forks while it has a client open, as pre-fork servers and multiprocessing do."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.e2e.conftest import PYTHON, SQLITE_ALONE, TIMEOUT_S, Command

pytestmark = SQLITE_ALONE

#: Forks with everything open and in use. The children print what each call gave them; the parent
#: goes on, and prints what the topic holds in the end.
BLOCKING = """
import gc, os, sys, threading, runnel

cluster = runnel.connect(sys.argv[1])
producer = cluster.producer("forked")
consumer = cluster.consumer("forked", "earliest", name="reader")
records = iter(consumer)
sent = 0

def send(count):
    global sent
    for _ in range(count):
        producer.send(b"%d" % sent)
        sent += 1

send(2_000)
waiting = producer.send(b"%d" % sent, partition=0)
sent += 1

def attempt(name, call):
    try:
        call()
    except runnel.RunnelError as error:
        print(name, type(error).__name__, error, flush=True)
    else:
        print(name, "nothing", flush=True)

def child():
    import pyarrow as pa
    attempt("send", lambda: producer.send(b"child"))
    attempt("send-large", lambda: producer.send(b"child" * 10_000))
    attempt("send_table", lambda: producer.send_table(pa.table({"value": [b"child"]})))
    attempt("flush", producer.flush)
    attempt("result", waiting.result)
    attempt("next", lambda: next(records))
    attempt("batches", lambda: next(consumer.batches()))
    attempt("commit", consumer.commit)
    attempt("get", lambda: cluster.get("topic", "forked"))
    attempt("read", lambda: cluster.read("forked"))
    attempt("close", consumer.close)
    attempt("close", producer.close)
    attempt("close", cluster.close)
    with runnel.connect(sys.argv[1]) as own:
        print("own", own.get("topic", "forked").metadata.name, flush=True)
    gc.collect()

if os.fork() == 0:
    child()
    sys.exit(7)
_, status = os.wait()
print("status", os.waitstatus_to_exitcode(status), flush=True)
if os.fork() == 0:
    # Leaves without closing anything, and with the client's objects still alive.
    sys.exit(8)
_, status = os.wait()
print("status", os.waitstatus_to_exitcode(status), flush=True)
del child
send(2_000)
producer.flush()
found = sorted(int(next(records).value) for _ in range(sent))
print("parent", found == list(range(sent)), flush=True)
cluster.close()
"""

POOL = """
import multiprocessing, sys, runnel

cluster = runnel.connect(sys.argv[1])
producer = cluster.producer("forked")

def work(value):
    try:
        producer.send(value).result(30)
    except runnel.RunnelError as error:
        return str(error)

with multiprocessing.get_context("fork").Pool(2) as pool:
    print(pool.map(work, [b"a", b"b"]))
with producer, cluster:
    print(producer.send(b"parent").result(30).topic)
"""

ASYNCIO = """
import asyncio, os, sys
from runnel import aio

async def attempt(name, call):
    try:
        await call
    except Exception as error:
        print(name, type(error).__name__, error, flush=True)
    else:
        print(name, "nothing", flush=True)

async def child(cluster, producer, consumer):
    await attempt("flush", producer.flush())
    await attempt("next", consumer.next_chunk())
    await attempt("get", cluster.get("topic", "forked"))
    await attempt("read", cluster.read("forked"))
    await attempt("close", cluster.close())

async def main():
    async with aio.connect(sys.argv[1]) as cluster:
        producer = await cluster.producer("forked")
        consumer = cluster.consumer("forked", "earliest", "latest")
        producer.send(b"before")
        await producer.flush()
        await consumer.start()
        if (pid := os.fork()) == 0:
            asyncio._set_running_loop(None)
            asyncio.set_event_loop(None)
            asyncio.run(child(cluster, producer, consumer))
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(pid, 0)
        producer.send(b"after")
        await producer.close()
        print("parent", len([record async for record in consumer]) >= 1, flush=True)

asyncio.run(main())
"""


def run(cluster: Command, script: str) -> subprocess.CompletedProcess[str]:
    if cluster.sc is None:
        raise AssertionError("the cluster runs")
    done = subprocess.run(
        [PYTHON, "-c", script, cluster.sc],
        env=cluster.environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture
def forked(cluster: Command) -> Iterator[Command]:
    cluster("create", "topic", "forked")
    yield cluster
    cluster("delete", "topic", "forked")


def test_given_a_fork_then_the_child_is_told_and_the_parent_goes_on(forked: Command) -> None:
    done = run(forked, BLOCKING)
    said = [line.split(" ", 2) for line in done.stdout.splitlines()]
    told = [name for name, kind, *why in said if kind == "InvalidRequestError" and "fork" in why[0]]
    assert told == [
        *("send", "send-large", "send_table", "flush", "result"),
        *("next", "batches", "commit", "get", "read"),
    ], done.stdout
    assert [line for line in said if line[0] not in told] == [
        *[["close", "nothing"]] * 3,
        ["own", "forked"],
        ["status", "7"],
        ["status", "8"],
        ["parent", "True"],
    ]
    assert done.stderr == ""


def test_given_multiprocessing_then_workers_are_told(forked: Command) -> None:
    said, parent = run(forked, POOL).stdout.splitlines()
    assert said.count("runnel.connect() in each process") == 2
    assert parent == "forked"


def test_given_a_fork_of_an_event_loop_then_the_child_is_told(forked: Command) -> None:
    *told, close, parent = run(forked, ASYNCIO).stdout.splitlines()
    assert [line.split()[:2] for line in told] == [
        [name, "InvalidRequestError"] for name in ("flush", "next", "get", "read")
    ]
    assert (close, parent) == ("close nothing", "parent True")
