"""The one thing that pyproject.toml can't say: remember where the library was installed.

`STRATA_PREFIX=/usr/local pip install ./python` puts /usr/local into the package, and the command then finds
PREFIX/lib/libstrata.so. Without the variable nothing is recorded.
"""

import os
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithPrefix(build_py):
    """Builds the modules and, where STRATA_PREFIX is set, records it beside them."""

    def run(self):
        super().run()
        prefix = os.environ.get("STRATA_PREFIX")
        if prefix and not self.editable_mode:
            target = Path(self.build_lib, "strata", "prefix.txt")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(os.path.abspath(prefix) + "\n", encoding="utf-8")


setup(cmdclass={"build_py": BuildWithPrefix})
