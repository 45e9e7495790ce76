"""The programs of examples/ are built as their comments say, run, and do what they claim."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WARNINGS = ["-std=c11", "-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Wno-sign-conversion", "-Werror"]
MIB = 1 << 20


@pytest.fixture
def example(strata, tmp_path):
    """Compiles examples/NAME.c and links it to the libstrata of the mode."""

    def build(name):
        folder = strata.library.parent
        program = tmp_path / name
        subprocess.run(["cc", *WARNINGS, "-O2", f"-I{ROOT}/include", ROOT / "examples" / f"{name}.c", "-o", program, f"-L{folder}", "-lstrata",
                        f"-Wl,-rpath,{folder}"], check=True, timeout=60)
        return program

    return build


def test_every_example_has_a_test():
    assert [path.name for path in sorted((ROOT / "examples").iterdir())] == ["connections.c", "give_back.c"]


@pytest.mark.strata_only
@pytest.mark.parametrize("strata", ["rseq", "no-rseq", "refused"], indirect=True)
def test_give_back(strata, example):
    result = strata.run([example("give_back")], preload=False)
    moments = {moment: (int(in_use), int(idle)) for moment, in_use, idle in re.findall(r"^(\w+) +in_use_bytes=(\d+) idle_bytes=(\d+)$", result.text, re.M)}
    assert list(moments) == ["start", "built", "dropped", "released"], result.describe()
    # 200,000 entries of 16 to 415 bytes.
    assert moments["start"][0] < MIB and 40 * MIB < moments["built"][0] < 60 * MIB
    assert moments["dropped"][0] < MIB
    assert moments["released"][1] <= MIB
    handed_back = int(re.search(r"^handed back (\d+) bytes$", result.text, re.M)[1])
    assert handed_back > 30 * MIB, "the example's options keep idle pages, so that there is something to hand back"


@pytest.mark.strata_only
@pytest.mark.parametrize("strata", ["rseq", "no-rseq", "refused"], indirect=True)
def test_connections(strata, example):
    """Constructions are as many as objects ever were at once and in the caches, not as many as were served."""
    result = strata.run([example("connections")], preload=False)
    constructions = int(re.search(r"^served 200000 connections with (\d+) constructions$", result.text, re.M)[1])
    assert 50 <= constructions <= 2000, result.describe()
    in_use, cached = map(int, re.search(r"^in use (\d+), cached (\d+), in \d+ slabs of \d+ bytes$", result.text, re.M).groups())
    assert in_use == 0 and cached <= constructions
    rows = [row for row in result.stats["caches"] if row["name"] == "connections"]
    assert rows == [], "it was destroyed before the end"
