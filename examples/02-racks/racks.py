"""Six SPUs in three racks: start them, place topics, show in which racks the replicas are.

``python examples/02-racks/racks.py`` uses a cluster of its own and deletes it afterwards. Exits
with 1 if a topic is not spread as it should be.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

import runnel
from runnel.local.processes import free_base_port

HERE = Path(__file__).resolve().parent
RACKS = 3
START_S = 30.0


def run(*arguments: str) -> None:
    """Run a command as you would type it."""
    print(f"$ runnel {' '.join(arguments)}", flush=True)
    subprocess.run([sys.executable, "-m", "runnel.cli.main", *arguments], check=True)


def groups(first_port: int) -> list[dict[str, Any]]:
    """The groups of racks.yaml, on ports that are free here."""
    found = list(yaml.safe_load_all((HERE / "racks.yaml").read_text()))
    for number, group in enumerate(found):
        port = first_port + 10 * number
        group["spec"]["template"]["publicEndpoint"]["port"] = port
        group["spec"]["template"]["privateEndpoint"]["port"] = port + 1
    return found


def start_racks(cluster: runnel.Cluster, first_port: int) -> None:
    """Have the SC start the groups, and wait for their SPUs."""
    for group in groups(first_port):
        name, spec = group["metadata"]["name"], group["spec"]
        print(cluster.apply(group))
        cluster.wait("spugroup", name, "reserved")
        deadline = time.monotonic() + START_S
        while online(cluster, name) < spec["replicas"]:
            if time.monotonic() > deadline:
                raise SystemExit(f"{name}: {cluster.get('spugroup', name).status.reason}")
            time.sleep(0.1)


def online(cluster: runnel.Cluster, group: str) -> int:
    """How many SPUs of a group are online."""
    spus = cluster.list("spus", {"spugroup": group})
    return sum(spu.status.resolution.value == "online" for spu in spus)


def check(cluster: runnel.Cluster) -> list[str]:
    """Print where the replicas of every topic are; return the problems."""
    racks = {spu.spec.spu_id: spu.spec.rack for spu in cluster.list("spus")}
    wrong = []
    for topic in cluster.list("topics"):
        leaders: Counter[int] = Counter()
        print(f"\n{topic.name}:")
        for index, replicas in enumerate(topic.status.replica_map):
            leaders[replicas[0]] += 1
            held = [racks[spu_id] for spu_id in replicas]
            places = "  ".join(f"{i}({racks[i]})" for i in replicas)
            print(f"  partition {index}: {places}")
            wanted = min(RACKS, len(replicas))
            if not topic.spec.ignore_rack_assignment and len(set(held)) != wanted:
                wrong.append(f"{topic.name}-{index} is in {len(set(held))} racks, not {wanted}")
        print(f"  partitions led: {dict(sorted(leaders.items()))}")
    return wrong


def main() -> None:
    """Run the example, and always clean up."""
    with tempfile.TemporaryDirectory(prefix="runnel-racks-") as directory:
        os.environ["RUNNEL_HOME"] = directory
        os.environ.pop("RUNNEL_SC", None)
        data_dir = Path(directory) / "cluster"
        # Ports for ten SPUs: more than the three groups need.
        base = free_base_port(data_dir, 10)
        try:
            run("cluster", "start", "--spus", "0", "--base-port", str(base),
                "--data-dir", str(data_dir))  # fmt: skip
            with runnel.connect(f"localhost:{base}") as cluster:
                start_racks(cluster, base + 10)
                run("get", "spus")
                run("apply", "-f", str(HERE / "topics.yaml"))
                for name in ("payments", "ledger", "scratch"):
                    cluster.wait("topic", name, "provisioned")
                wrong = check(cluster)
        finally:
            run("cluster", "delete", "--yes")
    if wrong:
        raise SystemExit("not spread over racks: " + "; ".join(wrong))
    print("\nevery partition is spread over as many racks as it can be")


if __name__ == "__main__":
    main()
