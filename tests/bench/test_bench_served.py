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
