"""Memory cgroups for tests: made below our own, which `make test` needs root for."""

import os
import time
import uuid
from pathlib import Path


class MemoryCgroup:
    """A memory cgroup below our own, version 1 or 2, with a limit."""

    def __init__(self, limit_bytes):
        self.version, parent = self.find_parent()
        self.path = parent / f"strata-test-{uuid.uuid4().hex[:12]}"
        self.path.mkdir()
        limit, swap = ("memory.max", "memory.swap.max") if self.version == 2 else ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
        (self.path / limit).write_text(str(limit_bytes))
        if (self.path / swap).exists():
            (self.path / swap).write_text("0" if self.version == 2 else str(limit_bytes))

    @staticmethod
    def find_parent():
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if "memory" in controllers.split(","):
                return 1, Path("/sys/fs/cgroup/memory") / path.lstrip("/")
        unified = Path("/sys/fs/cgroup")
        path = next(line.split(":", 2)[2] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0:"))
        for parent in [unified / path.lstrip("/"), *(unified / path.lstrip("/")).parents]:
            control = parent / "cgroup.subtree_control"
            if control.exists() and "memory" in control.read_text().split():
                return 2, parent
        raise OSError("no memory controller is delegated to us")

    def join(self):
        """For preexec_fn: puts the process into the cgroup."""
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self):
        for _ in range(100):
            try:
                self.path.rmdir()
                return
            except OSError:
                time.sleep(0.05)  # the last process is still being taken down
        raise RuntimeError(f"{self.path} could not be removed")
