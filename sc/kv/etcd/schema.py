"""etcd's wire schema, taken from the ``etcd3`` package without running it.

The package's generated modules were made for protobuf 3 and refuse to be imported beside a newer
one. Their content is still right: each holds its file descriptor as one literal. This
module finds the package without importing it, reads the literals from the source, and builds
message classes in a descriptor pool of its own, so that nothing else in the process that speaks
to etcd can collide with it.

The schema is older than some fields that `wire` needs. They are added before the classes are made;
an unknown field would pass through both ends just as well, but could not be read by name.

Message classes are made at run time and have no static types: they are `Any` here, and only
`wire` uses them.
"""

from __future__ import annotations

import ast
import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from schemas.errors import UnsupportedError

PACKAGE = "etcd3"

_FILES = ("kv", "auth", "rpc")

_BOOL = (FieldDescriptorProto.TYPE_BOOL, FieldDescriptorProto.LABEL_OPTIONAL)
_TEXTS = (FieldDescriptorProto.TYPE_STRING, FieldDescriptorProto.LABEL_REPEATED)
_LATER_FIELDS = (
    ("WatchCreateRequest", "fragment", 8, _BOOL),
    ("WatchResponse", "fragment", 7, _BOOL),
    ("StatusResponse", "errors", 8, _TEXTS),
)
"""Fields of etcd 3.4 that the package does not know: message, name, number, type."""


@cache
def message_class(name: str) -> Any:
    """The class of one message, by its full name such as ``etcdserverpb.RangeRequest``.

    Raises UnsupportedError when the ``etcd3`` package is missing or is not the one expected.
    """
    return GetMessageClass(_pool().FindMessageTypeByName(name))


@cache
def _pool() -> DescriptorPool:
    folder = _package_folder()
    pool = DescriptorPool()
    for name in _FILES:
        path = folder / "etcdrpc" / f"{name}_pb2.py"
        try:
            file = FileDescriptorProto.FromString(descriptor_literal(path.read_text("utf-8")))
        except (OSError, ValueError) as error:
            raise UnsupportedError(
                f"{path} does not hold etcd's schema; install {PACKAGE} 0.12.0"
            ) from error
        _add_later_fields(file)
        pool.Add(file)
    return pool


def _package_folder() -> Path:
    # Looking for a module inside the package would import the package.
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise UnsupportedError(
            f"the package {PACKAGE} is missing, which etcd:// needs; "
            "install it with: pip install 'runnel[etcd]'"
        )
    return Path(spec.submodule_search_locations[0])


def descriptor_literal(source: str) -> bytes:
    """The serialized file descriptor in the source of a generated module.

    Raises ValueError when there is none.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.keyword) and node.arg == "serialized_pb":
            # The literal is text in Latin-1, inside a call that encodes it.
            value = node.value.args[0] if isinstance(node.value, ast.Call) else node.value
            literal = ast.literal_eval(value)
            return literal.encode("latin1") if isinstance(literal, str) else bytes(literal)
    raise ValueError("no serialized_pb in a generated module")


def _add_later_fields(file: FileDescriptorProto) -> None:
    for message in file.message_type:
        for owner, name, number, (kind, label) in _LATER_FIELDS:
            if message.name == owner and all(field.name != name for field in message.field):
                message.field.add(name=name, number=number, type=kind, label=label)
