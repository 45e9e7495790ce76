"""What pyproject.toml can't say: remember where the library will be.

`STRATA_PREFIX=/usr/local pip install ./python` puts /usr/local into the package, and the command then finds
PREFIX/lib/libstrata.so. Without the variable it is the source tree around this folder, and the command finds what is built
there; a package that is made to be carried elsewhere names its prefix, so that it holds no path of the machine it was made on.
"""

import os
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

TREE = Path(__file__).resolve().parent.parent


def recorded_files() -> dict[str, str | None]:
    """The files that stand beside the modules, and what is in them; None: such a file must not be there."""
    prefix = os.environ.get("STRATA_PREFIX")
    # Of a source archive there is nothing around this folder that could be built.
    in_tree = (TREE / "CMakePresets.json").is_file() and (TREE / "include/strata/strata.h").is_file()
    return {
        "prefix.txt": os.path.abspath(prefix) if prefix else None,
        "build_tree.txt": str(TREE) if in_tree and not prefix else None,
    }


class BuildWithPlaces(build_py):
    """Builds the modules, and records beside them where the library will be."""

    def run(self):
        super().run()
        if self.editable_mode:  # the modules stay in the tree
            return
        folder = Path(self.build_lib, "strata")
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in recorded_files().items():
            # pip builds in this folder, and what the last build recorded is still in build/lib.
            (folder / name).unlink(missing_ok=True)
            if text is not None:
                (folder / name).write_text(text + "\n", encoding="utf-8")


setup(cmdclass={"build_py": BuildWithPlaces})
