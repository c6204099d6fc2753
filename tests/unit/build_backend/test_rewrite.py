"""Imports are moved by a table of their forms; everything else stays as it is, on its line."""

from __future__ import annotations

import pytest

from build_backend.rewrite import MOVED, rewrite
from tests.architecture.source import PACKAGES


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(
            "from schemas.errors import A, B as C\n",
            "from runnel._internal.schemas.errors import A, B as C\n",
            id="given-a-module-then-below",
        ),
        pytest.param(
            "from schemas import errors\n",
            "from runnel._internal.schemas import errors\n",
            id="given-a-package-then-below",
        ),
        pytest.param(
            "from schemas.errors import (\n    A,  # why\n    B,\n)\n",
            "from runnel._internal.schemas.errors import (\n    A,  # why\n    B,\n)\n",
            id="given-several-lines-then-the-same-lines",
        ),
        pytest.param(
            "from \\\n    sc.api \\\n    import a\n",
            "from \\\n    runnel._internal.sc.api \\\n    import a\n",
            id="given-a-line-that-goes-on-then-the-same-lines",
        ),
        pytest.param(
            "def f():\n\tfrom spu.main import run\n",
            "def f():\n\tfrom runnel._internal.spu.main import run\n",
            id="given-a-function-then-below",
        ),
        pytest.param(
            "x = 'ü'; from spu import a; from sc import b\n",
            "x = 'ü'; from runnel._internal.spu import a; from runnel._internal.sc import b\n",
            id="given-one-line-beyond-ascii-then-each-below",
        ),
        pytest.param(
            "if TYPE_CHECKING:\n    from spark_io.source import X\n",
            "if TYPE_CHECKING:\n    from runnel._internal.spark_io.source import X\n",
            id="given-type-checking-then-below",
        ),
        pytest.param(
            "import schemas\nschemas.x\n",
            "from runnel._internal import schemas\nschemas.x\n",
            id="given-an-import-then-the-name-stays",
        ),
        pytest.param(
            "import schemas.errors  # why\nschemas.errors.A\n",
            "import runnel._internal.schemas.errors as schemas; "
            "from runnel._internal import schemas  # why\nschemas.errors.A\n",
            id="given-an-import-of-a-module-then-the-name-stays",
        ),
        pytest.param(
            "import schemas.errors as e, os\n",
            "import runnel._internal.schemas.errors as e, os\n",
            id="given-another-name-then-below",
        ),
        pytest.param(
            "import connection_manager.client as c\r\nx = 1\r\n",
            "import runnel._internal.connection_manager.client as c\r\nx = 1\r\n",
            id="given-other-line-ends-then-they-stay",
        ),
    ],
)
def test_imports_of_moved_packages(before: str, after: str) -> None:
    assert rewrite(before.encode(), "a.py").decode() == after
    assert after.count("\n") == before.count("\n")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("from runnel.admin import client\n", id="given-the-client-then-it-stays"),
        pytest.param("import runnel.admin.client\n", id="given-an-import-of-it-then-it-stays"),
        pytest.param("from .schemas import a\n", id="given-a-relative-import-then-it-stays"),
        pytest.param("from . import schemas\n", id="given-a-relative-package-then-it-stays"),
        pytest.param("from schemas_of import a\n", id="given-a-longer-name-then-it-stays"),
        pytest.param("from aiohttp import sc, spu\n", id="given-names-in-it-then-they-stay"),
        pytest.param('"""from schemas import a"""\n', id="given-a-docstring-then-it-stays"),
        pytest.param("schemas = 1\nschemas.x\n", id="given-a-variable-then-it-stays"),
        pytest.param("x = 1 # ü\n\f\n", id="given-no-import-then-the-same-bytes"),
    ],
)
def test_what_stays(text: str) -> None:
    assert rewrite(text.encode(), "a.py") == text.encode()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("import schemas.errors, os\n", id="given-several-in-one-then-refused"),
        pytest.param("from schemas import (\n", id="given-no-python-then-refused"),
    ],
)
def test_what_is_refused(text: str) -> None:
    with pytest.raises(SyntaxError):
        rewrite(text.encode(), "a.py")


def test_what_a_wheel_has_at_its_top_is_the_client_and_what_spark_looks_for() -> None:
    assert set(PACKAGES) - set(MOVED) == {"runnel", "pyspark_runnel"}
