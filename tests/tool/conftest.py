"""What the tests of the command share: running it, and small programs to run under it.

The library under test is $STRATA_LIB (tests/conftest.py says how it is required).
"""

import os
import subprocess
import time
from pathlib import Path

import pytest
from tool_command import COMMAND, TIMEOUT_S


class Tool:
    """The command `strata`, run as a person runs it."""

    def __init__(self, library: Path):
        self.library = library

    def environment(self, env=None, drop=()):
        full = {key: value for key, value in os.environ.items() if not key.startswith("STRATA_") and key not in drop}
        # COLUMNS would change the tables, LD_PRELOAD what is preloaded.
        for key in ("COLUMNS", "LD_PRELOAD"):
            full.pop(key, None)
        full["STRATA_LIB"] = str(self.library)
        full.update(env or {})
        return full

    def __call__(self, *args, env=None, drop=(), input=None, cwd=None, before=()):
        return subprocess.run(
            [*before, *COMMAND, *map(str, args)],
            env=self.environment(env, drop),
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            cwd=cwd,
        )

    def start(self, *args, **options):
        return subprocess.Popen([*COMMAND, *map(str, args)], env=self.environment(), text=True, **options)


@pytest.fixture
def tool(strata_lib):
    return Tool(strata_lib)


@pytest.fixture
def script(tmp_path):
    """Writes an executable file: script("name", text)."""

    def write(name, text, mode=0o755):
        path = tmp_path / name
        path.write_text(text)
        path.chmod(mode)
        return path

    return write


def wait_until(condition, what, timeout_s=30):
    """Returns the first true value of `condition()`; fails after the time is over."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.01)
    return pytest.fail(f"{what}: not within {timeout_s} s")


@pytest.fixture
def eventually():
    return wait_until
