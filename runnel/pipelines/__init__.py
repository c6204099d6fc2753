"""Running a pipeline: its lease, its reports, its query, and what to do when that fails.

Nothing here imports Spark: the query comes from `runnel.spark_pipelines`, as anything that is a
`runnel.pipelines.runner.Query`.
"""
