"""Managed SPUs as processes: started, kept running, restarted by another spec, ended; never two.

Most tests run a stand-in for the SPU that starts in no time. It is told by a file to fail.
"""

from __future__ import annotations

import asyncio
import errno
import re
import threading
from collections.abc import Callable
from pathlib import Path

import aiohttp
import psutil
import pytest
import yaml

from sc.controllers.actions import EndSpu, ProvisionSpu
from sc.provisioning.local import LocalProvisioner
from sc.store.view import Provisioned
from schemas.daemon.process import ProcessId, is_alive, started_at, stop
from schemas.errors import UnreachableError
from spu.config import SpuConfig
from tests.integration.sc.provisioning.bench import CONTROLLER, NAME, Bench, spu_at
from tests.polling import eventually
from tests.ports import free_base_port


async def is_served(port: int) -> bool:
    try:
        async with (
            aiohttp.ClientSession() as http,
            http.get(f"http://127.0.0.1:{port}/health") as answer,
        ):
            return answer.status == 200
    except aiohttp.ClientError:
        return False


async def test_a_real_spu_is_started_again_when_it_is_killed_and_ended_for_good(
    bench: Bench, tmp_path: Path
) -> None:
    port = free_base_port(tmp_path, 1) + 10
    spu = spu_at(port)
    provisioner = bench.new()
    provisioner.carry_out(ProvisionSpu(spu))
    first = await bench.until_runs(spu)
    assert bench.state()["spuId"] == 1
    assert bench.state()["ports"] == {"public": port, "private": 9006, "http": port + 2}
    await eventually(lambda: is_served(port + 2))
    assert (bench.data / "identity.json").exists()

    psutil.Process(first.pid).kill()
    await bench.until_runs(spu, besides=first)
    await eventually(lambda: is_served(port + 2))
    # One end is no trouble.
    assert provisioner.provisioning.spus == {NAME: Provisioned(spu.spec)}
    assert bench.news == []

    await bench.end(provisioner)
    assert not await is_served(port + 2)
    assert list((bench.directory / "spus").iterdir()) == []
    assert '"stopping"' in (bench.directory / "logs" / f"{NAME}.log").read_text()


async def test_crash_loop_is_told_and_forgotten_when_its_cause_is_gone(
    bench: Bench, stand_in: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sc.provisioning.local.STEADY_S", 0.5)
    provisioner, spu = bench.new(), spu_at()
    stand_in(True)
    provisioner.carry_out(ProvisionSpu(spu))

    def trouble() -> str | None:
        return provisioner.provisioning.spus[NAME].trouble

    await eventually(lambda: trouble() is not None)
    assert re.fullmatch(
        r"its process ended (\d+) times in a row: exit code 3: cannot run: broken;"
        r" the next start is \d+\.\d s after the last end",
        trouble() or "",
    )
    assert provisioner.provisioning.spus[NAME].unable
    assert set(bench.news) == {NAME}
    stand_in(False)
    await bench.until_runs(spu)
    told = len(bench.news)
    await eventually(lambda: trouble() is None)
    assert bench.news[told:] == [NAME]
    assert provisioner.provisioning.spus == {NAME: Provisioned(spu.spec)}


async def test_given_it_cannot_be_started_then_the_reason_is_told_and_it_is_tried_again(
    bench: Bench, stand_in: Callable[[bool], None]
) -> None:
    provisioner, spu = bench.new(), spu_at()
    bench.directory.mkdir()
    (bench.directory / "logs").write_text("in the way")
    provisioner.carry_out(ProvisionSpu(spu))
    await eventually(lambda: provisioner.provisioning.spus[NAME].trouble is not None)
    assert ": it cannot be started: " in (provisioner.provisioning.spus[NAME].trouble or "")
    # The SC lacks something, not the SPU.
    assert not provisioner.provisioning.spus[NAME].unable
    (bench.directory / "logs").unlink()
    await bench.until_runs(spu)


@pytest.mark.usefixtures("stand_in")
async def test_given_no_descriptor_to_recognise_it_by_then_it_is_ended_and_started_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [OSError(errno.EMFILE, "too many open files")]

    def once_in_vain(pid: int) -> str:
        if found:
            raise found.pop()
        return started_at(pid)

    monkeypatch.setattr("sc.provisioning.local.started_at", once_in_vain)
    bench.new().carry_out(ProvisionSpu(spu := spu_at()))
    await bench.until_runs(spu)
    assert [process.poll() for process in bench.started] == [-9, None]


@pytest.mark.usefixtures("stand_in")
async def test_given_another_spec_then_restarted_and_given_the_same_then_left_alone(
    bench: Bench,
) -> None:
    provisioner, spu, other = bench.new(), spu_at(), spu_at(9105)
    provisioner.carry_out(ProvisionSpu(spu))
    first = await bench.until_runs(spu)
    provisioner.carry_out(ProvisionSpu(spu))
    provisioner.carry_out(ProvisionSpu(other))
    assert provisioner.provisioning.spus == {NAME: Provisioned(other.spec)}
    await bench.until_runs(other, besides=first)
    assert not is_alive(first)
    assert len(bench.started) == 2
    assert "port: 9105" in bench.config_file.read_text()


@pytest.mark.usefixtures("stand_in")
async def test_given_spec_then_configured_to_listen_where_its_object_says(bench: Bench) -> None:
    provisioner, spu = bench.new(), spu_at(9105, private=9205, catch_up_rate=20 << 20)
    provisioner.carry_out(ProvisionSpu(spu))
    await bench.until_runs(spu)
    config = yaml.safe_load(bench.config_file.read_text())
    listens = {name: config[name]["port"] for name in ("public", "private", "http")}
    assert listens == {"public": 9105, "private": 9205, "http": 9107}
    assert bench.state()["ports"] == listens
    assert SpuConfig.model_validate(config).catch_up_rate == 20 << 20
    assert config["controller"] == CONTROLLER


@pytest.mark.usefixtures("stand_in")
async def test_given_several_scs_then_an_spu_knows_all_of_them(bench: Bench) -> None:
    """The one that starts it may be gone before it has connected."""
    bench.controllers = ("127.0.0.1:9006", CONTROLLER)
    provisioner, spu = bench.new(), spu_at(9105)
    provisioner.carry_out(ProvisionSpu(spu))
    await bench.until_runs(spu)
    config = yaml.safe_load(bench.config_file.read_text())
    assert config["controller"] == [CONTROLLER, "127.0.0.1:9006"]
    assert len(SpuConfig.model_validate(config).controller) == 2


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize(
    ("inside", "stays"),
    [
        pytest.param("identity.json", False, id="given-no-replicas-ever-then-removed"),
        pytest.param("partitions", False, id="given-all-replicas-deleted-then-removed"),
        pytest.param("partitions/a-uid", True, id="given-a-replica-then-kept"),
    ],
)
async def test_the_directory_of_one_that_ended(bench: Bench, inside: str, stays: bool) -> None:
    provisioner, spu = bench.new(), spu_at()
    provisioner.carry_out(ProvisionSpu(spu))
    await bench.until_runs(spu)
    (bench.data / inside).mkdir(parents=True)
    await bench.end(provisioner)
    assert (bench.data / inside).exists() is stays
    assert bench.data.exists() is stays
    assert not bench.config_file.exists()
    assert not bench.state_file.exists()
    assert bench.running() == []
    assert bench.news == [NAME]


@pytest.mark.usefixtures("stand_in")
async def test_given_a_log_dir_then_used_and_never_removed(bench: Bench, tmp_path: Path) -> None:
    bench.allowed_dirs = [tmp_path / "disk"]
    provisioner, spu = bench.new(), spu_at(log_dir=str(tmp_path / "disk"))
    provisioner.carry_out(ProvisionSpu(spu))
    await bench.until_runs(spu)
    assert f"logDir: {tmp_path}/disk/{NAME}\n" in bench.config_file.read_text()
    await bench.end(provisioner)
    assert (tmp_path / "disk" / NAME / "secret").exists()


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize(
    "log_dir",
    [
        pytest.param("{outside}", id="given-an-absolute-one"),
        pytest.param("{inside}/../../outside", id="given-dots"),
        pytest.param("../../outside", id="given-a-relative-one"),
        pytest.param("{inside}/link", id="given-a-link"),
        pytest.param("a\0b", id="given-a-nul"),
    ],
)
async def test_given_a_log_dir_elsewhere_then_not_started_and_nothing_made(
    bench: Bench, tmp_path: Path, log_dir: str
) -> None:
    bench.directory.mkdir(exist_ok=True)
    (bench.directory / "link").symlink_to(tmp_path / "outside")
    inside, outside = bench.directory, tmp_path / "outside"
    spu = spu_at(log_dir=log_dir.format(inside=inside, outside=outside))
    provisioner = bench.new()
    provisioner.carry_out(ProvisionSpu(spu))
    await eventually(lambda: provisioner.provisioning.spus[NAME].trouble is not None)
    assert "storage.logDir" in str(provisioner.provisioning.spus[NAME].trouble)
    assert provisioner.provisioning.spus[NAME].unable
    assert bench.started == []
    assert not outside.exists()
    # It is wanted elsewhere now.
    provisioner.carry_out(ProvisionSpu(good := spu_at(log_dir="disk")))
    await bench.until_runs(good)
    assert f"logDir: {bench.directory}/spus/disk/{NAME}\n" in bench.config_file.read_text()


@pytest.mark.usefixtures("stand_in")
async def test_given_ended_twice_and_one_never_started_then_that_is_all(bench: Bench) -> None:
    provisioner, spu = bench.new(), spu_at()
    provisioner.carry_out(ProvisionSpu(spu))
    await bench.until_runs(spu)
    await bench.end(provisioner, NAME, NAME, "stranger")
    assert bench.news == [NAME]


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize("port", [9005, 9105], ids=["given-the-same-spec", "given-another-spec"])
async def test_wanted_again_while_it_ends_then_it_runs_after_that(bench: Bench, port: int) -> None:
    provisioner, spu, again = bench.new(), spu_at(), spu_at(port)
    provisioner.carry_out(ProvisionSpu(spu))
    first = await bench.until_runs(spu)
    provisioner.carry_out(EndSpu(NAME))
    provisioner.carry_out(ProvisionSpu(again))
    await bench.until_runs(again, besides=first)
    assert not is_alive(first)
    assert provisioner.provisioning.spus == {NAME: Provisioned(again.spec)}
    assert len(bench.started) == 2


@pytest.mark.usefixtures("stand_in")
async def test_ended_again_before_the_first_end_is_over_then_nothing_runs(bench: Bench) -> None:
    provisioner, spu = bench.new(), spu_at()
    provisioner.carry_out(ProvisionSpu(spu))
    await bench.until_runs(spu)
    provisioner.carry_out(EndSpu(NAME))
    provisioner.carry_out(ProvisionSpu(spu_at(9105)))
    await bench.end(provisioner)
    # What comes after it, and so after anything that might still be started.
    provisioner.carry_out(ProvisionSpu(spu))
    await bench.until_runs(spu)
    await bench.end(provisioner)
    assert len(bench.started) == 2


@pytest.mark.usefixtures("stand_in")
async def test_given_three_specs_in_a_row_then_the_last_runs_alone(bench: Bench) -> None:
    provisioner, specs = bench.new(), [spu_at(port) for port in (9005, 9105, 9205)]
    provisioner.carry_out(ProvisionSpu(specs[0]))
    first = await bench.until_runs(specs[0])
    provisioner.carry_out(ProvisionSpu(specs[1]))
    provisioner.carry_out(ProvisionSpu(specs[2]))
    await bench.until_runs(specs[2], besides=first)
    assert not is_alive(first)
    assert len(bench.started) == 2


async def test_given_trouble_and_another_spec_then_it_is_told_that_there_is_none_any_more(
    bench: Bench, stand_in: Callable[[bool], None]
) -> None:
    provisioner, spu, other = bench.new(), spu_at(), spu_at(9105)
    stand_in(True)
    provisioner.carry_out(ProvisionSpu(spu))
    await eventually(lambda: bool(bench.news))
    told = len(bench.news)
    provisioner.carry_out(ProvisionSpu(other))
    assert provisioner.provisioning.spus == {NAME: Provisioned(other.spec)}
    assert bench.news[told:] == [NAME]


async def test_given_a_directory_named_from_where_the_sc_runs_then_a_real_spu_finds_its_files(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    port = free_base_port(tmp_path, 1) + 10
    provisioner = LocalProvisioner(
        Path("cluster"), CONTROLLER, frozenset(), bench.news.append, bench, tuple, lambda: True
    )
    bench.provisioners.append(provisioner)
    provisioner.carry_out(ProvisionSpu(spu_at(port)))
    await eventually(lambda: is_served(port + 2))
    assert (bench.data / "identity.json").exists()
    second = await bench.next()
    assert NAME in second.provisioning.spus


@pytest.mark.usefixtures("stand_in")
async def test_given_an_sc_that_leads_no_more_then_it_neither_starts_nor_stops_an_spu(
    bench: Bench,
) -> None:
    """It was stopped, another one took over, and it goes on before it has noticed."""
    deposed, spu = bench.new(), spu_at()
    deposed.carry_out(ProvisionSpu(spu))
    first = await bench.until_runs(spu)
    bench.leads = False
    deposed.carry_out(EndSpu(NAME))
    await deposed.close()
    assert bench.process() == first
    bench.leads = True
    deposed = await bench.next()
    await eventually(lambda: deposed.provisioning.spus == {NAME: Provisioned(spu.spec)})
    bench.leads = False
    bench.started[0].kill()
    bench.started[0].wait()
    await asyncio.gather(*(m.task for m in deposed._managed.values() if m.task is not None))
    assert len(bench.started) == 1
    assert bench.state()["process"]["pid"] == first.pid


@pytest.mark.usefixtures("stand_in")
async def test_given_an_sc_that_takes_over_while_an_spu_is_stopped_then_both_may_stop_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one before removes no files then: its successor may have started the SPU again."""
    deposed, spu = bench.new(), spu_at()
    deposed.carry_out(ProvisionSpu(spu))
    await bench.until_runs(spu)
    begun, go_on = threading.Event(), threading.Event()

    def slowly(processes: list[ProcessId]) -> None:
        begun.set()
        go_on.wait(10)
        stop(processes)

    with monkeypatch.context() as patch:
        patch.setattr("sc.provisioning.local.stop", slowly)
        deposed.carry_out(EndSpu(NAME))
        await eventually(begun.is_set)
    bench.leads = False
    deposed.end()
    successor = LocalProvisioner(
        bench.directory,
        CONTROLLER,
        frozenset(),
        bench.news.append,
        bench,
        lambda: (),
        lambda: True,
    )
    bench.provisioners.append(successor)
    await successor.adopt()
    assert NAME in successor.provisioning.spus
    go_on.set()
    await deposed.close()
    assert bench.config_file.exists()
    await bench.end(successor)
    assert (bench.running(), bench.config_file.exists()) == ([], False)


@pytest.mark.usefixtures("stand_in")
async def test_given_a_process_that_cannot_be_killed_then_its_sc_goes_on_when_it_leads_no_more(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that waits in the kernel, for a disk, ends no earlier, whoever kills it."""
    deposed, spu = bench.new(), spu_at()
    deposed.carry_out(ProvisionSpu(spu))
    first = await bench.until_runs(spu)
    tried, said = list[list[ProcessId]](), list[str]()
    monkeypatch.setattr("sc.provisioning.local.stop", tried.append)
    monkeypatch.setattr("sc.provisioning.local.log.error", lambda text, **_: said.append(text))
    deposed.carry_out(EndSpu(NAME))
    try:
        await eventually(lambda: len(tried) > 1)
        assert not deposed._ending[NAME].done()
        bench.leads = False
        closing = asyncio.ensure_future(deposed.close())
        await eventually(closing.done)
    finally:
        if len(tried) < 2:
            # Or nobody would ever be done with it.
            bench.started[0].kill()
    assert set(said) == {"an SPU does not end, although it was killed"}
    bench.leads = True
    later = bench.new()
    await later.adopt()
    later.carry_out(ProvisionSpu(spu))
    assert bench.process() == first
    assert len(bench.started) == 1


@pytest.mark.usefixtures("stand_in")
async def test_given_a_secret_then_kept_as_long_as_the_sc_knows_it(bench: Bench) -> None:
    first, spu = bench.new(), spu_at()
    first.carry_out(ProvisionSpu(spu))
    process = await bench.until_runs(spu)
    file = bench.data / "secret"
    (made,) = bench.secrets[spu.spec.spu_id]
    assert (file.read_text().strip(), file.stat().st_mode & 0o777) == (made, 0o600)
    second = await bench.next()
    second.carry_out(ProvisionSpu(spu))
    await eventually(lambda: second.provisioning.spus == {NAME: Provisioned(spu.spec)})
    # A KV that was restored from a backup does not know it.
    bench.secrets.clear()
    await bench.next()
    await eventually(lambda: file.read_text().strip() in bench.secrets.get(spu.spec.spu_id, ()))
    assert bench.process() == process


@pytest.mark.usefixtures("stand_in")
async def test_given_no_secret_can_be_made_then_it_runs_all_the_same(bench: Bench) -> None:
    bench.no_secrets = UnreachableError("the KV does not answer")
    bench.new().carry_out(ProvisionSpu(spu_at()))
    await bench.until_runs(spu_at())
    assert not (bench.data / "secret").exists()


@pytest.mark.usefixtures("stand_in")
async def test_given_a_file_that_holds_no_text_then_it_runs_all_the_same(bench: Bench) -> None:
    bench.data.mkdir(parents=True)
    (bench.data / "secret").write_bytes(b"\xff" * 43)
    (bench.data / "secret").chmod(0o600)
    bench.new().carry_out(ProvisionSpu(spu_at()))
    await bench.until_runs(spu_at())


@pytest.mark.usefixtures("stand_in")
async def test_given_a_fault_of_the_sc_then_it_is_told_and_the_spu_is_looked_after_all_the_same(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_spu_id: int, _by: str) -> str:
        raise RuntimeError("a fault")

    provisioner, spu = bench.new(), spu_at()
    with monkeypatch.context() as patch:
        patch.setattr(bench, "issue", fail)
        provisioner.carry_out(ProvisionSpu(spu))
        await eventually(lambda: provisioner.provisioning.spus[NAME].trouble is not None)
    assert re.match(
        r"its supervision failed \d+ times in a row: internal error, see the SC's log:"
        r" RuntimeError\('a fault'\); ",
        provisioner.provisioning.spus[NAME].trouble or "",
    )
    await bench.until_runs(spu)


@pytest.mark.usefixtures("stand_in")
async def test_spus_of_several_groups_do_not_meet(bench: Bench) -> None:
    provisioner, one, dotted = bench.new(), spu_at(), spu_at(9105, group="g.x")
    provisioner.carry_out(ProvisionSpu(one))
    provisioner.carry_out(ProvisionSpu(dotted))
    await bench.until_runs(one)
    await eventually(lambda: len(bench.running(dotted.name)) == 1)
    second = await bench.next()
    assert second.provisioning.spus == {s.name: Provisioned(s.spec) for s in (one, dotted)}
    await bench.end(second)
    assert len(bench.running(dotted.name)) == 1
    assert [s.name for s in (one, dotted)] == ["g-1", "g.x-1"]
