#!/usr/bin/env python3
"""Measures strata and the allocators that it is held against: `make bench`.

Runs the loads, the start-ups, the Google Benchmark programs and the real programs of bench/suite under each allocator in turn, and strata's blocks of
pages beside the kernel's mappings; prints tables of medians and ratios, and writes every run to build/bench/summary.json, the same tables to
summary.md, and bars to means.svg and loads.svg beside it; with --write-docs also docs/benchmarks.md.

Environment: QUICK=1 for minutes instead of an hour: 3 repetitions of shorter loads, and one of some of the programs. STRATA_LIB for the library, STRATA_CONF for strata's options.
Exit status: 0; 1 if a run failed, or with --check-bar if the bar was missed; 2 for a wrong command line or setup; 130 after Ctrl-C.
"""

import argparse
import json
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import NoReturn


def end_without(package: str | None) -> NoReturn:
    print(f"bench: the Python package {package} is missing; `make bench` installs it into build/venv", file=sys.stderr)
    sys.exit(2)


try:
    from rich import box
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.table import Table
    from rich.text import Text
except ImportError as error:
    end_without(error.name)

# The sources stay as they were checked out.
sys.dont_write_bytecode = True

try:
    from harness import machine, markdown, plots, summary, tables, visits
    from harness.allocators import FALLBACK, FALLBACK_CONF, STRATA, collect, prove
    from harness.catalogue import LOADS, QUICK_PROGRAMS, STARTUPS
    from harness.launching import Launcher, RunFailed
    from harness.measuring import Collected, run_loads, run_micro, run_startups, turns
    from harness.pages import NAME as PAGES
    from harness.pages import PROGRAM as PAGES_PROGRAM
    from harness.pages import run_pages
    from harness.programs import PROGRAM_PREFIX, run_programs, suite
except ImportError as error:
    end_without(error.name)

PROJECT = Path(__file__).resolve().parent.parent
REPETITIONS, QUICK_REPETITIONS, QUICK_PROGRAM_REPETITIONS = 5, 3, 1
QUICK_WORK_PERCENT = 20
MICRO_MIN_TIME_S, QUICK_MICRO_MIN_TIME_S = 0.1, 0.02
BUSY_LOAD = 0.5
TIMEOUT_S = 300


def arguments() -> argparse.Namespace:
    quick = os.environ.get("QUICK", "") not in ("", "0")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--build", type=Path, default=PROJECT / "build/bench", help="where cmake built with STRATA_BENCH=ON")
    parser.add_argument("--strata", type=Path, help="libstrata.so, default $STRATA_LIB, else that of --build")
    parser.add_argument("--without-strata", action="store_true", help="measure only the others")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=FILE.so", help="a further allocator, which the bar counts as well, with variables of its own where it needs any (NAME=FILE.so,VARIABLE=VALUE); may be repeated")
    parser.add_argument("--variant", action="append", default=[], metavar="NAME=CONF", help="strata again with this STRATA_CONF; may be repeated")
    parser.add_argument("--no-fallback", action="store_true", default=quick, help=f"leave out strata with {FALLBACK_CONF} on the loads")
    parser.add_argument("--only", default="", metavar="REGEX", help="only loads, start-ups, micro benchmarks, pages and programs that match")
    parser.add_argument("--runs", type=int, default=QUICK_REPETITIONS if quick else REPETITIONS, help="repetitions")
    parser.add_argument("--work", type=int, default=QUICK_WORK_PERCENT if quick else 100, metavar="PERCENT", help="work of a load")
    parser.add_argument("--pin", default="auto", metavar="CPU", help="CPU for loads of one thread: a number, auto or none")
    parser.add_argument("--no-loads", action="store_true", help="leave out loads and start-ups")
    parser.add_argument("--no-micro", action="store_true", help="leave out Google Benchmark")
    parser.add_argument("--no-pages", action="store_true", help="leave out blocks of pages")
    parser.add_argument("--no-programs", action="store_true", help="leave out the real programs")
    parser.add_argument("--output", type=Path, default=PROJECT / "build/bench/summary.json", help="every run, as JSON")
    parser.add_argument("--write-docs", action="store_true", help="write docs/benchmarks.md")
    parser.add_argument("--docs-from", type=Path, metavar="FILE", help="measure nothing: write docs/benchmarks.md from this summary")
    parser.add_argument("--pages-from", type=Path, metavar="FILE", help="with --docs-from: the blocks of pages of this summary, which the page says was measured later")
    parser.add_argument("--check-bar", action="store_true", help="exit with 1 where the bar is missed")
    parser.add_argument("--list", action="store_true", help="list the loads and end")
    options = parser.parse_args()
    if options.pages_from and not options.docs_from:
        parser.error("--pages-from goes with --docs-from alone: what is measured has pages of its own")
    options.quick = quick
    options.micro_min_time_s = QUICK_MICRO_MIN_TIME_S if quick else MICRO_MIN_TIME_S
    if options.runs < 1 or options.work < 1:
        parser.error("--runs and --work: allowed: 1 and more")
    try:
        re.compile(options.only)
    except re.error as error:
        parser.error(f"--only {options.only}: {error}")
    return options


def strata_library(options: argparse.Namespace) -> Path | None:
    if options.without_strata:
        return None
    if options.strata or os.environ.get("STRATA_LIB"):
        path = options.strata or Path(os.environ["STRATA_LIB"])
    else:
        path = next((p for p in (options.build / "libstrata.so", options.build / "src/libstrata.so") if p.is_file()), options.build / "libstrata.so")
    if not path.is_file():
        raise RunFailed(f"{path}: no such file; build it, name it with --strata, or say --without-strata")
    return path


def pinned_cpu(text: str) -> int | None:
    """The last CPU by default: interrupts and other work tend to be on the first."""
    usable = sorted(os.sched_getaffinity(0))
    if text == "none":
        return None
    if text == "auto":
        return usable[-1]
    if not text.isdecimal() or int(text) not in usable:
        raise RunFailed(f"--pin {text}: allowed: auto, none or one of {', '.join(map(str, usable))}")
    return int(text)


def measure(options: argparse.Namespace, console: Console) -> tuple[dict, bool]:
    """The summary, and whether everything that was asked for was run."""
    begin, load_average = time.monotonic(), machine.load_average()
    folder = options.build / "bench"
    launcher = Launcher(folder / "launch", TIMEOUT_S)
    if not launcher.binary.is_file():
        raise RunFailed(f"{launcher.binary}: no such file; build with STRATA_BENCH=ON")
    launcher.check()
    strata = strata_library(options)
    # strata without rseq is measured on loads only: there it has to be as good as with, see bar.py.
    fallback = [f"{FALLBACK}={FALLBACK_CONF}"] if strata and not options.no_fallback else []
    found, missing = collect(strata, options.peer, options.variant + fallback)
    allocators = [prove(allocator, launcher, folder / "probe") for allocator in found]
    cpu = pinned_cpu(options.pin)
    console.print("Allocators: " + ", ".join(f"{a.name} {a.version}".strip() for a in allocators), highlight=False)
    if machine.load_average() > BUSY_LOAD:
        console.print(f"[yellow]The machine is busy (load average {machine.load_average():.1f}): figures will be worth little.[/]")

    wanted = re.compile(options.only)
    all_programs = suite(PROJECT / "bench/suite/programs")
    loads = [load for load in LOADS if wanted.search(load.name)] if not options.no_loads else []
    startups = [startup for startup in STARTUPS if wanted.search(startup.name)] if not options.no_loads else []
    micro = sorted(folder.glob("micro_*")) if not options.no_micro else []
    programs = [one for one in all_programs if wanted.search(one.name)] if not options.no_programs else []
    ours = next((a for a in allocators if a.name == STRATA), None)
    pages_runs = options.runs if ours and not options.no_pages and wanted.search(PAGES) else 0
    if pages_runs and not (folder / PAGES_PROGRAM).is_file():
        raise RunFailed(f"{folder / PAGES_PROGRAM}: no such file; build with STRATA_BENCH=ON, or say --no-pages")
    program_runs = options.runs
    visiting = visits.QUICK_CPUS if options.quick else visits.CPUS
    if not strata or options.no_loads or not wanted.search(visits.NAME):
        visiting = ()
    collected = Collected(skipped=[f"{name}: not installed" for name in missing])
    if strata and loads and options.no_fallback:
        collected.skipped.append(f"the loads under strata with {FALLBACK_CONF}, and so the bar on the path without rseq")
    if options.quick:
        left_out = [one.name for one in programs if one.name not in QUICK_PROGRAMS and not options.only]
        programs = [one for one in programs if one.name not in left_out]
        program_runs = min(program_runs, QUICK_PROGRAM_REPETITIONS)
        if left_out:
            collected.skipped.append(f"programs that QUICK leaves out: {', '.join(left_out)}")
    under_programs = [allocator for allocator in allocators if allocator.name != FALLBACK]
    complete = True
    try:
        columns = (TextColumn("{task.description:<42}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, transient=True) as shown:
            total = sum(turns(load, options.runs) for load in loads) * len(allocators)
            total += visits.runs(visiting)
            total += (len(startups) + len(micro)) * options.runs * len(allocators) + len(programs) * program_runs * len(under_programs) + pages_runs
            task = shown.add_task("", total=total, completed=-1)

            def step(what: str, runs: int = 1) -> None:
                shown.update(task, description=what, advance=runs)

            run_loads(loads, allocators, launcher, folder, options.runs, options.work, cpu, collected, step)
            run_startups(startups, allocators, launcher, options.runs, options.work, cpu, collected, step)
            run_micro(micro, options.only or ".", allocators, launcher, options.runs, options.micro_min_time_s, collected, step)
            if ours and pages_runs:
                run_pages(ours, launcher, folder, pages_runs, options.work, cpu, collected, step)
            run_programs(programs, under_programs, launcher, program_runs, collected, step)
            collected.depot_visits = visits.count(launcher, folder, visiting, collected, step)
    except KeyboardInterrupt:
        complete = False
    settings = {
        "repetitions": options.runs,
        "program_repetitions": program_runs,
        "work_percent": options.work,
        "pinned": cpu is not None,
        "only": options.only,
        "minutes": round((time.monotonic() - begin) / 60, 1),
        "load_average": round(load_average, 2),
    }
    abouts = {f"{PROGRAM_PREFIX}{one.name}": one.title for one in all_programs}
    return summary.build(collected, allocators, machine.describe(), machine.commit(PROJECT), settings, complete, abouts), complete


def show(document: dict, console: Console) -> None:
    for text_table in tables.all_tables(document):
        table = Table(title=Text(text_table.title, style="bold"), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        for index, column in enumerate(text_table.columns):
            table.add_column(column, justify="right" if index else "left", no_wrap=True)
        for row in text_table.rows:
            table.add_row(*(Text(cell, style="bold green" if cell.endswith("*") else "red" if cell == "failed" else "") for cell in row))
        console.print(table)
        console.print(Text(text_table.note, style="dim"))
        console.print()
    for line in tables.bar_lines(document):
        console.print(Text("bar: " + line, style="bold green" if line.endswith(": met") else "bold yellow"))
    for what in document["skipped"]:
        console.print(Text("left out: " + what, style="yellow"))
    for problem in document["problems"]:
        console.print(Text("failed: " + problem, style="bold red"))


def interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    options = arguments()
    # Wide enough for all columns when the output is a file.
    console = Console() if sys.stdout.isatty() else Console(width=150)
    if options.list:
        for load in (*LOADS, *STARTUPS):
            console.print(f"{load.name:<20} {load.about}", highlight=False)
        for program in suite(PROJECT / "bench/suite/programs"):
            console.print(f"{PROGRAM_PREFIX + program.name:<20} {program.title}", highlight=False)
        console.print(f"{visits.NAME:<20} visits of depots by up to {max(visits.CPUS):,} simulated CPUs", highlight=False)
        return 0
    docs, images = PROJECT / "docs/benchmarks.md", PROJECT / "docs/images/bench"
    if options.docs_from:
        try:
            document = json.loads(options.docs_from.read_text())
            later = json.loads(options.pages_from.read_text()) if options.pages_from else None
        except (OSError, ValueError) as error:
            print(f"bench: a summary can't be read: {error}", file=sys.stderr)
            return 2
        if later is not None:
            if not later["pages"]:
                print(f"bench: --pages-from {options.pages_from}: a summary without blocks of pages", file=sys.stderr)
                return 2
            document = summary.with_pages_of(document, later)
        markdown.write(document, docs, plots.draw(document, images))
        return 0
    signal.signal(signal.SIGTERM, interrupt)
    try:
        document, complete = measure(options, console)
    except RunFailed as failure:
        print(f"bench: {failure}", file=sys.stderr)
        return 2
    nothing = not (document["loads"] or document["micro"] or document["pages"] or document["depot_visits"])
    if nothing and complete and not document["problems"]:
        print(f"bench: --only {options.only}: nothing matches", file=sys.stderr)
        return 2
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(document, indent=1) + "\n")
    markdown.write(document, options.output.with_suffix(".md"), plots.draw(document, options.output.parent))
    show(document, console)
    console.print(f"Every run: {options.output}", highlight=False)
    if not complete:
        print("bench: interrupted; the figures cover what was done until then", file=sys.stderr)
        return 130
    if options.write_docs:
        markdown.write(document, docs, plots.draw(document, images))
        console.print(f"Written: {docs}", highlight=False)
    missed = options.check_bar and not (document["bar"] and all(verdict["met"] for verdict in document["bar"]))
    return 1 if document["problems"] or missed else 0


if __name__ == "__main__":
    sys.exit(main())
