"""What a program of an experiment in Python is made of: its arguments, the programs that it drives, its result.

The contract between the frame and any experiment, in whatever language: PROGRAM --build DIR --output FILE [--quick]
writes one JSON document to FILE that satisfies result.schema.json, and exits with 0; or it says on standard error what went
wrong and exits with another status. Whether a claim of the paper holds is no error: the document says it.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

# How allocators are told to behave: an experiment starts from none of it.
ALLOCATOR_VARIABLES = ("LD_PRELOAD", "GLIBC_TUNABLES", "STRATA_CONF")
RUN_TIMEOUT_S = 600


class ExperimentFailed(Exception):
    """Nothing can be said about the claims: the message says why."""


@dataclass(frozen=True)
class Published:
    """A number that the paper gives, and the section, figure or table that it stands in."""

    what: str
    value: float
    unit: str
    where: str


@dataclass(frozen=True)
class Series:
    """One measured curve: points (x, y), in a panel of the plot."""

    name: str
    points: Sequence[tuple[float, float]]
    panel: str = ""


@dataclass(frozen=True)
class Map:
    """A picture of many things of a few kinds, in order: a letter of `kinds` for each. Of one `kinds` are all maps of a document."""

    name: str
    cells: str


@dataclass(frozen=True)
class Claim:
    """What the paper says, as a statement about our measurements, and whether it is true of them; None: they can't tell, as `noise` says."""

    statement: str
    where: str
    value: bool | None
    noise: str = ""


@dataclass
class Result:
    """The document of one experiment. `unit` is that of all measured y values, but in panels that have one of their own; so is x_label."""

    id: str
    title: str
    unit: str
    x_label: str
    measured: list[Series]
    holds: list[Claim]
    published: list[Published] = field(default_factory=list)
    published_curves: list[Series] = field(default_factory=list)
    panel_units: dict[str, str] = field(default_factory=dict)
    panel_x_labels: dict[str, str] = field(default_factory=dict)
    maps: list[Map] = field(default_factory=list)
    map_kinds: dict[str, str] = field(default_factory=dict)
    note: str = ""
    x_log: bool = False
    y_log: bool = False

    def document(self, quick: bool) -> dict:
        document = asdict(self)
        for claim in document["holds"]:
            if claim["value"] is not None:
                del claim["noise"]
        return {**document, "quick": quick}


class Context:
    """What an experiment may use: whether to be quick, and the programs that were built for it."""

    def __init__(self, build: Path, quick: bool):
        self.build = build
        self.quick = quick
        self.cpus = len(os.sched_getaffinity(0))

    def several_cpus(self) -> int:
        """How many CPUs there are, for claims about several: of one they would be true without saying anything."""
        if self.cpus < 2:
            raise ExperimentFailed("this compares several CPUs with one, and there is only one")
        return self.cpus

    def choose(self, full, quick):
        """One of two values: that of a full run or that of a quick one."""
        return quick if self.quick else full

    def run(self, program: str, *args: object, conf: str = "", env: Mapping[str, str] | None = None, timeout_s: float = RUN_TIMEOUT_S) -> dict:
        """Runs a C program of bench/papers/ and returns the JSON object that it prints on its last line.

        Its malloc is proved to be strata's (the option verify), as these programs are linked to libstrata.so.
        """
        command = [str(self.build / program), *map(str, args)]
        clean = {key: value for key, value in os.environ.items() if key not in ALLOCATOR_VARIABLES}
        options = ",".join(part for part in ("verify:on", conf) if part)
        try:
            done = subprocess.run(
                command,
                env={**clean, "STRATA_CONF": options, **(env or {})},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=timeout_s,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ExperimentFailed(f"{program}: {error}") from error
        what = " ".join([program, *command[1:]])
        if done.returncode != 0:
            raise ExperimentFailed(f"{what}: exit status {done.returncode}: {done.stderr.strip()[-400:]}")
        try:
            return json.loads(done.stdout.splitlines()[-1])
        except (IndexError, ValueError) as error:
            raise ExperimentFailed(f"{what}: no JSON on its last line: {done.stdout[-200:]!r}") from error


def interleaved(repetitions: int, jobs: Mapping[object, Callable[[], dict]]) -> dict[object, list[dict]]:
    """Runs every job `repetitions` times, taking turns, so that a slow minute of the machine hits all of them alike."""
    done: dict[object, list[dict]] = {key: [] for key in jobs}
    for repetition in range(repetitions):
        keys = list(jobs)
        for key in keys[repetition % len(keys) :] + keys[: repetition % len(keys)]:
            done[key].append(jobs[key]())
    return done


def median(runs: Sequence[dict], name: str) -> float:
    return statistics.median(run[name] for run in runs)


def spread(values: Sequence[float]) -> float:
    """How far apart the same measurement is when it is repeated: the distance of the quartiles."""
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return high - low


@dataclass(frozen=True)
class Comparison:
    """Of two measurements, each made several times: whether the median of one is less. `shown` names them for a reader."""

    less: Sequence[float]
    more: Sequence[float]
    shown: str
    unit: str

    @property
    def difference(self) -> float:
        return statistics.median(self.more) - statistics.median(self.less)

    @property
    def noise(self) -> float:
        return math.hypot(spread(self.less), spread(self.more))

    @property
    def value(self) -> bool | None:
        return None if abs(self.difference) <= self.noise else self.difference > 0


def claim_of(statement: str, where: str, comparisons: Sequence[Comparison]) -> Claim:
    """A claim that all of the comparisons together make: one that fails refutes it; else one within its noise leaves it open."""
    values = [one.value for one in comparisons]
    if False in values or None not in values:
        return Claim(statement, where, False not in values)
    noise = [f"{one.shown}: a difference of {one.difference:.2g} {one.unit}, a noise of {one.noise:.2g}" for one in comparisons if one.value is None]
    return Claim(statement, where, None, "; ".join(noise))


@dataclass(frozen=True)
class Scaling:
    """Medians of the same work by 1, 2, 4, … threads, each on a CPU of its own: by (name, threads)."""

    counts: list[int]
    latency: dict[tuple[str, int], float]
    rate: dict[tuple[str, int], float]

    @property
    def most(self) -> int:
        return self.counts[-1]

    def curve(self, title: str, name: str) -> Series:
        return Series(title, [(threads, self.latency[name, threads]) for threads in self.counts])

    def is_linear(self, name: str, share: float) -> bool:
        return self.rate[name, self.most] >= share * self.most * self.rate[name, 1]

    def is_best_on_one(self, name: str) -> bool:
        return all(self.rate[name, threads] < self.rate[name, 1] for threads in self.counts[1:])


def scaling(context: Context, names: Sequence[str], job: Callable[[str, int, int], dict]) -> Scaling:
    """Runs job(name, threads, milliseconds) for all names and numbers of threads; each gives ns_per_pair and pairs_per_second."""
    counts = doubled(context.several_cpus())
    milliseconds = context.choose(1000, 100)
    jobs = {(name, threads): partial(job, name, threads, milliseconds) for name in names for threads in counts}
    runs = interleaved(context.choose(5, 3), jobs)
    latency, rate = ({key: median(done, what) for key, done in runs.items()} for what in ("ns_per_pair", "pairs_per_second"))
    return Scaling(counts, latency, rate)


def doubled(most: int) -> list[int]:
    """1, 2, 4, … up to 64, and `most`, none of them above that."""
    return sorted({1, 2, 4, 8, 16, 32, 64, most} & set(range(1, most + 1)))


def same(what: str, values: Sequence[object]) -> None:
    """Experiments check their own work: all runs must have come to one result."""
    if len(set(values)) != 1:
        raise ExperimentFailed(f"{what} differ between runs: {sorted(set(map(str, values)))[:4]}")


def main(measure: Callable[[Context], Result]) -> None:
    """Runs an experiment as the frame, or a person, calls it."""
    parser = argparse.ArgumentParser(description=sys.modules[measure.__module__].__doc__)
    parser.add_argument("--build", type=Path, required=True, help="where the C programs of bench/papers were built")
    parser.add_argument("--output", type=Path, required=True, help="where the JSON document goes")
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes")
    options = parser.parse_args()
    try:
        result = measure(Context(options.build, options.quick))
    except ExperimentFailed as failure:
        sys.exit(str(failure))
    options.output.write_text(json.dumps(result.document(options.quick), indent=1, allow_nan=False) + "\n")
