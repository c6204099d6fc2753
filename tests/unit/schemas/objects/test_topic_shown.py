"""What a notebook and a prompt show of a topic."""

from __future__ import annotations

import re

from schemas.objects.html import html_table
from schemas.objects.topic import Topic


def test_a_prompt_shows_what_is_not_as_by_default() -> None:
    topic = Topic.model_validate({"metadata": {"name": "orders"}, "spec": {"partitions": 3}})
    assert repr(topic) == "Topic(metadata=Metadata(name='orders'), spec=TopicSpec(partitions=3))"
    assert repr(Topic.model_validate({"metadata": {"name": "orders"}, "spec": {}})) == (
        "Topic(metadata=Metadata(name='orders'))"
    )


def test_a_notebook_shows_state_partitions_and_columns() -> None:
    topic = Topic.model_validate(
        {
            "metadata": {"name": "orders"},
            "spec": {
                "partitions": 3,
                "replicationFactor": 2,
                "schema": [{"name": "id", "type": "int64", "nullable": False}],
                "keyColumn": "id",
            },
            "status": {"resolution": "pending", "reason": "one SPU is missing", "writable": False},
        }
    )
    assert [text for text in re.split(r"<[^>]*>", topic._repr_html_()) if text] == [
        "topic orders",
        "state", "pending: one SPU is missing",
        "writable", "no: some partitions take no records",
        "partitions", "3, replicas of each: 2",
        "key column", "id",
        "id", "int64 not null",
    ]  # fmt: skip


def test_text_is_escaped() -> None:
    shown = html_table("<script>", [("<b>", "a & b")])
    assert "<script>" not in shown
    assert "<b>" not in shown
    assert "a &amp; b" in shown
