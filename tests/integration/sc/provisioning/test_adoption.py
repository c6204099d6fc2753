"""The next SC takes over the processes of managed SPUs that run, and none that is not its own."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import psutil
import pytest

from sc.controllers.actions import ProvisionSpu
from sc.store.view import Provisioned
from schemas.daemon.process import ProcessId, is_alive, stop
from tests.integration.sc.provisioning.bench import NAME, Bench, spu_at
from tests.processes import half_ended


@pytest.mark.usefixtures("stand_in")
async def test_given_a_file_that_names_another_process_then_the_one_that_runs_is_written_down(
    bench: Bench,
) -> None:
    bench.new().carry_out(ProvisionSpu(spu := spu_at()))
    first = await bench.until_runs(spu)
    bench.state_file.write_text(
        json.dumps(bench.state() | {"process": asdict(ProcessId(2**22, "-"))})
    )
    assert bench.process() is None
    await bench.next()
    assert bench.process() == first


@pytest.mark.usefixtures("stand_in")
async def test_the_next_sc_takes_over_what_runs(bench: Bench) -> None:
    first, spu = bench.new(), spu_at()
    first.carry_out(ProvisionSpu(spu))
    process = await bench.until_runs(spu)
    second = await bench.next()
    assert second.provisioning.spus == {NAME: Provisioned(spu.spec)}
    assert bench.news == [NAME]
    second.carry_out(ProvisionSpu(spu))
    psutil.Process(process.pid).kill()
    bench.started[0].wait()
    await bench.until_runs(spu, besides=process)
    assert len(bench.started) == 2


@pytest.mark.usefixtures("stand_in")
async def test_given_it_ended_while_no_sc_was_there_then_the_next_starts_it(bench: Bench) -> None:
    first, spu = bench.new(), spu_at()
    first.carry_out(ProvisionSpu(spu))
    process = await bench.until_runs(spu)
    await first.close()
    bench.started[0].kill()
    bench.started[0].wait()
    second = await bench.next()
    assert second.provisioning.spus == {NAME: Provisioned(spu.spec)}
    await bench.until_runs(spu, besides=process)


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize(
    "left",
    [
        pytest.param(None, id="given-no-file"),
        pytest.param("", id="given-empty-file"),
        pytest.param("{}", id="given-file-without-a-process"),
        pytest.param("[]", id="given-file-of-something-else"),
    ],
)
async def test_found_by_its_command_line_then_replaced_by_one_with_a_known_spec(
    bench: Bench, left: str | None
) -> None:
    first, spu = bench.new(), spu_at()
    first.carry_out(ProvisionSpu(spu))
    process = await bench.until_runs(spu)
    if left is None:
        bench.state_file.unlink()
    else:
        bench.state_file.write_text(left)
    second = await bench.next()
    assert second.provisioning.spus[NAME].spec != spu.spec
    assert is_alive(process)
    second.carry_out(ProvisionSpu(spu))
    await bench.until_runs(spu, besides=process)
    assert not is_alive(process)
    assert len(bench.started) == 2


@pytest.mark.usefixtures("stand_in")
async def test_found_by_its_command_line_and_not_wanted_any_more_then_ended(bench: Bench) -> None:
    first, spu = bench.new(), spu_at()
    first.carry_out(ProvisionSpu(spu))
    await bench.until_runs(spu)
    bench.state_file.unlink()
    second = await bench.next()
    await bench.end(second)
    assert not bench.config_file.exists()


@pytest.mark.usefixtures("stand_in")
async def test_given_the_file_names_an_earlier_process_then_the_one_that_runs_is_adopted(
    bench: Bench,
) -> None:
    first, spu = bench.new(), spu_at()
    first.carry_out(ProvisionSpu(spu))
    process = await bench.until_runs(spu)
    # An SC that was killed between a restart and the writing of the file.
    state = bench.state()
    state["process"]["started"] = "another boot/1"
    bench.state_file.write_text(json.dumps(state))
    second = await bench.next()
    assert second.provisioning.spus == {NAME: Provisioned(spu.spec)}
    await bench.end(second)
    assert not is_alive(process)
    assert len(bench.started) == 1


@pytest.mark.usefixtures("stand_in")
async def test_given_a_copy_of_a_directory_then_its_sc_leaves_the_processes_of_the_original_alone(
    bench: Bench, tmp_path: Path
) -> None:
    bench.new().carry_out(ProvisionSpu(spu := spu_at()))
    original = await bench.until_runs(spu)
    shutil.copytree(bench.directory, tmp_path / "copy")
    copy = replace(bench, directory=tmp_path / "copy", news=[])
    provisioner = copy.new()
    await provisioner.adopt()
    await copy.until_runs(spu, besides=original)
    provisioner.carry_out(ProvisionSpu(other := spu_at(9105)))
    await copy.until_runs(other, besides=original)
    await copy.end(provisioner)
    assert bench.process() == original
    assert bench.running() == [original.pid]


@pytest.mark.usefixtures("stand_in")
async def test_given_a_killed_process_that_still_closes_its_files_then_the_next_one_waits(
    bench: Bench,
) -> None:
    bench.new().carry_out(ProvisionSpu(spu := spu_at()))
    before = await bench.until_runs(spu)
    await bench.provisioners[-1].close()
    stop([before])
    state = json.loads(bench.state_file.read_text())
    with half_ended(0.5) as found:
        bench.state_file.write_text(json.dumps({**state, "process": asdict(found)}))
        second = bench.new()
        await second.adopt()
        await bench.until_runs(spu, besides=found)
        assert not is_alive(found)
    await bench.end(second)


@pytest.mark.usefixtures("stand_in")
async def test_given_files_without_a_process_and_without_a_spec_then_nothing_is_adopted(
    bench: Bench,
) -> None:
    first, spu = bench.new(), spu_at()
    first.carry_out(ProvisionSpu(spu))
    await bench.until_runs(spu)
    await first.close()
    bench.started[0].kill()
    bench.started[0].wait()
    bench.state_file.unlink()
    second = await bench.next()
    assert second.provisioning.spus == {}
    assert bench.news == []


@pytest.mark.usefixtures("stand_in")
async def test_given_no_directory_yet_then_there_is_nothing_to_adopt(bench: Bench) -> None:
    provisioner = bench.new()
    await provisioner.adopt()
    assert provisioner.provisioning.spus == {}
    assert provisioner.provisioning.port_step == 3
