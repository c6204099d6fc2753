"""Strategies for objects of every kind, made from the models themselves.

A field that is added to a model is generated at once: nothing here names fields but where a
model forbids combinations.
"""

from __future__ import annotations

import types
from enum import Enum
from typing import (
    Annotated,
    Any,
    Literal,
    NewType,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import annotated_types
from hypothesis import strategies as st
from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo

from schemas.columns.topic_schema import TopicSchema
from schemas.objects.archive import ArchiveSettings
from schemas.objects.kinds import KINDS
from schemas.objects.metadata import Object
from schemas.objects.partition import PartitionStatus
from schemas.objects.pipeline import (
    Desired,
    FileFormat,
    OutputMode,
    PipelineSink,
    PipelineSource,
    PipelineSpec,
    PipelineState,
    PipelineStatus,
    Trigger,
)
from schemas.objects.quantities import (
    Millis,
    check_name,
    check_owner_name,
    check_scoped_name,
    parse_duration_ms,
    parse_size,
)
from schemas.objects.spu import Ingress, PublicEndpoint, SpuSpec
from schemas.objects.stream import Scaling, ScalingType, StreamRetention, StreamSpec
from schemas.objects.topic import PartitionAssignment, TopicSpec
from tests.unit.schemas.typed import as_spec, topic_schemas

names = st.from_regex(r"[A-Za-z0-9._-]{1,20}", fullmatch=True).filter(
    lambda name: name not in {".", ".."}
)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
locations = texts.map(lambda text: f"/{text}")
option_texts = st.dictionaries(texts, texts, max_size=3)
_MOST_MS = 2**63 - 1
durations = st.integers(0, _MOST_MS).map(Millis)

_INT_BOUND = 2**62
#: Fields of a topic's spec that not any combination is possible of.
_CHOSEN_TOGETHER = {
    "partitions", "replication_factor", "assignment", "min_in_sync_replicas",
    "columns", "key_column", "timestamp_column",
}  # fmt: skip


def objects() -> st.SearchStrategy[Object]:
    return st.one_of([model(cls) for cls in KINDS])


def model(cls: type[Any]) -> st.SearchStrategy[Any]:
    """Instances of a model, each optional field given or left out."""
    if cls is TopicSpec:
        return _topic_specs()
    if cls is TopicSchema:
        return topic_schemas()
    if cls is PipelineSource:
        return st.builds(PipelineSource, topic=names, options=option_texts) | st.builds(
            PipelineSource, topics=st.lists(names, min_size=1, max_size=3, unique=True).map(tuple)
        )
    if cls is PipelineSink:
        modes = st.sampled_from(OutputMode)
        return st.builds(PipelineSink, topic=names, output_mode=modes) | st.builds(
            PipelineSink, path=locations, format=st.none() | st.sampled_from(FileFormat)
        )
    if cls is Trigger:
        return st.builds(Trigger, interval=durations) | st.sampled_from(
            [Trigger(), Trigger(once=True), Trigger(available_now=True)]
        )
    if cls is PipelineSpec:
        return _pipeline_specs()
    if cls is StreamSpec:
        free = {n: field(cls, n, f) for n, f in cls.model_fields.items() if "replic" not in n}
        return st.fixed_dictionaries({}, optional=free).map(lambda values: StreamSpec(**values))
    if cls is Scaling:
        return _scalings()
    if cls is StreamRetention:
        return _stream_retentions()
    if cls is PipelineStatus:
        return _pipeline_statuses()
    if cls is SpuSpec:
        return _spu_specs()
    if cls is Ingress:
        return st.builds(Ingress, hostname=texts) | st.builds(Ingress, ip=texts)
    return st.fixed_dictionaries(
        {n: field(cls, n, f) for n, f in cls.model_fields.items() if f.is_required()},
        optional={n: field(cls, n, f) for n, f in cls.model_fields.items() if not f.is_required()},
    ).map(lambda values: cls(**values))


def _spu_specs() -> st.SearchStrategy[SpuSpec]:
    """An SPU drains to others only, and only while it drains; one without a group has no rate."""
    names = {n: f for n, f in SpuSpec.model_fields.items() if n not in {"drain", "drain_to"}}
    drains = st.fixed_dictionaries({}, optional={"drain": st.none() | st.booleans()})
    others = st.lists(st.integers(0, _INT_BOUND), min_size=1, max_size=3).map(tuple)
    replaced = st.fixed_dictionaries({"drain": st.just(True), "drain_to": others})
    return st.tuples(
        st.fixed_dictionaries(
            {n: field(SpuSpec, n, f) for n, f in names.items() if f.is_required()},
            optional={n: field(SpuSpec, n, f) for n, f in names.items() if not f.is_required()},
        ),
        drains | replaced,
    ).map(_spu_spec)


def _spu_spec(parts: tuple[dict[str, Any], dict[str, Any]]) -> SpuSpec:
    spec, drain = parts
    others = tuple(i for i in drain.get("drain_to", ()) if i != spec["spu_id"])
    if spec.get("group") is None:
        spec.pop("catch_up_rate", None)
    return SpuSpec(**spec, **{**drain, "drain_to": others or None})


def field(cls: type[BaseModel], name: str, info: FieldInfo) -> st.SearchStrategy[Any]:
    if cls is PartitionStatus and name in {"term", "unclean_term"}:
        return st.integers(0, 2**47).map(lambda changes: changes << 16)
    if cls is ArchiveSettings and name == "path":
        return names.map(lambda one: f"/mnt/{one}")
    if cls is PublicEndpoint and name == "ingress":
        return st.lists(model(Ingress), min_size=1, max_size=3).map(tuple)
    return _annotated(info.annotation, info.metadata)


def _annotated(annotation: Any, metadata: list[Any]) -> st.SearchStrategy[Any]:
    if get_origin(annotation) is Annotated:
        annotation, *inner = get_args(annotation)
        inner = [
            found for i in inner for found in (i.metadata if isinstance(i, FieldInfo) else [i])
        ]
        return _annotated(annotation, [*inner, *metadata])
    if isinstance(annotation, NewType):
        return _annotated(annotation.__supertype__, metadata)
    validators = {item.func for item in metadata if isinstance(item, BeforeValidator)}
    low, high = -_INT_BOUND, _INT_BOUND
    for item in metadata:
        if isinstance(item, annotated_types.Ge):
            low = max(low, cast(int, item.ge))
        elif isinstance(item, annotated_types.Le):
            high = min(high, cast(int, item.le))
    if check_name in validators:
        return names
    if check_scoped_name in validators:
        return st.builds("{}/{}".format, names, names)
    if check_owner_name in validators:
        return names | st.builds("{}/{}".format, names, names)
    if parse_size in validators:
        return st.integers(max(low, 0), high)
    if parse_duration_ms in validators:
        return st.integers(max(low, 0), _MOST_MS).map(Millis)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in {Union, types.UnionType}:
        return st.one_of([_annotated(argument, metadata) for argument in arguments])
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple:
        items = _annotated(arguments[0], [])
        return st.lists(items, min_size=_least_length(metadata), max_size=3).map(tuple)
    if origin is dict:
        return st.dictionaries(texts, _annotated(arguments[1], []), max_size=3)
    if annotation is type(None):
        return st.none()
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return model(annotation)
    if isinstance(annotation, type) and issubclass(annotation, tuple):
        # A named tuple.
        fields = get_type_hints(annotation, include_extras=True)
        return st.builds(annotation, **{n: _annotated(hint, []) for n, hint in fields.items()})
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return st.sampled_from(annotation)
    if annotation is bool:
        return st.booleans()
    if annotation is str:
        least = _least_length(metadata)
        return texts.filter(lambda text: len(text) >= least) if least else texts
    return st.integers(low, high)


def _least_length(metadata: list[Any]) -> int:
    return max((i.min_length for i in metadata if isinstance(i, annotated_types.MinLen)), default=0)


def _scalings() -> st.SearchStrategy[Scaling]:
    """Types that follow the load have a target."""
    free = {n: field(Scaling, n, f) for n, f in Scaling.model_fields.items() if n != "target_rate"}
    rates = st.integers(1, _INT_BOUND)
    return st.builds(
        lambda values, rate: Scaling(
            **values,
            target_rate=rate
            if values.get("type", ScalingType.FIXED) is not ScalingType.FIXED
            else None,
        ),
        st.fixed_dictionaries({}, optional=free),
        rates,
    )


def _stream_retentions() -> st.SearchStrategy[StreamRetention]:
    """By time or by size, and the maximum is no less than the minimum."""
    bounds = st.lists(st.integers(1, _INT_BOUND), min_size=1, max_size=2).map(sorted)
    periods = st.integers(1_000, _MOST_MS).map(Millis)

    def made(by: str, found: list[int], period: Millis) -> StreamRetention:
        kind = Millis if by == "time" else int
        names = (f"min_{by}", f"max_{by}")
        values = {name: kind(one) for name, one in zip(names, found, strict=False)}
        return StreamRetention(**values, period=period)

    return st.builds(made, st.sampled_from(["time", "size"]), bounds, periods)


def _pipeline_specs() -> st.SearchStrategy[PipelineSpec]:
    """Either SQL or the name of a function."""
    free = {
        "source": model(PipelineSource),
        "sink": model(PipelineSink),
        "trigger": model(Trigger),
        "checkpoint": locations,
        "desired": st.sampled_from(Desired),
    }
    query = st.builds(PipelineSpec, query=texts.filter(bool), **free)
    return query | st.builds(PipelineSpec, python=st.just("jobs.totals:make"), **free)


def _pipeline_statuses() -> st.SearchStrategy[PipelineStatus]:
    counts = st.none() | st.integers(0, _INT_BOUND)
    return st.builds(
        PipelineStatus,
        state=st.sampled_from(PipelineState),
        reason=st.none() | texts,
        run_id=st.none() | texts,
        last_error=st.none() | texts,
        rows_per_second=st.none() | st.floats(0, 1e12),
        **dict.fromkeys(("last_batch", "rows_in", "rows_out", "total_rows_out", "lag"), counts),
    )


def _topic_specs() -> st.SearchStrategy[TopicSpec]:
    """Either way of placement, and a minimum that the replicas allow."""
    rows = st.lists(
        st.builds(
            PartitionAssignment,
            id=st.integers(0, 99),
            replicas=st.lists(st.integers(0, 99), min_size=1, max_size=4).map(tuple),
        ),
        min_size=1,
        max_size=4,
    ).map(tuple)
    fields = TopicSpec.model_fields
    free = {
        name: field(TopicSpec, name, info)
        for name, info in fields.items()
        if name not in _CHOSEN_TOGETHER
    }
    computed = st.fixed_dictionaries(
        {},
        optional={
            **free,
            "partitions": st.integers(1, 100_000),
            "replication_factor": st.integers(1, 32),
        },
    )
    manual = st.fixed_dictionaries({"assignment": rows}, optional=free)

    typed = (st.none() | topic_schemas()).map(as_spec)

    def with_minimum(parts: tuple[dict[str, Any], ...]) -> st.SearchStrategy[TopicSpec]:
        values = {name: value for part in parts for name, value in part.items()}
        replicas = TopicSpec(**values).replica_count
        minimum = st.none() | st.integers(1, replicas)
        return minimum.map(lambda least: TopicSpec(**values, min_in_sync_replicas=least))

    return st.tuples(computed | manual, typed).flatmap(with_minimum)
