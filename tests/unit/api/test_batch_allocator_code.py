"""What compilers make of strata/allocator.hpp: the fetching ahead of nodes has no effect that a test could see, and gcc drops a function of nothing else."""

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SOURCE = """#include <list>
#include <strata/allocator.hpp>
void end(std::list<int, strata::batch_allocator<int>> *list) { delete list; }
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="looks for an instruction of x86-64")
@pytest.mark.parametrize("compiler", ["g++", "clang++-19"])
@pytest.mark.parametrize("level", ["-O1", "-O2", "-O3"])
def test_nodes_are_fetched_ahead(tmp_path, compiler, level):
    assert shutil.which(compiler), "the setup of the tests installs it"
    source = tmp_path / "list.cpp"
    source.write_text(SOURCE, encoding="utf-8")
    command = [compiler, "-std=c++17", level, "-I", str(ROOT / "include"), "-S", "-o", "-", str(source)]
    assembly = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "prefetch" in assembly
