"""What `strata compare` tells: tables for a person, one JSON document for machines.

The tables fit 100 columns. The best median of a column is marked with a star as well as with colour, since a colour is lost
in a file.
"""

import json
import os
import platform
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from strata import __version__
from strata.candidates import STRATA, SYSTEM
from strata.compare import Mean, Plan, Result, has_failed, means
from strata.metrics import METRIC_NAMES, METRICS, Metric

JSON_SCHEMA = 1
NOTHING = "–"
STAR = "*"
# The width of a table that goes to no terminal, and the least that has room for all measures.
WIDTH = 100
WIDTH_FOR_ALL = 97
LEFT_OUT_WHEN_NARROW = ("user_s", "system_s", "major_faults")
# The measures of the summary over workloads: those of the bar that strata is held to.
SUMMARY_METRICS = ("wall_s", "peak_rss_bytes")
SUMMARY_NAME_WIDTH = 12


def format_value(metric: Metric, value: float) -> str:
    """A figure without its unit, which stands in the heading."""
    if metric.kind == "seconds":
        return f"{value:.3f}" if value < 100 else f"{value:.1f}" if value < 1000 else f"{value:.0f}"
    if metric.kind == "bytes":
        mib = value / (1 << 20)
        return f"{mib:.1f}" if mib < 1000 else f"{mib:,.0f}"
    if value < 1_000_000:
        return f"{value:,.0f}"
    return f"{value / 1e6:.2f}M" if value < 100_000_000 else f"{value / 1e6:,.0f}M"


def format_ratio(value: float | None) -> str:
    if value is None:
        return NOTHING
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def heading(metric: Metric) -> str:
    unit = {"seconds": " s", "bytes": " MiB", "count": ""}[metric.kind]
    # Beside the minor ones there is no need, nor room, for the whole name.
    return "major" if metric.name == "major_faults" else metric.heading + unit


class _PlainConsole(Console):
    """Prints names and messages as they are, whatever is in them."""

    def on_broken_pipe(self) -> None:
        raise  # the BrokenPipeError that is being handled; rich would end with the status of a failed run


def make_console(record: bool = False) -> Console:
    """Standard output; a file gets tables of the width that they are made for. record: what is printed can be exported."""
    # A name need not be text in the encoding that standard output has.
    sys.stdout.reconfigure(errors="replace")
    width = shutil.get_terminal_size((WIDTH, 0)).columns
    return _PlainConsole(highlight=False, markup=False, emoji=False, width=width, record=record)


def _new_table(title: str) -> Table:
    return Table(
        box=box.SIMPLE_HEAD,
        title=Text(title, style="bold", overflow="ellipsis", no_wrap=True),
        title_justify="left",
        pad_edge=False,
        padding=(0, 1, 0, 0),
        show_edge=False,
    )


def workload_table(result: Result, plan: Plan, width: int = WIDTH) -> Table:
    """Medians of one workload with their ratios to the system's malloc, a row for each allocator."""
    workload = result.workload
    table = _new_table(workload.name + (f" – {workload.title}" if workload.title else ""))
    table.add_column("allocator", no_wrap=True)
    shown = [m for m in METRICS if width >= WIDTH_FOR_ALL or m.name not in LEFT_OUT_WHEN_NARROW]
    for metric in shown:
        table.add_column(heading(metric), justify="right", no_wrap=True)
    table.add_column("±", justify="right", no_wrap=True)
    least = {m.name: min((s[m.name].median for s in result.summary.values()), default=None) for m in shown}
    for candidate in plan.candidates:
        style = "cyan" if candidate.name == STRATA else ""
        name = Text(candidate.name, style=style)
        if candidate.name not in result.summary:
            table.add_row(name, Text("failed" if candidate.name in result.failed else "not run", style="red"))
            continue
        row = result.summary[candidate.name]
        cells = []
        for metric in shown:
            summary = row[metric.name]
            # No star where all are equal, as with faults that nobody has.
            is_least = summary.median == least[metric.name] and len(result.summary) > 1 and summary.median > 0
            cells.append(_value_cell(metric, summary.median, summary.to_system, is_least, style))
        wall = row["wall_s"]
        spread = (wall.maximum - wall.minimum) / 2 / wall.median if wall.median else 0.0
        # More than that only says that the runs are too short.
        table.add_row(name, *cells, Text(f"{min(spread, 0.99):.0%}", style="dim"))
    _add_verdict(table, result, shown)
    return table


def _value_cell(metric: Metric, value: float, to_system: float | None, is_least: bool, style: str) -> Text:
    cell = Text(style="bold green" if is_least else style)
    cell.append(format_value(metric, value))
    # Faults from disk depend on what the machine did before; a ratio of them says nothing.
    if metric.name != "major_faults":
        cell.append(f" {format_ratio(to_system):>4}", style="" if is_least else "dim")
        cell.append(STAR if is_least else " ")
    return cell


def _add_verdict(table: Table, result: Result, shown: Sequence[Metric]) -> None:
    """The rows below: strata against the system's malloc and against the best peer of each column."""
    if STRATA not in result.summary:
        return
    row = result.summary[STRATA]
    compared = [metric for metric in shown if metric.name != "major_faults"]
    table.add_section()
    verdicts = [("vs system", [row[metric.name].to_system for metric in compared])]
    if result.best_peer:
        verdicts.append(("vs best peer", [row[metric.name].to_best_peer for metric in compared]))
    for label, ratios in verdicts:
        table.add_row(Text(label, style="bold"), *(Text(format_ratio(r) + " ", style=_ratio_style(r)) for r in ratios))
    if result.best_peer:
        names = [Text(result.best_peer[metric.name], style="dim") for metric in compared]
        table.add_row(Text("  which is", style="dim"), *names)


def _ratio_style(value: float | None) -> str:
    if value is None:
        return "dim"
    return "bold green" if value <= 1.005 else "bold yellow"


def summary_table(results: list[Result], plan: Plan) -> Table:
    """One table over all workloads: ratios to the system's malloc, wall time over peak RSS, with geometric means."""
    mean_table, _ = means(results, plan)
    table = _new_table("all workloads – wall time | peak RSS, as ratios to the system's malloc")
    table.add_column("workload", no_wrap=True, max_width=SUMMARY_NAME_WIDTH, overflow="ellipsis")
    shown = [candidate for candidate in plan.candidates if candidate.name != SYSTEM]
    for candidate in shown:
        style = "cyan" if candidate.name == STRATA else ""
        table.add_column(Text(candidate.name, style=style), justify="right", no_wrap=True)
    for result in results:
        cells = []
        rows = {c.name: result.summary[c.name] for c in shown if c.name in result.summary}
        least = {m: min((row[m].median for row in rows.values()), default=0) for m in SUMMARY_METRICS}
        for candidate in shown:
            if candidate.name not in rows:
                cells.append(Text("failed", style="red"))
                continue
            row = rows[candidate.name]
            cells.append(_pair([(row[m].to_system, row[m].median == least[m]) for m in SUMMARY_METRICS]))
        table.add_row(result.workload.name, *cells)
    table.add_section()
    cells = []
    for candidate in shown:
        if row := mean_table.get(candidate.name):
            cells.append(_pair([(row[m].to_system, _is_least(mean_table, candidate.name, m)) for m in SUMMARY_METRICS]))
        else:
            cells.append(Text(NOTHING, style="dim"))
    table.add_row(Text("geomean", style="bold"), *cells)
    return table


def _is_least(table: dict[str, dict[str, Mean]], name: str, metric: str) -> bool:
    values = {n: row[metric].to_system for n, row in table.items() if n != SYSTEM and row[metric].to_system is not None}
    # Means that differ only by rounding are equal.
    return name in values and values[name] <= min(values.values()) * (1 + 1e-9)


def _pair(parts: list[tuple[float | None, bool]]) -> Text:
    text = Text()
    for index, (value, is_best) in enumerate(parts):
        if index:
            text.append("|", style="dim")
        text.append(format_ratio(value), style="bold green" if is_best else "")
        text.append(STAR if is_best else " ")
    return text


def summary_lines(results: list[Result], plan: Plan) -> list[str]:
    """strata's geometric means in words, one line for each measure of the summary."""
    table, best = means(results, plan)
    if STRATA not in table:
        return []
    lines = []
    for metric in (m for m in METRICS if m.name in SUMMARY_METRICS):
        mean = table[STRATA][metric.name]
        line = f"{metric.heading}: strata is at {format_ratio(mean.to_system)} of the system's malloc"
        if metric.name in best:
            line += f" and at {format_ratio(mean.to_best_peer)} of the best peer, {best[metric.name]}"
        lines.append(line)
    return lines


def print_end(console: Console, results: list[Result], plan: Plan) -> None:
    """What follows the tables of the workloads: the summary over several, how to read it all, and what went wrong."""
    if len(results) > 1:
        console.print(summary_table(results, plan))
        for line in summary_lines(results, plan):
            console.print(line)
        console.print()
    warmups = f" after {plan.warmup} warm-up{'s' if plan.warmup != 1 else ''}" if plan.warmup else ""
    legend = f"Medians of {plan.runs} interleaved run{'s' if plan.runs != 1 else ''}{warmups}; beside each its ratio to the "
    legend += f"system's malloc; {STAR} least; ± half the range of wall time. Peak RSS is of the largest process."
    console.print(Text(legend, style="dim"))
    for problem in (problem for result in results for problem in result.problems):
        console.print(Text(f"failed: {problem}", style="bold red"))


def as_json(results: list[Result], plan: Plan, started: str, complete: bool = True) -> str:
    """Everything, raw and summed up; docs in the package's README. Not complete: the measuring ended before its last workload."""
    table, best = means(results, plan)
    document = {
        "schema": JSON_SCHEMA,
        "tool": {"name": "strata", "version": __version__},
        "started": started,
        "host": _host(),
        "settings": {"runs": plan.runs, "warmup": plan.warmup, "cpus": sorted(plan.cpus) if plan.cpus else None},
        "metrics": list(METRIC_NAMES),
        "candidates": [{"name": c.name, "preload": c.preload, "env": dict(c.env)} for c in plan.candidates],
        "workloads": [_workload_json(result) for result in results],
        "geometric_means": {
            name: {metric: {"to_system": mean.to_system, "to_best_peer": mean.to_best_peer} for metric, mean in row.items()}
            for name, row in table.items()
        },
        "best_peer": best,
        "failed": has_failed(results) or not complete,
    }
    return json.dumps(document, indent=1) + "\n"


def _workload_json(result: Result) -> dict:
    return {
        "name": result.workload.name,
        "title": result.workload.title,
        "command": result.workload.command,
        "runs": [
            {
                "round": run.round,
                "warmup": run.is_warmup,
                "candidate": run.candidate,
                "exit_status": run.sample.exit_status,
                "metrics": run.sample.metrics,
                "reported": run.sample.reported,
                "output_sha256": run.sample.output_sha256,
                "problem": run.problem or None,
            }
            for run in result.runs
        ],
        "summary": {
            name: {
                metric: {
                    "median": s.median,
                    "min": s.minimum,
                    "max": s.maximum,
                    "to_system": s.to_system,
                    "to_best_peer": s.to_best_peer,
                }
                for metric, s in row.items()
            }
            for name, row in result.summary.items()
        },
        "best_peer": result.best_peer,
        "problems": result.problems,
    }


def _host() -> dict:
    """What a reader needs to judge the figures; nothing that tells one machine from another of its kind."""
    return {
        "machine": platform.machine(),
        "system": platform.system(),
        "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()).strip(),
        "cpus": len(os.sched_getaffinity(0)),
        "cpu_model": _first_value("/proc/cpuinfo", "model name"),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "transparent_hugepage": _read("/sys/kernel/mm/transparent_hugepage/enabled"),
    }


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _first_value(path: str, key: str) -> str:
    for line in _read(path).splitlines():
        if line.startswith(key):
            return line.split(":", 1)[-1].strip()
    return ""
