"""gcc and g++ compile strata: the objects are the same, byte for byte, as those of compilers on the system's malloc."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
C_FLAGS = ["-std=gnu11", "-O2", "-g", "-fPIC", "-fvisibility=hidden", "-ftls-model=initial-exec", "-Isrc", "-Iinclude", "-Itests",
           '-DSTRATA_VERSION="test"']
CXX_FLAGS = ["-std=gnu++17", "-O2", "-g", "-Iinclude", "-Itests"]


def sources():
    c = [path for path in sorted((ROOT / "src").glob("**/*.c")) if "sim" not in path.parent.name]
    cxx = sorted((ROOT / "tests" / "stress").glob("*.cpp"))
    assert len(c) > 10 and cxx
    return [("gcc", C_FLAGS, path) for path in c] + [("g++", CXX_FLAGS, path) for path in cxx]


def compile_with(runner, job, target):
    compiler, flags, source = job
    result = runner.run([compiler, *flags, "-c", source.relative_to(ROOT), "-o", target], cwd=ROOT)
    if runner.reference is None:
        # The driver, the compiler proper and the assembler.
        assert len(result.all_stats) >= 3, f"strata served {len(result.all_stats)} processes of {compiler}"
    return target.read_bytes()


@pytest.mark.parametrize(("strata", "part"), [("rseq", slice(0, None, 2)), ("no-rseq", slice(1, None, 2)), ("refused", slice(-1, -3, -1))], indirect=["strata"])
def test_objects_are_identical(strata, plain, tmp_path, part):
    """Every source with one of the builds."""

    def check(numbered):
        number, job = numbered
        mine = compile_with(strata, job, tmp_path / f"{number}-strata.o")
        assert mine == compile_with(plain, job, tmp_path / f"{number}-plain.o"), f"{job[2]} differs"

    jobs = list(enumerate(sources()))[part]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(check, jobs))


@pytest.mark.slow
@pytest.mark.parametrize("strata", ["rseq", "no-rseq", "refused"], indirect=True)
def test_all_objects_are_identical(strata, plain, tmp_path):
    test_objects_are_identical(strata, plain, tmp_path, slice(None))
