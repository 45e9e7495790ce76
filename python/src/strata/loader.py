"""Asks a program's own dynamic loader what it would load: the only one who knows.

A library that is there and sound may still not get into the process: its file system is mounted noexec, a security module
refuses it, the loader reads its path in another way. The loader then says so, ignores the library, and starts the program.
"""

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

# glibc and musl: "NAME => PATH (ADDRESS)", or only PATH where that is the name.
LISTED = re.compile(r"\t(?:.* => )?(.*) \(0x[0-9a-f]+\)")
LIST_TIMEOUT_S = 60


def reason_not_loaded(program: Path, interpreter: str, library: Path, env: Mapping[str, str]) -> str | None:
    """Why the loader `interpreter` would not load `library` into `program` with these variables, or None where it would.

    Nothing of the program or of its libraries is run.
    """
    name = os.path.join(os.curdir, program)  # without a slash it would be looked for where libraries are
    try:
        done = subprocess.run(
            [interpreter, "--list", name], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="surrogateescape", timeout=LIST_TIMEOUT_S,
        )  # fmt: skip
    except OSError as error:
        return f"its loader {interpreter} cannot be started: {error.strerror}"
    except subprocess.TimeoutExpired:
        return f"its loader {interpreter} takes longer than {LIST_TIMEOUT_S} s to list what it would load"
    if str(library) in (match[1] for line in done.stdout.splitlines() if (match := LISTED.fullmatch(line))):
        return None
    said = [line for line in done.stderr.splitlines() if str(library) in line] or done.stderr.splitlines()
    return f"{library} is not loaded: {said[-1] if said else f'its loader {interpreter} does not list it'}"
