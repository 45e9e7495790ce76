"""Workloads: what `strata compare` runs, from the command line or from a suite.

A suite is a TOML file with tables [[workload]], or a folder: its suite.toml, or without one every executable file in it. In
`command`, `prepare`, `check`, `stdin`, `expect_output` and the values of `env`, {suite} stands for the suite's folder and {work}
for the scratch folder, in which all of these run. `prepare` runs once before the first run, `check` after every run; neither is
measured nor sees an allocator under test.
"""

import os
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from strata.errors import EXIT_USAGE, StrataError
from strata.metrics import METRIC_NAMES

SUITE_FILE = "suite.toml"
DEFAULT_TIMEOUT_S = 600.0
# poll(2) counts milliseconds in an int.
TIMEOUT_S_MAX = 2_000_000


@dataclass
class Workload:
    """One program with its arguments and how a right run of it looks."""

    name: str
    command: list[str]
    title: str = ""
    prepare: list[str] = field(default_factory=list)
    check: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    stdin: str = os.devnull
    expect_status: int = 0
    expect_output: str = ""  # a file that standard output must equal
    same_output: bool = False  # standard output must be the same under every allocator
    required_metrics: list[str] = field(default_factory=list)  # those that the workload has to report itself
    timeout_s: float = DEFAULT_TIMEOUT_S
    suite_folder: Path | None = None  # None: the command line's program, which runs where the person is

    def expand(self, text: str, work: Path) -> str:
        """`text` with {suite} and {work} put in."""
        if self.suite_folder is None:
            return text
        return text.replace("{suite}", str(self.suite_folder)).replace("{work}", str(work))

    def expand_all(self, words: list[str], work: Path) -> list[str]:
        return [self.expand(word, work) for word in words]


def _is_words(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(word, str) for word in value)


def _has_zero_byte(value: Any) -> bool:
    """Whether a zero byte is anywhere in it: TOML can write one, and no argument, path or variable of a program can have one."""
    if isinstance(value, dict):
        return any(map(_has_zero_byte, (*value, *value.values())))
    return any(map(_has_zero_byte, value)) if isinstance(value, list) else isinstance(value, str) and "\0" in value


def _is_environment(value: Any) -> bool:
    return isinstance(value, dict) and all(name and "=" not in name and isinstance(text, str) for name, text in value.items())


# Key of a [[workload]] table: what its value may be, in words, and the test of it.
KEYS = {
    "name": ("a text that is not empty", lambda v: isinstance(v, str) and bool(v)),
    "title": ("a text", lambda v: isinstance(v, str)),
    "command": ("a list of texts that is not empty", lambda v: _is_words(v) and bool(v)),
    "prepare": ("a list of texts", _is_words),
    "check": ("a list of texts", _is_words),
    "env": ("a table of texts, whose names are not empty and have no =", _is_environment),
    "stdin": ("a path", lambda v: isinstance(v, str) and bool(v)),
    "expect_status": ("a whole number from 0 to 255", lambda v: type(v) is int and 0 <= v <= 255),
    "expect_output": ("a path", lambda v: isinstance(v, str)),
    "same_output": ("true or false", lambda v: isinstance(v, bool)),
    "required_metrics": (
        f"a list of {', '.join(METRIC_NAMES)}",
        lambda v: _is_words(v) and set(v) <= set(METRIC_NAMES),
    ),
    "timeout_s": (f"a number above 0, up to {TIMEOUT_S_MAX}", lambda v: type(v) in (int, float) and 0 < v <= TIMEOUT_S_MAX),
}


def load_suite(path: Path) -> list[Workload]:
    """The workloads of a suite file or folder, in order."""
    if os.path.isdir(path):
        if not os.path.isfile(path / SUITE_FILE):
            return _executables(path)
        path = path / SUITE_FILE
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StrataError(f"--suite: {path}: {error.strerror}", EXIT_USAGE) from error
    except RecursionError as error:
        raise StrataError(f"--suite: {path}: not TOML: nested too deeply", EXIT_USAGE) from error
    except ValueError as error:  # also of numbers of thousands of digits, and of what is no UTF-8
        raise StrataError(f"--suite: {path}: not TOML: {error}", EXIT_USAGE) from error
    if unknown := set(tables) - {"workload"}:
        raise _bad(path, f"{sorted(unknown)[0]!r}: unknown; allowed: [[workload]]")
    entries = tables.get("workload")
    if not isinstance(entries, list) or not entries:
        raise _bad(path, "no [[workload]] in it")
    workloads = [_workload(path, entry) for entry in entries]
    names = [workload.name for workload in workloads]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise _bad(path, f"two workloads are named {twice!r}")
    return workloads


def select(workloads: list[Workload], only: list[str]) -> list[Workload]:
    """Those that --only names, in the suite's order; all where it names none."""
    names = [workload.name for workload in workloads]
    for name in only:
        if name not in names:
            raise StrataError(f"--only: {name!r}: no such workload; allowed: {', '.join(names)}", EXIT_USAGE)
    return [workload for workload in workloads if not only or workload.name in only]


def _executables(folder: Path) -> list[Workload]:
    try:
        files = [path for path in sorted(folder.iterdir()) if os.path.isfile(path) and os.access(path, os.X_OK)]
    except OSError as error:
        raise _bad(folder, error.strerror) from error
    if not files:
        raise _bad(folder, f"neither {SUITE_FILE} nor an executable file in it")
    folder = folder.resolve()
    stems = [path.stem for path in files]
    # a.sh is called a, unless there is an a.py.
    names = [path.name if stems.count(path.stem) > 1 else path.stem for path in files]
    return [Workload(name, [str(folder / path.name)], suite_folder=folder) for name, path in zip(names, files, strict=True)]


def _workload(path: Path, entry: Any) -> Workload:
    if not isinstance(entry, dict) or "name" not in entry:
        raise _bad(path, "a [[workload]] without a name")
    for key, value in entry.items():
        if key not in KEYS:
            raise _bad(path, f"workload {entry['name']!r}: {key!r}: unknown; allowed: {', '.join(KEYS)}")
        allowed, is_right = KEYS[key]
        if not is_right(value):
            raise _bad(path, f"workload {entry['name']!r}: {key} = {value!r}: allowed: {allowed}")
        if _has_zero_byte(value):
            raise _bad(path, f"workload {entry['name']!r}: {key} = {value!r}: allowed: {allowed}, without zero bytes")
    if "command" not in entry:
        raise _bad(path, f"workload {entry['name']!r}: no command")
    return Workload(**entry, suite_folder=path.parent.resolve())


def _bad(path: Path, text: str) -> StrataError:
    return StrataError(f"--suite: {path}: {text}", EXIT_USAGE)
