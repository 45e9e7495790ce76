"""Runs experiments one after another, and takes only documents that satisfy the schema."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import jsonschema

from .catalogue import Experiment

SCHEMA_FILE = Path(__file__).with_name("result.schema.json")
ERROR_TAIL_CHARS = 600


@dataclass
class Outcome:
    """One experiment that was run: its document, or what went wrong."""

    experiment: Experiment
    seconds: float
    document: dict | None = None
    failure: str = ""


def validate(document: object, experiment: Experiment) -> None:
    """Raises ValueError where the document is not what the frame, its plots and its readers count on."""
    schema = json.loads(SCHEMA_FILE.read_text())
    errors = sorted(jsonschema.Draft202012Validator(schema).iter_errors(document), key=lambda error: list(map(str, error.path)))
    if errors:
        place = "/".join(map(str, errors[0].path)) or "the document"
        raise ValueError(f"{place}: {errors[0].message[:200]}")
    assert isinstance(document, dict)
    if document["id"] != experiment.id:
        raise ValueError(f"id is {document['id']}, the catalogue says {experiment.id}")


def load(file: Path, experiment: Experiment) -> dict:
    document = json.loads(file.read_text(), parse_constant=_no_constant)
    validate(document, experiment)
    return document


def _no_constant(name: str) -> None:
    """Python reads and writes NaN and Infinity, which are not JSON and no measurements."""
    raise ValueError(f"{name} is not a number")


def command_of(experiment: Experiment, sources: Path, build: Path) -> list[str]:
    if experiment.program.endswith(".py"):
        return [sys.executable, str(sources / experiment.program)]
    return [str(build / experiment.program)]


def run_one(experiment: Experiment, sources: Path, build: Path, output: Path, quick: bool) -> Outcome:
    """Runs one experiment in a process group of its own, which ends with it; its document goes to OUTPUT/PAPER/FIGURE.json."""
    file = output / f"{experiment.id}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    # What an earlier run left must not pass for this one's.
    file.unlink(missing_ok=True)
    part = file.with_suffix(".part")
    part.unlink(missing_ok=True)
    command = [*command_of(experiment, sources, build), "--build", str(build), "--output", str(part), *(["--quick"] if quick else [])]
    start = time.monotonic()
    outcome = Outcome(experiment, 0)
    process: subprocess.Popen | None = None
    # What it keeps for itself goes with it, however it ends: its temporary files are here.
    with tempfile.TemporaryFile("w+") as errors, tempfile.TemporaryDirectory(prefix="strata-papers-", ignore_cleanup_errors=True) as scratch:
        env = {**os.environ, "TMPDIR": scratch}
        try:
            with _interrupts_later():
                process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, start_new_session=True)
            status = process.wait(experiment.timeout_s)
            if status:
                errors.seek(0)
                how = f"signal {-status}" if status < 0 else f"exit status {status}"
                outcome.failure = f"{how}: {errors.read()[-ERROR_TAIL_CHARS:].strip()}"
        except OSError as error:
            outcome.failure = str(error)
            return outcome
        except subprocess.TimeoutExpired:
            outcome.failure = f"not done within {experiment.timeout_s} s"
        finally:
            if process is not None:
                _end_group(process)
    outcome.seconds = time.monotonic() - start
    if not outcome.failure:
        try:
            outcome.document = load(part, experiment)
            part.replace(file)
        except (OSError, ValueError) as error:
            outcome.failure = f"its document: {error}"
    part.unlink(missing_ok=True)
    return outcome


@contextlib.contextmanager
def _interrupts_later() -> Iterator[None]:
    """Puts off SIGINT and SIGTERM until the end of the block: one that came while a process starts would leave it to nobody."""
    came: list[int] = []
    before = {number: signal.signal(number, lambda number, _frame: came.append(number)) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])


def _end_group(process: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def run_all(
    experiments: Sequence[Experiment], sources: Path, build: Path, output: Path, quick: bool, report: Callable[[Outcome], None]
) -> list[Outcome]:
    """A failing experiment is reported, and the rest go on."""
    outcomes = []
    for experiment in experiments:
        outcome = run_one(experiment, sources, build, output, quick)
        report(outcome)
        outcomes.append(outcome)
    return outcomes
