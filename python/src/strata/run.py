"""`strata run`: becomes the program, with the library preloaded.

The program replaces this process (execve), so that its pid, signals, stdin, job control and exit status are its own. The
dispositions that Python changed for itself, of SIGPIPE and SIGXFSZ, are put back first. Python ignores these two before any of
our code runs and keeps no record of what they were, so a caller that ignores them can't be told from one that doesn't: the
program gets the default. All other signals stay as the caller has them.
"""

import errno
import os
import re
import signal
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from strata.elf import Elf
from strata.errors import EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND, StrataError
from strata.library import find_library, is_strata
from strata.loader import reason_not_loaded
from strata.program import Inspection, inspect, locate

OPTION_PATTERN = re.compile(r"[a-z][a-z0-9_]*:[^,\s]+\Z")
FEATURES_PATTERN = re.compile(r"[^,\s]+\Z")


@dataclass
class RunRequest:
    """What the command line asked for."""

    command: list[str]
    lib: str | None = None
    options: list[str] = field(default_factory=list)
    debug: str | None = None
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
        added.append(f"stats_file:{_stats_path(request.output)}")
    if request.debug is not None:
        if not FEATURES_PATTERN.match(request.debug):
            raise StrataError(
                f"--debug: {request.debug!r}: allowed: FEATURES or FEATURES@PATTERN, without commas and blanks, such as default@malloc-*"
            )
        added.append(f"debug:{request.debug}")
    return added + [check_option(option) for option in request.options]


def _stats_path(output: str) -> str:
    """`output` as the library reads it, with %p and %%. The program may change its folder before it ends, so it must not depend on that."""
    # A percent sign of the folder is only that.
    path = output if os.path.isabs(output) else os.path.join(os.getcwd().replace("%", "%%"), output)
    path = os.path.normpath(path)
    if output != output.strip() or any(char in path for char in ",\n\r"):
        raise StrataError(f"--output: {path!r}: allowed: a path without commas and line ends, and without blanks in front or behind")
    folder = os.path.dirname(path).replace("%%", "%")
    if not os.path.isdir(folder):
        raise StrataError(f"--output: {path!r}: the folder does not exist")
    return path


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
    env = with_library(os.environ, str(library), conf)
    path = locate(request.command[0], env)
    _check_program(Path(path), library, request, env)
    _become(path, request.command, env)


def _check_program(path: Path, library: Path, request: RunRequest, env: Mapping[str, str]) -> None:
    if request.quiet and not request.verify:
        return
    found = inspect(path, library, thorough=request.verify, env=env)
    if request.verify:
        _prove(found, library)
    if not request.quiet:
        _tell("warning: malloc will not be strata's", found.problems)
        _tell("note", found.notes if request.verify else [])


def _prove(found: Inspection, library: Path) -> None:
    """StrataError unless the library will be in the program, and malloc the library's."""
    if not found.problems and not found.doubts:
        with Elf(found.final) as elf:
            reason = reason_not_loaded(found.final, elf.interpreter, library, found.env)
        if reason:
            found.problems.append(f"{found.final}: {reason}")
    if found.problems:
        raise StrataError("--verify: malloc would not be strata's:\n" + "\n".join(f"  {line}" for line in found.problems))
    if found.doubts:
        raise StrataError("--verify: cannot tell whether malloc would be strata's:\n" + "\n".join(f"  {line}" for line in found.doubts))


def _tell(what: str, lines: Iterable[str]) -> None:
    # Where nobody can be told, the program starts all the same.
    with suppress(OSError):
        for line in lines:
            print(f"strata run: {what}: {line}", file=sys.stderr, flush=True)


def _become(path: str, command: list[str], env: Mapping[str, str]) -> None:
    for name in ("SIGPIPE", "SIGXFSZ"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execve(path, command, env)
    except OSError as error:
        failure = error
    if failure.errno == errno.ENOEXEC:
        # As execvp does: a text file that names no interpreter is a shell script.
        try:
            os.execve("/bin/sh", ["/bin/sh", path, *command[1:]], env)
        except OSError as error:
            failure = error
    status = EXIT_NOT_FOUND if failure.errno == errno.ENOENT else EXIT_NOT_EXECUTABLE
    raise StrataError(f"{path}: cannot be started: {failure.strerror}", status) from failure
