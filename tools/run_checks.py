#!/usr/bin/env python3
"""Runs every check of the project, a few at a time, and prints the closing line of each runner at the end.

    tools/run_checks.py              all of them (what `make test` does, after tools/setup.sh)
    tools/run_checks.py NAME...      those whose name starts so, and what they need
    tools/run_checks.py --list

A step passes when its command ends with 0 and says, in words that the step knows, that it has checked something. Its
whole output is in build/logs/NAME.log.
"""
from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
LOGS = BUILD / "logs"
PYTHON = BUILD / "venv/bin/python"
# One more than processors: a fifth of the time of the tests is waiting.
WORKERS = max(1, min((os.cpu_count() or 1) + 1, 4))

# What a runner says when it has run something and all of it passed.
CTEST_PASSED = r"^100% tests passed, 0 tests failed out of [1-9]\d*$"
PYTEST_PASSED = r"^=+ [1-9]\d* passed\b.* in .*=+$"
# What must not be in there: a test that did not run is not a test that passed.
CTEST_BAD = r"\*\*\*Skipped|\*\*\*Not Run|Not Run \(Disabled\)|No tests were found"
PYTEST_BAD = r"^=+ .*\b(skipped|xfailed|xpassed|error)s?\b.*=+$"


@dataclass
class Step:
    name: str
    command: list[str]
    passed: str  # a line that the output must have; it is the closing line
    needs: list[str] = field(default_factory=list)
    bad: str | None = None  # a line that it must not have
    timeout_s: int = 600
    closing: str = ""
    seconds: float = 0
    failure: str = ""


def build(preset: str, shares: bool = False) -> Step:
    """What one of those that share has compiled, another one takes as it is, where source, headers and flags are the same."""
    command = ["tools/build.sh", preset]
    if shares and shutil.which("ccache"):
        # The folder of the build is in what debuggers read, alone. A miss costs a look at the source, as the preprocessor need not run (depend mode).
        settings = {"CMAKE_C_COMPILER_LAUNCHER": "ccache", "CCACHE_DIR": str(BUILD / "ccache"), "CCACHE_NOHASHDIR": "1", "CCACHE_DEPEND": "1"}
        command = ["env", *(f"{name}={value}" for name, value in settings.items()), *command]
    return Step(f"build:{preset}", command, rf"^build: {preset} done in \d+ s$")


def ctest(preset: str, *arguments: str) -> Step:
    return Step(f"ctest:{preset}", ["ctest", "--preset", preset, *arguments], CTEST_PASSED, [f"build:{preset}"], CTEST_BAD)


def script(name: str, command: list[str], passed: str, needs: list[str]) -> Step:
    return Step(name, command, passed, needs)


def pytest_suite(folder: str) -> Step:
    needs = {"model": ["build:sim"], "papers": ["build:experiments"], "bench": ["build:release", "build:experiments"]}.get(folder, ["build:release", "build:no-rseq"])
    command = [str(PYTHON), "-m", "pytest", "-p", "no:cacheprovider", "--color=no", "--durations=5", "-ra", f"tests/{folder}"]
    return Step(f"pytest:{folder}", command, PYTEST_PASSED, needs, PYTEST_BAD, timeout_s=780)


def all_steps() -> list[Step]:
    """In order of urgency: a free worker takes the first step that is ready, so long chains come first."""
    found = {path.relative_to(ROOT / "tests").parts[0] for path in (ROOT / "tests").rglob("test_*.py")}
    # These must exist: pytest fails where it finds nothing. The longest comes first.
    suites = ["integration", "stress", "fault", "model", "tool"]
    suites += sorted(found - set(suites))
    return [
        build("release", shares=True),
        build("no-rseq"),
        *[pytest_suite(folder) for folder in suites if folder != "model"],
        build("sim", shares=True),
        pytest_suite("model"),
        ctest("sim"),
        build("asan"),  # and UndefinedBehaviorSanitizer
        ctest("asan"),
        build("tsan"),
        ctest("tsan"),
        build("experiments", shares=True),  # the library as in release, the layers as in sim; pytest:papers waits for it, and takes two minutes
        build("clang-debug"),
        ctest("clang-debug", "-L", "^(api|locks)$"),  # what the other compiler makes of the library; the unit tests run in sim and asan
        build("musl"),
        ctest("musl"),
        script("install", ["tests/install/check_install.sh", "build/release"], r"^install: \d+ checks passed$", ["build:release"]),
        script("musl-programs", ["tests/install/check_musl.sh", "build/musl"], r"^musl: \d+ checks passed$", ["build:musl"]),
        script("exports", ["tools/check_exports.sh", "build/release"], r"^exports: [1-9]\d+ symbols, 0 failures$", ["build:release"]),
        script("fast-paths", ["tools/fast_paths.py", "build/release"], r"^fast paths: .*, 0 differences$", ["build:release"]),
        script("layers:self-test", ["tools/check_layers.py", "--self-test"], r"^layers: self-test passed, \d+ cases$", []),
        script("layers", ["tools/check_layers.py", "--objects", "build/release", "--objects", "build/no-rseq", "--objects", "build/sim"],
               r"^layers: \d+ files, [1-9]\d+ object files, 0 violations$", ["build:release", "build:no-rseq", "build:sim"]),
        script("aarch64", ["tools/check_aarch64.sh"], r"^aarch64: \d+ files, 0 failures$", []),
        script("format", ["tools/check_format.sh"], r"^format: \d+ sources, \d+ texts, 0 failures$", []),
        script("man", ["tools/check_man.sh"], r"^man: \d+ pages, \d+ functions, 0 failures$", []),
    ]


def environment() -> dict[str, str]:
    env = {key: value for key, value in os.environ.items() if not key.startswith(("STRATA_", "LD_PRELOAD", "MAKE", "MFLAGS"))}
    env.update(
        STRATA_LIB=str(BUILD / "release/libstrata.so"),
        STRATA_NO_RSEQ_LIB=str(BUILD / "no-rseq/libstrata.so"),
        STRATA_BUILD=str(BUILD / "release"),
        STRATA_EXPERIMENTS=str(BUILD / "experiments"),
        STRATA_MODEL_LIB=str(BUILD / "sim/libstrata_model.so"),
        HYPOTHESIS_STORAGE_DIRECTORY=str(BUILD / "hypothesis"),
        PYTHONDONTWRITEBYTECODE="1",
        COLUMNS="120",
        # Steps run beside each other already.
        CMAKE_BUILD_PARALLEL_LEVEL="1" if WORKERS > 1 else str(os.cpu_count()),
    )
    return env


# Process groups of the steps under way.
running: set[int] = set()


def stop(number: int, _frame: object) -> None:
    """Ctrl-C does not reach the groups of the steps by itself."""
    for group in list(running):
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            pass
    os._exit(128 + number)


def log_of(step: Step) -> Path:
    return LOGS / (step.name.replace(":", "-") + ".txt")


def run(step: Step) -> None:
    """Runs the step's command in a process group of its own, which ends with it."""
    start = time.monotonic()
    log = log_of(step)
    with log.open("wb") as output:
        process = subprocess.Popen(step.command, cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=subprocess.STDOUT, start_new_session=True)
        running.add(process.pid)
        try:
            status = process.wait(step.timeout_s)
            if status != 0:
                step.failure = f"exit status {status}"
        except subprocess.TimeoutExpired:
            step.failure = f"not done within {step.timeout_s} s"
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
            running.discard(process.pid)
    step.seconds = time.monotonic() - start
    judge(step, log.read_text(errors="replace"))


def judge(step: Step, text: str) -> None:
    """Finds the closing line, and words that forbid a pass."""
    lines = [match[0] for match in re.finditer(step.passed, text, re.M)]
    if lines:
        step.closing = lines[-1]
    elif not step.failure:
        step.failure = "ended well but did not say that it checked anything"
    if not step.failure and step.bad and (match := re.search(step.bad, text, re.M)):
        step.failure = f"not everything ran: {match[0].strip('= ')}"
    if step.failure and not step.closing:
        ends = re.findall(r"^(?:\d+% tests passed, .*|=+ .* in .*=+)$", text, re.M)
        step.closing = ends[-1] if ends else ""


def self_test() -> None:
    """The judge must refuse what passes vacuously; done at every start, as it costs nothing."""
    cases = [
        (ctest("x"), "100% tests passed, 0 tests failed out of 12\n", True),
        (ctest("x"), "No tests were found!!!\n", False),
        (ctest("x"), "100% tests passed, 0 tests failed out of 0\n", False),
        (ctest("x"), "1/2 Test #1: a ...***Skipped 0.1 sec\n100% tests passed, 0 tests failed out of 2\n", False),
        (pytest_suite("x"), "====== 3 passed in 0.1s ======\n", True),
        (pytest_suite("x"), "====== 3 passed, 1 deselected in 0.1s ======\n", True),
        (pytest_suite("x"), "====== 3 passed, 1 skipped in 0.1s ======\n", False),
        (pytest_suite("x"), "====== 1 failed, 3 passed in 0.1s ======\n", False),
        (pytest_suite("x"), "====== no tests ran in 0.1s ======\n", False),
        (build("x"), "", False),
    ]
    for step, text, expected in cases:
        judge(step, text)
        if (not step.failure) != expected:
            sys.exit(f"checks: the judge is wrong about {text!r}")


class Scheduler:
    def __init__(self, steps: list[Step]):
        self.waiting = list(steps)
        self.done: dict[str, Step] = {}
        self.changed = threading.Condition()

    def has_failed(self, name: str) -> bool:
        return name in self.done and self.done[name].failure != ""

    def take(self) -> Step | None:
        """The next step that is ready; None when nothing is left. Steps whose needs failed fail at once."""
        with self.changed:
            while True:
                while lost := [step for step in self.waiting if any(self.has_failed(name) for name in step.needs)]:
                    for step in lost:
                        step.failure = "not run: a step that it needs has failed"
                        self.waiting.remove(step)
                        self.done[step.name] = step
                        say(f"  FAILED  {step.name}: {step.failure}")
                for step in self.waiting:
                    if all(name in self.done for name in step.needs):
                        self.waiting.remove(step)
                        return step
                if not self.waiting:
                    return None
                self.changed.wait()

    def work(self) -> None:
        while step := self.take():
            try:
                run(step)
            except OSError as error:  # its command is not here, or its log can't be written: else the worker ends, and the step counts as passed
                step.failure = f"not run: {error}"
            if step.failure:
                log = read_log(step)
                say("\n".join([f"  FAILED  {step.name} after {step.seconds:.0f} s: {step.failure}", *(line[:240] for line in log.splitlines()[-60:]), ""]))
            else:
                say(f"  passed  {step.name} ({step.seconds:.0f} s)")
            with self.changed:
                self.done[step.name] = step
                self.changed.notify_all()


def read_log(step: Step) -> str:
    try:
        return log_of(step).read_text(errors="replace")
    except OSError:
        return ""


def say(text: str) -> None:
    print(text, flush=True)


def chosen(steps: list[Step], names: list[str]) -> list[Step]:
    """The steps whose name starts with one of the names, and what they need; all for no names."""
    if not names:
        return steps
    by_name = {step.name: step for step in steps}
    wanted = {step.name for step in steps for name in names if step.name.startswith(name)}
    for name in names:
        if not any(step.name.startswith(name) for step in steps):
            sys.exit(f"checks: no step is called {name}; --list shows them")
    for step in [by_name[name] for name in wanted]:
        wanted.update(step.needs)
    return [step for step in steps if step.name in wanted]


def main() -> int:
    global WORKERS
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="start of the name of a step")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--jobs", type=int, default=WORKERS)
    options = parser.parse_args()
    WORKERS = options.jobs
    self_test()
    steps = chosen(all_steps(), options.names)
    if options.list:
        for step in steps:
            print(step.name)
        return 0
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    LOGS.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    scheduler = Scheduler(steps)
    # Daemons, and joined in slices: a signal must find the main thread awake.
    workers = [threading.Thread(target=scheduler.work, daemon=True) for _ in range(WORKERS)]
    for worker in workers:
        worker.start()
    while any(worker.is_alive() for worker in workers):
        workers[0].join(0.2)
        time.sleep(0.2)
    failed = [step for step in steps if step.failure]
    say("")
    for step in steps:
        say(f"{step.name:>18}: {step.closing or '-'}" + (f"   FAILED: {step.failure}" if step.failure else ""))
    say("")
    minutes = (time.monotonic() - start) / 60
    say(f"checks: {len(steps) - len(failed)} of {len(steps)} steps passed in {minutes:.1f} min" + (f", {len(failed)} FAILED" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
