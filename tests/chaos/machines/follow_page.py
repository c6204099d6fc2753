"""Follows ``docs/howto/more-machines.md`` word for word on three machines, then breaks an address
that a fourth one needs.

    unshare --map-root-user --net --mount python -m tests.chaos.machines.follow_page DIRECTORY

Prints what the commands said as JSON. Every command and every file is taken from the page; only the
names of the other SPUs differ.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from tests.chaos.machines.machines import Machines, machines_of
from tests.chaos.machines.page import Page

PAGE = Path(__file__).parents[3] / "docs" / "howto" / "more-machines.md"
HOSTS = {"sc": "sc.example"} | {f"edge-{n}": f"edge-{n}.example" for n in (7, 8, 9)}
SC = "--sc sc.example:9003"
PATIENCE_S = 40.0
LATE = """\
apiVersion: runnel/v1
kind: Topic
metadata: {name: late}
spec: {assignment: [{id: 0, replicas: [7, 9]}], minInSyncReplicas: 2}
"""


def for_spu(number: int, text: str) -> str:
    """What the page says about SPU 7, for another one."""
    named = text.replace("edge-7", f"edge-{number}").replace("spu-7", f"spu-{number}")
    return named.replace("spuId: 7", f"spuId: {number}")


def run(home: Path) -> dict[str, list[object]]:
    """Exit code, output and errors of each step."""
    page, said = Page(PAGE), dict[str, list[object]]()
    sc_yaml, manifest, spu_yaml = page.yaml
    secret, wait, records = page.shell
    with machines_of(home, HOSTS) as machines:

        def step(name: str, machine: str, commands: str) -> subprocess.CompletedProcess[str]:
            done = machines.run(machine, commands)
            said[name] = [done.returncode, done.stdout, done.stderr]
            return done

        machines.write("sc", "sc.yaml", sc_yaml)
        machines.start("sc", page.command("runnel sc run -c sc.yaml"))
        _until(machines, "sc", f"runnel get spus {SC}")

        def join(number: int) -> None:
            """What the page says about SPU 7."""
            spu = f"edge-{number}"
            machines.write("sc", f"{spu}.yaml", for_spu(number, manifest))
            apply = page.command(f"runnel apply -f edge-7.yaml {SC}")
            step(f"apply {spu}", "sc", for_spu(number, apply))
            machines.write(spu, "spu.yaml", for_spu(number, spu_yaml))
            machines.start(spu, page.command("runnel spu run -c spu.yaml"))
            _until(machines, "sc", f"test -d /var/lib/runnel/spu-{number}")
            step(f"secret {spu}", "sc", for_spu(number, secret))
            step(f"wait {spu}", "sc", for_spu(number, wait))

        join(7)
        join(8)
        step("records", "sc", records)
        # Now SPU 7 sends other SPUs to their own machine, and a new one has to connect to it.
        broken = manifest.replace("host: edge-7.example", "host: localhost")
        assert broken != manifest
        machines.write("sc", "edge-7.yaml", broken)
        step("apply broken", "sc", f"runnel apply -f edge-7.yaml {SC}")
        join(9)
        machines.write("sc", "late.yaml", LATE)
        step("apply topic", "sc", f"runnel apply -f late.yaml {SC}")
        _until(machines, "sc", f"runnel get spus {SC} | grep 'cannot reach'")
        _until(machines, "sc", f"runnel get topics {SC} | grep 'commits nothing'")
        step("check broken", "sc", f"runnel cluster check {SC}")
        describe = page.command("runnel describe spu edge-7")
        step("describe broken", "sc", f"{for_spu(9, describe)} {SC}")
        step("partitions broken", "sc", f"runnel get partitions {SC}")
        step("topics broken", "sc", f"runnel get topics {SC}")
        machines.write("sc", "edge-7.yaml", manifest)
        step("apply mended", "sc", f"runnel apply -f edge-7.yaml {SC}")
        step("writable", "sc", f"runnel wait topic late --for writable {SC} --timeout 40s")
        step("produce mended", "sc", f"echo 22 | runnel produce late {SC}")
        _until(machines, "sc", f"! runnel get spus {SC} | grep 'cannot reach'")
    return said


def _until(machines: Machines, machine: str, commands: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while (done := machines.run(machine, commands)).returncode:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{commands}: {done.stdout}{done.stderr}")
        time.sleep(0.3)


if __name__ == "__main__":
    print(json.dumps(run(Path(sys.argv[1]))))
