"""What the tests of the papers' experiments share: where the programs were built, running the frame, documents and programs made up.

$STRATA_EXPERIMENTS names the build folder (cmake with STRATA_EXPERIMENTS=ON); a test that needs it and doesn't find it fails.
"""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from papers_places import PAPERS, TIMEOUT_S, Experiment


@pytest.fixture(scope="session")
def build():
    value = os.environ.get("STRATA_EXPERIMENTS")
    if not value or not Path(value, "bench/papers").is_dir():
        pytest.fail(f"STRATA_EXPERIMENTS={value or ''}: no build folder with bench/papers in it", pytrace=False)
    return Path(value).resolve()


@pytest.fixture
def papers(tmp_path):
    """Runs the command as `make papers` does: papers("--only", "vh"), or with start=subprocess.Popen. Output goes to tmp_path/out and /docs."""

    def run(*args, env=None, start=subprocess.run, **options):
        clean = {key: value for key, value in os.environ.items() if key != "QUICK" and not key.startswith("STRATA_")}
        places = ["--output", tmp_path / "out", "--docs", tmp_path / "docs/papers.md"]
        command = [sys.executable, PAPERS / "papers.py", *places, *args]
        if start is subprocess.run:
            options = {"capture_output": True, "timeout": TIMEOUT_S}
        return start(list(map(str, command)), env={**clean, **(env or {})}, text=True, **options)

    (tmp_path / "docs").mkdir()
    return run


@pytest.fixture
def program(tmp_path):
    """Makes up an experiment: program("name", text of a shell script). $OUTPUT is where it has to write."""

    def write(figure, text, timeout_s=20):
        folder = tmp_path / "programs"
        folder.mkdir(exist_ok=True)
        file = folder / figure
        file.write_text('#!/bin/sh\nOUTPUT=$4\n[ "$1 $3" = "--build --output" ] || exit 9\n' + text)
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
        return Experiment("made-up", figure, figure, timeout_s)

    return write


@pytest.fixture
def document():
    """A document that satisfies the schema: document("figure", note="other")."""

    def make(figure="good", **changes):
        return {
            "id": f"made-up/{figure}",
            "title": "A title",
            "unit": "ns",
            "x_label": "threads",
            "x_log": False,
            "y_log": False,
            "published": [{"what": "one | two", "value": 356, "unit": "ns", "where": "section 3.8"}],
            "measured": [
                {"name": "first", "panel": "left", "points": [[1, 12.34567], [2, 1234.5]]},
                {"name": "second", "panel": "left", "points": [[2, 7]]},
                {"name": "first", "panel": "right", "points": [[1, 0.5]]},
            ],
            "holds": [
                {"statement": "this is true", "where": "section 1", "value": True},
                {"statement": "this is false", "where": "figure 2", "value": False},
            ],
            "note": "A note.",
            "quick": False,
            **changes,
        }

    return make
