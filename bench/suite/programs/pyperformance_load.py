"""The workload "pyperformance": a part of the Python benchmark suite of that name, each benchmark with a fixed number of loops, one after the other.

    pyperformance_load.py prepare     copies the benchmarks of the installed package into the scratch folder
    pyperformance_load.py             runs them; prints what each worked out

The benchmarks are the package's own, and chosen so that they need nothing but the standard library. They want a module pyperf, which would find out
itself how many loops to make, in processes of its own: the one that they get here makes as many as the table below says. Results: most of these
benchmarks look at their own; what a function returns is printed where it is the same each time, and of pictures a digest.
"""

import argparse
import asyncio
import hashlib
import platform
import runpy
import shutil
import sys
import time
import types
from pathlib import Path

# Beside the packages that draw plots: tools/setup.sh bench.
VENV = Path(__file__).resolve().parents[3] / "build/venv"
BENCHMARKS_FOLDER = "pyperformance/data-files/benchmarks"
# (folder, arguments, loops)
PICTURE = "picture.ppm"
BENCHMARKS = (
    ("async_generators", (), 1),
    ("chaos", ("--filename", PICTURE), 2),
    ("comprehensions", (), 3000),
    ("deepcopy", (), 100),
    ("deltablue", (), 40),
    ("float", (), 2),
    ("generators", (), 2),
    ("go", (), 1),
    ("hexiom", (), 10),
    ("json_dumps", (), 10),
    ("json_loads", (), 200),
    ("meteor_contest", (), 1),
    ("pickle", ("pickle",), 300),
    ("pickle", ("unpickle_list",), 2000),
    ("pyflate", (), 1),
    ("raytrace", ("--filename", PICTURE), 1),
    ("regex_v8", (), 3),
    ("richards", (), 2),
    ("telco", (), 20),
    ("xml_etree", (), 1),
)
PLAIN = (bool, int, float, str, bytes, tuple, type(None))


class Runner:
    """What the benchmarks use of pyperf's; `loops` and `words` belong to the benchmark that runs."""

    loops = 1
    words: tuple[str, ...] = ()

    def __init__(self, add_cmdline_args=None):
        self.metadata: dict[str, str] = {}
        self.argparser = argparse.ArgumentParser()
        self.args = None

    def parse_args(self):
        self.args = self.argparser.parse_args(self.words)
        return self.args

    def bench_time_func(self, name, function, *arguments, inner_loops=None):
        function(self.loops, *arguments)
        print(name)

    def bench_func(self, name, function, *arguments, inner_loops=None):
        result = None
        for _ in range(self.loops):
            result = function(*arguments)
        print(name, repr(result) if isinstance(result, PLAIN) else type(result).__name__)

    def bench_async_func(self, name, function, *arguments, inner_loops=None):
        for _ in range(self.loops):
            asyncio.run(function(*arguments))
        print(name)


def stand_in() -> types.ModuleType:
    module = types.ModuleType("pyperf")
    module.Runner, module.perf_counter, module.python_implementation = Runner, time.perf_counter, lambda: platform.python_implementation().lower()
    return module


def prepare() -> None:
    found = sorted(VENV.glob(f"lib/python3*/site-packages/{BENCHMARKS_FOLDER}"))
    if not found:
        sys.exit(f"pyperformance: the package is not in {VENV}; `make bench` installs it")
    for name in {name for name, _, _ in BENCHMARKS}:
        shutil.copytree(found[-1] / f"bm_{name}", f"bm_{name}", ignore=shutil.ignore_patterns("__pycache__"))


def run() -> None:
    sys.modules["pyperf"] = stand_in()
    sys.dont_write_bytecode = True
    for name, words, loops in BENCHMARKS:
        Runner.loops, Runner.words = loops, words
        runpy.run_path(f"bm_{name}/run_benchmark.py", run_name="__main__")
        if PICTURE in words:
            picture = Path(PICTURE)
            print(hashlib.sha256(picture.read_bytes()).hexdigest())
            picture.unlink()


if __name__ == "__main__":
    if sys.argv[1:] == ["prepare"]:
        prepare()
    elif len(sys.argv) == 1:
        run()
    else:
        sys.exit(__doc__)
