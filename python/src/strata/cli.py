"""The command line of `strata`: options, their checks, and exit statuses. What the commands do is in the other modules.

Modules that only `compare` needs are imported by it, so that `strata run` starts its program soon.
"""

import os
import re
import shlex
import sys
import traceback
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from strata import __version__
from strata.errors import EXIT_COMPARE_FAILED, EXIT_OWN_FAILURE, EXIT_USAGE, StrataError

# A program's own options come after its name, and are not ours.
STOP_AT_PROGRAM = {"allow_interspersed_args": False}
# No machine has a CPU of more digits, and no range of these is long.
CPU_RANGE = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?")

app = typer.Typer(
    name="strata",
    help="Runs programs under the strata memory allocator, and compares allocators on them.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

LibOption = Annotated[
    str | None,
    typer.Option("--lib", metavar="PATH", help="The libstrata.so to use (see `strata where`).", show_default=False),
]


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"strata {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """Options before the command's name."""


@app.command("run", context_settings=STOP_AT_PROGRAM)
def run_command(
    command: Annotated[list[str], typer.Argument(metavar="PROGRAM", show_default=False)],
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Prove that PROGRAM's malloc is strata's; end with 125 and the reason if it is not, or if nothing can tell."),
    ] = False,
    stats: Annotated[bool, typer.Option("--stats", help="Print tables of caches, arenas and pages when PROGRAM ends.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the statistics as JSON instead.")] = False,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write the statistics to FILE, %p in it is the pid.",
            show_default=False,
        ),
    ] = None,
    debug: Annotated[
        str | None,
        typer.Option(
            "--debug",
            metavar="FEATURES",
            help="Find memory errors: default, firewall, mtbf=N and more, FEATURES or FEATURES@PATTERN; see man strata_debug.",
            show_default=False,
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            "-O",
            metavar="KEY:VALUE",
            help="Set an option of the library; may be repeated.",
            show_default=False,
        ),
    ] = None,
    lib: LibOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No warnings and notes of this command's own.")] = False,
) -> None:
    """Run PROGRAM with strata as its malloc.

    PROGRAM replaces this process: pid, signals, standard streams and exit status are its own. Processes that it starts run
    under strata too.

    Exit status: 125 if this command itself fails, 126 if PROGRAM is found but cannot be run, 127 if it is not found,
    otherwise PROGRAM's.
    """
    from strata.run import RunRequest, run

    run(RunRequest(command, lib, option or [], debug, verify, stats, json, output, quiet))


@app.command("where")
def where_command(
    lib: LibOption = None,
    reason: Annotated[bool, typer.Option("--verbose", "-v", help="Also tell why this one.")] = False,
) -> None:
    """Print the path of the library that `strata run` would use."""
    from strata.library import find_library

    place = find_library(lib)
    # As bytes: a path need not be text.
    sys.stdout.buffer.write(os.fsencode(f"{place.path}  ({place.reason})\n" if reason else f"{place.path}\n"))


@app.command("compare", context_settings=STOP_AT_PROGRAM)
def compare_command(
    command: Annotated[list[str] | None, typer.Argument(metavar="PROGRAM", show_default=False)] = None,
    runs: Annotated[int, typer.Option("--runs", "-n", min=1, max=1000, help="Measured runs under each allocator.")] = 5,
    warmup: Annotated[int, typer.Option("--warmup", min=0, max=100, help="Runs before them that do not count.")] = 1,
    peers: Annotated[
        str,
        typer.Option(
            "--peers",
            metavar="LIST",
            help="auto: all that Debian packages and are installed; none; or names and paths, with commas.",
        ),
    ] = "auto",
    suite: Annotated[
        str | None,
        typer.Option(
            "--suite", metavar="PATH", help="Run the workloads of a suite: a TOML file or a folder.", show_default=False
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="NAME", help="Of the suite only this workload; may be repeated.", show_default=False),
    ] = None,
    json_file: Annotated[
        str | None,
        typer.Option("--json", metavar="FILE", help="Write all figures to FILE as JSON; - prints only that.", show_default=False),
    ] = None,
    svg_file: Annotated[
        str | None,
        typer.Option("--svg", metavar="FILE", help="Also write what is printed to FILE as a picture (SVG).", show_default=False),
    ] = None,
    pin: Annotated[
        str | None,
        typer.Option("--pin", metavar="CPUS", help="Run on these CPUs only, such as 0 or 0,2-3.", show_default=False),
    ] = None,
    stdin: Annotated[
        str | None,
        typer.Option("--stdin", metavar="FILE", help="Standard input of every run, else empty.", show_default=False),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            metavar="SECONDS",
            help="A run that takes longer fails. [default: 600]",
            show_default=False,
        ),
    ] = None,
    expect_status: Annotated[
        int | None,
        typer.Option(
            "--expect-status",
            metavar="N",
            min=0,
            max=255,
            help="A right run's exit status. [default: 0]",
            show_default=False,
        ),
    ] = None,
    same_output: Annotated[
        bool, typer.Option("--same-output", help="Fail unless all runs write the same to standard output.")
    ] = False,
    as_is: Annotated[
        bool,
        typer.Option("--as-is", help="For the system's row preload nothing, even if PROGRAM is linked with another allocator."),
    ] = False,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            "-O",
            metavar="KEY:VALUE",
            help="Set an option of the library; may be repeated.",
            show_default=False,
        ),
    ] = None,
    lib: LibOption = None,
) -> None:
    """Compare strata with the system's malloc and the installed peers on PROGRAM or a suite.

    Runs the program in turn under each allocator and prints medians of wall, user and system time, peak RSS and page faults,
    with their ratios to the system's malloc and to the best peer.

    Exit status: 0; 1 if a run failed or results differed; 2 for a wrong command line; 125 if this command itself fails.
    """
    from rich.console import Console

    from strata.candidates import choose_peers, strata_candidate, system_candidate
    from strata.compare import Plan, Result, compare, has_failed
    from strata.library import find_library, target_of
    from strata.measure import measuring
    from strata.output import OutputFile, printing
    from strata.progress import RunProgress
    from strata.report import as_json, make_console, print_end, workload_table
    from strata.run import check_option
    from strata.workload import KEYS, Workload, load_suite, select

    allowed, is_right = KEYS["timeout_s"]
    if timeout is not None and not is_right(timeout):
        raise StrataError(f"--timeout: {timeout}: allowed: {allowed}", EXIT_USAGE)
    given = {"--only": only, "--stdin": stdin, "--expect-status": expect_status, "--same-output": same_output}
    if suite is not None:
        if command:
            raise StrataError(f"--suite and a program ({command[0]}): allowed: one of them", EXIT_USAGE)
        for name in ("--stdin", "--expect-status", "--same-output"):
            if given[name] not in (None, False):
                raise StrataError(f"{name}: not together with --suite, whose file says this for each workload", EXIT_USAGE)
        workloads = select(load_suite(Path(suite)), only or [])
        if timeout is not None:
            for workload in workloads:
                workload.timeout_s = timeout
    else:
        if not command:
            raise StrataError("nothing to run; allowed: -- PROGRAM ARGS, or --suite PATH", EXIT_USAGE)
        if only:
            raise StrataError("--only: only together with --suite", EXIT_USAGE)
        workload = Workload(os.path.basename(command[0]), command, title=_shortened(shlex.join(command)))
        workload.stdin = stdin or workload.stdin
        workload.expect_status = expect_status or 0
        workload.same_output = same_output
        workload.timeout_s = timeout or workload.timeout_s
        workloads = [workload]

    library = find_library(lib).path
    for text in option or []:
        check_option(text)
    candidates = [system_candidate(library, as_is), strata_candidate(library, option or [])]
    try:
        candidates += choose_peers(peers, target_of(library))
    except StrataError as error:
        raise StrataError(str(error), EXIT_USAGE) from error
    plan = Plan(candidates, runs, warmup, parse_cpus(pin), library)
    if svg_file is not None and json_file == "-":
        raise StrataError("--svg: not together with --json -, which prints no tables", EXIT_USAGE)

    started = datetime.now(UTC).isoformat(timespec="seconds")
    console = make_console(record=svg_file is not None)
    results: list[Result] = []
    with measuring(), ExitStack() as files:
        json_output = files.enter_context(OutputFile("--json", json_file)) if json_file not in (None, "-") else None
        svg_output = files.enter_context(OutputFile("--svg", svg_file)) if svg_file is not None else None
        try:
            with RunProgress(workloads, plan, Console(stderr=True)) as progress:
                for workload in workloads:
                    results.append(compare(workload, plan, progress.step))
                    if json_file != "-":
                        with progress.hidden(), printing():
                            console.print(workload_table(results[-1], plan, console.width))
                            console.print()
        finally:
            # First of all, and also where the measuring was interrupted: the figures are what took the time.
            if json_output is not None and results:
                json_output.write(as_json(results, plan, started, len(results) == len(workloads)))
        with printing():
            if json_file == "-":
                sys.stdout.write(as_json(results, plan, started))
            else:
                print_end(console, results, plan)
        if svg_output is not None:
            svg_output.write(console.export_svg(title="strata compare"))
    if has_failed(results):
        raise typer.Exit(EXIT_COMPARE_FAILED)


def parse_cpus(text: str | None) -> frozenset[int] | None:
    """The CPUs in a list such as 0,2-3."""
    if text is None:
        return None
    usable = os.sched_getaffinity(0)
    cpus: set[int] = set()
    for part in text.split(","):
        match = CPU_RANGE.fullmatch(part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, -1)
        chosen = set(range(first, last + 1))
        if not chosen or not chosen <= usable:
            numbers = ",".join(map(str, sorted(usable)))
            raise StrataError(f"--pin: {text!r}: allowed: CPU numbers and ranges with commas, such as 0,2-3, of the CPUs {numbers}", EXIT_USAGE)
        cpus |= chosen
    return frozenset(cpus)


def _shortened(line: str, width: int = 70) -> str:
    """`line` as a heading: what can't be printed is a question mark."""
    line = "".join(char if char.isprintable() else " " if char.isspace() else "?" for char in line)
    return line if len(line) <= width else line[: width - 1] + "…"


def undo_locale_coercion() -> None:
    """Gives LC_CTYPE back the value that Python found. In the C locale it sets another one (PEP 538), which is no business of the programs that we start."""
    try:
        at_start = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return
    value = next((entry for entry in at_start if entry.startswith(b"LC_CTYPE=")), None)
    if value is not None:
        os.environb[b"LC_CTYPE"] = value.removeprefix(b"LC_CTYPE=")
    else:
        os.environ.pop("LC_CTYPE", None)


def main() -> None:
    """Entry point: the app, with errors as one message on stderr, and 125 where `strata run` itself fails."""
    undo_locale_coercion()
    # Closed by the caller; print would take the one for the other. The program that we become does not inherit what is opened here.
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")
    command = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    try:
        app(prog_name="strata")
    except StrataError as error:
        _tell_error(command, str(error))
        sys.exit(error.exit_status)
    except SystemExit as end:
        # typer ends with 2 for a wrong command line, which could be the program's own status.
        sys.exit(EXIT_OWN_FAILURE if command == "run" and end.code == EXIT_USAGE else end.code)
    except OSError as error:
        _tell_error(command, str(error))
        sys.exit(EXIT_OWN_FAILURE)
    except Exception:
        # A fault of this tool: told in full, and not with 1, which is an answer of `compare`.
        traceback.print_exc()
        sys.exit(EXIT_OWN_FAILURE)


def _tell_error(command: str, text: str) -> None:
    with suppress(OSError):
        print(f"strata {command}: {text}" if command else f"strata: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
