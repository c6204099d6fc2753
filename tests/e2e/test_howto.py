"""The commands and the Python of ``docs/howto`` run as they are shown, on the shared cluster.

A page gets what it speaks of first: its topics, its files. What such a cluster cannot run is listed
in `ELSEWHERE`; `tests/architecture/test_howto.py` at least parses it.
"""

from __future__ import annotations

import dataclasses
import http.client
import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
import yaml

import runnel as library
from schemas.objects.topic import Topic
from spu.config import SpuConfig
from tests.architecture.howto import PAGES, Shown, until_a_shell_takes_over
from tests.e2e.conftest import SQLITE_ALONE, Command, Refusals
from tests.ports import free_base_port, free_ports

#: Which commands a cluster of this machine alone does not run as they are shown, and what does.
ELSEWHERE = {
    r"runnel cluster start": "tests/e2e/test_migrate.py, with etcd",
    r"runnel cluster restart": "tests/e2e/test_moves.py: others use this cluster",
    r"runnel cluster migrate": "tests/e2e/test_migrate.py, with etcd",
    r"runnel .*--dir ": "tests/e2e/test_inspect.py, where SPUs are stopped",
    r"runnel get .*-w\b": "tests/e2e/test_objects.py: it follows until a signal",
    r"runnel cluster (restore|backup .*--from)": "tests/e2e/test_backup.py: others use it",
    r"runnel cluster stop": "tests/e2e/test_cluster.py: it ends the cluster that others use",
    r"runnel apply -f host-": "tests/chaos/machines/test_three_hosts.py, on hosts",
    r"runnel --install-completion": "tests/unit/runnel/cli/test_completion.py",
    r"runnel spu secret": "tests/integration/sc/test_spu_secrets.py",
    r"runnel archive run --every": "tests/chaos/archive/test_kills.py: it goes on until a signal",
}
#: What must be so before a command, and what is added to it so that it ends.
BEFORE = {"runnel wait topic orders --for deleted": "runnel delete topic orders"}
ADDED = {
    r"runnel consume .*--group": ("--timeout", "1s"),
    r"runnel consume (?!.*--no-follow)": ("--no-follow",),
    r"runnel partition elect": ("--yes",),
    r"runnel (topic|stream) seal|runnel stream truncate": ("--yes",),
}
#: Exit codes other than 0: an unclean election is refused while a live replica is online.
CODES = {
    r"runnel diff": (0, 1),
    r"runnel partition elect": (4,),
    r"runnel produce orders --file orders.csv": (2,),
    r"runnel apply -f orders.yaml": (2,),
}
#: What pages call their topics.
TOPICS = ("orders", "payments", "changes", "clicks", "visits", "readings")
ORDERS = {"apiVersion": "runnel/v1", "kind": "Topic", "metadata": {"name": "orders"}}


@dataclasses.dataclass
class Order:
    """The dataclass of the page on typed topics."""

    orderId: int  # noqa: N815 - as the column is called
    amount: Decimal | None
    at: datetime
    tags: list[str] | None


class Reader:
    """Follows a page on a cluster, in a directory of its own."""

    def __init__(self, name: str, refused: Refusals, cluster: library.Cluster) -> None:
        (self.page,) = (page for page in PAGES if page.name == name)
        self.refused = refused
        self.cluster = cluster

    def topic(self, name: str, **spec: Any) -> None:
        """A new topic of this name, whatever there was."""
        self.gone(name)
        self.cluster.apply(library.Topic(name, **spec))
        self.until_online(name)

    def gone(self, name: str) -> None:
        """Delete a topic, if there is one of this name."""
        if any(topic.name == name for topic in self.cluster.list("topics")):
            self.cluster.delete("topic", name)
            self.cluster.wait("topic", name, "deleted")

    def until_online(self, name: str) -> None:
        """Wait until records can be sent to all partitions of a topic."""
        self.cluster.wait("topic", name, "provisioned")
        for index in range(self.cluster.topic(name).partition_count):
            self.cluster.wait("partition", f"{name}-{index}", "online")

    def run(self, shown: Shown) -> str:
        """What a shown command prints on both streams."""
        text = str(shown)
        if before := BEFORE.get(text):
            self._run(tuple(before.split()), (0,))
        added = next((more for start, more in ADDED.items() if re.match(start, text)), ())
        codes = next((codes for start, codes in CODES.items() if re.match(start, text)), (0,))
        return self._run((*shown.words, *added), codes)

    def _run(self, words: tuple[str, ...], codes: tuple[int, ...]) -> str:
        code, out, err = self.refused.run(*words[1:])
        assert code in codes, f"{' '.join(words)}: {code}\n{out}\n{err}"
        return out + err

    def follow(self) -> int:
        """Run all commands of the page that can run here; gives how many."""
        shown = [c for c in self.page.commands if not runs_elsewhere(c)]
        for command in shown:
            self.run(command)
        return len(shown)


def runs_elsewhere(shown: Shown) -> bool:
    return any(re.match(start, f"{shown} ") for start in ELSEWHERE) or "…" in str(shown)


@pytest.fixture
def reader(
    cluster: Command, refused: Refusals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], Reader]]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RUNNEL_HOME", str(cluster.home))
    monkeypatch.setenv("EDITOR", "true")
    cluster.directory = tmp_path
    with library.connect(cluster.sc) as connected:
        yield lambda name: Reader(name, refused, connected)
        # Other tests name theirs as pages do, too.
        for name in TOPICS:
            Reader("objects", refused, connected).gone(name)
    cluster.directory = None


def test_every_page_is_followed_or_has_no_commands() -> None:
    followed = {
        "archive", "backup", "coming-from-kafka", "contexts", "dashboard", "edge-spu",
        "elastic-streams", "inspect-a-log", "named-consumers", "objects",
        "pipelines", "ports", "read-records", "reader-groups", "spu-groups", "streams", "systemd",
        "transaction-ids",
        "trouble", "typed-topics", "upgrades",
    }  # fmt: skip
    others = {"move-replicas", "more-machines", "three-hosts", "hosts", "etcd", "install"}
    assert {page.name for page in PAGES if page.commands} <= followed | others


def test_every_exception_is_needed() -> None:
    commands = [f"{command} " for page in PAGES for command in page.commands]
    for start in (*ELSEWHERE, *BEFORE, *ADDED, *CODES):
        assert any(re.match(start, command) for command in commands), start


def test_working_with_several_clusters(reader: Callable[[str], Reader], cluster: Command) -> None:
    page = reader("contexts")
    (before,) = (one for one in cluster.json("context", "list")["items"] if one["current"])
    assert (before["name"], before["dataDir"]) == ("local", str(cluster.home / "local"))
    for shown in page.page.commands:
        # Both names of the page mean the one cluster there is.
        words = tuple(word.replace("sc.example:9003", cluster.sc or "") for word in shown.words)
        printed = page.run(Shown(words))
        if shown.words[2] == "list":
            heading, first, second = printed.splitlines()
            assert heading.split() == ["CURRENT", "NAME", "SC", "DATA", "DIRECTORY"]
            assert (first.split()[:2], second.split()) == (
                ["*", "local"],
                ["prod", cluster.sc, "-"],
            )
        assert "decides which cluster" not in printed
    assert cluster.json("context", "list")["items"] == [before]


def test_backing_up_and_recovering(
    reader: Callable[[str], Reader], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = reader("backup")
    page.topic("orders", partitions=2)
    page.topic("orders-copy", partitions=1)
    page.gone("visits")
    page.cluster.apply(library.Topic("visits", schema={"customer": "int64"}))
    page.until_online("visits")
    rows = [(b"ada", b"tea"), (b"bob", b"cake, and more"), (b"cy", "ü".encode())]
    with page.cluster.producer("orders") as producer:
        for key, value in rows:
            producer.send(value, key=key)
    written = 0
    for shown in page.page.commands:
        if runs_elsewhere(shown):
            continue
        if ">" not in shown.words:
            page.run(shown)
            continue
        command, file = shown.words[: shown.words.index(">")], shown.words[-1]
        (tmp_path / file).write_text(page.run(Shown(command)))
        written += 1
        if file == "topics.yaml":
            # What the file says is there again after a mistake.
            page.gone("orders")
            page.run(Shown(("runnel", "apply", "-f", file)))
            page.until_online("orders")
            with page.cluster.producer("orders") as producer:
                for key, value in rows:
                    producer.send(value, key=key)
    assert written == 3
    copies = page.cluster.consumer("orders-copy", start="earliest", stop="latest")
    assert sorted((record.key, record.value) for record in copies) == rows
    page.gone("orders-copy")
    (text,) = page.page.python
    exec(text, {"cluster": page.cluster})  # noqa: S102 - the page's own words
    assert (tmp_path / "orders.parquet").stat().st_size > 0


@SQLITE_ALONE
def test_keeping_old_records_in_an_archive(reader: Callable[[str], Reader], tmp_path: Path) -> None:
    page = reader("archive")
    page.gone("orders")
    (manifest,) = page.page.yaml
    (tmp_path / "cold.yaml").write_text(manifest.replace("/mnt/archive", str(tmp_path / "a")))
    for shown in page.page.commands:
        if runs_elsewhere(shown):
            continue
        printed = page.run(shown)
        if "apply" in shown.words:
            page.until_online("orders")
            with page.cluster.producer("orders") as producer:
                producer.send(b"tea", key=b"ada").result()
        if "--all" in shown.words:
            assert "archived 1 record in 1 file" in printed
        if "list" in shown.words:
            assert str(tmp_path / "a" / "topic=orders") in printed
    (text,) = page.page.python
    found: dict[str, Any] = {}
    exec(text, found)  # noqa: S102 - the page's own words
    assert found["table"]["value"].to_pylist() == [b"tea"]


def test_an_edge_spu_keeps_its_topic(reader: Callable[[str], Reader], tmp_path: Path) -> None:
    page = reader("edge-spu")
    configuration, manifest = page.page.yaml
    assert SpuConfig.model_validate(yaml.safe_load(configuration)).spu_id == 7
    page.gone("readings")
    (tmp_path / "readings.yaml").write_text(manifest.replace("[7]", "[0]"))
    assert page.follow() == 3
    assert page.cluster.topic("readings").partition_count == 1


@pytest.mark.parametrize("name", ["ports", "upgrades"])
def test_looking_at_a_cluster_before_and_after(reader: Callable[[str], Reader], name: str) -> None:
    page = reader(name)
    page.topic("orders", partitions=1)
    assert page.follow() >= 1


@SQLITE_ALONE
def test_inspecting_a_log(reader: Callable[[str], Reader]) -> None:
    page = reader("inspect-a-log")
    for name in ("orders", "payments"):
        page.topic(name, partitions=1, replication_factor=2)
        with page.cluster.producer(name) as producer:
            producer.send(b"tea", key=b"ada").result()
    assert page.follow() >= 5


def test_looking_at_objects_and_changing_them(
    reader: Callable[[str], Reader], tmp_path: Path
) -> None:
    page = reader("objects")
    page.topic("orders", partitions=1)
    labelled = {**ORDERS, "metadata": {"name": "orders", "labels": {"team": "a"}}}
    (tmp_path / "topics.yaml").write_text(json.dumps({**labelled, "spec": {"partitions": 2}}))
    public = {"ingress": [{"hostname": "localhost"}], "port": 9}
    spec = {"spuId": 7, "spuType": "custom", "publicEndpoint": public}
    page.cluster.apply(
        {"apiVersion": "runnel/v1", "kind": "Spu", "metadata": {"name": "edge-7"}, "spec": spec}
    )
    assert page.follow() >= 14

    page.topic("orders", partitions=1)
    (text,) = page.page.python
    # The watch of the page goes on until somebody stops it.
    exec(text + "\n        break\n")  # noqa: S102 - the page's own words


@SQLITE_ALONE
@pytest.mark.long
def test_the_dashboard_answers_as_the_page_starts_it(
    reader: Callable[[str], Reader], cluster: Command
) -> None:
    for shown in reader("dashboard").page.commands:
        (port,) = free_ports(1)
        process = cluster.start(*shown.words[1:], "--port", str(port), stderr=subprocess.DEVNULL)
        named = "status.example.org" in shown.words
        try:
            assert until_answered(port, "127.0.0.1") == 200
            assert (until_answered(port, "status.example.org") == 200) is named
        finally:
            process.terminate()
            assert process.wait(30) == 0


def until_answered(port: int, host: str) -> int:
    """The status with which a server answers for ``/``, once it listens."""
    deadline = time.monotonic() + 30
    while True:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            connection.request("GET", "/", headers={"Host": f"{host}:{port}"})
            return connection.getresponse().status
        except ConnectionRefusedError:
            assert time.monotonic() < deadline, "it does not listen"
            time.sleep(0.1)
        finally:
            connection.close()


@SQLITE_ALONE
def test_named_consumers(reader: Callable[[str], Reader]) -> None:
    page = reader("named-consumers")
    page.topic("orders", partitions=3)
    with page.cluster.producer("orders") as producer:
        for number in range(300):
            producer.send(b"tea", key=str(number).encode())
    charged: list[library.Record] = []
    stored: list[pa.RecordBatch] = []
    names = {"cluster": page.cluster, "charge": charged.append, "store": stored.append}
    for text in page.page.python:
        # The consumer of the page waits for more.
        exec(text.replace('name="billing"', 'name="billing", stop="latest"'), names)  # noqa: S102
    assert len(charged) == 300
    assert stored == []
    page.follow()


@SQLITE_ALONE
def test_reader_groups(reader: Callable[[str], Reader], cluster: Command, tmp_path: Path) -> None:
    page = reader("reader-groups")
    page.topic("orders", partitions=3)
    with page.cluster.producer("orders") as producer:
        for number in range(30):
            producer.send(b"tea", key=str(number).encode())
    charged: list[library.Record] = []

    class Ending:
        """The runnel of the page, whose reader waits for more."""

        @staticmethod
        def connect() -> library.Cluster:
            return library.connect(cluster.sc)

    class EnoughError(Exception):
        """Ends the loop of the page."""

    def charge(record: library.Record) -> None:
        charged.append(record)
        if len(charged) == 30:
            raise EnoughError

    (text,) = page.page.python
    with pytest.raises(EnoughError):
        exec(text, {"runnel": Ending, "charge": charge})  # noqa: S102
    for shown in page.page.commands:
        words = tuple(until_a_shell_takes_over(shown.words))
        printed = page.run(Shown(words))
        if ">" in shown.words:
            (tmp_path / shown.words[-1]).write_text(printed)
    page.cluster.reader_group("billing").delete()


def test_shared_states(reader: Callable[[str], Reader], cluster: Command) -> None:
    page = reader("shared-states")
    names: dict[str, Any] = {"runnel": library}
    first, *others = page.page.python
    settings = page.cluster.state("settings")
    settings.delete()
    exec(first.replace("runnel.connect()", f"runnel.connect({cluster.sc!r})"), names)  # noqa: S102
    for text in others:
        exec(text, names)  # noqa: S102
    assert names["mine"]
    assert settings.read() == {
        "rate": 100, "regions": {"eu": True, "us": True}, "runs": 1, "leader": "host-7",
    }  # fmt: skip
    settings.delete()


@SQLITE_ALONE
@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(300)
def test_pipelines(reader: Callable[[str], Reader], cluster: Command, tmp_path: Path) -> None:
    page = reader("pipelines")
    page.topic("orders", partitions=2)
    page.gone("large-orders")
    with page.cluster.producer("orders") as producer:
        for amount in range(0, 200, 10):
            producer.send(b'{"amount": %d}' % amount, key=str(amount).encode())
    (manifest,) = page.page.yaml
    here = manifest.replace("/var/lib/pipelines", str(tmp_path))
    assert here != manifest
    (tmp_path / "large-orders.yaml").write_text(here)
    for shown in page.page.commands:
        if shown.words[1:3] != ("pipeline", "run"):
            page.run(shown)
            continue
        # A process of its own: Spark stays in one for good.
        assert "done: 20 rows in, 9 out" in cluster(*shown.words[1:]).splitlines()[-1]
    results = page.cluster.consumer("large-orders", start="earliest", stop="latest")
    assert sorted(int(record.key or b"") for record in results) == list(range(110, 200, 10))
    (text,) = page.page.python
    made: dict[str, Any] = {}
    exec(text, made)  # noqa: S102 - the page's own words
    assert callable(made["late"])
    page.cluster.delete("pipeline", "large-orders")
    page.gone("large-orders")


@SQLITE_ALONE
def test_reading_records(
    reader: Callable[[str], Reader], capsys: pytest.CaptureFixture[str]
) -> None:
    page = reader("read-records")
    page.topic("orders", partitions=2)
    page.topic("clicks")
    with page.cluster.producer("orders") as producer:
        for number in range(20):
            producer.send(b"tea", key=str(number).encode())
    assert page.follow() == 3
    names: dict[str, Any] = {"cluster": page.cluster}
    for text in page.page.python:
        exec(text, names)  # noqa: S102 - the page's own words
    assert {record.partition for record in names["others"]} == {1}
    assert re.search(r"^[01] \d+$", capsys.readouterr().out, re.MULTILINE)


def test_streams(reader: Callable[[str], Reader], tmp_path: Path) -> None:
    page = reader("streams")
    (tmp_path / "orders.tsv").write_text("ada\ttea\nbob\tcake\n")
    written, placed, spark = page.page.python
    assert "spark.read" in spark
    (manifest,) = page.page.yaml
    names: dict[str, Any] = {"cluster": page.cluster, "runnel": library}
    for shown in page.page.commands:
        if "cut" in shown.words:
            kept = Shown(tuple(until_a_shell_takes_over(shown.words)))
            (tmp_path / "before.cut").write_text(page.run(kept))
            continue
        printed = page.run(shown)
        if "consume" not in shown.words:
            continue
        assert sorted(printed.splitlines()) == ["cake", "tea"]
        if "--from-cut" in shown.words:
            exec(placed, names)  # noqa: S102 - the page's own words
            assert names["first"] is not None
            assert len(names["rest"]) == 4
            assert names["before"].to_pydict()["value"] == [names["first"].value]
        else:
            exec(written, names)  # noqa: S102 - the page's own words
            assert sorted(names["values"]) == [b"cake", b"tea", b"tea"]
            page.cluster.apply(yaml.safe_load(manifest))
            page.cluster.wait("stream", "shop/returns", "active")
            page.cluster.stream("shop/returns").seal()
            page.cluster.delete("stream", "shop/returns")
            page.cluster.wait("stream", "shop/returns", "deleted")


def test_elastic_streams(reader: Callable[[str], Reader], tmp_path: Path) -> None:
    page = reader("elastic-streams")
    for name, manifest in zip(("clicks", "visits"), page.page.yaml, strict=True):
        (tmp_path / f"{name}.yaml").write_text(manifest)
    printed = [page.run(shown) for shown in page.page.commands]
    assert printed[2].split()[-1] == "creation"
    assert printed[-1].startswith("shop/visits@")
    for name in ("shop/clicks", "shop/visits"):
        page.cluster.stream(name).seal()
        page.cluster.delete("stream", name)
        page.cluster.wait("stream", name, "deleted")
    page.cluster.delete("scope", "shop")


@SQLITE_ALONE
def test_transaction_ids(reader: Callable[[str], Reader], tmp_path: Path) -> None:
    page = reader("transaction-ids")
    page.topic("changes", partitions=1)
    table = pa.table({"key": [b"a", b"b"], "value": [b"1", b"2"], "lsn": [4711, 4712]})
    send, read, spark = page.page.python
    assert "spark.read" in spark
    with page.cluster.producer("changes") as producer:
        names = {"producer": producer, "change": b"1", "row": b"a", "table": table}
        exec(send, names)  # noqa: S102 - the page's own words
    found = {"cluster": page.cluster, "runnel": library}
    exec(read.replace("4711)", '4711), stop="latest"'), found)  # noqa: S102 - the same
    rows = [{"key": "c", "value": "3", "lsn": 4713}]
    (tmp_path / "changes.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert page.follow() >= 2


def test_daemons_under_systemd(reader: Callable[[str], Reader]) -> None:
    assert reader("systemd").follow() == 1


@SQLITE_ALONE
@pytest.mark.long
def test_trouble(reader: Callable[[str], Reader]) -> None:
    page = reader("trouble")
    page.topic("orders", partitions=1)
    assert page.follow() >= 2


@SQLITE_ALONE
def test_typed_topics_print_what_the_page_shows(
    reader: Callable[[str], Reader], tmp_path: Path
) -> None:
    page = reader("typed-topics")
    (manifest,) = page.page.yaml
    declare, send, write, read = page.page.python
    page.gone("orders")
    page.gone("clicks")
    page.gone("visits")
    frame = pd.DataFrame({"orderId": [1], "kind": pd.Categorical(["new"])})
    made: dict[str, Any] = {"cluster": page.cluster, "runnel": library, "frame": frame}
    exec(declare, made)  # noqa: S102 - the page's own words
    exec(write, made)  # noqa: S102 - the same
    assert (made["written"].records, made["written"].created) == (1, True)
    clicks = page.cluster.get("topic", "clicks")
    assert isinstance(clicks, Topic)
    assert [c.nullable for c in clicks.spec.columns or ()] == [False, False, True, True]
    page.gone("orders")
    (tmp_path / "right.yaml").write_text(manifest)
    page.run(Shown(("runnel", "apply", "-f", "right.yaml")))
    page.until_online("orders")
    good = "1,9.90,2026-01-31T12:00:00Z,\n"
    rows = [good, "2,1.234,2026-01-31T12:00:00Z,\n", *[good] * 3, "x,1,2026-01-31T12:00:00Z,\n"]
    (tmp_path / "orders.csv").write_text("orderId,amount,at,tags\n" + "".join(rows))
    wrong = manifest.replace('"decimal(12, 2)"', "float64")
    (tmp_path / "orders.yaml").write_text(wrong)
    for shown in page.page.commands:
        assert page.run(shown).splitlines() == list(shown.printed), str(shown)

    table = {"orderId": [3], "amount": [Decimal("1.10")], "at": [datetime.now().astimezone()]}
    names: dict[str, Any] = {"cluster": page.cluster, "Order": Order, "table": table}
    exec(send, names)  # noqa: S102 - the page's own words
    exec(read, names)  # noqa: S102 - the same
    assert sorted(names["table"]["orderId"].to_pylist()) == [1, 2, 3]


@pytest.mark.long
def test_groups_of_spus(reader: Callable[[str], Reader], tmp_path: Path) -> None:
    page = reader("spu-groups")
    group, _ = page.page.yaml
    base = free_base_port(tmp_path, 4)
    text = group.replace("9310", str(base)).replace("9311", str(base + 1))
    assert text != group
    (tmp_path / "rack-a.yaml").write_text(text)
    try:
        page.follow()
        page.cluster.wait("spu", "rack-a-10", "online")
    finally:
        page.cluster.delete("spugroup", "rack-a")
        page.cluster.wait("spugroup", "rack-a", "deleted")
