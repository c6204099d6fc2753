"""Configuration files of the daemons: one YAML document, checked like a manifest."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from schemas.errors import ManifestError
from schemas.model import Model
from schemas.objects.manifest.problems import explain
from schemas.objects.manifest.yaml_lines import (
    Document,
    YamlError,
    read_documents,
    undecodable_line,
)

M = TypeVar("M", bound=Model)


def load_config(path: str, cls: type[M]) -> M:
    """Read a file into a model. Raises ManifestError that names file, line and field."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        documents = read_documents(text)
    except YamlError as error:
        raise ManifestError(f"{path}:{error.line}: {error}") from error
    except UnicodeDecodeError as error:
        raise ManifestError(f"{path}:{undecodable_line(error)}: not UTF-8 text") from error
    except OSError as error:
        raise ManifestError(f"{path}: cannot be read: {error.strerror}") from error
    if len(documents) > 1:
        raise ManifestError(f"{path}: a configuration is one YAML document, not {len(documents)}")
    document = documents[0] if documents else Document(data={})
    try:
        config = cls.model_validate(document.data, by_alias=True, by_name=False)
    except ValidationError as error:
        raise ManifestError("\n".join(document.report(path, explain(error, cls)))) from error
    if document.problems:
        raise ManifestError("\n".join(document.report(path, [])))
    return config
