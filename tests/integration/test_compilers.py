"""gcc and g++ compile strata: the objects and the library are the same, byte for byte, as those of compilers on the system's malloc.

The library that comes out then serves a compiler itself.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# As CMake has them (cmake/flags.cmake), because what is built here is also run.
C_FLAGS = [*(f"-fno-builtin-{name}" for name in ("malloc", "calloc", "realloc", "reallocarray", "free", "aligned_alloc", "memalign", "posix_memalign")),
           "-std=gnu11", "-O2", "-g", "-fPIC", "-fexceptions", "-fvisibility=hidden", "-ftls-model=initial-exec", "-fno-semantic-interposition", "-fno-plt",
           "-Isrc", "-Iinclude", "-Itests"]
CXX_FLAGS = ["-std=gnu++17", "-O2", "-g", "-Iinclude", "-Itests"]
LINK_FLAGS = ["-shared", "-Wl,-soname,libstrata.so.0", "-Wl,-z,nodelete,-z,now,-z,relro", "-Wl,--no-undefined", "-Wl,--version-script=src/api/strata.map"]


def sources_of_the_library():
    """Every source of src/ for Linux."""
    found = [path for path in sorted((ROOT / "src").glob("**/*.c")) if path.parent.name not in ("sim", "umem")]
    assert len(found) > 30
    return [("gcc", C_FLAGS, path) for path in found]


def sources():
    cxx = sorted((ROOT / "tests" / "stress").glob("*.cpp"))
    assert cxx
    return sources_of_the_library() + [("g++", CXX_FLAGS, path) for path in cxx]


def compile_with(runner, job, target):
    compiler, flags, source = job
    result = runner.run([compiler, *flags, "-c", source.relative_to(ROOT), "-o", target], cwd=ROOT)
    if runner.reference is None:
        # The driver, the compiler proper and the assembler.
        assert len(result.all_stats) >= 3, f"strata served {len(result.all_stats)} processes of {compiler}"
    return target.read_bytes()


def compile_all(strata, plain, tmp_path, jobs):
    """Compiles each of the jobs under strata and without it, two at a time; returns the objects of strata's compilers and of the others."""

    def compile_both(numbered):
        number, job = numbered
        mine, theirs = tmp_path / f"{number}-strata.o", tmp_path / f"{number}-plain.o"
        assert compile_with(strata, job, mine) == compile_with(plain, job, theirs), f"{job[2]} differs"
        return mine, theirs

    with ThreadPoolExecutor(2) as pool:
        pairs = list(pool.map(compile_both, enumerate(jobs)))
    return [mine for mine, _ in pairs], [theirs for _, theirs in pairs]


def link_with(runner, objects, target):
    result = runner.run(["gcc", *LINK_FLAGS, *objects, "-ldl", "-o", target], cwd=ROOT)
    if runner.reference is None:
        # The driver, collect2 and the linker.
        assert len(result.all_stats) >= 3, f"strata served {len(result.all_stats)} processes of the linker"
    return target.read_bytes()


def test_library_is_identical_and_serves_a_compiler(strata, plain, tmp_path):
    """All of src/ compiled and linked under strata; then the new library is the malloc of the compiler."""
    mine, theirs = compile_all(strata, plain, tmp_path, sources_of_the_library())
    library = tmp_path / "built" / "libstrata.so"
    library.parent.mkdir()
    assert link_with(strata, mine, library) == link_with(plain, theirs, tmp_path / "plain.so")
    built = type(strata)("rseq", library, {}, tmp_path, strata.reference)
    job = sources_of_the_library()[0]
    assert compile_with(built, job, tmp_path / "by-the-built.o") == theirs[0].read_bytes()


@pytest.mark.parametrize(("strata", "part"), [("no-rseq", slice(1, None, 8)), ("refused", slice(-1, -3, -1))], indirect=["strata"])
def test_objects_are_identical(strata, plain, tmp_path, part):
    """Some of the sources with the builds that the test above doesn't take; C++ among them."""
    compile_all(strata, plain, tmp_path, sources()[part])


def test_cxx_objects_are_identical(strata, plain, tmp_path):
    compile_all(strata, plain, tmp_path, [job for job in sources() if job[0] == "g++"])


@pytest.mark.slow
@pytest.mark.parametrize("strata", ["rseq", "no-rseq", "refused"], indirect=True)
def test_all_objects_are_identical(strata, plain, tmp_path):
    compile_all(strata, plain, tmp_path, sources())
