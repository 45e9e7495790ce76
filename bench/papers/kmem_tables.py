"""kmem, tables 2 to 6: miss rates of each layer, flushes and waste under a code-development load, recorded from real compiles and replayed."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from pathlib import Path

from frame.experiment import (
    ALLOCATOR_VARIABLES,
    Claim,
    Context,
    ExperimentFailed,
    Result,
    Series,
    main,
)

PROJECT = Path(__file__).resolve().parent.parent.parent
# The paper's machine: what table 3 counts per second of one CPU times what table 4 says of its seconds gives eight.
CPUS = 8
JOBS = 8
COMPILE_TIMEOUT_S = 300
SIZES = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
NAMES = {"kmem": "the paper's layers", "strata": "strata"}

# Tables 2 to 6, by SIZES: percentages.
ALLOC_MISSES = (1.17, 0.18, 1.94, 3.65, 4.49, 10.94, 2.14, 20.54, 22.85)
FREE_MISSES = (1.13, 0.07, 1.68, 1.22, 1.19, 5.24, 0.73, 7.17, 15.42)
FLUSHES = (99.6, 66.1, 25.0, 72.2, 69.6, 99.8, 30.7, 68.4, 20.8)
WASTE_LOW = (4.63867, 39.2387, 56.8229, 54.3155, 26.081, 48.3367, 43.4483, 24.1796, 0)
WASTE_HEAVY = (0.7, 2.7, 51.0, 20.2, 13.1, 5.2, 16.0, 1.7, 0)
SPLITS = (75, 112, 1661, 479, 3559, 1595, 86486, 11811, 319141)
ALLOCS = (5798363, 143785499, 15997147, 7679703, 8315199, 1070258, 19502765, 1056950, 1547864)
# Allocations of at most this share of all are what the paper calls a low rate: its 512-byte blocks are 0.5 % of them.
LOW_RATE_SHARE = 0.01


def sources(context: Context) -> list[Path]:
    """strata's own, and a C++ program with most of the standard library in it; a few for a quick run."""
    own = sorted((PROJECT / "src").glob("*/*.c"))
    return context.choose([PROJECT / "bench/suite/programs/gxx_source.cpp", *own], own[:12])


def compile_recorded(context: Context, traces: Path, objects: Path, source: Path) -> None:
    is_c = source.suffix == ".c"
    compiler = shutil.which("cc" if is_c else "c++")
    if compiler is None:
        raise ExperimentFailed("there is no compiler to record: cc and c++ are needed")
    language = ["-std=gnu11"] if is_c else ["-std=c++20"]
    command = [compiler, *language, "-O2", f"-I{PROJECT}/src", f"-I{PROJECT}/include", "-c", source, "-o", objects / f"{source.stem}.o"]
    clean = {key: value for key, value in os.environ.items() if key not in ALLOCATOR_VARIABLES}
    env = {**clean, "LD_PRELOAD": str(context.build / "trace_recorder.so"), "TRACE_DIR": str(traces)}
    try:
        subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=True)
    except subprocess.CalledProcessError as error:
        raise ExperimentFailed(f"{source}: {error.stderr.strip()[-400:]}") from error
    except subprocess.TimeoutExpired as error:
        raise ExperimentFailed(f"{source}: {error}") from error


def record(context: Context, folder: Path) -> Path:
    """Eight compiles at a time, as people who share a machine would start them. Returns the folder of traces, one for each process."""
    recorder = context.build / "trace_recorder.so"
    if not recorder.is_file():  # compilers would run without it, and unrecorded
        raise ExperimentFailed(f"{recorder}: No such file")
    traces, objects = folder / "traces", folder / "objects"
    traces.mkdir()
    objects.mkdir()
    with ThreadPoolExecutor(JOBS) as pool:
        for done in [pool.submit(compile_recorded, context, traces, objects, source) for source in sources(context)]:
            done.result()
    return traces


def percent(part: float, whole: float) -> float:
    return 100 * part / whole if whole else 0.0


def misses(way: str) -> Callable[[dict], float]:
    return lambda one: percent(one[way]["global"], one[way]["requests"])


def waste(load: str) -> Callable[[dict], float]:
    return lambda one: percent(one[load]["waste_bytes"], one[load]["pages_bytes"])


def total(run: dict, *path: str) -> float:
    result = 0
    for one in run["sizes"]:
        for key in path:
            one = one[key]
        result += one
    return result


def flush_share(one: dict) -> float:
    return percent(one["flushes"], one["free"]["global"])


def in_order_of_flushes(run: dict) -> float:
    """Of all pairs of sizes, the share in which the one that comes to the global layer less often has the higher flush rate."""
    pairs = list(combinations(run["sizes"], 2))
    right = [(one["free"]["global"] < other["free"]["global"]) == (flush_share(one) > flush_share(other)) for one, other in pairs]
    return sum(right) / len(right)


def exceeding(run: dict) -> list[dict]:
    """The sizes that miss more often than once in `target` allocations, which only flushes can bring about."""
    return [one for one in run["sizes"] if one["alloc"]["global"] * one["target"] > one["alloc"]["requests"] + one["target"] * CPUS]


def order_of_flushes(runs: dict[str, dict]) -> str:
    """Why the order of table 4 is a claim about the paper's layers alone."""
    flushes = {name: [one["flushes"] for one in run["sizes"]] for name, run in runs.items()}
    return (
        "That a size which comes to the global layer less often has the higher flush rate follows from how the paper flushes: a CPU as a whole, so that all "
        f"sizes are flushed equally often ({min(flushes['kmem']):,} to {max(flushes['kmem']):,} times here), and the rate is that number by the visits; in "
        "the paper's own tables it is so for 92% of the pairs of sizes. strata empties an array that did nothing for a while, and no other: "
        f"{min(flushes['strata']):,} to {max(flushes['strata']):,} times, and the order is that of {in_order_of_flushes(runs['strata']):.0%} of the pairs. "
    )


def claims(runs: dict[str, dict]) -> list[Claim]:
    paper, strata = runs["kmem"], runs["strata"]
    most = max(paper["sizes"], key=lambda one: one["alloc"]["requests"])
    requests = total(paper, "alloc", "requests")
    found = []
    for name, run in runs.items():
        served = [100 - percent(total(run, way, "global"), total(run, way, "requests")) for way in ("alloc", "free")]
        found.append(
            Claim(
                f"{NAMES[name]}: the CPUs' own caches serve at least 98.8% of allocations and of frees ({served[0]:.2f}%, {served[1]:.2f}%)",
                "section 5.2, tables 2 and 3",
                min(served) >= 98.8,
            )
        )
    for name, run in runs.items():
        splits = next(one["alloc"]["pages"] for one in run["sizes"] if one["bytes"] == most["bytes"])
        found.append(
            Claim(
                f"{NAMES[name]}: the size that is asked for most ({most['bytes']} bytes) cuts up a page less than once in a million allocations",
                "section 5.2, table 2",
                splits * 1e6 < most["alloc"]["requests"],
            )
        )
    found += [
        Claim(
            "the paper's layers: a size with more than 1% of the allocations misses at most once in `target`, flushes or not",
            "section 5.2",
            all(one["alloc"]["requests"] <= LOW_RATE_SHARE * requests for one in exceeding(paper)),
        ),
        Claim(
            "the paper's layers: the time between two visits of the global layer predicts the flush rate: of two sizes the one with the longer time has "
            f"the higher rate, in at least 80% of all pairs ({in_order_of_flushes(paper):.0%})",
            "section 5.2, table 4",
            in_order_of_flushes(paper) >= 0.8,
        ),
    ]
    for name, run in runs.items():
        low, heavy = (percent(total(run, load, "waste_bytes"), total(run, load, "pages_bytes")) for load in ("low", "heavy"))
        found += [
            Claim(
                f"{NAMES[name]}: waste is lower at heavy load than at low load ({heavy:.1f}% and {low:.1f}%; published 9.7% and 34.8%)",
                "section 5.3, tables 5 and 6",
                heavy < low,
            ),
            Claim(
                f"{NAMES[name]}: when the load goes down memory goes back, though more is wasted",
                "section 5.3, tables 5 and 6",
                total(run, "low", "pages_bytes") < total(run, "heavy", "pages_bytes")
                and total(run, "low", "waste_bytes") > total(run, "heavy", "waste_bytes"),
            ),
        ]
    return found


def note(runs: dict[str, dict], files: int) -> str:
    paper = runs["kmem"]
    frees = paper["frees_between_flushes"]
    return (
        f"{files} source files are compiled, {JOBS} at a time, and every process is recorded by a library of ours for LD_PRELOAD: {paper['processes']} "
        f"processes, {paper['events']:,} allocations and frees of up to 4,096 bytes ({paper['large_requests']:,} larger ones are left out, as by the "
        f"paper). All are replayed by the clock of the recording over one allocator on {CPUS} virtual CPUs, each process on another CPU after 100 ms, and "
        "what a process holds is freed when it ends, which a kernel would do at once and page by page. The paper counted a kernel's own allocations for "
        "a week. Its layers are built here from its sections 3.3.1 to 3.3.3, with the targets of its table 4 and 15 lists in the global layer (section "
        f"4.4; fewer of blocks above 256 bytes: ours). A CPU is flushed after {frees:,} of its frees, as that is what one of the paper's eight CPUs did "
        "in 72 seconds. strata is the library's code on its simulated machine; its sizes are grouped by the paper's, its global layer is the depot, its "
        "pages are slabs; a flush is an array that is emptied, because its CPU did nothing for half a second, or because the heap is about to grow: most "
        "of what it had goes to the slabs, and, as with the paper's, it counts as a free that came to the global layer. "
        + order_of_flushes(runs)
        + "Waste is what is free in pages or slabs, of their size; heavy load is the moment at which most is in use, low load the "
        "first one after it with 54% of that, as in the paper's tables. A compiler fills its memory and keeps it, a kernel returns it all the "
        "time: that is why pages are cut up so much more often here than in table 2."
    )


def measure(context: Context) -> Result:
    with tempfile.TemporaryDirectory(prefix="strata-traces-") as folder:
        traces = record(context, Path(folder))
        runs = {name: context.run("kmem_replay", name, CPUS, traces) for name in NAMES}

    def curves(panel: str, of: Callable[[dict], float]) -> list[Series]:
        return [Series(title, [(one["bytes"], of(one)) for one in runs[name]["sizes"]], panel) for name, title in NAMES.items()]

    def published(panel: str, values: tuple[float, ...]) -> Series:
        return Series("the paper", list(zip(SIZES, values, strict=True)), panel)

    panels = {
        "allocations that come to the global layer": (misses("alloc"), ALLOC_MISSES),
        "frees that come to the global layer": (misses("free"), FREE_MISSES),
        "pages cut up for 1,000 allocations": (
            lambda one: 1000 * one["alloc"]["pages"] / max(1, one["alloc"]["requests"]),
            tuple(1000 * splits / allocs for splits, allocs in zip(SPLITS, ALLOCS, strict=True)),
        ),
        "frees to the global layer that are flushes": (flush_share, FLUSHES),
        "waste at low load": (waste("low"), WASTE_LOW),
        "waste at heavy load": (waste("heavy"), WASTE_HEAVY),
    }
    return Result(
        id="kmem/tables-2-6",
        title="A code-development load: misses of each layer, flushes, waste",
        unit="%",
        x_label="block size, bytes",
        x_log=True,
        measured=[series for panel, (of, _) in panels.items() for series in curves(panel, of)],
        published_curves=[published(panel, values) for panel, (_, values) in panels.items()],
        panel_units={"pages cut up for 1,000 allocations": "pages"},
        holds=claims(runs),
        note=note(runs, len(sources(context))),
    )


if __name__ == "__main__":
    main(measure)
