"""umpa, table 2: programs as they are, under the system's malloc and under strata: g++, Python, a solver whose arrays grow."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from frame.experiment import ALLOCATOR_VARIABLES, Claim, Context, ExperimentFailed, Published, Result, Series, interleaved, main, same

HERE = Path(__file__).resolve().parent
GXX_SOURCE = HERE.parent / "suite/programs/gxx_source.cpp"
GXX_FLAGS = {"-O0": ["-O0"], "-g -O0": ["-g", "-O0"], "-O3": ["-O3"], "-g -O3": ["-g", "-O3"]}
# Table 2, g++: test 1 a to d, test 2 a to d, in per cent.
PUBLISHED = {"-O0": (2.99, 3.04), "-g -O0": (1.19, 1.20), "-O3": (5.68, 5.25), "-g -O3": (4.44, 3.98)}


def commands(context: Context, scratch: str) -> dict[str, list[str]]:
    gxx = shutil.which("g++")
    if gxx is None:
        raise ExperimentFailed("there is no g++")
    python = [sys.executable, str(HERE / "umpa_python.py")]
    flags = context.choose(list(GXX_FLAGS), ["-O0"])
    depths, lengths = context.choose((range(13, 20), (1_000_000, 3_000_000, 10_000_000)), ((11,), (30_000,)))
    return {
        **{f"g++ {one}": [gxx, "-std=c++20", *GXX_FLAGS[one], "-c", str(GXX_SOURCE), "-o", f"{scratch}/object.o"] for one in flags},
        **{f"binary-trees {depth}": [*python, "binary-trees", str(depth)] for depth in depths},
        **{f"k-nucleotide {length:,}": [*python, "k-nucleotide", str(length)] for length in lengths},
        **{f"solver {size:,}": [str(context.build / "umpa_solver"), str(size), "16"] for size in context.choose((30, 300, 1000), (30,))},
    }


def run(command: list[str], library: Path | None) -> dict:
    """The time and the peak of a command and of what it starts."""
    environment = {key: value for key, value in os.environ.items() if key not in ALLOCATOR_VARIABLES}
    if library:
        environment |= {"LD_PRELOAD": str(library), "STRATA_CONF": "verify:on"}
    start = time.monotonic()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - start
        output.seek(0)
        said = output.read()
    if process.returncode != 0:
        raise ExperimentFailed(f"{command[0]}: exit status {process.returncode}: {said[-300:]}")
    return {"seconds": seconds, "peak_mib": usage.ru_maxrss / 1024, "said": said}


def measure(context: Context) -> Result:
    library = context.build.parent.parent / "libstrata.so"
    if not library.exists():
        raise ExperimentFailed(f"{library}: no such file")
    with tempfile.TemporaryDirectory() as scratch:
        programs = commands(context, scratch)
        jobs = {
            (name, preload): lambda command=command, preload=preload: run(command, library if preload else None)
            for name, command in programs.items()
            for preload in (False, True)
        }
        runs = interleaved(context.choose(3, 1), jobs)  # of minutes in all
    for name in programs:
        same(f"what {name} says", [one["said"] for preload in (False, True) for one in runs[name, preload]])
    time_s = {key: median(one["seconds"] for one in done) for key, done in runs.items()}
    gain = {name: (time_s[name, False] / time_s[name, True] - 1) * 100 for name in programs}
    peak = {name: [median(one["peak_mib"] for one in runs[name, preload]) for preload in (False, True)] for name in programs}
    order = list(enumerate(programs, 1))
    compiles = [gain[name] for name in programs if name.startswith("g++")]
    return Result(
        id="umpa/table-2",
        title="Programs under strata and under the system's malloc",
        unit="per cent",
        x_label="program: " + "; ".join(f"{number} {name}" for number, name in order),
        published=[
            *[
                Published(f"g++ {flag}, test {number}", value, "per cent", "table 2")
                for flag, values in PUBLISHED.items()
                for number, value in enumerate(values, 1)
            ],
            Published("Python, binary-trees, mean", 0.47, "per cent", "table 2"),
            Published("Python, k-nucleotide, mean", 0.35, "per cent", "table 2"),
            *[Published(f"solver, test 5{letter}", value, "per cent", "table 2") for letter, value in (("a", 1.41), ("b", 1.07), ("c", 0.58))],
        ],
        panel_units={"peak of memory": "MiB"},
        measured=[
            Series("improvement", [(number, gain[name]) for number, name in order], "improvement"),
            *[
                Series(title, [(number, peak[name][preload]) for number, name in order], "peak of memory")
                for preload, title in enumerate(("the system's malloc", "strata"))
            ],
        ],
        holds=[
            Claim("every compilation by g++ is faster", "table 2, tests 1 and 2", all(value > 0 for value in compiles)),
            Claim(f"programs are faster in the median ({median(gain.values()):+.1f} %)", "table 2", median(gain.values()) > 0),
        ],
        note="Improvement: time under the system's malloc over time under strata, less one. Strata differs from glibc's malloc in more than its pages; "
        "the paper's system has the same dlmalloc in both. The sizes of the Python programs are the paper's; programs, and other sizes, are of the same kinds.",
    )


if __name__ == "__main__":
    main(measure)
