"""`strata run`: becomes the program, with the library preloaded.

The program replaces this process (execve), so that its pid, signals, stdin, job control and exit status are its own. What
Python changed for itself is put back first: the dispositions of SIGPIPE and SIGXFSZ, and the LC_CTYPE that it sets in the
C locale. Python ignores these two signals before any of our code runs and keeps no record of what they were, so a caller that
ignores them can't be told from one that doesn't: the program gets the default. All other signals stay as the caller has them.
"""

import errno
import os
import re
import signal
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from strata.errors import EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND, StrataError
from strata.library import find_library, is_strata
from strata.program import inspect, resolve

OPTION_PATTERN = re.compile(r"[a-z][a-z0-9_]*:[^,\s]+\Z")


@dataclass
class RunRequest:
    """What the command line asked for."""

    command: list[str]
    lib: str | None = None
    options: list[str] = field(default_factory=list)
    verify: bool = False
    stats: bool = False
    json: bool = False
    output: str | None = None
    quiet: bool = False


def check_option(option: str) -> str:
    """`option` if it has the form key:value; the library knows which keys and values there are, and warns."""
    if not OPTION_PATTERN.match(option):
        raise StrataError(
            f"--option: {option!r}: allowed: KEY:VALUE, a key in small letters and a value without commas and blanks, "
            "such as decay_ms:100"
        )
    return option


def conf_of(request: RunRequest) -> list[str]:
    """The options for STRATA_CONF that the request adds; on a key given twice the library takes the last."""
    added: list[str] = []
    if request.verify:
        added.append("verify:on")
    if request.stats or request.json:
        added.append(f"stats:{'json' if request.json else 'table'}")
    if request.output is not None:
        if not (request.stats or request.json):
            raise StrataError(f"--output: {request.output!r}: only together with --stats or --json")
        if not request.output:
            raise StrataError("--output: the file's name is empty")
        # The program may change its folder before it ends, so the name must not depend on it.
        path = os.path.abspath(request.output)
        if any(char in path for char in ",\n"):
            raise StrataError(f"--output: {path!r}: allowed: a path without commas and line ends")
        if not os.path.isdir(os.path.dirname(path)):
            raise StrataError(f"--output: {path!r}: the folder does not exist")
        added.append(f"stats_file:{path}")
    return added + [check_option(option) for option in request.options]


def original_environment(env: Mapping[str, str]) -> dict[str, str]:
    """A copy of `env` without the LC_CTYPE that Python adds when it starts in the C locale (PEP 538)."""
    result = dict(env)
    try:
        at_start = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return result
    if "LC_CTYPE" in result and not any(entry.startswith(b"LC_CTYPE=") for entry in at_start):
        del result["LC_CTYPE"]
    return result


def with_library(env: Mapping[str, str], preload: str, conf: Iterable[str] = ()) -> dict[str, str]:
    """A copy of `env` in which `preload` comes first in LD_PRELOAD and `conf` last in STRATA_CONF."""
    result = dict(env)
    result["LD_PRELOAD"] = ":".join(part for part in (preload, env.get("LD_PRELOAD", "")) if part)
    if joined := ",".join(part for part in (env.get("STRATA_CONF", ""), *conf) if part):
        result["STRATA_CONF"] = joined
    return result


def run(request: RunRequest) -> None:
    """Becomes the program. Returns never; StrataError carries the exit status where it can't."""
    library = find_library(request.lib).path
    conf = conf_of(request)
    if request.verify and not is_strata(library):
        raise StrataError(f"--verify: {library}: not strata's library, so nothing can be proved (no strata_malloc in it)")
    env = original_environment(os.environ)
    path = resolve(request.command[0], env)
    _check_program(path, library, request, env)
    _become(path, request.command, with_library(env, str(library), conf))


def _check_program(path: Path, library: Path, request: RunRequest, env: Mapping[str, str]) -> None:
    if request.quiet and not request.verify:
        return
    found = inspect(path, library, thorough=request.verify, env=env)
    if found.problems and request.verify:
        raise StrataError("--verify: malloc would not be strata's:\n" + "\n".join(f"  {line}" for line in found.problems))
    if found.doubts and request.verify:
        raise StrataError("--verify: cannot tell whether malloc would be strata's:\n" + "\n".join(f"  {line}" for line in found.doubts))
    if not request.quiet:
        for line in found.problems:
            print(f"strata run: warning: malloc will not be strata's: {line}", file=sys.stderr)
        if request.verify:
            for line in found.notes:
                print(f"strata run: note: {line}", file=sys.stderr)
        sys.stderr.flush()


def _become(path: Path, command: list[str], env: Mapping[str, str]) -> None:
    for name in ("SIGPIPE", "SIGXFSZ"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execve(path, command, env)
    except OSError as error:
        failure = error
    if failure.errno == errno.ENOEXEC:
        # As execvp does: a text file that names no interpreter is a shell script.
        try:
            os.execve("/bin/sh", ["/bin/sh", str(path), *command[1:]], env)
        except OSError as error:
            failure = error
    status = EXIT_NOT_FOUND if failure.errno == errno.ENOENT else EXIT_NOT_EXECUTABLE
    raise StrataError(f"{path}: cannot be started: {failure.strerror}", status) from failure
