"""What users may not write, where the reason is the SC's own host."""

from __future__ import annotations

import pytest

from sc.api.admission import admit_log_dir
from sc.store.view import Provisioning
from schemas.errors import InvalidRequestError
from schemas.objects.spu import Storage
from schemas.objects.spu_group import SpuGroup, SpuTemplate
from tests.unit.sc.builders import group_of

HERE = Provisioning(
    3, {}, directories=("/var/lib/runnel", "/mnt/disk1"), relative_to="/var/lib/runnel"
)


def group(log_dir: str | None) -> SpuGroup:
    return group_of(template=SpuTemplate(storage=Storage(log_dir=log_dir)))


@pytest.mark.parametrize(
    "log_dir",
    [
        pytest.param(None, id="given-none"),
        pytest.param("/var/lib/runnel", id="given-the-directory-itself"),
        pytest.param("/var/lib/runnel/a/b", id="given-one-below"),
        pytest.param("/var/lib/runnel/a/../b", id="given-dots-that-stay-inside"),
        pytest.param("a", id="given-a-relative-one"),
        pytest.param("../../../mnt/disk1/x", id="given-dots-into-another-allowed-one"),
        pytest.param("/mnt/disk1/x", id="given-one-below-an-allowed-one"),
    ],
)
def test_given_a_directory_inside_then_admitted(log_dir: str | None) -> None:
    admit_log_dir(group(log_dir), None, HERE)


@pytest.mark.parametrize(
    "log_dir",
    [
        pytest.param("/tmp", id="given-another"),
        pytest.param("/var/lib/runnel/../x", id="given-dots"),
        pytest.param("..", id="given-the-parent"),
        pytest.param("a/../../b", id="given-dots-in-a-relative-one"),
        pytest.param("/var/lib/runnel-2", id="given-a-name-that-begins-alike"),
        pytest.param("/mnt/disk10", id="given-one-that-begins-as-an-allowed-one"),
        pytest.param("//tmp", id="given-two-slashes"),
        pytest.param("a\0b", id="given-a-nul"),
    ],
)
def test_given_a_directory_outside_then_refused(log_dir: str) -> None:
    with pytest.raises(
        InvalidRequestError, match=r"^spec\.template\.storage\.logDir: .*allowedDir"
    ):
        admit_log_dir(group(log_dir), group(None), HERE)


def test_given_one_that_is_stored_then_other_changes_are_admitted() -> None:
    """A group of before the rule can still be made smaller."""
    admit_log_dir(group("/tmp"), group("/tmp"), HERE)


def test_given_no_provisioner_then_nothing_to_refuse() -> None:
    admit_log_dir(group("/tmp"), None, None)
    admit_log_dir(group("/tmp"), None, Provisioning(3, {}))
