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
                        "-pthread", f"-Wl,-rpath,{folder}"], check=True, timeout=60)
        return program

    return build


def test_every_example_has_a_test():
    assert [path.name for path in sorted((ROOT / "examples").iterdir())] == ["event_pool.c", "give_back.c"]


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
@pytest.mark.parametrize("strata", ["rseq", "no-rseq"], indirect=True)
@pytest.mark.parametrize("transfers, bound", [([], 600_000 // 256 + 4), (["64", "8", "56"], 600_000 // 8 + 4), (["8", "8", "8"], None)])
def test_event_pool(strata, example, transfers, bound):
    result = strata.run([example("event_pool"), *transfers], preload=False)
    match = re.search(r"^m=(\d+) m_alpha=(\d+) m_beta=(\d+) requests=600000 accesses=(\d+) bound=(\w+)$", result.text, re.M)
    assert match, result.describe()
    assert [match[1], match[2], match[3]] == (transfers or ["512", "256", "256"])
    assert match[5] == str(bound or "none").lower()
    assert 0 < int(match[4]) <= (bound or 600_000)


@pytest.mark.strata_only
def test_event_pool_refuses_what_is_no_pool(strata, example):
    result = strata.run([example("event_pool"), "8", "9"], preload=False, expect=1, prove=False)
    assert b"bad argument" in result.err, result.describe()
