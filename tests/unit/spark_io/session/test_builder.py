"""Settings of a session."""

from __future__ import annotations

from pathlib import Path

from spark_io.session.builder import session_settings

LOGS = Path("/cache/my logs/log4j2.properties")


def test_given_nothing_then_a_quiet_local_session() -> None:
    settings = session_settings("demo", 3, LOGS, {})
    assert settings["spark.app.name"] == "demo"
    assert settings["spark.master"] == "local[3]"
    assert settings["spark.ui.enabled"] == "false"
    assert settings["spark.sql.shuffle.partitions"] == "3"
    assert settings["spark.driver.extraJavaOptions"] == (
        '-Dlog4j2.configurationFile="file:///cache/my%20logs/log4j2.properties"'
    )


def test_given_settings_then_they_win_and_are_spelt_as_spark_does() -> None:
    settings = session_settings(
        "demo",
        2,
        LOGS,
        {"spark.ui.enabled": True, "spark.master": "local[1]", "spark.ui.port": 4050},
    )
    assert settings["spark.ui.enabled"] == "true"
    assert settings["spark.master"] == "local[1]"
    assert settings["spark.ui.port"] == "4050"
