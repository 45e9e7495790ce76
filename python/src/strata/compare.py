"""`strata compare`: runs workloads under each allocator in turn, and sums up.

Rounds are interleaved (A B C, A B C, ...), so that a machine that grows slower or faster with time is unfair to none. Figures are
medians over the rounds. An allocator under which a run fails is left out from there on, and the comparison fails; without the
system's malloc there is nothing to compare with, and the workload ends.

Invariant: `Result.samples` holds only right runs, and warm-ups never count in a summary.
"""

import filecmp
import math
import os
import signal
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from strata.candidates import SYSTEM, Candidate
from strata.errors import EXIT_USAGE, StrataError
from strata.measure import Launch, Sample, measure
from strata.metrics import METRIC_NAMES
from strata.program import inspect, resolve
from strata.run import with_library
from strata.workload import Workload

PREPARE_TIMEOUT_S = 600


@dataclass(frozen=True)
class Plan:
    """How to measure, the same for all workloads."""

    candidates: list[Candidate]
    runs: int
    warmup: int
    cpus: frozenset[int] | None = None
    library: Path | None = None


@dataclass
class Run:
    """One run as it happened, in the order of the list that it is in."""

    round: int  # 0 and up; warm-ups are below 0
    candidate: str
    sample: Sample
    problem: str = ""

    @property
    def is_warmup(self) -> bool:
        return self.round < 0


@dataclass
class Summary:
    """One measure of one allocator over the rounds."""

    median: float
    minimum: float
    maximum: float
    to_system: float | None = None
    to_best_peer: float | None = None


@dataclass
class Result:
    """All that happened with one workload."""

    workload: Workload
    runs: list[Run] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)  # allocator to what went wrong
    summary: dict[str, dict[str, Summary]] = field(default_factory=dict)
    best_peer: dict[str, str] = field(default_factory=dict)  # measure to the peer with the least


# Told before each run: workload, round, allocator.
Progress = Callable[[Workload, int, Candidate], None]


def compare(workload: Workload, plan: Plan, progress: Progress) -> Result:
    """Runs the workload under every candidate of the plan. Happens inside `measuring()`."""
    result = Result(workload)
    with tempfile.TemporaryDirectory(prefix="strata-compare-") as name:
        try:
            _run_rounds(workload, plan, progress, Path(name), result)
        except StrataError as error:
            # Of a suite the other workloads are worth something.
            if workload.suite_folder is None:
                raise StrataError(f"{workload.name}: {error}", error.exit_status) from error
            result.problems.append(f"{workload.name}: {error}")
            result.failed = {candidate.name: str(error) for candidate in plan.candidates}
    summarise(result, plan)
    return result


def _run_rounds(workload: Workload, plan: Plan, progress: Progress, work: Path, result: Result) -> None:
    command = _prepared_command(workload, plan, work)
    system = plan.candidates[0]
    reference = ""
    left = list(plan.candidates)
    for number in range(-plan.warmup, plan.runs):
        for candidate in list(left):
            progress(workload, number, candidate)
            run = _run_once(workload, plan, candidate, command, work, number)
            blamed = candidate
            if not run.problem and workload.same_output:
                reference = reference or run.sample.output_sha256
                if run.sample.output_sha256 != reference:
                    run.problem = f"its output differs from that under {system.name}"
                    # No allocator is to blame for the time of day or a random number.
                    if _run_once(workload, plan, system, command, work, number).sample.output_sha256 != reference:
                        blamed, run.problem = system, "its output differs from run to run"
            result.runs.append(run)
            if run.problem:
                left.remove(blamed)
                result.failed[blamed.name] = run.problem
                result.problems.append(f"{workload.name} under {blamed.name}: {run.problem}")
            if SYSTEM in result.failed:
                return


def _prepared_command(workload: Workload, plan: Plan, work: Path) -> list[str]:
    if workload.prepare:
        done = _run_beside(workload, workload.prepare, work, {})
        if done.returncode != 0:
            raise StrataError(f"prepare ended with status {done.returncode}:\n{_last_lines(done.stderr)}")
    command = workload.expand_all(workload.command, work)
    # A suite's workloads run in the scratch folder, and may have made their program there.
    program = os.path.join(work, command[0]) if workload.suite_folder and "/" in command[0] else command[0]
    try:
        path = resolve(program)
    except StrataError as error:
        raise StrataError(str(error), EXIT_USAGE) from error
    if plan.library:
        # A program that no allocator can be preloaded into would be compared with itself.
        found = inspect(path, plan.library, env=with_library(os.environ, str(plan.library)))
        if found.problems:
            raise StrataError(
                "the allocators cannot be preloaded:\n" + "\n".join(f"  {p}" for p in found.problems),
                EXIT_USAGE,
            )
    return [os.path.abspath(path), *command[1:]]


def _run_once(workload: Workload, plan: Plan, candidate: Candidate, command: list[str], work: Path, number: int) -> Run:
    env = {**os.environ, **candidate.env}
    env |= {key: workload.expand(value, work) for key, value in workload.env.items()}
    stdout = work / ".stdout"
    launch = Launch(
        command=command,
        preload=candidate.preload,
        env=env,
        folder=work if workload.suite_folder else Path("."),
        stdin=work / workload.expand(workload.stdin, work) if workload.suite_folder else Path(workload.stdin),
        cpus=plan.cpus,
        timeout_s=workload.timeout_s,
    )
    sample = measure(launch, stdout)
    return Run(number, candidate.name, sample, _problem_of(workload, sample, stdout, work))


def _problem_of(workload: Workload, sample: Sample, stdout: Path, work: Path) -> str:
    """What was wrong with the run, or nothing."""
    if sample.timed_out:
        return f"took longer than {workload.timeout_s:g} s and was killed"
    if sample.exit_status != workload.expect_status:
        # The last words of a program that reports errors on standard output are there.
        words = _last_lines(sample.error_tail) or _last_lines(sample.output_tail)
        return describe_status(sample.exit_status) + (f":\n{words}" if words else "")
    if sample.wrong_report:
        return sample.wrong_report
    if sample.left_running:
        return f"left {sample.left_running} process(es) running, which were killed"
    if missing := [name for name in workload.required_metrics if name not in sample.reported]:
        return f"did not report {', '.join(missing)}"
    if workload.expect_output:
        expected = work / workload.expand(workload.expect_output, work)
        if not expected.is_file():
            return f"expect_output: {expected.name} does not exist"
        if not filecmp.cmp(expected, stdout, shallow=False):
            return f"its output is not what {expected.name} has:\n{_last_lines(sample.output_tail)}"
    if workload.check:
        try:
            done = _run_beside(workload, workload.check, work, {"STRATA_STDOUT": str(stdout)})
        except StrataError as error:
            return f"its check: {error}"
        if done.returncode != 0:
            return f"its check ended with status {done.returncode}:\n{_last_lines(done.stderr or done.stdout)}"
    return ""


def _run_beside(workload: Workload, words: list[str], work: Path, extra: dict[str, str]) -> subprocess.CompletedProcess:
    """Runs a prepare or check command: not measured, no allocator preloaded."""
    command = workload.expand_all(words, work)
    env = {**os.environ, **{key: workload.expand(value, work) for key, value in workload.env.items()}, **extra}
    try:
        return subprocess.run(
            command, cwd=work, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=PREPARE_TIMEOUT_S,
        )  # fmt: skip
    except OSError as error:
        raise StrataError(f"{command[0]}: {error.strerror}", EXIT_USAGE) from error
    except subprocess.TimeoutExpired as error:
        raise StrataError(f"{command[0]} took longer than {PREPARE_TIMEOUT_S} s") from error


def describe_status(status: int) -> str:
    """An exit status in words."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"was killed by {name}"


def _last_lines(text: str, count: int = 5) -> str:
    return "\n".join("    " + line for line in text.rstrip().splitlines()[-count:])


def summarise(result: Result, plan: Plan) -> None:
    """Fills in the medians and ratios of those allocators that all runs succeeded under."""
    for candidate in plan.candidates:
        runs = [run for run in result.runs if run.candidate == candidate.name and not run.is_warmup]
        if candidate.name in result.failed or not runs:
            continue
        result.summary[candidate.name] = {
            metric: Summary(statistics.median(values), min(values), max(values))
            for metric in METRIC_NAMES
            for values in [[run.sample.metrics[metric] for run in runs]]
        }
    peers = [candidate.name for candidate in plan.candidates if candidate.is_peer and candidate.name in result.summary]
    for metric in METRIC_NAMES:
        if peers:
            result.best_peer[metric] = min(peers, key=lambda name: result.summary[name][metric].median)
        for summaries in result.summary.values():
            summary = summaries[metric]
            if SYSTEM in result.summary:
                summary.to_system = ratio(summary.median, result.summary[SYSTEM][metric].median)
            if peers:
                summary.to_best_peer = ratio(summary.median, result.summary[result.best_peer[metric]][metric].median)


def ratio(value: float, base: float) -> float | None:
    """value / base, or None where it says nothing."""
    return value / base if base > 0 else None


def geometric_mean(values: Iterable[float | None]) -> float | None:
    """The geometric mean, or None where a value is missing or 0."""
    collected = list(values)
    if not collected or any(value is None or value <= 0 for value in collected):
        return None
    return math.exp(statistics.fmean(math.log(value) for value in collected))


@dataclass
class Mean:
    """One measure of one allocator over all workloads."""

    to_system: float | None
    to_best_peer: float | None  # to the one peer with the least geometric mean


def means(results: list[Result], plan: Plan) -> tuple[dict[str, dict[str, Mean]], dict[str, str]]:
    """Geometric means over the workloads by allocator and measure, and the best peer by measure.

    An allocator that failed in one workload has none: over fewer workloads it would be another figure.
    """
    table: dict[str, dict[str, Mean]] = {}
    best: dict[str, str] = {}
    for candidate in plan.candidates:
        if all(candidate.name in result.summary for result in results):
            table[candidate.name] = {
                metric: Mean(geometric_mean(r.summary[candidate.name][metric].to_system for r in results), None)
                for metric in METRIC_NAMES
            }
    for metric in METRIC_NAMES:
        peers = {
            candidate.name: mean
            for candidate in plan.candidates
            if candidate.is_peer and candidate.name in table and (mean := table[candidate.name][metric].to_system) is not None
        }
        if not peers:
            continue
        best[metric] = min(peers, key=peers.__getitem__)
        for row in table.values():
            if (mine := row[metric].to_system) is not None:
                row[metric].to_best_peer = mine / peers[best[metric]]
    return table, best


def has_failed(results: list[Result]) -> bool:
    return any(result.problems for result in results)
