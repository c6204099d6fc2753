"""Makes the pictures of the dashboard in ``docs/pictures``: ``python -m docs.screenshots``.

It starts a cluster with records and a named consumer, opens the dashboard in Debian's Chromium, and
takes each picture on a desktop or a phone, light or dark. Look at what has changed before you
commit it. ``--all DIRECTORY`` takes every screen in every form instead, to look at.
"""

from __future__ import annotations

import argparse
import json
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa
from playwright.sync_api import Browser, sync_playwright

import runnel

PICTURES: Final = Path(__file__).parent / "pictures"
MOST_BYTES: Final = 150_000
SIZES: Final = {"desktop": (1280, 800), "phone": (390, 844)}
SCHEMES: Final = ("light", "dark")
#: So long records are written before the first picture, so that its charts show some.
WRITING_S: Final = 40.0
ARGUMENTS: Final = (
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"),
    *("--disable-component-update", "--disable-sync"),
)
SCREENS: Final = {
    "cluster": "/",
    "topics": "/topics",
    "topic": "/topics/orders",
    "segments": "/topics/orders?tab=segments",
    "records": "/topics/trips?tab=records",
    "records-untyped": "/topics/orders?tab=records",
    "spec": "/topics/trips?tab=spec",
    "streams": "/streams",
    "stream": "/streams/shop/carts",
    "placement": "/placement",
    "consumers": "/consumers",
    "consumer": "/consumers/billing/orders",
    "groups": "/groups",
    "group": "/groups/shipping",
    "spus": "/spus",
    "spu": "/spus/spu-0",
    "events": "/events",
}
#: The pictures of the pages: screen, size, scheme.
SHOWN: Final = (
    ("cluster", "desktop", "light"),
    ("cluster", "desktop", "dark"),
    ("cluster", "phone", "light"),
    ("cluster", "phone", "dark"),
    ("placement", "desktop", "dark"),
    ("records", "desktop", "light"),
    ("segments", "desktop", "light"),
    ("stream", "desktop", "light"),
    ("topics", "phone", "light"),
)


def main() -> None:
    """Make the pictures."""
    parser = argparse.ArgumentParser(description="Make the pictures of the dashboard.")
    parser.add_argument("--all", type=Path, metavar="DIRECTORY", help="every screen, to look at")
    everything: Path | None = parser.parse_args().all
    folder = everything or PICTURES
    folder.mkdir(parents=True, exist_ok=True)
    every = tuple((one, size, scheme) for scheme in SCHEMES for size in SIZES for one in SCREENS)
    with runnel.LocalCluster(spus=3, dashboard=True) as cluster:
        _make_topics(cluster)
        _make_stream(cluster)
        with _writing(cluster):
            time.sleep(WRITING_S)
            _take(_address(cluster), folder, every if everything else SHOWN)


def _make_topics(cluster: runnel.Cluster) -> None:
    for name, partitions, replicas in (("orders", 6, 3), ("payments", 12, 2), ("clicks", 4, 2)):
        spec = {"partitions": partitions, "replicationFactor": replicas}
        cluster.create(
            {"apiVersion": "runnel/v1", "kind": "Topic", "metadata": {"name": name}, "spec": spec}
        )
        cluster.wait("topics", name, "provisioned")
    cities = ("Ghent", "Porto", "Turin", "Graz", "Lund")
    trips = pa.table(
        {
            "trip": pa.array(range(200), pa.int64()),
            "city": [cities[number % len(cities)] for number in range(200)],
            "minutes": pa.array([4 + number * 7 % 31 for number in range(200)], pa.int32()),
            "fare": pa.array([round(3.2 + number * 1.7 % 19, 2) for number in range(200)]),
        }
    )
    cluster.write("trips", trips, partitions=2, replication_factor=3, key_column="city")


def _make_stream(cluster: runnel.Cluster) -> None:
    """A stream whose key space shows splits and a merge."""
    scope = {"apiVersion": "runnel/v1", "kind": "Scope", "metadata": {"name": "shop"}}
    spec = {"scaling": {"minSegments": 2}, "replicationFactor": 3}
    carts = {
        "apiVersion": "runnel/v1",
        "kind": "Stream",
        "metadata": {"name": "shop/carts"},
        "spec": spec,
    }
    cluster.create(scope)
    cluster.create(carts)
    cluster.wait("streams", "shop/carts", "active")
    stream = cluster.stream("shop/carts")
    halves = [one.id for one in stream.epoch().segments]
    stream.scale(halves[1:], [(0.5, 0.65), (0.65, 0.8), (0.8, 1.0)])
    stream.scale(halves[:1], [(0.0, 0.2), (0.2, 0.5)])
    now = stream.epoch().segments
    stream.scale([now[1].id, now[2].id], [(0.2, 0.65)])
    with stream.producer() as producer:
        for number in range(500):
            producer.send(f"item {number}", key=f"customer-{number % 50}")


@contextmanager
def _writing(cluster: runnel.Cluster) -> Iterator[None]:
    """Clients that write and read, until it is closed."""
    ended = threading.Event()

    def write() -> None:
        number = 0
        while not ended.wait(0.05):
            for topic, many in (("orders", 40), ("payments", 15), ("clicks", 90)):
                values = [
                    json.dumps({"number": number + one, "item": "tea"}) for one in range(many)
                ]
                keys = [f"customer-{(number + one) % 50}" for one in range(many)]
                data = {name: pa.array(of, pa.binary()) for name, of in _bytes(keys, values)}
                cluster.write(topic, pa.table(data))
            number += 40

    def read(topic: str, name: str, pause_s: float) -> None:
        with cluster.consumer(topic, name=name) as consumer:
            while not ended.wait(pause_s):
                for _ in range(30):
                    consumer.poll(0.05)

    threads = [
        threading.Thread(target=write),
        threading.Thread(target=read, args=("orders", "billing", 0.1)),
        threading.Thread(target=read, args=("clicks", "fraud", 1.0)),
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def _bytes(keys: list[str], values: list[str]) -> list[tuple[str, list[bytes]]]:
    return [("key", [key.encode() for key in keys]), ("value", [one.encode() for one in values])]


def _address(cluster: runnel.Cluster) -> str:
    address = cluster.info.dashboard
    if address is None:
        raise SystemExit("the cluster has no dashboard")
    return address


def _take(url: str, folder: Path, wanted: tuple[tuple[str, str, str], ...]) -> None:
    program = shutil.which("chromium")
    if program is None:
        raise SystemExit("no chromium on the PATH: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=[*ARGUMENTS])
        try:
            for screen, size, scheme in wanted:
                file = folder / f"{screen}-{size}-{scheme}.png"
                _picture(browser, url + SCREENS[screen], size, scheme, file)
        finally:
            browser.close()


def _picture(browser: Browser, url: str, size: str, scheme: str, file: Path) -> None:
    width, height = SIZES[size]
    page = browser.new_page(
        viewport={"width": width, "height": height},
        color_scheme="dark" if scheme == "dark" else "light",
        reduced_motion="reduce",
    )
    page.goto(url)
    page.wait_for_timeout(1500)
    page.screenshot(path=file)
    page.close()
    if file.parent == PICTURES and file.stat().st_size > MOST_BYTES:
        raise SystemExit(f"{file} has {file.stat().st_size:,} bytes; at most {MOST_BYTES:,} go in")


if __name__ == "__main__":
    main()
