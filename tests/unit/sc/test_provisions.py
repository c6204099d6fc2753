"""Two SCs that would each start the SPUs of the same groups."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from sc.config import ScConfig
from sc.main import _check_provisions, _entry
from sc.mirror import Mirror
from schemas.errors import InvalidRequestError


def config(port: int, directory: Path | None) -> ScConfig:
    provisioning = {} if directory is None else {"provisioning": {"directory": str(directory)}}
    return ScConfig.model_validate({"kv": "memory:", "public": {"port": port}, **provisioning})


@pytest.mark.parametrize(
    ("here", "there", "is_refused"),
    [("a", "a", False), ("a", None, False), (None, "a", False), ("a", "b", True)],
    ids=["one-directory", "not-there", "not-here", "both"],
)
def test_who_may_start_managed_spus(
    tmp_path: Path, here: str | None, there: str | None, is_refused: bool
) -> None:
    mine, other = (
        config(port, None if name is None else tmp_path / name)
        for port, name in ((9003, here), (9005, there))
    )
    listed = _entry(other, 9005, 9006)
    mirror = cast(Mirror, SimpleNamespace(controllers={listed.name: listed}))
    if is_refused:
        with pytest.raises(InvalidRequestError, match=r"starts managed SPUs in .*leave provisioni"):
            _check_provisions(mine, mirror)
    else:
        _check_provisions(mine, mirror)
