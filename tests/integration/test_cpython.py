"""CPython's own tests, with every Python object from malloc (PYTHONMALLOC), under strata.

Debian's interpreter, as it is linked to the system's C library; its tests come from libpython3.11-testsuite (or that of its version).
"""

import subprocess

import pytest

PYTHON = "/usr/bin/python3"
ALL = ["test_subprocess", "test_threading", "test_json", "test_dict", "test_list", "test_set", "test_gc", "test_unicode", "test_deque", "test_thread",
       "test_re", "test_mmap", "test_array", "test_tuple", "test_ctypes", "test_zlib", "test_bytes", "test_fork1"]
SOME = ["test_threading", "test_json", "test_dict", "test_gc", "test_list", "test_thread"]
LONG = ["test_io", "test_pickle", "test_weakref", "test_queue", "test_asyncio", "test_concurrent_futures", "test_signal"]


def run(strata, tests, tmp_path, conf="", timeout_s=240):
    found = subprocess.run([PYTHON, "-c", "import test.test_json"], capture_output=True, timeout=60)
    assert found.returncode == 0, "Debian's python3 has no test suite: apt-get install libpython3.11-testsuite"
    result = strata.run([PYTHON, "-m", "test", "-j2", *tests], conf=conf, env={"PYTHONMALLOC": "malloc"}, cwd=tmp_path, timeout_s=timeout_s)
    assert "Tests result: SUCCESS" in result.text, result.describe()
    if len(tests) == 1:
        return
    assert f"All {len(tests)} tests OK." in result.text, result.describe()


def test_cpython(strata, tmp_path):
    run(strata, ALL, tmp_path)


@pytest.mark.parametrize("strata", ["no-rseq"], indirect=True)
def test_cpython_with_thread_caches(strata, tmp_path):
    run(strata, SOME, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("strata", ["rseq", "no-rseq", "refused"], indirect=True)
def test_cpython_long(strata, tmp_path):
    run(strata, ALL + LONG, tmp_path, conf="" if strata.reference else "background:on", timeout_s=900)
