"""The map from sizes to caches that programs of strata/kmem.h are compiled with: what has no cookie doesn't compile, another map ends the program."""

import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.strata_only

INCLUDE = Path(__file__).resolve().parents[2] / "include"
PROGRAM = """
#include <strata/kmem.h>
int n = 100;
int main(void) {{
    static const strata_kmem_cookie cookie = STRATA_KMEM_COOKIE({size});
    strata_kmem_cookie_free(cookie, strata_kmem_cookie_alloc(cookie, STRATA_KMEM_NO_SLEEP));
    return 0;
}}
"""
# How each compiler says that the size has no cookie.
SAYS = {"gcc": "size_is_a_constant_from_1_to_STRATA_KMEM_COOKIE_MAX|constant", "clang-19": "size_is_a_constant_from_1_to_STRATA_KMEM_COOKIE_MAX|constant",
        "g++": "sizes of 1 to STRATA_KMEM_COOKIE_MAX|constant|narrowing", "clang++-19": "sizes of 1 to STRATA_KMEM_COOKIE_MAX|constant"}


def compile_program(compiler, size, *flags, include=INCLUDE):
    language = ["-x", "c++", "-std=c++11"] if "++" in compiler else ["-x", "c", "-std=c11"]
    return subprocess.run([compiler, *language, "-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Werror", f"-I{include}", "-", *flags],
                          input=PROGRAM.format(size=size), capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("compiler", SAYS)
@pytest.mark.parametrize("size", ["0", "32769", "-1", "n", "1ull << 40"])
def test_sizes_without_a_cookie_do_not_compile(compiler, size):
    result = compile_program(compiler, size, "-fsyntax-only")
    assert result.returncode != 0 and re.search(SAYS[compiler], result.stderr), result.stderr


@pytest.mark.parametrize("compiler", SAYS)
@pytest.mark.parametrize("size", ["1", "sizeof(double) * 7", "32768", "STRATA_KMEM_COOKIE_MAX", "257u", "1000ull"])
def test_sizes_with_a_cookie_do(strata, compiler, size, tmp_path):
    folder = strata.library.parent
    result = compile_program(compiler, size, "-o", str(tmp_path / "program"), f"-L{folder}", "-lstrata", f"-Wl,-rpath,{folder}")
    assert result.returncode == 0, result.stderr
    strata.run([tmp_path / "program"], preload=False)


def test_a_program_of_another_map_is_ended(strata, tmp_path):
    """It was compiled with the header of a version to come."""
    shutil.copytree(INCLUDE, tmp_path / "include")
    header = tmp_path / "include" / "strata" / "kmem.h"
    text = header.read_text()
    header.write_text(text.replace("#define STRATA_KMEM_MAP 1", "#define STRATA_KMEM_MAP 2"))
    assert header.read_text() != text
    folder = strata.library.parent
    result = compile_program("gcc", "100", "-o", str(tmp_path / "program"), f"-L{folder}", "-lstrata", f"-Wl,-rpath,{folder}", include=tmp_path / "include")
    assert result.returncode == 0, result.stderr
    result = strata.run([tmp_path / "program"], preload=False, prove=False, quiet=False, expect=None)
    assert result.returncode == -signal.SIGABRT, result.describe()
    assert result.errors == ("strata: strata_kmem_cookie_alloc(): cookie is 0x20006, of version 2 of the class map; this library has version 1: "
                             "compile the program anew\n")
