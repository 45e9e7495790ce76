"""A server under measurement: it alone runs under the allocator that this process finds in LD_PRELOAD; clients run without.

What is reported (to `strata compare`, and to the harness of the benchmarks, which takes more) is of the server and its
children alone: their CPU time, faults and switches, peak and time-averaged RSS, and as wall time what passes between `start`
and `stop` of the clock. RSS of a tree is the private pages of all of them and the shared ones of that which has most.

Invariant: when the context ends, the server has ended.
"""

import os
import select
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

SAMPLE_S = 0.005
TIMEOUT_S = 120
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# What `strata compare` knows; the rest is for the benchmarks.
KNOWN = ("wall_s", "user_s", "system_s", "peak_rss_bytes", "minor_faults", "major_faults")


class WorkloadError(Exception):
    """The server, or a client, did something else than it must."""


def _tree(pid: int) -> list[int]:
    found = [pid]
    for one in found:
        with suppress(OSError):
            found += map(int, Path(f"/proc/{one}/task/{one}/children").read_text(encoding="ascii").split())
    return found


def tree_rss_bytes(pid: int) -> int:
    private = shared = 0
    for one in _tree(pid):
        with suppress(OSError, IndexError):
            words = Path(f"/proc/{one}/statm").read_text(encoding="ascii").split()
            private += int(words[1]) - int(words[2])
            shared = max(shared, int(words[2]))
    return (private + shared) * PAGE_BYTES


class Served:
    """with Served([...]) as server: ..., then server.end() and server.report()."""

    def __init__(self, command: list[str], **options):
        preload = os.environ.pop("LD_PRELOAD", "")
        env = {**os.environ, "LD_PRELOAD": preload} if preload else dict(os.environ)
        self.process = subprocess.Popen(command, env=env, **options)
        self.measured: dict[str, float] = {}
        self.begin = 0.0
        # Of several libraries the first one is the allocator.
        first = preload.partition(":")[0]
        self._library = Path(first).resolve().name if "/" in first else first
        self._has_library = False
        self._looks: list[int] = []
        self._peak_bytes = 0
        self._ended = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> "Served":
        return self

    def __exit__(self, *_exc: object) -> None:
        self._ended.set()
        if self.process.returncode is None:
            self.process.kill()
            self.process.wait()

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def start(self) -> None:
        """The clock runs, and memory is looked at, from here on."""
        self._sampler.start()
        self.begin = time.perf_counter()

    def stop(self) -> None:
        self.measured["wall_s"] = time.perf_counter() - self.begin
        self._ended.set()
        self._sampler.join()
        if not self._has_library:  # the loader goes on without one that it can't open, as the user of the server may not read it
            raise WorkloadError(f"{self.process.args[0]} ran without {self._library}")
        # The kernel has kept the peak of the first process; of a tree there is only what was seen.
        for line in Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                self._peak_bytes = max(self._peak_bytes, int(line.split()[1]) * 1024)

    def wait(self, timeout_s: float) -> None:
        """For a program that ends by itself: stops the clock when it does."""
        ending = os.pidfd_open(self.process.pid)
        poll = select.poll()
        poll.register(ending, select.POLLIN)
        ended = poll.poll(timeout_s * 1000)
        os.close(ending)
        if not ended:
            raise WorkloadError(f"{self.process.args[0]} did not end within {timeout_s} s")
        self.stop()

    def end(self) -> None:
        """Waits for the server, which was told to end."""
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        if self.process.returncode != 0:
            raise WorkloadError(f"{self.process.args[0]} ended with status {self.process.returncode}")
        self.measured |= {
            "user_s": usage.ru_utime,
            "system_s": usage.ru_stime,
            "peak_rss_bytes": self._peak_bytes,
            "mean_rss_bytes": sum(self._looks) / len(self._looks),
            "minor_faults": usage.ru_minflt,
            "major_faults": usage.ru_majflt,
            "switches": usage.ru_nvcsw + usage.ru_nivcsw,
        }

    def report(self) -> None:
        report = "".join(f"{'STRATA' if name in KNOWN else 'BENCH'}_METRIC {name}={value}\n" for name, value in self.measured.items())
        # By hand, without a harness, the figures go to the terminal.
        with Path(os.environ.get("STRATA_METRICS_FILE", "/dev/stdout")).open("a", encoding="ascii") as stream:
            stream.write(report)

    def _maps_library(self) -> bool:
        with suppress(OSError):
            return self._library in Path(f"/proc/{self.process.pid}/maps").read_text(errors="replace")
        return False

    def _sample(self) -> None:
        while True:
            seen = tree_rss_bytes(self.process.pid)
            self._looks.append(seen)
            if not self._has_library:
                self._has_library = self._maps_library()
            self._peak_bytes = max(self._peak_bytes, seen)
            if self._ended.wait(SAMPLE_S):
                return


def run(command: list[str], **options) -> str:
    """A client to its end: its output. WorkloadError where it fails."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, **options)
    if done.returncode != 0:
        raise WorkloadError(f"{command[0]} ended with status {done.returncode}: {done.stdout[-500:]}{done.stderr[-500:]}")
    return done.stdout


def main(name: str, work) -> int:
    """Runs `work`, which measures and reports; the exit status."""
    try:
        work()
    except (WorkloadError, subprocess.TimeoutExpired) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    return 0
