"""What users write: manifests, as ``apply``, ``diff`` and ``edit`` read them."""

from __future__ import annotations

import io
import json
import re
from typing import Final
from unittest import mock

from runnel.cli.objects.edit import _editable
from schemas.errors import ManifestError
from schemas.objects.manifest import yaml_lines
from schemas.objects.manifest.manifest import dump_yaml, load_paths, load_text
from schemas.objects.manifest.validation import parse_object
from tests.fuzz.law import Rejected, empty_directory, options

#: So few that aliases in a small input reach it.
_ALIASED: Final = 300
_PROBLEM: Final = re.compile(r":[0-9]+: .")
#: More than the longest list of known fields takes.
_MOST_CHARACTERS: Final = 1_200


def manifest(data: bytes) -> None:
    """A file; the lowest bit of the first byte says whether its name is that of JSON.

    Every problem is a line that can be shown and says of which line of the file it is. What is
    read is said by its own YAML and JSON, and by what an editor is given.
    """
    choice, data = options(data)
    with empty_directory() as directory, mock.patch.object(yaml_lines, "MAX_ALIASED", _ALIASED):
        path = directory / ("f.json" if choice & 1 else "f.yaml")
        path.write_bytes(data)
        try:
            found = [item.object for item in load_paths([str(path)], io.StringIO())]
        except ManifestError as error:
            for line in error.message.split("\n"):
                assert _PROBLEM.match(line.removeprefix(str(path))), line
                assert line.isprintable(), ascii(line)
                assert len(line) < _MOST_CHARACTERS, len(line)
            raise Rejected from error
        assert [item.object for item in load_text(dump_yaml(found))] == found
    for obj in found:
        assert parse_object(json.loads(json.dumps(obj.to_json()))) == obj
        (edited,) = load_text(_editable(obj))
        assert (edited.object.name, edited.object.spec) == (obj.name, obj.spec)
        assert edited.object.metadata.annotations == obj.metadata.annotations
