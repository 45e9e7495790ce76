"""Runs one program and measures it: wall time here, the rest from wait4(2).

Peak RSS needs care. Linux keeps a process's high-water mark across exec: a child that this Python forked or spawned would
start with Python's own 30 MB or more. So Python starts setsid(1), which forks from its small self and ends; the child, a
shell that waits for our word and then execs the program, is adopted by us (PR_SET_CHILD_SUBREAPER), so that wait4 gives its
figures. What that adds to a program is the shell's start: about 1 ms of CPU time and 60 minor faults, the same for every
allocator, and a floor of about 1.5 MB of peak RSS.

The figures cover the program and those descendants that it waited for: times and faults summed, peak RSS that of the largest
single process, not of the tree. The allocator is preloaded in the program only, never in Python or the shell.

Invariants: one run at a time; when `measure` returns, nothing that it started is left running.
"""

import ctypes
import fcntl
import hashlib
import os
import re
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from strata.errors import StrataError
from strata.metrics import METRIC_NAMES, parse_reported

PR_SET_CHILD_SUBREAPER = 36
PR_GET_CHILD_SUBREAPER = 37

# Single digits, because the shell can redirect no others; out of the way of 0 to 2.
METRICS_FD, GO_FD, PID_FD = 7, 8, 9
FIRST_FREE_FD = 10

# Tells its pid, waits for the word, and becomes the program. $1 is LD_PRELOAD or empty, $2 the folder to run in.
SHELL_SCRIPT = (
    f'echo $$ >&{PID_FD}; exec {PID_FD}>&-; read -r go <&{GO_FD} || exit 125; exec {GO_FD}<&-; cd "$2" || exit 125; '
    'if [ -n "$1" ]; then LD_PRELOAD=$1; export LD_PRELOAD; fi; shift 2; unset go; exec "$@"'
)
# The shell passes only variables with such names on; others go through env(1).
SHELL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")

# How long what a program left behind may take to end by itself before it is killed.
LEFTOVER_GRACE_S = 1.0
TAIL_BYTES = 2000


@dataclass
class Sample:
    """The outcome of one run."""

    exit_status: int  # minus the signal's number where a signal ended it, as in Python's subprocess
    metrics: dict[str, float]
    reported: list[str] = field(default_factory=list)  # measures that the workload gave itself
    wrong_report: str = ""  # what was wrong with what it reported
    timed_out: bool = False
    left_running: int = 0
    output_sha256: str = ""
    output_tail: str = ""
    error_tail: str = ""


@dataclass(frozen=True)
class Launch:
    """What to run, and under what conditions."""

    command: Sequence[str]
    preload: str = ""
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    folder: Path = Path(".")
    stdin: Path = Path(os.devnull)
    cpus: frozenset[int] | None = None
    timeout_s: float | None = None


@contextmanager
def measuring() -> Iterator[None]:
    """While open, this process adopts the orphans among its descendants. Every `measure` happens inside one."""
    if not shutil.which("setsid"):
        raise StrataError("setsid: not found in PATH; measuring needs it (Debian: util-linux)")
    libc = ctypes.CDLL(None, use_errno=True)
    before = ctypes.c_int(0)
    libc.prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise StrataError(f"prctl(PR_SET_CHILD_SUBREAPER): {os.strerror(ctypes.get_errno())}; measuring needs it")

    def stop(number: int, _frame: object) -> None:
        # An exception, so that the program under measurement, in a session of its own, is ended on the way out.
        raise SystemExit(128 + number)

    # What the caller ignores, as nohup does, stays ignored, here and in the programs.
    heeded = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) != signal.SIG_IGN]
    handlers = {number: signal.signal(number, stop) for number in heeded}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        libc.prctl(PR_SET_CHILD_SUBREAPER, before.value, 0, 0, 0)


def measure(launch: Launch, output: Path | None = None) -> Sample:
    """Runs the program once. Its standard output stays in the file `output` where one is named."""
    with tempfile.TemporaryDirectory(prefix="strata-run-") as name:
        folder = Path(name)
        stdout, stderr, reports = output or folder / "stdout", folder / "stderr", folder / "metrics"
        others = children()
        grace_s = 0.0
        try:
            wall_s, status, usage, timed_out = _run(launch, stdout, stderr, reports)
            grace_s = LEFTOVER_GRACE_S
        finally:
            left = _end_leftovers(others, grace_s)
        measured = {
            "wall_s": wall_s,
            "user_s": usage.ru_utime,
            "system_s": usage.ru_stime,
            "peak_rss_bytes": usage.ru_maxrss * 1024,
            "minor_faults": usage.ru_minflt,
            "major_faults": usage.ru_majflt,
        }
        assert tuple(measured) == METRIC_NAMES
        wrong_report = ""
        try:
            reported = parse_reported(reports.read_text(errors="replace"))
        except StrataError as error:
            reported, wrong_report = {}, str(error)
        return Sample(
            exit_status=os.waitstatus_to_exitcode(status),
            metrics=measured | reported,
            reported=sorted(reported),
            wrong_report=wrong_report,
            timed_out=timed_out,
            left_running=left,
            output_sha256=_sha256(stdout),
            output_tail=_tail(stdout),
            error_tail=_tail(stderr),
        )


def _run(launch: Launch, stdout: Path, stderr: Path, reports: Path) -> tuple[float, int, "os.struct_rusage", bool]:
    env = {
        **launch.env,
        "STRATA_METRICS_FD": str(METRICS_FD),
        "STRATA_METRICS_FILE": str(reports),
    }
    odd = [f"{key}={value}" for key, value in env.items() if not SHELL_NAME.match(key)]
    preload = ":".join(part for part in (launch.preload, env.get("LD_PRELOAD", "")) if part)
    command = ["setsid", "--fork", "/bin/sh", "-c", SHELL_SCRIPT, "sh", preload, str(launch.folder)]
    command += (["env", *odd] if odd else []) + list(launch.command)

    opened: list[int] = []

    def high(fd: int) -> int:
        """A copy of `fd` above the numbers that the child uses, so that no dup2 there overwrites another's source."""
        copy = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, FIRST_FREE_FD)
        os.close(fd)
        opened.append(copy)
        return copy

    write_flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    pid = 0
    try:
        try:
            stdin = high(os.open(launch.stdin, os.O_RDONLY))
        except OSError as error:
            raise StrataError(f"stdin: {launch.stdin}: {error.strerror}") from error
        pid_from, pid_to = map(high, os.pipe())
        go_from, go_to = map(high, os.pipe())
        stdout.unlink(missing_ok=True)
        actions = [
            (os.POSIX_SPAWN_DUP2, source, number)
            for source, number in (
                (stdin, 0),
                (high(os.open(stdout, write_flags, 0o600)), 1),
                (high(os.open(stderr, write_flags, 0o600)), 2),
                (high(os.open(reports, write_flags, 0o600)), METRICS_FD),
                (go_from, GO_FD),
                (pid_to, PID_FD),
            )
        ]
        # Python ignores these two for itself; the program gets the defaults.
        defaults = [signal.SIGPIPE, signal.SIGXFSZ]
        helper = os.posix_spawnp("setsid", command, _without_preload(env), file_actions=actions, setsigdef=defaults)
        os.close(pid_to)
        opened.remove(pid_to)
        os.waitpid(helper, 0)
        line = os.read(pid_from, 32)
        if not line:
            raise StrataError(f"the shell that starts {launch.command[0]} did not start:\n{_tail(stderr)}")
        pid = int(line)
        if launch.cpus:
            os.sched_setaffinity(pid, launch.cpus)
        ending = os.pidfd_open(pid)
        opened.append(ending)
        begin = time.perf_counter()
        os.write(go_to, b"\n")
        timed_out = not _wait_readable(ending, launch.timeout_s)
        wall_s = time.perf_counter() - begin
        if timed_out:
            os.killpg(pid, signal.SIGKILL)
        _, status, usage = os.wait4(pid, 0)
        pid = 0
        return wall_s, status, usage, timed_out
    finally:
        for fd in opened:
            os.close(fd)
        if pid:  # interrupted, for example by Ctrl-C: the program has a session of its own and didn't get it
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _without_preload(env: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in env.items() if key != "LD_PRELOAD"}


def _wait_readable(fd: int, timeout_s: float | None) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(None if timeout_s is None else max(1, int(timeout_s * 1000))))


def children() -> set[int]:
    """The pids of this process's children, the adopted ones too."""
    found: set[int] = set()
    for path in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            found.update(map(int, path.read_text().split()))
    return found


def _end_leftovers(others: set[int], grace_s: float) -> int:
    """Waits for, and in the end kills, what the program left behind; returns how many had to be killed.

    They would disturb the next run. Whoever they started becomes our child when they end, hence the loop.
    """
    deadline = time.monotonic() + grace_s
    killed: set[int] = set()
    while left := children() - others:
        for pid in left:
            with suppress(ChildProcessError, ProcessLookupError):
                if os.waitpid(pid, os.WNOHANG)[0] == 0 and time.monotonic() >= deadline:
                    os.kill(pid, signal.SIGKILL)
                    killed.add(pid)
        time.sleep(0.005)
    return len(killed)


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _tail(path: Path) -> str:
    with path.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - TAIL_BYTES))
        return stream.read().decode(errors="replace")
