"""``cluster check``: what each finding is called, and the exit code of all together."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import runnel
from runnel.cli.cluster import examination
from runnel.cli.cluster.examination import (
    Result,
    check_disk,
    check_online,
    check_partitions,
    check_proven,
    check_recovery,
    check_stored,
    check_topics,
)
from runnel.loop_thread import LoopThread
from schemas.objects.metadata import Object
from schemas.objects.partition import Partition
from schemas.objects.spu import Spu, SpuType
from schemas.objects.topic import Topic
from tests.unit.runnel.cli.conftest import CommandLine
from tests.unit.runnel.fake_sc import CLUSTER_UID, WHY_NO_OFFICE, FakeSc
from tests.unit.runnel.fake_spu import FakeSpu

SPU_ID = 1


def registered(
    sc: FakeSc, port: int, *, spu_id: int = SPU_ID, state: str = "online", **storage: Any
) -> Spu:
    obj = runnel.Spu(
        "edge", spu_id, storage=storage,
        public_endpoint={"port": port, "ingress": [{"ip": "127.0.0.1"}]},
    )  # fmt: skip
    stored = sc.change(sc._store(obj.with_status(_status(obj, state))))
    assert isinstance(stored, Spu)
    return stored


def _status(obj: Object, state: str, reason: str | None = None, **more: Any) -> Any:
    status: dict[str, Any] = {**obj.status.to_json(), "resolution": state, "reason": reason, **more}
    return type(obj.status).model_validate(status)


def looks(command: CommandLine) -> dict[str, tuple[str, str]]:
    done = command("cluster", "check", "-o", "json")
    data = json.loads(done.out)
    found = {row["check"]: (row["result"], row["detail"]) for row in data["checks"]}
    assert data["result"] == max(
        (r for r, _ in found.values()), key=["ok", "warning", "failed"].index
    )
    assert done.code == (1 if data["result"] == "failed" else 0)
    return found


def test_given_all_is_well_then_ok(command: CommandLine, sc: FakeSc, spu: FakeSpu) -> None:
    registered(sc, spu.port)
    sc.add_topic("orders")
    found = looks(command)
    assert {result for result, _ in found.values()} == {"ok"}
    assert found[f"sc {sc.address}"][1] == f"cluster test, version 0.1.0, KV at {sc._revision}"
    assert found["endpoint edge"][1] == f"SPU {SPU_ID} answers at 127.0.0.1:{spu.port}"
    table = command("cluster", "check")
    assert table.code == 0
    assert table.out.splitlines()[0].split() == ["CHECK", "RESULT", "DETAIL"]


def test_given_nobody_at_the_advertised_address_then_failed(
    command: CommandLine, sc: FakeSc
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        registered(sc, taken.getsockname()[1])
        result, detail = looks(command)["endpoint edge"]
    assert result == "failed"
    assert "no SPU answers at 127.0.0.1" in detail
    assert "change spec.publicEndpoint: runnel edit spu edge" in detail


def test_given_a_managed_spu_that_is_away_then_its_group_and_its_log_are_named(
    command: CommandLine, sc: FakeSc
) -> None:
    away = runnel.Spu("edge-1", 1, public_endpoint={"port": 1, "ingress": [{"ip": "127.0.0.1"}]})
    spec = away.spec.model_copy(update={"group": "edge", "spu_type": SpuType.MANAGED})
    away = away.model_copy(update={"spec": spec})
    sc.change(sc._store(away.with_status(_status(away, "offline"))))
    found = looks(command)
    assert found["spu edge-1"][1] == (
        "offline; its SC keeps its process running; see: runnel cluster logs edge-1"
    )
    assert "runnel edit spugroup edge" in found["endpoint edge-1"][1]


def test_given_somebody_silent_there_then_failed(
    command: CommandLine, sc: FakeSc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examination, "PATIENCE_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        registered(sc, silent.getsockname()[1])
        result, detail = looks(command)["endpoint edge"]
    assert (result, "did not answer within 0.5 s" in detail) == ("failed", True)


def test_given_another_spu_there_then_failed(
    command: CommandLine, sc: FakeSc, spu: FakeSpu
) -> None:
    registered(sc, spu.port, spu_id=8)
    result, detail = looks(command)["endpoint edge"]
    assert result == "failed"
    assert f"SPU {SPU_ID} answers at 127.0.0.1:{spu.port}, not SPU 8" in detail


UIDS = {
    "given-another-cluster-then-failed": ("other", "failed", "an SPU of another cluster (other)"),
    "given-no-cluster-yet-then-a-warning": ("", "warning", "has not joined a cluster yet"),
}


@pytest.mark.parametrize(("uid", "result", "said"), UIDS.values(), ids=UIDS)
def test_cluster_of_the_spu(
    command: CommandLine, sc: FakeSc, spu: FakeSpu, uid: str, result: str, said: str
) -> None:
    spu.cluster_uid = uid
    registered(sc, spu.port)
    found = looks(command)["endpoint edge"]
    assert found[0] == result
    assert said in found[1]


def test_given_an_sc_of_another_version_or_not_ready_then_a_warning(
    command: CommandLine, sc: FakeSc, spu: FakeSpu
) -> None:
    registered(sc, spu.port)
    sc.version = "9.9.9"
    result, detail = looks(command)[f"sc {sc.address}"]
    assert (result, "version 9.9.9" in detail) == ("warning", True)
    sc.ready = False
    assert "looking at every object" in looks(command)[f"sc {sc.address}"][1]


def test_given_no_sc_leads_then_failed(command: CommandLine, sc: FakeSc, spu: FakeSpu) -> None:
    registered(sc, spu.port)
    sc.leads = False
    found = looks(command)
    assert found[f"sc {sc.address}"][0] == "warning"
    result, said = found["leader"]
    assert (result, WHY_NO_OFFICE in said) == ("failed", True)
    assert found["endpoint edge"][0] == "ok"


def test_given_no_sc_has_led_yet_then_it_counts_as_answering(
    command: CommandLine, sc: FakeSc
) -> None:
    sc.led = False
    done = command("cluster", "check")
    assert (done.code, "no SC has led this cluster yet" in done.out) == (1, True)


def test_given_a_standby_without_an_answer_of_the_leader_then_the_leader_is_believed(
    command: CommandLine, sc: FakeSc
) -> None:
    """The standby does not know which SPUs are turned away."""
    thread, standby = LoopThread("standby"), FakeSc()
    standby.leads = False
    thread.call(standby.start())
    sc.divergent = [{"spu": 3, "why": "it has seen more", "incarnation": 5}]
    done = command("cluster", "check", "--sc", f"{standby.address},{sc.address}", "-o", "json")
    thread.call(standby.stop())
    thread.stop()
    found = {row["check"]: row["result"] for row in json.loads(done.out)["checks"]}
    assert found["recovery from SPU 3"] == "failed"
    assert "leader" not in found


def test_given_a_standby_whose_leader_does_not_answer_then_it_counts_as_answering(
    command: CommandLine, sc: FakeSc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examination, "PATIENCE_S", 0.5)
    sc.passes_on_for_s = 5.0
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        leader = f"127.0.0.1:{frozen.getsockname()[1]}"
        done = command("cluster", "check", "--sc", f"{sc.address},{leader}")
    assert done.code == 1
    assert "it answers, but the SC that leads has not within 0.5 s" in done.out


def test_given_no_sc_then_exit_code_5(command: CommandLine) -> None:
    done = command("cluster", "check", "--sc", "127.0.0.1:1")
    assert done.code == 5
    assert "no SC answers at 127.0.0.1:1" in done.out
    assert "failed" in done.out


def test_given_one_of_two_scs_then_the_other_failed_and_the_rest_is_checked(
    command: CommandLine, sc: FakeSc, spu: FakeSpu
) -> None:
    registered(sc, spu.port)
    done = command("cluster", "check", "--sc", f"127.0.0.1:1,{sc.address}")
    assert done.code == 1
    assert "endpoint edge" in done.out


def test_given_scs_of_two_clusters_then_failed(command: CommandLine, sc: FakeSc) -> None:
    thread = LoopThread("another SC")
    other = FakeSc()
    other.cluster_uid = "other"
    thread.call(other.start())
    try:
        done = command("cluster", "check", "--sc", f"{sc.address},{other.address}")
    finally:
        thread.call(other.stop())
        thread.stop()
    assert done.code == 1
    assert "the SCs belong to different clusters" in done.out


STATES = {
    "online": Result.OK, "draining": Result.WARNING, "unknown": Result.WARNING,
    "offline": Result.FAILED, "init": Result.FAILED,
}  # fmt: skip


@pytest.mark.parametrize(("state", "result"), STATES.items(), ids=STATES)
def test_spus(state: str, result: Result) -> None:
    spu = runnel.Spu("edge", 1)
    reason = None if state == "online" else "heartbeats missed"
    (found,) = check_online([spu.with_status(_status(spu, state, reason))])
    assert found.result is result
    assert found.detail.startswith(state if reason is None else f"{state}: {reason}")


def test_given_replicas_of_no_partition_then_a_warning_says_how_many() -> None:
    spu, why = runnel.Spu("edge", 1), "keeps 3 replicas that belong to no partition: a, b, c"
    (found,) = check_online([spu.with_status(_status(spu, "online", why))])
    assert (found.result, found.detail) == (Result.WARNING, f"online: {why}")


def test_given_recovery_then_a_warning() -> None:
    assert [c.result for c in check_recovery({"recovering": True})] == [Result.WARNING]
    assert check_recovery({"recovering": False}) == check_recovery({}) == []


def test_given_spu_that_only_an_operator_may_believe_then_failed_with_what_to_do() -> None:
    divergent = [{"spu": 3, "why": "SPU 3 has seen incarnation 7", "incarnation": 8}]
    (found,) = check_recovery({"recovering": False, "divergent": divergent})
    assert (found.check, found.result) == ("recovery from SPU 3", Result.FAILED)
    assert "SPU 3 has seen incarnation 7" in found.detail
    assert "runnel cluster recover --spu 3" in found.detail


def test_given_spu_that_has_not_proven_itself_then_a_warning_with_what_to_do() -> None:
    spus = [runnel.Spu(f"edge-{i}", i) for i in (1, 2)]
    assert check_proven(spus, {"unproven": [9]}) == check_proven(spus, {}) == []
    (found,) = check_proven(spus, {"unproven": [2]})
    assert (found.check, found.result) == ("secrets", Result.WARNING)
    assert "runnel spu secret edge-2" in found.detail


def test_given_a_stored_object_that_does_not_parse_then_failed_with_its_key() -> None:
    key = "/runnel/local/objects/topics/bad"
    (found,) = check_stored({"unreadable": [{"key": key, "why": "it does not parse"}]}, [])
    assert (found.check, found.result) == (f"stored {key}", Result.FAILED)
    assert "restore this key of the KV from a backup, or delete it" in found.detail


def test_given_two_spus_of_one_id_then_failed_with_their_names() -> None:
    spus = [runnel.Spu("edge", 1), runnel.Spu("other", 2), runnel.Spu("again", 1)]
    (found,) = check_stored({}, spus)
    assert (found.check, found.result) == ("spuId 1", Result.FAILED)
    assert "belongs to 2 objects: again, edge" in found.detail
    assert check_stored({"unreadable": []}, spus[:2]) == []


def test_given_leader_elected_uncleanly_then_a_warning_until_the_next_election() -> None:
    def led(index: int, **status: int) -> Partition:
        found = partition(f"a-{index}", "online")
        return found.with_status(found.status.model_copy(update=status))

    found = check_partitions([led(0, term=7 << 16, unclean_term=7 << 16)])
    assert [(c.check, c.result) for c in found] == [("elections", Result.WARNING)]
    assert found[0].detail == "1 leader elected uncleanly, records may be lost: a-0"
    later = check_partitions([led(0, term=8 << 16, unclean_term=7 << 16)])
    assert [c.result for c in later] == [Result.OK]


def test_given_no_spus_then_failed() -> None:
    assert [(c.check, c.result) for c in check_online([])] == [("spus", Result.FAILED)]


def topic(name: str, state: str, reason: str | None = None) -> Topic:
    obj = runnel.Topic(name)
    return obj.with_status(_status(obj, state, reason))


class Findings(NamedTuple):
    checks: list[tuple[str, Result]]
    said: str


TOPICS: dict[str, tuple[list[Topic], Findings]] = {
    "given-none-then-ok": ([], Findings([("topics", Result.OK)], "0 topics")),
    "given-placed-and-deleting-then-ok": (
        [topic("a", "provisioned"), topic("b", "deleting")],
        Findings([("topics", Result.OK)], "2 topics"),
    ),
    "given-one-that-is-not-placed-then-its-reason": (
        [topic("a", "insufficientResources", "needs 3 SPUs"), topic("b", "provisioned")],
        Findings([("topic a", Result.FAILED)], "insufficientResources: needs 3 SPUs"),
    ),
    "given-many-then-five-and-a-count": (
        [topic(f"t{n}", "pending") for n in range(9)],
        Findings(
            [*((f"topic t{n}", Result.FAILED) for n in range(5)), ("topics", Result.FAILED)],
            "4 more are not provisioned",
        ),
    ),
}


@pytest.mark.parametrize(("topics", "expected"), TOPICS.values(), ids=TOPICS)
def test_topics(topics: list[Topic], expected: Findings) -> None:
    found = check_topics(topics)
    assert [(c.check, c.result) for c in found] == expected.checks
    assert expected.said in found[-1].detail


def partition(name: str, state: str, live: int = 1, replicas: int = 1, least: int = 1) -> Partition:
    obj = Partition.model_validate(
        {
            "kind": "Partition",
            "metadata": {"name": name},
            "spec": {
                "owner": {"kind": "Topic", "name": "t", "uid": "u"},
                "replicas": list(range(replicas)),
                "preferredLeader": 0,
                "log": {"minInSyncReplicas": least},
            },
        }
    )
    lrs = [{"spuId": n, "storageId": "s"} for n in range(live)]
    return obj.with_status(_status(obj, state, "SPU 0 is offline", lrs=lrs))


PARTITIONS: dict[str, tuple[list[Partition], Findings]] = {
    "given-none-then-ok": ([], Findings([("partitions", Result.OK)], "0 partitions")),
    "given-led-and-sealed-then-ok": (
        [partition("a-0", "online"), partition("a-1", "sealed")],
        Findings([("partitions", Result.OK)], "2 partitions, all with a leader"),
    ),
    "given-no-leader-then-its-reason": (
        [partition("a-0", "offline"), partition("a-1", "online")],
        Findings([("partition a-0", Result.FAILED)], "has no leader: SPU 0 is offline"),
    ),
    "given-too-few-live-to-commit-then-failed": (
        [partition("a-0", "online", live=1, replicas=3, least=2)],
        Findings([("partition a-0", Result.FAILED)], "cannot commit: SPU 0 is offline"),
    ),
    "given-fewer-live-than-wanted-then-a-warning": (
        [partition("a-0", "online", live=2, replicas=3, least=2)],
        Findings(
            [("replicas", Result.WARNING), ("partition a-0", Result.WARNING)], "SPU 0 is offline"
        ),
    ),
    "given-many-then-five-and-a-count": (
        [partition(f"a-{n}", "offline") for n in range(7)],
        Findings(
            [(f"partition a-{n}", Result.FAILED) for n in range(5)]
            + [("partitions", Result.FAILED)],
            "2 more have no leader",
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("partitions", "expected"), PARTITIONS.values(), ids=PARTITIONS)
def test_partitions(partitions: list[Partition], expected: Findings) -> None:
    found = check_partitions(partitions)
    assert [(c.check, c.result) for c in found] == expected.checks
    assert expected.said in found[-1].detail


class Usage(NamedTuple):
    total: int
    free: int


DISKS = {
    "given-space-then-ok": (Usage(100 << 30, 50 << 30), Result.OK, "50.0 GiB of 100.0 GiB free"),
    "given-little-then-a-warning": (Usage(100 << 30, 1 << 29), Result.WARNING, "free space under"),
    "given-a-small-disk-then-its-share-counts": (
        Usage(4 << 30, 1 << 29),
        Result.OK,
        "512.0 MiB of 4.0 GiB free",
    ),
    "given-none-then-failed": (Usage(100 << 30, 1 << 20), Result.FAILED, "free space under"),
}


@pytest.mark.parametrize(("usage", "result", "said"), DISKS.values(), ids=DISKS)
def test_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, usage: Usage, result: Result, said: str
) -> None:
    identity = {"clusterUid": CLUSTER_UID, "spuId": SPU_ID}
    (tmp_path / "identity.json").write_text(json.dumps(identity))
    monkeypatch.setattr("psutil.disk_usage", lambda _path: usage)
    spu = runnel.Spu("edge", SPU_ID, storage={"log_dir": str(tmp_path)})
    assert isinstance(spu, Spu)
    found = check_disk(spu, CLUSTER_UID)
    assert found is not None
    assert (found.result, said in found.detail) == (result, True)


def test_given_an_spu_of_a_local_cluster_with_a_directory_of_its_own_then_it_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNNEL_HOME", str(tmp_path))
    place = tmp_path / "local" / "spus" / "elsewhere"
    place.mkdir(parents=True)
    identity = {"clusterUid": CLUSTER_UID, "spuId": SPU_ID}
    (place / "identity.json").write_text(json.dumps(identity))
    spu = runnel.Spu("third-60", SPU_ID, storage={"log_dir": "elsewhere"})
    assert isinstance(spu, Spu)
    found = check_disk(spu, CLUSTER_UID)
    assert found is not None
    assert found.check == "disk third-60"


@pytest.mark.parametrize(
    "identity",
    [
        pytest.param(None, id="given-no-identity"),
        pytest.param('{"clusterUid": "other", "spuId": 1}', id="given-another-cluster"),
        pytest.param(f'{{"clusterUid": "{CLUSTER_UID}", "spuId": 8}}', id="given-another-spu"),
        pytest.param("[]", id="given-no-mapping"),
        pytest.param("{", id="given-no-json"),
    ],
)
def test_a_directory_that_is_not_the_spus_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, identity: str | None
) -> None:
    monkeypatch.setenv("RUNNEL_HOME", str(tmp_path))
    if identity is not None:
        (tmp_path / "identity.json").write_text(identity)
    spu = runnel.Spu("edge", SPU_ID, storage={"log_dir": str(tmp_path)})
    assert isinstance(spu, Spu)
    assert check_disk(spu, CLUSTER_UID) is None
