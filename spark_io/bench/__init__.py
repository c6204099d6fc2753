"""``runnel bench spark``: how fast Spark reads topics, beside its own Parquet reader."""
