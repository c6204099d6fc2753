"""Reasons of failures: the few lines that say what is wrong."""

from __future__ import annotations

import pytest

from spark_io.pipeline.reasons import MAX_LINES, reason_lines

QUERY = """
=== Streaming Query ===
Identifier: [id = 1]
Logical Plan:
WriteToMicroBatchDataSource runnel
"""
OURS = (
    """\
[PYTHON_DATA_SOURCE_ERROR] Failed to initialize Python data source writer: \
Traceback (most recent call last):
  File "/x/spark_io/refusals.py", line 30, in call
    raise brief(error) from None
schemas.errors.NotFoundError: topic 'nope' does not exist; create it
 SQLSTATE: 38000"""
    + QUERY
)
UDF = (
    """\
[PYTHON_EXCEPTION] An exception was thrown from the Python worker: \
Traceback (most recent call last):
  File "/x/pyspark/worker.py", line 1, in main
  File "/home/me/job.py", line 25, in <lambda>
    f = udf(lambda v: 1//0, "int")
                      ~^^~
ZeroDivisionError: integer division or modulo by zero
 SQLSTATE: 38000"""
    + QUERY
)
RAISED = (
    "[PYTHON_EXCEPTION] An exception was thrown from the Python worker: ZeroDivisionError: integer"
    " division or modulo by zero (/home/me/job.py:25)"
)
ANALYSIS = """\
[UNRESOLVED_COLUMN] A column with name `nope` cannot be resolved. SQLSTATE: 42703; line 1 pos 7;
'Project ['nope]
+- ~SubqueryAlias `in`
   +- View (`in`, [key#0])
"""


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        pytest.param(
            OURS, ["topic 'nope' does not exist; create it"], id="given-an-error-of-ours-then-it"
        ),
        pytest.param(
            UDF,
            [RAISED],
            id="given-an-error-of-a-function-then-where",
        ),
        pytest.param(
            ANALYSIS,
            ["[UNRESOLVED_COLUMN] A column with name `nope` cannot be resolved."],
            id="given-a-plan-then-without-it",
        ),
        pytest.param(
            "[USER_RAISED_EXCEPTION] too big SQLSTATE: P0001" + QUERY,
            ["[USER_RAISED_EXCEPTION] too big"],
            id="given-a-query-then-without-it",
        ),
        pytest.param(QUERY, ["Spark gives no reason"], id="given-nothing-then-it-says-so"),
    ],
)
def test_reasons(text: str, lines: list[str]) -> None:
    assert reason_lines(text) == lines


def test_given_very_much_then_six_short_lines() -> None:
    found = reason_lines("\n".join(f"x{number}" * 200 for number in range(50)))
    assert len(found) == MAX_LINES
    assert found[-1] == "…"
    assert max(map(len, found)) <= 300
