"""The build backend of this project: setuptools, and wheels whose packages collide with nobody's.

`rewrite` moves module names, `wheel` is the setuptools command that uses it, and this package is
what ``pyproject.toml`` names as the backend. Editable installs are setuptools' own, untouched.
"""

from setuptools.build_meta import (
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]
