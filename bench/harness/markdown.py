"""Writes docs/benchmarks.md from a summary."""

import os
from collections.abc import Sequence
from pathlib import Path

from .tables import TextTable, all_tables, bar_lines

INTRODUCTION = """\
# Benchmarks

This page is written by `bench/bench.py --write-docs`; do not edit it by hand.

Every load does a fixed amount of work from fixed seeds and checks the contents of its blocks; its result is the same under
every allocator. Real programs (`program:`) have fixed input, and each run's output is checked. The allocators take turns within each load, in
another order each repetition; figures are medians, intervals are 95 % by bootstrap over the repetitions. Allocators come by `LD_PRELOAD`
into the same programs, with their default settings, and a probe proves before the first run that each one answers. Loads of one thread and
start-ups are pinned to one CPU. Peak RSS is that of the program alone, started by a small launcher, because a process inherits the peak of the one
that it was started from; the kernel itself counts it to within a few hundred KiB. Time-averaged RSS comes from a look every 5 ms at the program
and its children; of servers only they themselves count, not their clients. Start-ups are the mean of hundreds of starts. Blocks of pages ("Pages") have no rival but the kernel
and copies, and are in no mean.
"""

REPEATING = """\
## How to repeat

    make bench                                    # everything, 5 repetitions
    make bench QUICK=1                            # minutes instead of an hour: shorter, fewer
    build/venv/bin/python bench/bench.py --only 'ring|server' --runs 9 --no-programs --no-micro
    build/venv/bin/python bench/bench.py --peer NAME=/path/to/lib.so --variant mine=KEY:VALUE
    build/venv/bin/python bench/bench.py --peer NAME=/path/to/lib.so,VARIABLE=VALUE    # with an environment of its own
    build/venv/bin/python bench/bench.py --help

`make bench` builds first; `bench/bench.py` takes what is in build/bench.

`build/bench/summary.json` has every single run, and for each allocator its geometric means against the best other. On a machine that does other work at the same time the figures are worth
little; `~` marks loads whose repetitions were far apart.
"""


def table_lines(table: TextTable) -> list[str]:
    def row(cells: list[str]) -> str:
        return "| " + " | ".join(cell.replace("*", "\\*").replace("|", "\\|") for cell in cells) + " |"

    rule = "|" + "|".join([" --- ", *[" ---: "] * (len(table.columns) - 1)]) + "|"
    return [f"## {table.title}", "", table.note.replace("*", "\\*"), "", row(table.columns), rule, *map(row, table.rows), ""]


def document(summary: dict, images: Sequence[str] = ()) -> str:
    """The page; `images` are the names of files, as the page refers to them."""
    lines = [INTRODUCTION]
    if summary["bar"]:
        lines += ["## The bar", "", *(f"- {line}" for line in bar_lines(summary)), ""]
    if images:
        lines += [*(f"![{Path(image).stem}]({image})" for image in images), ""]
    for table in all_tables(summary):
        lines += table_lines(table)
    lines += ["## The loads", "", *(f"- `{name}`: {load['about']}" for name, load in summary["loads"].items()), ""]
    lines += ["## Where these figures come from", ""]
    lines += [f"- {key}: {value}" for key, value in summary["machine"].items()]
    lines += [f"- {allocator['name']}: {_version(allocator)}" for allocator in summary["allocators"]]
    settings = summary["settings"]
    lines += [f"- commit: {summary['commit']}", f"- date: {summary['date']}", f"- repetitions: {settings['repetitions']}, of programs {settings['program_repetitions']}"]
    if "pages_commit" in summary:
        lines.append(f"- pages: measured later, by themselves, at commit {summary['pages_commit']}")
    lines.append(f"- minutes: {settings['minutes']}, load average at the start: {settings['load_average']}")
    if settings["work_percent"] != 100:
        lines.append(f"- work: only {settings['work_percent']} % of what a load does by default")
    if settings["only"]:
        lines.append(f"- loads: only those that match `{settings['only']}`")
    if not settings["pinned"]:
        lines.append("- loads of one thread were not pinned")
    lines.append("")
    if summary["problems"]:
        lines += ["## Failed runs", "", *(f"- {problem.splitlines()[0]}" for problem in summary["problems"]), ""]
    if summary["skipped"]:
        lines += ["## Left out", "", *(f"- {what}" for what in summary["skipped"]), ""]
    lines.append(REPEATING)
    return "\n".join(lines)


def _version(allocator: dict) -> str:
    options = ", ".join(f"{key}={value}" for key, value in allocator["options"].items())
    return (allocator["version"] or "this commit") + (f" with {options}" if options else "")


def write(summary: dict, path: Path, images: Sequence[Path] = ()) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(document(summary, [os.path.relpath(image, path.parent) for image in images]))
    part.replace(path)
