"""What can be wrong with a pipeline's options, found without Spark. Pure.

Errors begin with the path of a field of the manifest, so that `runnel apply` can name its line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from schemas.errors import InvalidRequestError
from schemas.objects.pipeline import PATTERN_VIEW, PipelineSource, PipelineSpec
from spark_io.options import table
from spark_io.options.read import parse_read_options
from spark_io.options.table import Use, given_options
from spark_io.options.write import parse_write_options

_SAY: Final = "the manifest says that in"
_OF_SOURCE: Final = {
    name.lower(): f"{_SAY} spec.source: topic, topics or pattern"
    for name in (table.TOPIC, table.SUBSCRIBE, table.SUBSCRIBE_PATTERN, table.ASSIGN)
}
_OF_SINK: Final = {
    table.TOPIC.lower(): f"{_SAY} spec.sink.topic",
    "path": f"{_SAY} spec.sink.path",
    "checkpointlocation": f"{_SAY} spec.checkpoint",
    "queryname": "a query has the name of its pipeline",
}
#: Where an address is not given, any that parses does for a check.
_SOME_SC: Final = "localhost:9003"


def check_pipeline(spec: PipelineSpec) -> None:
    """Raise InvalidRequestError that begins with the field at fault."""
    source = "spec.source.options"
    _check_own(source, spec.source.options, _OF_SOURCE, Use.STREAM)
    for chosen in sources_of(spec.source).values():
        with_topic = {**spec.source.options, **chosen}
        try:
            parse_read_options(with_topic, lambda: _SOME_SC, Use.STREAM)
        except InvalidRequestError as error:
            raise _at(_field(source, spec.source.options, error.message), error.message) from None
    sink = "spec.sink.options"
    _check_own(sink, spec.sink.options, _OF_SINK, Use.WRITE_STREAM if spec.sink.topic else None)
    if spec.sink.topic is not None:
        with_topic = {**spec.sink.options, table.TOPIC: spec.sink.topic}
        try:
            parse_write_options(with_topic, lambda: _SOME_SC, Use.WRITE_STREAM)
        except InvalidRequestError as error:
            raise _at(_field(sink, spec.sink.options, error.message), error.message) from None
    for name in spec.spark.conf:
        if not name.startswith("spark."):
            raise _at(f"spec.spark.conf.{name}", "settings of Spark begin with spark.")


def sources_of(source: PipelineSource) -> dict[str, dict[str, str]]:
    """By the name of a view, the option that chooses its topics."""
    if source.pattern is not None:
        return {PATTERN_VIEW: {table.SUBSCRIBE_PATTERN: source.pattern}}
    return {name: {table.TOPIC: name} for name in source.names}


def _check_own(
    where: str, options: Mapping[str, str], reserved: Mapping[str, str], use: Use | None
) -> None:
    """Options that are not for this place; ``use`` is None for those of other formats."""
    for name, value in options.items():
        if (instead := reserved.get(name.lower())) is not None:
            raise _at(f"{where}.{name}", f"leave it out: {instead}")
        if use is not None:
            try:
                given_options({name: value}, (use,))
            except InvalidRequestError as error:
                raise _at(f"{where}.{name}", error.message) from None


def _field(where: str, options: Mapping[str, str], message: str) -> str:
    """The option that a message is about, if it names one."""
    words = message.replace(":", " ").replace("'", " ").lower().split()
    return next((f"{where}.{name}" for name in options if name.lower() in words), where)


def _at(field: str, message: str) -> InvalidRequestError:
    return InvalidRequestError(f"{field}: {message}")
