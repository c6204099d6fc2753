"""The blocking facade: the example of the design, threads, and leaving early."""

from __future__ import annotations

import asyncio
import gc
import re
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from time import monotonic

import pyarrow as pa
import pytest

import runnel
from runnel.admin.calls import refusal
from runnel.loop_thread import LoopThread
from runnel.net.address import Address
from runnel.produce.delivery import Delivery
from schemas.errors import InvalidRequestError
from schemas.wire.record_requests import FetchFlags
from tests.unit.runnel.fake_sc import FakeSc
from tests.unit.runnel.fake_spu import FakeSpu
from tests.unit.runnel.served import Served


def test_the_example_of_the_design(served: Served) -> None:
    arrow_table = pa.table({"key": ["a", "b"], "value": ["1", "2"]})
    with runnel.connect(served.sc.address) as cluster:
        cluster.apply(runnel.Topic("orders", partitions=3))
        with cluster.producer("orders") as producer:
            delivery = producer.send(b"value", key=b"key")
            producer.send_table(arrow_table)
            producer.flush()
        assert delivery.result().offset >= 0
        values = [
            record.value for record in cluster.consumer("orders", start="earliest", stop="latest")
        ]
        assert sorted(filter(None, values)) == [b"1", b"2", b"value"]
        table = cluster.read("orders")
        assert table.num_rows == 3


def test_given_settings_then_the_consumer_reads_from_followers(served: Served) -> None:
    place = ("127.0.0.1", served.spu.port)
    with runnel.connect(served.sc.address) as cluster:
        cluster.apply(runnel.Topic("orders"))
        with cluster.producer("orders") as producer:
            producer.send(b"value")
        served.sc.replicas = [(1, place, True), (2, place, True)]
        settings = runnel.ConsumerSettings(follower_reads=True, speculative_reads=False)
        consumer = cluster.consumer("orders", "earliest", {0: 1}, settings=settings)
        assert [record.value for record in consumer] == [b"value"]
    assert [asked.flags for asked in served.spu.fetched] == [FetchFlags.FOLLOWER_OK]


async def test_given_a_running_loop_then_it_works_all_the_same(served: Served) -> None:
    with runnel.connect(served.sc.address) as cluster:
        assert cluster.list("topics") == []


def test_given_several_threads_then_each_ones_records_keep_their_order(served: Served) -> None:
    threads, each = 4, 500
    with runnel.connect(served.sc.address) as cluster:
        cluster.apply(runnel.Topic("orders", partitions=3))
        with cluster.producer("orders", batch_bytes=2_000, buffer_bytes=10_000) as producer:

            def work(number: int) -> None:
                key = b"thread-%d" % number
                for index in range(each):
                    if index % 100 == 50:
                        producer.send_table(pa.table({"key": [key], "value": [b"%d" % index]}))
                    else:
                        producer.send(b"%d" % index, key=key)

            workers = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
        found: dict[bytes | None, list[int]] = {}
        for record in cluster.consumer("orders", "earliest", "latest"):
            found.setdefault(record.key, []).append(int(record.value or b""))
    assert found == {b"thread-%d" % n: list(range(each)) for n in range(threads)}


def test_given_a_full_buffer_then_send_waits_for_room(served: Served) -> None:
    with runnel.connect(served.sc.address) as cluster:
        cluster.apply(runnel.Topic("orders"))
        with cluster.producer("orders", buffer_bytes=100, linger_ms=0) as producer:
            deliveries = [producer.send(b"x" * 200) for _ in range(20)]
            producer.flush()
            assert [delivery.result(10).offset for delivery in deliveries] == list(range(20))


def test_given_a_consumer_left_in_the_middle_then_it_goes_on_there(served: Served) -> None:
    with runnel.connect(served.sc.address) as cluster:
        cluster.apply(runnel.Topic("orders"))
        with cluster.producer("orders") as producer:
            for index in range(5):
                producer.send(b"%d" % index)
        consumer = cluster.consumer("orders", "earliest", "latest")
        for record in consumer:
            if record.offset == 1:
                break
        assert consumer.position() == {0: 2}
        assert [record.offset for record in consumer] == [2, 3, 4]
        assert list(consumer.batches()) == []


@pytest.mark.parametrize("pushes", [True, False], ids=["given-push", "given-fetches"])
def test_given_several_threads_that_read_then_each_record_comes_once(
    served: Served, pushes: bool
) -> None:
    served.spu.pushes = pushes
    with runnel.connect(served.sc.address) as cluster:
        cluster.apply(runnel.Topic("orders", partitions=3))
        # As little ahead as there can be: the loop waits for those who read, and they for it.
        settings = runnel.ConsumerSettings(read_ahead_bytes=1)
        consumer = cluster.consumer("orders", "earliest", settings=settings)
        found: list[list[bytes | None]] = [[], []]
        wanted = 300
        done = threading.Event()

        def read(mine: list[bytes | None]) -> None:
            # Until the client is closed, which says so.
            with suppress(runnel.InvalidRequestError):
                while (chunk := consumer._next_chunk()) is not None:
                    for batch in chunk.batches:
                        mine += batch["value"].to_pylist()
                    if sum(map(len, found)) == wanted:
                        done.set()

        readers = [threading.Thread(target=read, args=(mine,), daemon=True) for mine in found]
        for reader in readers:
            reader.start()
        with cluster.producer("orders") as producer:
            for number in range(wanted):
                producer.send(f"{number:03} ".encode() * 5_000)
        assert done.wait(20)
    for reader in readers:
        reader.join(20)
        assert not reader.is_alive()
    with_number = (str(value)[2:5] for mine in found for value in mine)
    assert sorted(with_number) == [f"{number:03}" for number in range(wanted)]


def test_given_a_consumer_closed_by_another_thread_then_who_waits_comes_to_its_end(
    served: Served,
) -> None:
    with runnel.connect(served.sc.address) as cluster:
        cluster.apply(runnel.Topic("orders"))
        with cluster.producer("orders") as producer:
            producer.send(b"0")
        consumer = cluster.consumer("orders", "earliest")
        found: list[bytes | None] = []
        errors: list[BaseException] = []
        came = threading.Event()

        def read() -> None:
            try:
                for record in consumer:
                    found.append(record.value)
                    came.set()
            except BaseException as error:
                errors.append(error)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        assert came.wait(20)
        while not consumer._inner._queue._sleepers:
            pass
        consumer.close()
        reader.join(20)
        assert not reader.is_alive()
        assert (found, errors) == ([b"0"], [])
        with pytest.raises(runnel.InvalidRequestError, match="closed"):
            list(consumer)


def test_given_a_client_that_was_never_closed_then_the_end_of_the_process_flushes(
    served: Served,
) -> None:
    script = (
        "import runnel, sys;"
        "cluster = runnel.connect(sys.argv[1]);"
        "cluster.apply(runnel.Topic('orders'));"
        "cluster.producer('orders', linger_ms=60_000).send(b'v')"
    )
    subprocess.run([sys.executable, "-c", script, served.sc.address], check=True, timeout=60)
    assert len(served.spu.logs[served.sc.uids["orders"][0]].batches) == 1


def test_given_threads_that_send_while_it_closes_then_what_was_accepted_is_delivered(
    served: Served,
) -> None:
    with runnel.connect(served.sc.address) as cluster:
        cluster.apply(runnel.Topic("orders"))
        producer = cluster.producer("orders")
        accepted: list[list[Delivery]] = [[], []]
        sending = threading.Barrier(3)

        def send_for_ever(mine: list[Delivery]) -> None:
            while True:
                mine.append(producer.send(b"v"))

        def send(mine: list[Delivery]) -> None:
            mine.append(producer.send(b"v"))
            sending.wait(60)
            with pytest.raises(runnel.InvalidRequestError, match="closed"):
                send_for_ever(mine)

        with ThreadPoolExecutor() as threads:
            senders = [threads.submit(send, mine) for mine in accepted]
            sending.wait(60)
            producer.close()
            for sender in senders:
                sender.result(60)
        sent = [delivery.result(0) for mine in accepted for delivery in mine]
        assert sorted(one.offset for one in sent) == list(range(len(sent)))


def test_given_a_delivery_that_takes_long_then_result_gives_up_waiting(served: Served) -> None:
    with runnel.connect(served.sc.address) as cluster:
        cluster.apply(runnel.Topic("orders"))
        served.spu.may_answer.clear()
        with cluster.producer("orders") as producer:
            delivery = producer.send(b"v")
            with pytest.raises(runnel.DeadlineExceededError, match="still being sent"):
                delivery.result(0.01)
            asyncio.run_coroutine_threadsafe(_set(served.spu), served.spu.loop).result(10)
            assert delivery.result(10).offset == 0


async def _set(spu: FakeSpu) -> None:
    spu.may_answer.set()


def test_given_a_port_that_speaks_no_http_then_it_is_no_sc() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(1)
                # The begin of an error frame of an SPU.
                connection.sendall(b"\0\0\0v\0\0\0\x01+")

        threading.Thread(target=answer, daemon=True).start()
        _, port = listening.getsockname()
        with pytest.raises(
            runnel.UnreachableError, match=r"not the public port of an SC \(it does"
        ):
            runnel.connect(f"127.0.0.1:{port}")


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (404, b"404: Not Found", "h:1 is not the public port of an SC"),
        (503, b"no", "answered HTTP 503 Why without saying why"),
        (404, b'{"code": "NOT_FOUND", "message": "gone"}', "^gone$"),
    ],
    ids=["given-a-page-that-no-sc-lacks", "given-another-status", "given-an-sc"],
)
def test_answers_without_a_reason(status: int, body: bytes, why: str) -> None:
    with pytest.raises(runnel.RunnelError, match=why):
        raise refusal(Address("h", 1), status, "Why", body)


def test_what_a_notebook_shows(served: Served) -> None:
    with runnel.connect(served.sc.address) as cluster:
        cluster.apply(runnel.Topic("orders"))
        assert repr(cluster) == f"<runnel.Cluster {cluster.info.cluster!r} at {served.sc.address}>"
        with cluster.producer("orders") as producer:
            producer.send(b"v").result()
            assert repr(producer) == "<runnel.Producer of 'orders': 1 records sent, 0 failed>"
        assert repr(producer).endswith(", closed>")
        consumer = cluster.consumer("orders", "earliest", "latest", [0])
        assert repr(consumer) == "<runnel.Consumer of 'orders' at {0: 0}>"
    assert repr(cluster) == "<runnel.Cluster, closed>"
    assert cluster._repr_html_() == "<code>&lt;runnel.Cluster, closed&gt;</code>"


def text_of(html: str) -> list[str]:
    """The text of the caption and of the cells."""
    return [text for text in re.split(r"<[^>]*>", html) if text]


def test_a_notebook_shows_what_is_well(served: Served) -> None:
    with runnel.connect(served.sc.address) as cluster:
        cluster.apply(runnel.Topic("orders"))
        cluster.apply(runnel.Spu("left", 7))
        served.sc.add_partition("orders")
        assert text_of(cluster._repr_html_()) == [
            "Runnel cluster test", "address", served.sc.address, "version", "0.1.0",
            "SPUs", "0 of 1 well, 1 init", "topics", "1 of 1 well", "partitions", "1 of 1 well",
        ]  # fmt: skip


def test_given_no_sc_then_a_notebook_says_so() -> None:
    thread = LoopThread("sc")
    sc = FakeSc()
    thread.call(sc.start())
    with runnel.connect(sc.address) as cluster:
        thread.call(sc.stop())
        shown = text_of(cluster._repr_html_())
        assert shown[5] == "SPUs"
        assert shown[6].startswith(f"no SC answers at {sc.address}")
    thread.stop()


def test_given_a_closed_client_then_calls_say_so(served: Served) -> None:
    cluster = runnel.connect(served.sc.address)
    cluster.close()
    cluster.close()
    with pytest.raises(runnel.InvalidRequestError, match="closed; open another"):
        cluster.list("topics")


def test_given_a_call_that_the_end_of_the_loop_overtakes_then_it_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thread = LoopThread("ends")

    def late(_callback: object) -> None:
        monkeypatch.undo()
        thread.stop()

    async def answer() -> int:
        return 1

    monkeypatch.setattr(thread.loop, "call_soon_threadsafe", late)
    told: list[str] = []

    def call() -> None:
        with pytest.raises(runnel.InvalidRequestError) as raised:
            thread.call(answer())
        told.append(str(raised.value))

    caller = threading.Thread(target=call, daemon=True)
    caller.start()
    caller.join(20)
    assert told == ["the client was closed by another thread"]


def test_poll_next_and_timeout(served: Served) -> None:
    with runnel.connect(served.sc.address) as cluster:
        cluster.apply(runnel.Topic("polled"))
        with (
            cluster.producer("polled") as producer,
            cluster.consumer("polled", "earliest", timeout=0.1) as consumer,
        ):
            assert consumer.poll(0) is None
            assert next(consumer, None) is None
            began = monotonic()
            assert consumer.poll(0.3) is None
            assert 0.29 < monotonic() - began < 20
            for value in (b"1", b"2", b"3", b"4"):
                producer.send(value)
            producer.flush()
            assert next(consumer).value == b"1"
            polled = consumer.poll(20)
            assert polled is not None
            assert polled.value == b"2"
            assert [record.value for record in consumer] == [b"3", b"4"]
            assert not consumer.exhausted
            assert list(consumer.batches()) == []
            with pytest.raises(InvalidRequestError, match="timeout is -1"):
                consumer.poll(-1)
        with cluster.consumer("polled", stop="latest", tail=2) as last:
            assert [record.value for record in last] == [b"3", b"4"]
            assert last.poll() is None
            assert last.exhausted
        table = cluster.read("polled", ["value"], last=1)
        assert table["value"].to_pylist() == [b"4"]
        assert cluster.read("polled", stop=timedelta(hours=1)).num_rows == 0
        assert cluster.read("polled", start=timedelta(hours=1)).num_rows == 4


def test_seek_pause_and_resume(served: Served) -> None:
    with runnel.connect(served.sc.address) as cluster:
        cluster.apply(runnel.Topic("sought"))
        with cluster.producer("sought") as producer:
            for number in range(5):
                producer.send(b"%d" % number)
        with cluster.consumer("sought", "earliest", timeout=0.2) as consumer:
            found = []
            for record in consumer:
                found.append(record.value)
                if len(found) == 3:
                    consumer.seek("earliest")
            assert found == [b"0", b"1", b"2", b"0", b"1", b"2", b"3", b"4"]
            consumer.seek(timedelta(hours=1))
            assert next(consumer).value == b"0"
            consumer.pause()
            assert consumer.paused() == {0}
            assert list(consumer) == []
            consumer.resume([0])
            assert [record.value for record in consumer] == [b"1", b"2", b"3", b"4"]


def test_given_a_loop_over_a_group_that_was_left_then_the_end_of_its_block_counts_what_was_in_hand(
    served: Served,
) -> None:
    with runnel.connect(served.sc.address) as cluster:
        cluster.apply(runnel.Topic("orders"))
        with cluster.producer("orders") as producer:
            producer.send(b"v")
        with cluster.reader_group("g", topics=["orders"]) as group:
            for _ in group.reader("a"):
                break
            gc.collect()
        with cluster.reader_group("g") as again:
            assert again.describe().readers == ()
            with again.reader("b") as other:
                assert other.poll(0.2) is None


def test_given_a_callback_that_would_wait_for_room_then_it_raises(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """The thread that calls it is the one that makes room."""
    threads: list[str] = []
    with runnel.connect(served.sc.address) as cluster:
        cluster.apply(runnel.Topic("full"))
        with cluster.producer("full", buffer_bytes=100, linger_ms=0) as producer:

            def called(_error: object, _metadata: object) -> None:
                threads.append(threading.current_thread().name)
                for _ in range(3):
                    producer.send(bytes(80))

            producer.send(bytes(80), on_delivery=called)
            producer.flush()
    assert threads == [f"runnel {served.sc.address}"]
    assert "the limit is 100" in caplog.text


def test_given_a_name_then_reading_goes_on_where_it_was(served: Served) -> None:
    def interrupted(cluster: runnel.Cluster) -> None:
        with cluster.consumer("orders", name="billing") as consumer:
            for record in consumer:
                if record.value == b"2":
                    raise KeyboardInterrupt

    by_hand = runnel.ConsumerSettings(auto_commit_ms=None)
    with runnel.connect(served.sc.address) as cluster:
        cluster.apply(runnel.Topic("orders"))
        with cluster.producer("orders") as producer:
            for value in range(6):
                producer.send(b"%d" % value)
        with pytest.raises(KeyboardInterrupt):
            interrupted(cluster)
        consumer = cluster.consumer("orders", name="billing", settings=by_hand)
        assert (consumer.name, next(iter(consumer)).value) == ("billing", b"2")
        consumer.commit()
        consumer.close()
        with cluster.consumer("orders", name="billing") as again:
            assert next(iter(again)).value == b"3"
            again.commit({0: 5})
            again.close(commit=False)
        # Nobody closes these but the cluster; the first is fenced by the second.
        for _ in range(2):
            assert next(iter(cluster.consumer("orders", name="billing"))).value == b"5"
    with runnel.connect(served.sc.address) as cluster:
        (found,) = cluster.consumers("billing")
        assert (found.open, found.lag) == (False, 0)
        assert cluster.reset_consumer("billing", "orders", "earliest").offsets == {0: 0}
        assert cluster.delete_consumer("billing") == ("orders",)
