"""What `runnel apply` refuses of a pipeline's options without Spark."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.errors import InvalidRequestError
from schemas.objects.manifest.manifest import load_text
from schemas.objects.pipeline import Pipeline, PipelineSpec
from spark_io.pipeline.check import check_pipeline, sources_of
from tests.architecture.source import ROOT

SPEC: dict[str, Any] = {
    "source": {"topic": "in"},
    "query": "q",
    "sink": {"topic": "out"},
    "checkpoint": "/c",
}


def spec(**changes: Any) -> PipelineSpec:
    return PipelineSpec.model_validate({**SPEC, **changes}, by_alias=True)


def reading(**options: str) -> PipelineSpec:
    return spec(source={"topic": "in", "options": options})


def writing(**options: str) -> PipelineSpec:
    return spec(sink={"topic": "out", "options": options})


@pytest.mark.parametrize(
    "good",
    [
        pytest.param(spec(), id="given-no-options"),
        pytest.param(
            reading(startingOffsets="earliest", MAXOFFSETSPERTRIGGER="9"), id="given-some"
        ),
        pytest.param(reading(sc="other:9003"), id="given-another-cluster"),
        pytest.param(spec(source={"pattern": "a.*"}), id="given-a-pattern"),
        pytest.param(writing(acks="leader"), id="given-acks"),
        pytest.param(
            spec(sink={"path": "/f", "options": {"compression": "zstd"}}), id="given-files"
        ),
    ],
)
def test_accepted(good: PipelineSpec) -> None:
    check_pipeline(good)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        pytest.param(
            reading(startngOffsets="earliest"),
            "spec.source.options.startngOffsets: unknown option 'startngOffsets'; did you mean"
            " startingOffsets?",
            id="given-a-typo",
        ),
        pytest.param(
            reading(failOnDataLoss="maybe"),
            "spec.source.options.failOnDataLoss: option failOnDataLoss: 'maybe'; give true or"
            " false",
            id="given-a-bad-value",
        ),
        pytest.param(
            reading(endingOffsets="latest"),
            "spec.source.options.endingOffsets: option endingOffsets is not for spark.readStream: a"
            " stream has no end; use spark.read, or trigger(availableNow=True)",
            id="given-an-option-of-batches",
        ),
        pytest.param(
            reading(subscribe="other"),
            "spec.source.options.subscribe: leave it out: the manifest says that in spec.source:"
            " topic, topics or pattern",
            id="given-topics-as-an-option",
        ),
        pytest.param(
            writing(acks="all"),
            "spec.sink.options.acks: option acks: 'all'; give committed, leader, none",
            id="given-bad-acks",
        ),
        pytest.param(
            writing(transactionId="id"),
            "spec.sink.options.transactionId: option transactionId is not for df.writeStream: ids"
            " never fall, so a batch that is written again would be refused for ever",
            id="given-transaction-ids",
        ),
        pytest.param(
            spec(sink={"path": "/f", "options": {"checkpointLocation": "/d"}}),
            "spec.sink.options.checkpointLocation: leave it out: the manifest says that in"
            " spec.checkpoint",
            id="given-a-second-checkpoint",
        ),
        pytest.param(
            spec(spark={"conf": {"driver.memory": "4g"}}),
            "spec.spark.conf.driver.memory: settings of Spark begin with spark.",
            id="given-a-setting-of-nobody",
        ),
    ],
)
def test_refused(bad: PipelineSpec, message: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        check_pipeline(bad)
    assert refused.value.message == message


def test_the_example_is_accepted() -> None:
    text = (ROOT / "examples" / "05-spark" / "delays.yaml").read_text()
    (loaded,) = load_text(text)
    assert isinstance(loaded.object, Pipeline)
    check_pipeline(loaded.object.spec)


def test_views_are_named_as_topics() -> None:
    assert sources_of(spec(source={"topics": ["a", "b.c"]}).source) == {
        "a": {"topic": "a"},
        "b.c": {"topic": "b.c"},
    }
    assert sources_of(spec(source={"pattern": "a.*"}).source) == {
        "source": {"subscribePattern": "a.*"}
    }
