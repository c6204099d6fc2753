"""The setuptools commands that lay out a wheel: `runnel` and `pyspark_runnel` at the top, all
other packages below ``runnel._internal``, their imports by `rewrite`.

In a clone, and so in an editable install, packages stay where they are.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

from build_backend.rewrite import ABOVE, MOVED, rewrite

_DOCSTRING = '''\
"""The daemons, and what they share with the client. Nothing here is public.

The sources have these packages at the top; a wheel has them here, so that
none of them collides with a module of a user.
"""
'''


class BuildPy(build_py):  # type: ignore[misc]
    """Copies packages as setuptools does, then moves those that are not the client's."""

    def run(self) -> None:
        if self.editable_mode:
            super().run()
            return
        library = Path(self.build_lib)
        # What an earlier build left there would become part of this one's wheel.
        shutil.rmtree(library, ignore_errors=True)
        super().run()
        above = library.joinpath(*ABOVE)
        above.mkdir()
        for package in MOVED:
            (library / package).rename(above / package)
        (above / "__init__.py").write_text(_DOCSTRING, encoding="utf-8")
        for path in library.rglob("*.py"):
            _rewrite(path, path.relative_to(library))

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """The files of the wheel, where this command puts them."""
        outputs: list[str] = super().get_outputs(include_bytecode)
        if self.editable_mode:
            return outputs
        library = Path(self.build_lib)
        above = library.joinpath(*ABOVE)
        moved = [_moved(Path(output), library, above) for output in outputs]
        return [*moved, str(above / "__init__.py")]


class BdistWheel(bdist_wheel):  # type: ignore[misc]
    """Packs a wheel as setuptools does, and names what is at its top."""

    def write_wheelfile(self, wheelfile_base: str, *arguments: object, **options: object) -> None:
        super().write_wheelfile(wheelfile_base, *arguments, **options)
        if self.get_finalized_command("build_py").editable_mode:
            return
        file = Path(wheelfile_base, "top_level.txt")
        names = [name for name in file.read_text("utf-8").split() if name not in MOVED]
        file.write_text("".join(f"{name}\n" for name in names), encoding="utf-8")


def _moved(output: Path, library: Path, above: Path) -> str:
    inside = output.relative_to(library)
    return str((above if inside.parts[0] in MOVED else library) / inside)


def _rewrite(path: Path, name: Path) -> None:
    before = path.read_bytes()
    after = rewrite(before, str(name))
    if after != before:
        times = path.stat()
        path.write_bytes(after)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
