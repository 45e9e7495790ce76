"""The suite of real programs: bench/suite/programs, whose files are suites of `strata compare` too.

demo.toml has the programs of `make run`, more.toml the others. Each runs in a scratch folder of its own, prepared once; every
run is checked, as its table says, and one that fails its check counts as failed. A server measures itself: only it runs under
the allocator, and what it reports takes the place of what was measured of its driver.

Invariant: a run whose result was not checked gives no figures; a table without any check is refused.
"""

import math
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from strata.errors import StrataError
from strata.workload import Workload, load_suite

from .allocators import Allocator
from .launching import Launcher, RunFailed, Sample, clean_environment
from .measuring import Collected, Progress, in_turn

PROGRAM_PREFIX = "program:"
FILES = ("demo.toml", "more.toml")
PREPARE_TIMEOUT_S = 600
REPORT_LINE = re.compile(r"(?:STRATA|BENCH)_METRIC (\w+)=(\S+)")
# Debian links redis-server with jemalloc: "glibc" means the same for every program.
GLIBC_PRELOAD = "libc.so.6"
TAIL_CHARS = 400


@dataclass
class Prepared:
    """A program that can run in its folder."""

    workload: Workload
    folder: Path
    command: list[str]
    env: dict[str, str]
    output: str | None = None  # of the first run, where all have to be the same


def suite(folder: Path, files: Sequence[str] = FILES) -> list[Workload]:
    """All programs, in order. RunFailed where a table is wrong, or checks nothing."""
    try:
        workloads = [workload for file in files for workload in load_suite(folder / file)]
    except StrataError as error:
        raise RunFailed(str(error)) from error
    for workload in workloads:
        if not (workload.check or workload.expect_output or workload.same_output or workload.required_metrics):
            raise RunFailed(f"{workload.name}: nothing checks its result")
        if workload.expect_status:
            raise RunFailed(f"{workload.name}: expect_status {workload.expect_status}: allowed: 0")
    return workloads


def run_programs(
    workloads: Sequence[Workload],
    allocators: Sequence[Allocator],
    launcher: Launcher,
    repetitions: int,
    collected: Collected,
    progress: Progress,
) -> None:
    for workload in workloads:
        load = PROGRAM_PREFIX + workload.name
        with tempfile.TemporaryDirectory(prefix="strata-bench-") as name:
            try:
                progress(f"{load} is prepared", 0)
                prepared = _prepare(workload, Path(name))
            except RunFailed as failure:
                collected.problems.append(f"{load}: {failure}")
                progress(f"{load} failed", repetitions * len(allocators))
                continue
            left = list(allocators)
            for turn in range(repetitions):
                for allocator in in_turn(list(allocators), turn):
                    progress(f"{load} {turn + 1}/{repetitions} {allocator.name}")
                    if allocator not in left:
                        continue
                    try:
                        collected.add(load, allocator.name, run_once(prepared, allocator, launcher))
                    except RunFailed as failure:
                        left.remove(allocator)
                        collected.drop(load, allocator.name, str(failure))


def _prepare(workload: Workload, folder: Path) -> Prepared:
    # A server may run as another user.
    folder.chmod(0o755)
    env = {key: workload.expand(value, folder) for key, value in workload.env.items()}
    prepared = Prepared(workload, folder, workload.expand_all(workload.command, folder), env)
    if workload.prepare:
        _beside(prepared, "prepare", workload.prepare, {})
    return prepared


def run_once(prepared: Prepared, allocator: Allocator, launcher: Launcher) -> dict[str, float]:
    """The figures of one run that passed its checks."""
    workload, folder = prepared.workload, prepared.folder
    reports = folder / ".metrics"
    reports.write_text("")
    sample = launcher.run(
        prepared.command,
        allocator.preload or GLIBC_PRELOAD,
        {**allocator.env, **prepared.env, "STRATA_METRICS_FILE": str(reports)},
        folder=folder,
        stdin=folder / workload.expand(workload.stdin, folder),
        timeout_s=int(workload.timeout_s),
    )
    _check(prepared, sample)
    reported = _reported(reports.read_text(errors="replace"))
    if missing := [name for name in workload.required_metrics if name not in reported]:
        raise RunFailed(f"did not report {', '.join(missing)}")
    figures = {**sample.metrics, **reported}
    if "peak_rss_bytes" in reported:
        figures["tree_peak_rss_bytes"] = reported["peak_rss_bytes"]
    else:
        # Of a program of several processes what counts is all of them.
        figures["peak_rss_bytes"] = sample.metrics["tree_peak_rss_bytes"]
    figures["cpu_s"] = figures["user_s"] + figures["system_s"]
    return figures


def _check(prepared: Prepared, sample: Sample) -> None:
    workload, folder = prepared.workload, prepared.folder
    if workload.same_output:
        if prepared.output is None:
            prepared.output = sample.output
        if sample.output != prepared.output:
            raise RunFailed("its output differs from that of the first run")
    if workload.expect_output:
        expected = folder / workload.expand(workload.expect_output, folder)
        if not expected.is_file():
            raise RunFailed(f"expect_output: {expected.name} does not exist")
        if expected.read_text(errors="replace") != sample.output:
            raise RunFailed(f"its output is not what {expected.name} has: {sample.output[-TAIL_CHARS:]!r}")
    if workload.check:
        stdout = folder / ".stdout"
        stdout.write_text(sample.output)
        _beside(prepared, "check", workload.check, {"STRATA_STDOUT": str(stdout)})


def _beside(prepared: Prepared, what: str, words: Sequence[str], extra: Mapping[str, str]) -> None:
    """A command that is not measured and has no allocator under test."""
    command = prepared.workload.expand_all(list(words), prepared.folder)
    env = clean_environment({**prepared.env, **extra})
    try:
        done = subprocess.run(
            command, cwd=prepared.folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=PREPARE_TIMEOUT_S,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RunFailed(f"its {what}: {error}") from error
    if done.returncode != 0:
        raise RunFailed(f"its {what} ended with status {done.returncode}: {(done.stderr or done.stdout)[-TAIL_CHARS:].strip()}")


def _reported(text: str) -> dict[str, float]:
    reported = {}
    for name, value in REPORT_LINE.findall(text):
        try:
            reported[name] = float(value)
        except ValueError as error:
            raise RunFailed(f"reported {name}={value}, which is no number") from error
        if not math.isfinite(reported[name]):
            raise RunFailed(f"reported {name}={value}, which is no number")
    return reported
