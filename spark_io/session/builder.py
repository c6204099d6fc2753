"""A Spark session that is set up for this machine and for the data source ``runnel``.

Everything here can be overridden by name; a session made in any other way can read Runnel just
as well.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from spark_io.session.cache import cache_dir, ensure_file
from spark_io.session.java import find_java, wheel_java_home

#: Settings that measurably help on one machine, and settings that keep a notebook quiet.
DEFAULTS: Final[dict[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Record batches between the JVM and Python: 8 to 19 % faster than over loopback TCP.
    "spark.python.unix.domain.socket.enabled": "true",
}
#: Spark's own default prints warnings before a setting could stop it. The gateway's level is
#: separate because Spark gives it to the root logger.
_QUIET_LOGS: Final = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
"""


def session_settings(
    app_name: str, cores: int, log_settings: Path, conf: dict[str, object]
) -> dict[str, str]:
    """All settings of a session; ``conf`` wins. Python's True is Spark's ``true``. Pure."""
    given = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in conf.items()
    }
    return {
        "spark.app.name": app_name,
        "spark.master": f"local[{cores}]",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.driver.extraJavaOptions": f'-Dlog4j2.configurationFile="{log_settings.as_uri()}"',
        **DEFAULTS,
        **given,
    }


def spark_session(app_name: str = "runnel", **conf: object) -> SparkSession:
    """The active Spark session, or a new local one with as many threads as there are cores.

    ``conf`` holds Spark settings by their names: ``**{"spark.driver.memory": "4g"}``. Finds a
    Java (see `spark_io.session.java`) and makes workers use this Python; both change this process's
    environment, because Spark reads them from there. Raises NotFoundError without a Java.
    """
    if SparkSession.getActiveSession() is None:
        java = find_java(os.environ, wheel=wheel_java_home)
        if java.home is not None:
            os.environ["JAVA_HOME"] = str(java.home)
        # Spark's default is whatever python3 is on PATH, which need not have this package.
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    log_settings = cache_dir(os.environ) / "log4j2.properties"
    ensure_file(log_settings, _QUIET_LOGS)
    builder = SparkSession.builder
    for name, value in session_settings(app_name, cores or 1, log_settings, conf).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
