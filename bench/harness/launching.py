"""Runs one program through the C launcher and returns what it measured.

The launcher stands between Python and the program because a process inherits the peak RSS of the image that it was started
from (see launch.c). `check` proves on every run of the harness that this holds here.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# Variables that change how an allocator works: every allocator is measured as it comes.
ALLOCATOR_VARIABLES = ("LD_PRELOAD", "GLIBC_TUNABLES", "STRATA_CONF")
ALLOCATOR_PREFIXES = ("MALLOC_", "MIMALLOC_", "TCMALLOC_", "_RJEM_", "JEMALLOC_")

# /bin/true needs about 2 MB. Python itself needs more than 15.
TRUE_RSS_LIMIT_BYTES = 6 << 20
ERROR_TAIL_CHARS = 400


class RunFailed(Exception):
    """The program did not do its work: the message says how."""


@dataclass(frozen=True)
class Sample:
    """The measures of one run, with the names that `strata compare` uses, and the program's standard output."""

    metrics: dict[str, float]
    output: str


def clean_environment(extra: Mapping[str, str]) -> dict[str, str]:
    kept = {
        key: value
        for key, value in os.environ.items()
        if key not in ALLOCATOR_VARIABLES and not key.startswith(ALLOCATOR_PREFIXES)
    }
    return {**kept, **extra}


class Launcher:
    """Starts programs one at a time."""

    def __init__(self, binary: Path, timeout_s: int):
        self.binary = binary
        self.timeout_s = timeout_s

    def run(
        self,
        command: Sequence[str],
        preload: str = "",
        env: Mapping[str, str] | None = None,
        cpu: int | None = None,
        *,
        repeat: int = 1,
        folder: Path | None = None,
        stdin: Path = Path(os.devnull),
        timeout_s: int | None = None,
    ) -> Sample:
        report_from, report_to = os.pipe()
        options = ["--report", str(report_to), "--timeout", str(timeout_s or self.timeout_s), "--repeat", str(repeat)]
        if preload:
            options += ["--preload", preload]
        if cpu is not None:
            options += ["--cpu", str(cpu)]
        with (
            os.fdopen(report_from) as report,
            tempfile.TemporaryFile("w+", errors="replace") as output,
            tempfile.TemporaryFile("w+", errors="replace") as errors,
            stdin.open("rb") as given,
        ):
            try:
                launched = subprocess.Popen(
                    [self.binary, *options, "--", *command],
                    stdin=given,
                    cwd=folder,
                    stdout=output,
                    stderr=errors,
                    pass_fds=(report_to,),
                    env=clean_environment(env or {}),
                )
            finally:
                os.close(report_to)
            try:
                launched.wait()
            except BaseException:
                launched.terminate()  # the launcher kills the program's group
                launched.wait()
                raise
            line = report.read()
            output.seek(0)
            errors.seek(0)
            error_tail = errors.read()[-ERROR_TAIL_CHARS:].strip()
            if launched.returncode != 0 or not line:
                raise RunFailed(f"{command[0]} could not be started: {error_tail}")
            return Sample(_metrics(json.loads(line), error_tail), output.read())

    def check(self) -> float:
        """Peak RSS of /bin/true in bytes; raises where the figure can only be one that was inherited."""
        # Makes sure that Python is fat while it starts the launcher, whatever it has imported.
        ballast = bytearray(os.urandom(1 << 20)) * 64
        peak_bytes = self.run(["/bin/true"]).metrics["peak_rss_bytes"]
        del ballast
        if peak_bytes > TRUE_RSS_LIMIT_BYTES:
            raise RunFailed(f"/bin/true seems to use {peak_bytes:,.0f} bytes: peak RSS is not measured right here")
        return peak_bytes


def _metrics(report: dict, error_tail: str) -> dict[str, float]:
    why = f": {error_tail}" if error_tail else ""
    if report["timed_out"]:
        raise RunFailed(f"timed out after {report['wall_s']:.0f} s{why}")
    if report["signal"]:
        raise RunFailed(f"ended by signal {report['signal']}{why}")
    if report["exit"]:
        raise RunFailed(f"exit status {report['exit']}{why}")
    return {
        "wall_s": report["wall_s"],
        "user_s": report["user_s"],
        "system_s": report["system_s"],
        "cpu_s": report["user_s"] + report["system_s"],
        "peak_rss_bytes": report["peak_rss_kib"] * 1024,
        "mean_rss_bytes": report["mean_rss_kib"] * 1024,
        "tree_peak_rss_bytes": report["tree_peak_rss_kib"] * 1024,
        "minor_faults": report["minor_faults"],
        "major_faults": report["major_faults"],
        "switches": report["voluntary_switches"] + report["involuntary_switches"],
    }
