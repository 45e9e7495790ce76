"""Runs loads, micro benchmarks and programs under every allocator and collects the samples.

Allocators take turns within each load, in another order each repetition, so that a machine that grows slower or faster with
time is unfair to none. A load of one thread is pinned to one CPU.

Invariants: samples hold only runs that ended well; all runs of a load have the same checksum, whatever the allocator.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .allocators import GLIBC, Allocator
from .catalogue import Load
from .launching import Launcher, RunFailed, clean_environment

PROGRAM_PREFIX = "program:"
PROGRAMS_TIMEOUT_S = 4 * 3600
# The loads of a scaling group are short, and their ratio needs more turns than a median of times.
SCALING_TURNS = 3


@dataclass
class Collected:
    """Everything that was measured: samples[load][allocator] is a list of metric dicts."""

    samples: dict[str, dict[str, list[dict[str, float]]]] = field(default_factory=dict)
    micro: dict[str, dict[str, list[dict[str, float]]]] = field(default_factory=dict)
    checks: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def add(self, load: str, allocator: str, metrics: dict[str, float]) -> None:
        self.samples.setdefault(load, {}).setdefault(allocator, []).append(metrics)

    def drop(self, load: str, allocator: str, problem: str) -> None:
        """An allocator that failed once in a load has no figures there."""
        self.samples.get(load, {}).pop(allocator, None)
        self.problems.append(f"{load} under {allocator}: {problem}")


# Told before each run what is about to run.
Progress = Callable[[str], None]


def in_turn(allocators: Sequence[Allocator], turn: int) -> list[Allocator]:
    """The allocators, starting with another one each turn, and backwards every other turn: neighbours change too."""
    start = turn % len(allocators)
    order = [*allocators[start:], *allocators[:start]]
    return order[::-1] if turn % 2 else order


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
        turns = repetitions * (SCALING_TURNS if len(group) > 1 else 1)
        left = list(allocators)
        for turn in range(turns):
            for allocator in in_turn(list(allocators), turn):
                for load in group:
                    progress(f"{load.name} {turn + 1}/{turns} {allocator.name}")
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
    collected.add(load.name, allocator.name, {**sample.metrics, "inner_s": inner_s, "operations_per_s": rate})


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
    """Google Benchmark programs: a process each turn, its results in nanoseconds by benchmark name."""
    for program in programs:
        options = ["--benchmark_format=json", f"--benchmark_min_time={min_time_s}", f"--benchmark_filter={pattern}"]
        left = list(allocators)
        for turn in range(repetitions):
            for allocator in in_turn(list(allocators), turn):
                progress(f"{program.name} {turn + 1}/{repetitions} {allocator.name}")
                if allocator not in left:
                    continue
                try:
                    sample = launcher.run([str(program), *options], allocator.preload, allocator.env)
                    for result in json.loads(sample.output)["benchmarks"] if sample.output.strip() else []:
                        row = collected.micro.setdefault(result["name"], {}).setdefault(allocator.name, [])
                        row.append({"ns": _nanoseconds(result)})
                except (RunFailed, ValueError, KeyError) as failure:
                    left.remove(allocator)
                    for row in collected.micro.values():
                        row.pop(allocator.name, None)
                    collected.problems.append(f"{program.name} under {allocator.name}: {failure}")


def _nanoseconds(result: dict) -> float:
    factor = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}[result["time_unit"]]
    # Threads run side by side: there the wall clock counts, elsewhere the time on the CPU.
    return result["real_time" if result.get("threads", 1) > 1 else "cpu_time"] * factor


def run_programs(
    project: Path, strata: Path, allocators: Sequence[Allocator], repetitions: int, only: Sequence[str], collected: Collected
) -> None:
    """The suite of real programs, by `strata compare`; its progress bar is its own."""
    by_preload = {os.path.realpath(a.preload): a.name for a in allocators if a.preload and not a.env}
    peers = [a.preload for a in allocators if a.preload and not a.env and not a.is_strata]
    with tempfile.TemporaryDirectory(prefix="strata-bench-") as name:
        figures = Path(name) / "compare.json"
        command = [sys.executable, "-m", "strata", "compare", "--suite", str(project / "bench/programs"), "--lib", str(strata)]
        command += ["--runs", str(repetitions), "--warmup", "1", "--peers", ",".join(peers) or "none", "--json", str(figures)]
        command += [word for program in only for word in ("--only", program)]
        conf = next((a.env for a in allocators if a.is_strata), {})
        env = clean_environment({**conf, "PYTHONPATH": str(project / "python/src")})
        status = _run_to_end(command, env, project)
        if not figures.exists():
            collected.problems.append(f"strata compare ended with status {status} and wrote no figures")
            return
        _take_programs(json.loads(figures.read_text()), by_preload, collected)


def _run_to_end(command: Sequence[str], env: dict[str, str], folder: Path) -> int:
    """Its exit status. On the way out by an exception it is asked to end, not killed: it has to end what it started."""
    started = subprocess.Popen(command, env=env, cwd=folder)
    try:
        return started.wait(PROGRAMS_TIMEOUT_S)
    except BaseException:
        started.terminate()
        started.wait()
        raise


def _take_programs(document: dict, by_preload: dict[str, str], collected: Collected) -> None:
    # The tool has names of its own for peers; what is preloaded says which of ours it is.
    names = {}
    for candidate in document["candidates"]:
        preload = candidate["preload"]
        names[candidate["name"]] = by_preload.get(os.path.realpath(preload)) if "/" in preload else GLIBC
    for workload in document["workloads"]:
        load = PROGRAM_PREFIX + workload["name"]
        for run in workload["runs"]:
            allocator = names[run["candidate"]]
            if allocator is None or run["warmup"] or run["problem"]:
                continue
            metrics = run["metrics"]
            collected.add(load, allocator, {**metrics, "cpu_s": metrics["user_s"] + metrics["system_s"]})
        for run in workload["runs"]:
            if run["problem"]:
                collected.drop(load, names[run["candidate"]] or run["candidate"], run["problem"])


def program_names(project: Path) -> list[str]:
    """The names in the suite of programs, or none where there is no suite."""
    suite = project / "bench/programs/suite.toml"
    if not suite.is_file():
        return []
    import tomllib

    return [workload["name"] for workload in tomllib.loads(suite.read_text())["workload"]]
