"""Real programs under debugging do what they do without it, and nothing is said; where the kernel has no room for firewalls, they go on."""

import subprocess

import pytest

pytestmark = pytest.mark.strata_only

CONFS = ["debug:audit+contents+guards", "debug:default+verify=20000", "debug:firewall+guards+audit=8",
         "debug:default,debug_log:transaction=1M+fail"]
JSON = "import json; print(len(json.dumps(json.loads(json.dumps([{str(i): [i] * 3} for i in range(20000)])))))"


@pytest.mark.parametrize("conf", CONFS)
def test_python(strata, conf):
    expected = subprocess.run(["python3", "-c", JSON], capture_output=True, text=True, check=True).stdout
    result = strata.run(["python3", "-c", JSON], conf=conf, quiet=False)
    assert (result.text, result.errors) == (expected, ""), result.describe()


@pytest.mark.parametrize("strata", ["no-rseq", "refused"], indirect=True)
def test_per_thread_caches(strata):
    result = strata.run(["python3", "-c", JSON], conf="debug:default", quiet=False)
    assert result.errors == "", result.describe()


@pytest.mark.parametrize("conf", CONFS)
def test_git(strata, conf, tmp_path):
    for command in (["init", "-q"], ["config", "user.email", "a@b"], ["config", "user.name", "a"]):
        subprocess.run(["git", "-C", tmp_path, *command], check=True)
    for number in range(40):
        (tmp_path / f"file{number}").write_text(f"{number}\n" * 200)
    strata.run(["git", "-C", str(tmp_path), "add", "."], conf=conf)
    strata.run(["git", "-C", str(tmp_path), "commit", "-q", "-m", "all"], conf=conf)
    strata.run(["git", "-C", str(tmp_path), "gc", "-q"], conf=conf)
    result = strata.run(["git", "-C", str(tmp_path), "log", "--stat", "--format=%s"], conf=conf, quiet=False)
    assert result.text.startswith("all\n") and "40 files changed, 8000 insertions(+)" in result.text and result.errors == "", result.describe()


@pytest.mark.parametrize("conf", CONFS)
def test_compiler(strata, conf, tmp_path):
    """Its driver finds the parts of it by PATH: the environment is whole, whatever was loaded to walk stacks."""
    source = tmp_path / "program.cpp"
    source.write_text("#include <map>\n#include <string>\n#include <cstdio>\nint main() { std::map<std::string, int> m; m[\"a\"] = 41; std::printf(\"%d\\n\", ++m[\"a\"]); }\n")
    result = strata.run(["g++", "-O1", "-o", str(tmp_path / "program"), str(source)], conf=conf, quiet=False)
    assert result.errors == "", result.describe()
    assert subprocess.run([tmp_path / "program"], capture_output=True, text=True, check=True).stdout == "42\n"


def test_failures_repeat_with_their_seed(strata):
    """A program that says which allocations failed says the same again, and something else with another seed."""
    program = "import ctypes\nlib = ctypes.CDLL(None)\nlib.malloc.restype = ctypes.c_void_p\nprint([i for i in range(2000) if not lib.malloc(30000)])"
    outputs = [strata.run(["python3", "-c", program], conf=f"debug:mtbf=50+seed={seed}@malloc-3????").text
               for seed in (7, 7, 8)]
    assert outputs[0] == outputs[1] != outputs[2] and len(eval(outputs[0])) > 10
