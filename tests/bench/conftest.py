"""What the tests of the benchmarks share: the harness, where its programs were built, and collections made up.

$STRATA_EXPERIMENTS names the build folder (cmake with STRATA_EXPERIMENTS=ON); a test that needs it and doesn't find it fails.
"""

import os
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

from harness.launching import Launcher  # noqa: E402  (the path has to be set first)
from harness.measuring import Collected  # noqa: E402

TIMEOUT_S = 60
METRICS = {
    "wall_s": 1.0, "user_s": 0.5, "system_s": 0.5, "cpu_s": 1.0, "peak_rss_bytes": 1e7, "mean_rss_bytes": 5e6, "tree_peak_rss_bytes": 1e7,
    "minor_faults": 10, "major_faults": 0, "switches": 3,
}  # fmt: skip


@pytest.fixture(scope="session")
def programs():
    """The folder of the launcher, the probe and the loads."""
    value = os.environ.get("STRATA_EXPERIMENTS")
    folder = Path(value or "", "bench")
    if not value or not (folder / "launch").is_file():
        pytest.fail(f"STRATA_EXPERIMENTS={value or ''}: no build folder with bench/launch in it", pytrace=False)
    return folder.resolve()


@pytest.fixture
def launcher(programs):
    return Launcher(programs / "launch", TIMEOUT_S)


@pytest.fixture
def collected():
    """Samples made up: collected({"load": {"strata": {"wall_s": [1, 2]}}}); what is not named has a figure of no interest."""

    def make(loads):
        found = Collected()
        for load, row in loads.items():
            for allocator, metrics in row.items():
                for values in zip(*metrics.values(), strict=True):
                    found.add(load, allocator, {**METRICS, **dict(zip(metrics, values, strict=True))})
        return found

    return make
