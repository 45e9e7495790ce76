"""Runs loads, start-ups and micro benchmarks under every allocator and collects the samples; programs.py runs the real programs.

Allocators take turns within each load, in another order each repetition, so that a machine that grows slower or faster with
time is unfair to none. A load of one thread is pinned to one CPU.

Invariants: samples hold only runs that ended well; all runs of a load have the same checksum, whatever the allocator.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from .allocators import Allocator
from .catalogue import Load, StartUp
from .launching import Launcher, RunFailed

# The loads of a scaling group are short, and their ratio needs more turns than a median of times.
SCALING_TURNS = 3


@dataclass
class Collected:
    """Everything that was measured: samples[load][allocator] is a list of metric dicts; pages has what pages.py measures, a document a repetition."""

    samples: dict[str, dict[str, list[dict[str, float]]]] = field(default_factory=dict)
    micro: dict[str, dict[str, list[dict[str, float]]]] = field(default_factory=dict)
    pages: list[dict] = field(default_factory=list)
    checks: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    depot_visits: list[dict] = field(default_factory=list)  # see visits.py

    def add(self, load: str, allocator: str, metrics: dict[str, float]) -> None:
        self.samples.setdefault(load, {}).setdefault(allocator, []).append(metrics)

    def drop(self, load: str, allocator: str, problem: str) -> None:
        """An allocator that failed once in a load has no figures there."""
        self.samples.get(load, {}).pop(allocator, None)
        self.problems.append(f"{load} under {allocator}: {problem}")



class Progress(Protocol):
    """Told before each run what is about to run; `runs` is how many the call stands for."""

    def __call__(self, what: str, runs: int = 1) -> None: ...



def in_turn(allocators: Sequence[Allocator], turn: int) -> list[Allocator]:
    """The allocators, starting with another one each turn, and backwards every other turn: neighbours change too."""
    start = turn % len(allocators)
    order = [*allocators[start:], *allocators[:start]]
    return order[::-1] if turn % 2 else order


def turns(load: Load, repetitions: int) -> int:
    """How often a load runs under each allocator."""
    return repetitions * (SCALING_TURNS if load.scaling_group else 1)


def run_loads(
    loads: Sequence[Load],
    allocators: Sequence[Allocator],
    launcher: Launcher,
    folder: Path,
    repetitions: int,
    work_percent: int,
    cpu: int | None,
    collected: Collected,
    progress: Progress,
) -> None:
    for group in _side_by_side(loads):
        count = turns(group[0], repetitions)
        left = list(allocators)
        for turn in range(count):
            for allocator in in_turn(list(allocators), turn):
                for load in group:
                    progress(f"{load.name} {turn + 1}/{count} {allocator.name}")
                    if allocator not in left:
                        continue
                    try:
                        _run_load(load, allocator, launcher, folder, work_percent, cpu, collected)
                    except RunFailed as failure:
                        left.remove(allocator)
                        for member in group:
                            collected.drop(member.name, allocator.name, f"{load.name}: {failure}" if member is not load else str(failure))


def _side_by_side(loads: Sequence[Load]) -> list[list[Load]]:
    """Loads of one scaling group run one after the other each turn: what is asked of them is their ratio, and a machine's pace changes."""
    groups: dict[str, list[Load]] = {}
    for load in loads:
        groups.setdefault(load.scaling_group or load.name, []).append(load)
    return list(groups.values())


def _run_load(
    load: Load, allocator: Allocator, launcher: Launcher, folder: Path, work_percent: int, cpu: int | None, collected: Collected
) -> None:
    pinned = cpu if load.threads == 1 else None
    sample = launcher.run(load.command(str(folder), work_percent), allocator.preload, allocator.env, pinned)
    try:
        report = json.loads(sample.output)
        inner_s, check = float(report["seconds"]), str(report["check"])
        rate = float(report["operations_per_second"])
    except (ValueError, KeyError) as error:
        raise RunFailed(f"its report is not what a load prints: {sample.output[:200]!r}") from error
    expected = collected.checks.setdefault(load.name, check)
    if check != expected:
        raise RunFailed(f"its result {check} differs from {expected}, that of the first run")
    collected.add(load.name, allocator.name, {**sample.metrics, "inner_s": inner_s, "operations_per_s": rate, **_latencies(load, report)})


def _latencies(load: Load, report: dict) -> dict[str, float]:
    """Quantiles by call, of loads that stand for servers."""
    if not load.server:
        return {}
    try:
        calls = report["latency"]
        return {f"{call}_{name}": float(calls[call][name]) for call in ("malloc", "free") for name in ("p50_ns", "p99_ns", "p99_9_ns")}
    except (KeyError, ValueError) as error:
        raise RunFailed(f"its report has no latencies: {error}") from error


def run_startups(
    startups: Sequence[StartUp],
    allocators: Sequence[Allocator],
    launcher: Launcher,
    repetitions: int,
    work_percent: int,
    cpu: int | None,
    collected: Collected,
    progress: Progress,
) -> None:
    """Times, faults and switches are those of one start in the mean, peak RSS that of the largest."""
    for startup in startups:
        left = list(allocators)
        times = startup.repeated(work_percent)
        for turn in range(repetitions):
            for allocator in in_turn(list(allocators), turn):
                progress(f"{startup.name} {turn + 1}/{repetitions} {allocator.name}")
                if allocator not in left:
                    continue
                try:
                    sample = launcher.run(startup.command, allocator.preload, allocator.env, cpu, repeat=times)
                    check = hashlib.sha256(sample.output.encode()).hexdigest()
                    if check != collected.checks.setdefault(startup.name, check):
                        raise RunFailed("its output differs from that of the first run")
                    sums = {name: value / times for name, value in sample.metrics.items() if "rss" not in name}
                    collected.add(startup.name, allocator.name, sample.metrics | sums)
                except RunFailed as failure:
                    left.remove(allocator)
                    collected.drop(startup.name, allocator.name, str(failure))


def run_micro(
    programs: Sequence[Path],
    pattern: str,
    allocators: Sequence[Allocator],
    launcher: Launcher,
    repetitions: int,
    min_time_s: float,
    collected: Collected,
    progress: Progress,
) -> None:
    """Google Benchmark programs: a process each turn, its results in nanoseconds by benchmark name; one that a program skipped has none."""
    for program in programs:
        options = ["--benchmark_format=json", f"--benchmark_min_time={min_time_s}", f"--benchmark_filter={pattern}"]
        left = list(allocators)
        names: set[str] = set()  # of its benchmarks
        for turn in range(repetitions):
            for allocator in in_turn(list(allocators), turn):
                progress(f"{program.name} {turn + 1}/{repetitions} {allocator.name}")
                if allocator not in left:
                    continue
                try:
                    sample = launcher.run([str(program), *options], allocator.preload, allocator.env)
                    for result in json.loads(sample.output)["benchmarks"] if sample.output.strip() else []:
                        if result.get("error_occurred"):
                            _skip(collected, result, allocator)
                            continue
                        names.add(result["name"])
                        row = collected.micro.setdefault(result["name"], {}).setdefault(allocator.name, [])
                        row.append({"ns": _nanoseconds(result)})
                except (RunFailed, ValueError, KeyError) as failure:
                    left.remove(allocator)
                    for name in names:
                        collected.micro[name].pop(allocator.name, None)
                    collected.problems.append(f"{program.name} under {allocator.name}: {failure}")


def _skip(collected: Collected, result: dict, allocator: Allocator) -> None:
    """Said once for all shapes of a benchmark."""
    what = f"{result['name'].partition('/')[0]} under {allocator.name}: {result['error_message']}"
    if what not in collected.skipped:
        collected.skipped.append(what)


def _nanoseconds(result: dict) -> float:
    factor = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}[result["time_unit"]]
    # Threads run side by side: there the wall clock counts, elsewhere the time on the CPU.
    return result["real_time" if result.get("threads", 1) > 1 else "cpu_time"] * factor
