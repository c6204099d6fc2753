"""Options of pipelines in manifests: refused before anything is sent, with their lines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from schemas.errors import InvalidRequestError, ManifestError
from schemas.objects.pipeline import Pipeline

if TYPE_CHECKING:
    from schemas.objects.manifest.manifest import LoadedObject


def check_pipelines(loaded: Iterable[LoadedObject]) -> None:
    """Raise ManifestError for options that a runner would refuse."""
    problems = []
    for item in loaded:
        if isinstance(item.object, Pipeline):
            # Here, because few manifests are of pipelines.
            from runnel.spark_pipelines import check_pipeline

            try:
                check_pipeline(item.object.spec)
            except InvalidRequestError as error:
                problems.append(item.located(error.message))
    if problems:
        raise ManifestError("\n".join(problems))
