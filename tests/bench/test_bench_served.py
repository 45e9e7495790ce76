"""Servers that measure themselves: that the one under measurement has the allocator, and what is reported of it (bench/suite/programs/served.py)."""

import os
import shutil
import subprocess
import sys
import time

import pytest
from conftest import BENCH

sys.path.insert(0, str(BENCH / "suite/programs"))
from served import Served, WorkloadError  # noqa: E402  (the path has to be set first)


def serve(command, **options):
    """A server that was looked at for a while."""
    with Served(command, stderr=subprocess.DEVNULL, **options) as server:
        server.start()
        time.sleep(0.5)
        server.stop()
        return server


def test_a_server_under_the_allocator(strata_lib, tmp_path, monkeypatch):
    link = tmp_path / "as-it-is-called.so"
    link.symlink_to(strata_lib)
    monkeypatch.setenv("LD_PRELOAD", str(link))
    assert serve(["sleep", "60"]).measured["wall_s"] >= 0.5
    assert "LD_PRELOAD" not in os.environ  # clients go without
    assert serve(["sleep", "60"]).measured["wall_s"] >= 0.5


def test_a_server_that_did_not_get_the_allocator_has_no_figures(strata_lib, tmp_path, monkeypatch):
    """As one of another user, who may not read the library: the loader says so on standard error, and goes on."""
    hidden = tmp_path / "hidden"
    hidden.mkdir(mode=0o700)
    shutil.copy(strata_lib.resolve(), hidden / "libstrata-hidden.so")
    monkeypatch.setenv("LD_PRELOAD", str(hidden / "libstrata-hidden.so"))
    with pytest.raises(WorkloadError, match="sleep ran without libstrata-hidden.so"):
        serve(["sleep", "60"], user="nobody", group="nogroup", extra_groups=[])


# Two children with 10 MB each, and 24 MB that all three have, for the first half of its life.
TREE = """
import mmap, os, time
time.sleep(0.2)
shared = mmap.mmap(-1, 24_000_000)
for at in range(0, len(shared), 4096): shared[at] = 1
for _ in range(2):
    if os.fork() == 0:
        seen = sum(shared[at] for at in range(0, len(shared), 4096))
        own = bytearray(b"x") * 10_000_000
        time.sleep(0.8)
        os._exit(0)
for _ in range(2): os.wait()
shared.close()
time.sleep(0.8)
"""


def test_of_a_server_of_several_processes_what_is_shared_counts_once():
    with Served([sys.executable, "-c", TREE], stderr=subprocess.DEVNULL) as server:
        server.start()
        server.wait(30)
        server.end()
    found = server.measured
    assert 44e6 < found["peak_rss_bytes"] < 90e6
    assert 5e6 < found["mean_rss_bytes"] < 0.8 * found["peak_rss_bytes"]
