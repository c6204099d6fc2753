"""``runnel stream`` and the commands for objects, as users call them."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import Command


@pytest.fixture(scope="module")
def stream(cluster: Command) -> str:
    assert cluster("create", "scope", "shop") == "scope/shop created\n"
    made = cluster("create", "stream", "shop/orders", "--segments", "2", "-r", "2", "--tag", "a")
    assert made == "stream/shop/orders created\n"
    return "shop/orders"


@pytest.mark.long
def test_given_a_stream_then_its_life(cluster: Command, stream: str) -> None:
    assert cluster.json("get", "stream", stream)["status"] == {
        "observedGeneration": 1,
        "state": "active",
        "currentEpoch": 0,
        "segments": 2,
    }
    done = cluster("stream", "scale", stream, "--segments", "4")
    assert done.startswith("stream shop/orders scaled from 2 to 4 segments in epoch 1\n")
    assert cluster("stream", "scale", stream, "--segments", "4") == (
        "stream shop/orders unchanged: 4 segments\n"
    )
    merged = cluster("stream", "scale", stream, "--merge", "1.2", "--merge", "1.3")
    assert "scaled from 4 to 3 segments in epoch 2" in merged
    cluster("stream", "scale", stream, "--split", "1.4", "--parts", "3")
    rows = [row.split()[:3] for row in cluster("stream", "segments", stream).splitlines()[1:]]
    assert rows[0] == ["2.6", "0", "0.5"]
    assert [row[0] for row in rows] == ["2.6", "3.7", "3.8", "3.9", "1.5"]
    older = cluster("stream", "segments", stream, "--epoch", "0")
    assert [row.split()[0] for row in older.splitlines()[1:]] == ["0.0", "0.1"]
    one = cluster("stream", "segment", stream, "1.4")
    assert "Successors:    3.7, 3.8, 3.9\n" in one
    assert "Predecessors:  0.1\n" in one
    events = cluster("stream", "epochs", stream).splitlines()[1:]
    assert [row.split()[::2] for row in events] == [
        ["0", "0", "creation"], ["1", "2", "request"], ["2", "0", "request"], ["3", "1", "request"],
    ]  # fmt: skip
    described = cluster("describe", "stream", stream)
    assert "epoch 2  |               6               |       4       |       5       |" in described
    assert f"{stream} " in cluster("get", "streams")
    assert cluster("get", "streams", "--scope", "shop", "--tag", "a", "-o", "name") == (
        f"streams/{stream}\n"
    )
    assert cluster("get", "streams", "--tag", "other", "-o", "name") == ""
    assert "choose streams" in cluster.fails("get", "topics", "--tag", "a", code=2)
    assert "only a sealed one can be deleted" in cluster.fails("delete", "stream", stream, code=4)
    assert "add --yes to confirm" in cluster.fails("stream", "seal", stream, code=2)
    assert cluster("stream", "seal", stream, "--yes") == "stream shop/orders sealed\n"
    assert cluster("wait", "stream", stream, "--for", "sealed") == "stream/shop/orders sealed\n"
    refused = cluster.fails("stream", "scale", stream, "--segments", "2", code=4)
    assert "is sealed: it takes no more requests" in refused
    assert "none waits" in cluster("cluster", "check")
    assert "active" in cluster("describe", "scope", "shop")
    cluster("delete", "stream", stream)
    cluster("wait", "stream", stream, "--for", "deleted")
    assert "scope/shop deleted" in cluster("delete", "scope", "shop")


def test_given_a_manifest_then_more_segments_are_made(cluster: Command) -> None:
    text = (
        "apiVersion: runnel/v1\nkind: Stream\nmetadata: {name: clicks}\n"
        "spec: {scaling: {minSegments: %d}}\n"
    )
    applied = cluster("apply", "-f", "-", "--wait", stdin=text % 1)
    assert applied == "stream/default/clicks created\n"
    assert cluster("apply", "-f", "-", stdin=text % 1) == "stream/default/clicks unchanged\n"
    assert "configured" in cluster("apply", "-f", "-", "--wait", stdin=text % 3)
    cluster("wait", "stream", "clicks", "--for", "active")
    cluster("stream", "scale", "clicks", "--segments", "5")
    few = cluster.fails("stream", "scale", "clicks", "--segments", "2", code=2)
    assert "--segments: 2 segments would be left, fewer than spec.scaling.minSegments (3)" in few


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("stream", "scale", "nope", "--segments", "2"), 3, "'default/nope' does not exist"),
        (("stream", "segments", "a/b/c"), 2, "'a/b/c' is not SCOPE/NAME"),
        (("stream", "scale", "nope"), 2, "give one of --segments, --split and --merge"),
        (("create", "stream", "none/s"), 3, "runnel create scope none"),
        (("create", "stream", "s", "--segments", "0"), 2, "spec.scaling.minSegments"),
        (("delete", "scope", "default"), 4, "always exists"),
    ],
)
def test_given_what_cannot_be_then_said(
    cluster: Command, arguments: tuple[str, ...], code: int, text: str
) -> None:
    cluster("create", "stream", "s", "--dry-run")
    assert text in cluster.fails(*arguments, code=code)


def test_given_records_then_each_key_is_read_in_order_across_scales(cluster: Command) -> None:
    cluster("create", "stream", "keyed", "--segments", "2")
    lines = "".join(f"k{i % 7}\t{i}\n" for i in range(700))
    cuts: list[str] = []
    for begin, segments in ((0, "5"), (350, "3")):
        cuts.append(cluster("stream", "cut", "keyed"))
        part = "".join(lines.splitlines(True)[begin : begin + 350])
        out = cluster("produce", "--stream", "keyed", "--key-separator", "\\t", stdin=part)
        assert out.startswith("produced 350 records to keyed")
        cluster("stream", "scale", "keyed", "--segments", segments)
    read = cluster("consume", "default/keyed", "-B", "--no-follow", "--format", "%k\\t%v\\n")
    found = read.splitlines(True)
    assert sorted(found) == sorted(lines.splitlines(True))
    for key in range(7):
        mine = [line for line in found if line.startswith(f"k{key}\t")]
        assert mine == [line for line in lines.splitlines(True) if line.startswith(f"k{key}\t")]
    assert cluster("consume", "default/keyed", "-B", "-n", "3").count("\n") == 3
    head = cluster("stream", "cut", "keyed", "--at", "head")
    assert cluster("consume", "default/keyed", "--from-cut", head, "--until-cut", cuts[0]) == ""
    between = ("--from-cut", cuts[0], "--until-cut", cuts[1], "--format", "%k\\t%v\\n")
    first = cluster("consume", "default/keyed", *between).splitlines(True)
    assert sorted(first) == sorted(lines.splitlines(True)[:350])
    (cluster.home / "cut").write_text(cuts[1])
    saved = ("--from-cut", f"@{cluster.home / 'cut'}", "--no-follow")
    assert cluster("consume", "default/keyed", *saved).count("\n") == 350
    assert "stop lies before start" in cluster.fails(
        "consume", "default/keyed", "--from-cut", cuts[1], "--until-cut", cuts[0], code=2
    )
    assert "add --stream" in cluster.fails("consume", "keyed", "--until-cut", cuts[0], code=2)
    assert "--tail: not for a stream" in cluster.fails(
        "consume", "default/keyed", "--tail", "3", code=2
    )
    assert "add --yes" in cluster.fails("stream", "truncate", "keyed", "--all", code=2)
    assert "--before and --all" in cluster.fails("stream", "truncate", "keyed", code=2)
    cut = cluster("stream", "truncate", "keyed", "--before", cuts[1], "--yes")
    assert cut.startswith(
        "stream default/keyed truncated; it begins with 1.2 at 1, 1.3 at 1, 1.4 at"
    )
    assert cluster("stream", "cut", "keyed", "--at", "head") == cuts[1]
    assert cluster("consume", "default/keyed", "-B", "--no-follow").count("\n") == 350
    assert "begins behind the cut already" in cluster.fails(
        "stream", "truncate", "keyed", "--before", cuts[0], "--yes", code=4
    )
    lost = cluster.fails("consume", "default/keyed", "--from-cut", head, "--no-follow", code=1)
    assert "were removed by a truncation; read from the beginning" in lost
    rest = ("--from-cut", head, "--no-follow", "--on-truncated", "earliest")
    assert cluster("consume", "default/keyed", *rest).count("\n") == 350
    cluster("stream", "seal", "keyed", "--yes")
    assert cluster("consume", "default/keyed", "-B").count("\n") == 350, "it ends with its stream"
    refused = cluster.fails("produce", "default/keyed", stdin="x\n", code=1)
    assert "stream default/keyed is sealed: it takes no more records" in refused
    missing = cluster.fails("produce", "default/none", stdin="x\n", code=3)
    assert "does not exist" in missing
    assert "add --stream" in cluster.fails("produce", "keyed", stdin="x\n", code=3)
