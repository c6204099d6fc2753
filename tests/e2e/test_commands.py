"""Commands against a running cluster: what they print, and every failure with its exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.e2e.conftest import Command, Refusals

pytestmark = pytest.mark.wheel


def manifest(name: str, spec: str = "{}", kind: str = "Topic", version: str = "runnel/v1") -> str:
    return f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: {spec}\n"


BAD_MANIFESTS = {
    "given-unknown-kind-then-the-nearest-is-named": (
        manifest("t", kind="Topik"),
        ["<stdin>:2: kind: unknown kind 'Topik'; did you mean Topic?"],
    ),
    "given-unknown-field-then-line-and-nearest-are-named": (
        manifest("t", "{partitons: 3}"),
        ["<stdin>:4: spec.partitons: unknown field; did you mean partitions?"],
    ),
    "given-unknown-version-then-the-known-one-is-named": (
        manifest("t", version="runnel/v9"),
        ["<stdin>:1: apiVersion: unknown version 'runnel/v9'", "runnel/v1"],
    ),
    "given-wrong-type-then-both-types-are-named": (
        manifest("t", "{partitions: many}"),
        ["<stdin>:4: spec.partitions: must be a whole number, not the text 'many'"],
    ),
    "given-no-partitions-then-the-least-is-named": (
        manifest("t", "{partitions: 0}"),
        ["<stdin>:4: spec.partitions: must be at least 1"],
    ),
    "given-bad-name-then-the-rule-is-named": (
        manifest("'a/b'"),
        ["<stdin>:3: metadata.name: 'a/b' is not a valid name", "A-Z a-z 0-9 . _ -"],
    ),
    "given-the-same-name-twice-then-both-places-are-named": (
        manifest("t") + "---\n" + manifest("t"),
        ["<stdin>:6: Topic t appears twice; the first is at <stdin>:1"],
    ),
    "given-an-empty-file-then-it-says-so": ("", ["<stdin>:1: only blanks and comments"]),
    "given-broken-yaml-then-the-line-is-named": ("kind: [Topic\n", ["<stdin>:2: not valid YAML"]),
    "given-two-mistakes-then-both-are-reported": (
        manifest("t", "{partitions: 0, compresion: lz4}"),
        ["spec.partitions", "spec.compresion: unknown field; did you mean compression?"],
    ),
}


@pytest.mark.parametrize(("text", "expected"), BAD_MANIFESTS.values(), ids=BAD_MANIFESTS)
def test_bad_manifest(refused: Refusals, text: str, expected: list[str]) -> None:
    said = refused("apply", "-f", "-", stdin=text, code=2)
    for part in expected:
        assert part in said


def test_one_bad_document_keeps_all_others_out(cluster: Command, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(manifest("half-done"))
    (tmp_path / "b.yaml").write_text(manifest("bad", "{partitions: -1}"))
    said = cluster.fails("apply", "-f", str(tmp_path), code=2)
    assert f"{tmp_path}/b.yaml:4: spec.partitions" in said
    assert "half-done" not in cluster("get", "topics", "-o", "name")


REFUSED = {
    "given-tls-then-it-is-never-plaintext": (
        manifest("s", "{spuId: 900, publicEndpoint: {encryption: TLS}}", "Spu"),
        1,
        "TLS is not available in this version",
    ),
    "given-a-load-to-follow-and-no-target-then-the-field-is-named": (
        manifest("s", "{scaling: {type: eventsPerSecond}}", "Stream"),
        2,
        "spec.scaling: type eventsPerSecond needs a targetRate",
    ),
    "given-a-partition-then-its-topic-is-named": (
        manifest(
            "p",
            "{owner: {kind: Topic, name: t, uid: u}, replicas: [0], preferredLeader: 0}",
            "Partition",
        ),
        2,
        "partitions are written by the system",
    ),
    "given-a-taken-spu-id-then-the-holder-is-named": (
        manifest("other", "{spuId: 0}", "Spu"),
        4,
        "spuId 0 belongs to SPU spu-0",
    ),
    "given-an-spu-twice-in-a-row-then-the-line-of-the-row-is-named": (
        manifest("t", "\n  assignment:\n  - {id: 0, replicas: [0]}\n  - {id: 1, replicas: [0, 0]}"),
        2,
        "<stdin>:7: spec.assignment[1].replicas: row 1 has 2 replicas, row 0 has 1",
    ),
    "given-a-reserved-name-then-it-says-so": (manifest("_mine"), 2, "names that begin with _"),
}


@pytest.mark.parametrize(("text", "code", "expected"), REFUSED.values(), ids=REFUSED)
def test_refused_object(refused: Refusals, text: str, code: int, expected: str) -> None:
    assert expected in refused("apply", "-f", "-", stdin=text, code=code)


def test_what_may_not_take_effect_is_accepted_with_a_warning(cluster: Command) -> None:
    text = manifest("warned", "{retention: {size: 1Mi}, assignment: [{0: [77]}]}")
    done = cluster.run("apply", "-f", "-", stdin=text)
    assert (done.returncode, done.stdout.decode()) == (0, "topic/warned created\n")
    small, missing = done.stderr.decode().splitlines()
    assert small.startswith("warning: <stdin>:4: spec.retention.size: 1Mi is less than a segment")
    assert missing == (
        "warning: <stdin>:4: spec.assignment[0].replicas: row 0: SPU 77 is not registered; the"
        " topic waits for it"
    )
    cluster("delete", "topic", "warned")


def test_get_yaml_applied_again_is_a_no_op(cluster: Command) -> None:
    cluster("create", "topic", "noop", "--partitions", "2", "--compression", "lz4")
    text = cluster("get", "topics", "noop", "-o", "yaml")
    assert cluster("apply", "-f", "-", stdin=text) == "topic/noop unchanged\n"
    assert json.loads(cluster("get", "topic", "noop", "-o", "json"))["spec"]["compression"] == "lz4"
    changed = text.replace("compression: lz4", "compression: zstd")
    assert cluster("apply", "-f", "-", stdin=changed) == "topic/noop configured\n"


def test_given_what_get_prints_then_apply_and_delete_take_it(cluster: Command) -> None:
    text = "---\n".join(manifest(name) for name in ("piped-a", "piped-b"))
    cluster("apply", "--wait", "-f", "-", stdin=text)
    cluster("create", "topic", "piped-c", "--label", "team=a", "--label", "tier=")
    found = cluster("get", "topics", "-l", "team=a,tier=", "-o", "name")
    assert found == "topics/piped-c\n"
    everything = cluster("get", "topics", "-o", "json")
    assert "topic/piped-a unchanged\n" in cluster("apply", "-f", "-", stdin=everything)
    assert {t["status"]["resolution"] for t in json.loads(everything)["items"]} == {"provisioned"}
    names = [name for name in cluster("get", "topics", "-o", "name").split() if "/piped-" in name]
    assert cluster("delete", *names[:2]).splitlines() == [
        "topic/piped-a deleted",
        "topic/piped-b deleted",
    ]
    assert cluster("delete", "topics", "piped-c") == "topic/piped-c deleted\n"


MISSING = {
    "consume": ("consume", "nope", "--no-follow"),
    "produce": ("produce", "nope"),
    "get": ("get", "topic", "nope"),
    "describe": ("describe", "topic", "nope"),
    "delete": ("delete", "topic", "nope"),
    "wait": ("wait", "topic", "nope", "--for", "provisioned"),
}


@pytest.mark.parametrize("arguments", MISSING.values(), ids=MISSING)
def test_missing_topic_is_exit_code_3(refused: Refusals, arguments: tuple[str, ...]) -> None:
    assert "nope" in refused(*arguments, stdin="x\n", code=3)


WRONG = {
    "unknown-kind": (("get", "topcs"), "unknown kind 'topcs'; did you mean topics?"),
    "unknown-command": (("aply",), "No such command"),
    "bad-address": (("get", "topics", "--sc", "http://x"), "HOST:PORT"),
    "bad-resolution": (("wait", "topic", "t", "--for", "done"), "no resolution of topics"),
    "two-starts": (("consume", "t", "--from-beginning", "--tail", "1"), "give one of"),
    "bad-time": (("consume", "t", "--at", "yesterday"), "is not a time"),
    "bad-end": (("consume", "t", "--until", "tomorrow"), "--until: 'tomorrow' is not a time"),
    "bad-timeout": (("consume", "t", "--timeout", "soon"), "--timeout: "),
    "two-keys": (
        ("produce", "t", "--key-separator", ":", "--key-field", "k"),
        "not both",
    ),
    "bad-retention": (("create", "topic", "t", "--retention-time", "7x"), "is not a duration"),
}


@pytest.mark.parametrize(("arguments", "expected"), WRONG.values(), ids=WRONG)
def test_wrong_usage_is_exit_code_2(
    refused: Refusals, arguments: tuple[str, ...], expected: str
) -> None:
    assert expected in refused(*arguments, code=2)


def test_create_twice_is_exit_code_4(cluster: Command) -> None:
    cluster("create", "topic", "twice")
    assert "Topic twice exists" in cluster.fails("create", "topic", "twice", code=4)


def test_sc_not_reachable_is_exit_code_5(cluster: Command) -> None:
    said = cluster.fails("get", "topics", "--sc", "127.0.0.1:1", code=5)
    assert "no SC answers at 127.0.0.1:1" in said
    assert "runnel cluster status" in said


def test_wait_times_out_with_exit_code_5_and_says_what_is(cluster: Command) -> None:
    missing = "replicationFactor 3 needs 3 online SPUs; 2 of 2 registered are online"
    lonely = ("create", "topic", "lonely", "--replication-factor", "3")
    said = cluster.fails(*lonely, "--timeout", "3s", code=5)
    assert f"is not provisioned after 3 s; it is insufficientResources: {missing}" in said
    said = cluster.fails(
        "wait", "topic", "lonely", "--for", "provisioned", "--timeout", "1s", code=5
    )
    assert missing in said
    cluster("delete", "topic", "lonely")


def test_record_over_the_limit_is_refused_and_the_rest_is_not_lost(
    cluster: Command, tmp_path: Path
) -> None:
    cluster("create", "topic", "small", "--max-record-size", "1Ki")
    (tmp_path / "big.txt").write_text("fits\n" + "x" * 2_000 + "\n")
    said = cluster.fails("produce", "small", "--file", str(tmp_path / "big.txt"), code=2)
    assert "1Ki" in said or "1024" in said
    assert "0 records acknowledged before the error" in said
    assert "of the rows from 0 on: row 1 " in said
    done = cluster.run("produce", "small", stdin="one\ntwo\n" + "x" * 2_000 + "\nfour\n")
    assert done.returncode == 2
    before, why = done.stderr.decode().splitlines()
    assert before == "2 records acknowledged before the error"
    assert why.startswith("error: <stdin>:3: ")
    assert cluster("consume", "small", "--from-beginning", "--no-follow") == "one\ntwo\n"


def test_records_of_a_replicated_topic_lie_on_every_replica(cluster: Command) -> None:
    cluster("create", "topic", "twins", "--replication-factor", "2", "--min-in-sync-replicas", "2")
    # Waits until the second replica is live: before that nothing would be committed.
    assert "produced 3 records" in cluster("produce", "twins", stdin="a\nb\nc\n")
    assert cluster("consume", "twins", "--from-beginning", "--no-follow") == "a\nb\nc\n"
    told = cluster("describe", "partition", "twins-0")
    replicas = told[told.index("\nReplicas:") :].splitlines()[3:5]
    assert sorted(line.split()[1] for line in replicas) == ["leader", "live"]
    sizes = set()
    for path in (cluster.home / "local" / "spus").glob("*/partitions/*/meta.json"):
        if json.loads(path.read_text())["name"] == "twins-0":
            sizes.add(sum(log.stat().st_size for log in path.parent.glob("*.log")))
    assert len(sizes) == 1


@pytest.mark.parametrize("suffix", ["ndjson", "csv", "parquet", "arrow"])
def test_rows_of_files_become_json_objects(cluster: Command, tmp_path: Path, suffix: str) -> None:
    rows = [{"id": i, "city": f"city {i % 3}"} for i in range(50)]
    path = tmp_path / f"rows.{suffix}"
    table = pa.Table.from_pylist(rows)
    match suffix:
        case "ndjson":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        case "csv":
            path.write_text("id,city\n" + "".join(f"{r['id']},{r['city']}\n" for r in rows))
        case "parquet":
            pa.parquet.write_table(table, path)
        case "arrow":
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)
    topic = f"rows-{suffix}"
    cluster("create", "topic", topic, "--partitions", "2")
    said = cluster("produce", topic, "--file", str(path), "--key-field", "city")
    assert "produced 50 records" in said
    lines = cluster("consume", topic, "--from-beginning", "--no-follow", "-o", "json").splitlines()
    records = [json.loads(line) for line in lines]
    values = sorted((json.loads(r["value"]) for r in records), key=lambda row: int(row["id"]))
    assert values == rows
    assert all(r["key"] == json.loads(r["value"])["city"] for r in records)


BAD_FILES = {
    "given-no-such-file-then-exit-3": ("missing.txt", None, (), 3, "no such file"),
    "given-no-separator-in-line-2-then-the-line-is-named": (
        "lines.txt", "a:1\nb\n", ("--key-separator", ":"), 2, "lines.txt:2: no key separator",
    ),
    "given-broken-json-then-the-line-is-named": (
        "rows.ndjson", '{"k": 1}\n{"k": \n', ("--key-field", "k"), 2, "rows.ndjson:2: not JSON",
    ),
    "given-no-such-column-then-the-columns-are-named": (
        "rows.csv", "a,b\n1,2\n", ("--key-field", "c"), 2, "its columns: a, b",
    ),
    "given-a-broken-parquet-then-it-says-so": (
        "rows.parquet", "no parquet", (), 2, "cannot be read as parquet",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def files(cluster: Command) -> str:
    cluster("create", "topic", "files")
    return "files"


@pytest.mark.parametrize(
    ("name", "content", "options", "code", "expected"), BAD_FILES.values(), ids=BAD_FILES
)
def test_bad_file(
    refused: Refusals,
    files: str,
    tmp_path: Path,
    name: str,
    content: str | None,
    options: tuple[str, ...],
    code: int,
    expected: str,
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    said = refused("produce", files, "--file", str(tmp_path / name), *options, code=code)
    assert expected in said


@pytest.mark.long
def test_tail_offset_partition_and_count(cluster: Command) -> None:
    cluster("create", "topic", "cut", "--partitions", "3")
    cluster("produce", "cut", stdin="".join(f"k{i % 5}:{i}\n" for i in range(100)))
    everything = cluster("consume", "cut", "--from-beginning", "--no-follow").splitlines()
    assert len(everything) == 100
    tail = cluster("consume", "cut", "--tail", "3", "--no-follow").splitlines()
    assert len(tail) == 3
    assert len(cluster("consume", "cut", "--from-beginning", "-n", "7").splitlines()) == 7
    by_partition = [
        cluster("consume", "cut", "--offset", "0", "--partition", p, "--no-follow").splitlines()
        for p in ("0", "1", "2")
    ]
    assert sorted(line for lines in by_partition for line in lines) == sorted(everything)
    two = cluster("consume", "cut", "-B", "-p", "0", "-p", "2", "--no-follow").splitlines()
    assert sorted(two) == sorted(by_partition[0] + by_partition[2])
    assert cluster("consume", "cut", "--at", "-1h", "--no-follow").count("\n") == 100
    assert cluster("consume", "cut", "--no-follow") == ""
    assert cluster("consume", "cut", "-B", "--until", "-1h") == ""
    assert cluster("consume", "cut", "-B", "--until", "2999-01-01").count("\n") == 100
    assert cluster("consume", "cut", "--tail", "3", "--until", "2999-01-01").splitlines() == tail
    assert cluster("consume", "cut", "-B", "--timeout", "3s").count("\n") == 100
    assert cluster("consume", "cut", "--tail", "3", "--timeout", "500ms").splitlines() == tail
    assert "partitions 0 to 2" in cluster.fails("consume", "cut", "--partition", "3", code=2)


def test_describe_shows_offsets_and_delete_removes(cluster: Command) -> None:
    cluster("create", "topic", "shown")
    cluster("produce", "shown", stdin="1\n2\n")
    said = cluster("describe", "topic", "shown")
    assert "resolution: provisioned" in said
    assert "EARLIEST" in said
    assert cluster("delete", "topic", "shown") == "topic/shown deleted\n"
    assert "shown" not in cluster("get", "partitions", "-o", "name")
    cluster("create", "topic", "shown")
    assert cluster("consume", "shown", "--from-beginning", "--no-follow") == ""


def test_growing_a_topic_adds_partitions_and_shrinking_is_refused(cluster: Command) -> None:
    cluster("create", "topic", "grow", "--partitions", "2")
    cluster("apply", "-f", "-", stdin=manifest("grow", "{partitions: 4}"))
    cluster("wait", "partition", "grow-3", "--for", "online")
    said = cluster.fails("apply", "-f", "-", stdin=manifest("grow", "{partitions: 1}"), code=2)
    assert "cannot shrink from 4 to 1" in said


def test_spu_that_holds_replicas_is_not_deleted(cluster: Command) -> None:
    spu = "{apiVersion: runnel/v1, kind: Spu, metadata: {name: edge}, spec: {spuId: 99}}"
    cluster("apply", "-f", "-", stdin=spu)
    rows = "spec: {assignment: [{id: 0, replicas: [99]}]}"
    held = f"{{apiVersion: runnel/v1, kind: Topic, metadata: {{name: on-edge}}, {rows}}}"
    cluster("apply", "-f", "-", stdin=held)
    cluster("wait", "topic", "on-edge", "--for", "provisioned")
    said = cluster.fails("delete", "spu", "edge", code=4)
    assert "holds replicas of on-edge-0" in said
    cluster("delete", "topic", "on-edge")
    cluster("delete", "spu", "edge")
