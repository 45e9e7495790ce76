"""The tables of a summary, as rows of text: the terminal and docs/benchmarks.md show the same ones. No output here."""

from dataclasses import dataclass

from .bar import size_text
from .programs import PROGRAM_PREFIX

NOTHING = "–"
HEADINGS = {"wall_s": "wall time", "cpu_s": "CPU time", "peak_rss_bytes": "peak RSS", "mean_rss_bytes": "time-averaged RSS", "minor_faults": "page faults", "ns": "time"}
HEADINGS |= {"switches": "context switches"}
# What a figure is multiplied with to be shown, its unit, and decimal places.
SCALES = {"wall_s": (1, "s", 3), "cpu_s": (1, "s", 3), "peak_rss_bytes": (1 / (1 << 20), "MiB", 1), "minor_faults": (1, "", 0)}
SCALES |= {"mean_rss_bytes": (1 / (1 << 20), "MiB", 1), "switches": (1, "", 0)}
# From here on repetitions were far enough apart to say so beside the figure.
NOISY_SPREAD = 0.15


@dataclass
class TextTable:
    """A heading, a line below it, column names, and rows; the first column is text, the others are figures."""

    title: str
    note: str
    columns: list[str]
    rows: list[list[str]]


def number(value: float | None, digits: int = 2) -> str:
    return NOTHING if value is None else f"{value:,.{digits}f}"


def names_of(summary: dict) -> list[str]:
    return [allocator["name"] for allocator in summary["allocators"]]


def _starred(values: dict[str, float], name: str, shown: str) -> str:
    return shown + (" *" if len(values) > 1 and values[name] == min(values.values()) else "")


def metric_table(summary: dict, metric: str) -> TextTable:
    """Medians of every load under every allocator."""
    names = names_of(summary)
    factor, unit, digits = SCALES[metric]
    rows = []
    for load, document in summary["loads"].items():
        values = {name: entry["median"][metric] for name, entry in document["allocators"].items()}
        cells = [load]
        for name in names:
            if name not in values:
                cells.append("failed" if any(problem.startswith(f"{load} under {name}") for problem in summary["problems"]) else NOTHING)
                continue
            noisy = metric == "wall_s" and document["allocators"][name]["spread"][metric] > NOISY_SPREAD
            cells.append(_starred(values, name, number(values[name] * factor, digits) + (" ~" if noisy else "")))
        ours = document["allocators"].get(names[0])
        if ours:
            cells.append(f"{ours['to_best_other'][metric]:.2f} {ours['best_other'][metric]}" if metric in ours["to_best_other"] else NOTHING)
        else:
            cells.append(NOTHING)
        rows.append(cells)
    heading = HEADINGS[metric] + (f", {unit}" if unit else "")
    note = "Medians; * least" + (f"; ~ repetitions more than {NOISY_SPREAD:.0%} apart" if metric == "wall_s" else "") + "."
    return TextTable(heading[0].upper() + heading[1:], note, ["load", *names, f"{names[0]} : best other"], rows)


def means_table(summary: dict, key: str = "means") -> TextTable:
    """Geometric means of the first allocator (strata, where it was measured) against each other one."""
    names = names_of(summary)
    mine, others = names[0], names[1:]
    rows = []
    for metric, means in summary[key].items():
        pairs = [number(means["to_each"][mine].get(other), 3) for other in others]
        rows.append([HEADINGS[metric], *pairs, number(means["to_best_on_each_load"].get(mine), 3)])
    count = len(summary["mean_loads" if key == "means" else "mean_micro"])
    what = "micro benchmarks"
    if key == "means":
        what = "loads and programs" if any(load.startswith(PROGRAM_PREFIX) for load in summary["mean_loads"]) else "loads"
    title = f"{mine} against each: geometric means ({what}: {count})"
    note = f"Below 1: {mine} needs less. Last column: against whichever other of the bar was best at each single one."
    return TextTable(title, note, ["", *(f": {other}" for other in others), ": best at each"], rows)


def scaling_table(summary: dict) -> TextTable | None:
    """Two threads against one, and what the machine allows."""
    names = names_of(summary)
    labels = {"work": "allocating", "control": "control: the same accesses without allocating"}
    rows = [[label, *(number(summary["scaling"].get(group, {}).get(name)) for name in names)] for group, label in labels.items()]
    if not any(summary["scaling"].values()):
        return None
    note = "How many times one thread's work two threads do in its time. The control shows what the machine itself allows."
    return TextTable("Two threads against one", note, ["", *names], rows)


def visits_table(summary: dict) -> TextTable | None:
    """Visits of depots on simulated CPUs, where the lock is never found taken and where it is."""
    rows: dict[tuple[str, int], list[str]] = {}
    for row in summary["depot_visits"]:
        cells = rows.setdefault((row["load"], row["cpus"]), [f"{row['load']} on {row['cpus']:,} CPU" + "s" * (row["cpus"] > 1)])
        if row["contended"]:
            cells.append(number(100 * row["found_taken_per_visit"], 0))
        cells += [number(row["m"], 0), number(1000 * row["visits_per_operation"]), number(row["of_bound"])]
    if not rows:
        return None
    columns = ["load", "m", "visits", "of 2/m", "lock found taken, %", "m there", "visits there", "of 2/m there"]
    whole = [cells for cells in rows.values() if len(cells) == len(columns)]
    note = "Visits in 1,000 operations, counted: first while no lock is ever found taken, then where a visit takes as long as some operations do, and m has grown."
    return TextTable("Visits of the depot on simulated CPUs", note, columns, whole)


def micro_table(summary: dict) -> TextTable | None:
    """Nanoseconds of each micro benchmark."""
    if not summary["micro"]:
        return None
    names = names_of(summary)
    rows = []
    for benchmark, values in summary["micro"].items():
        cells = [_starred(values, name, number(values[name], 1)) if name in values else NOTHING for name in names]
        rows.append([benchmark, *cells])
    return TextTable("Micro benchmarks, ns an operation", "Medians; * least.", ["benchmark", *names], rows)


def tail_table(summary: dict) -> TextTable | None:
    """Latencies of single calls in the loads that stand for servers, and of requests in servers."""
    names = names_of(summary)
    rows = []
    for load, document in summary["loads"].items():
        for call in ("malloc", "free", "request"):
            for quantile in ("p50", "p99", "p99_9"):
                metric = f"{call}_{quantile}_ns"
                values = {n: e["median"][metric] for n, e in document["allocators"].items() if metric in e["median"]}
                if values:
                    cells = [_starred(values, name, number(values[name], 0)) if name in values else NOTHING for name in names]
                    rows.append([f"{load}: {call} {quantile.replace('_', '.')}", *cells])
    if not rows:
        return None
    note = "Medians; * least. Some 10 to 30 ns of malloc and free are the clock's; requests are seen by a client, which shares the CPUs."
    return TextTable("Latencies, ns", note, ["load", *names], rows)


def best_other_table(summary: dict) -> TextTable | None:
    """Every allocator against the best of the others, with intervals."""
    rows = []
    for name, metrics in summary["against_best_other"].items():
        cells = [name]
        for metric in ("wall_s", "peak_rss_bytes", "mean_rss_bytes"):
            found = metrics.get(metric)
            cells.append(f"{found['ratio']:.3f} ({found['low']:.3f}–{found['high']:.3f}) {found['best_other']}" if found else NOTHING)
        rows.append(cells)
    if not any(summary["against_best_other"].values()):
        return None
    note = "Geometric means of the ratios to the best other as a whole, which is named; in brackets 95 % intervals by bootstrap over the repetitions."
    return TextTable("Each against the best of the others", note, ["", "wall time", "peak RSS", "time-averaged RSS"], rows)


def pages_tables(summary: dict) -> list[TextTable]:
    """Blocks of pages beside the kernel's mappings and beside copies, in microseconds."""
    pages = summary.get("pages")
    if not pages:
        return []

    def us(nanoseconds: float) -> str:
        return number(nanoseconds / 1000)

    def times(mine: float, other: float) -> str:
        return f"{other / mine:,.0f}"

    pairs = [
        [size_text(pair["bytes"]), us(pair["strata_ns"]), us(pair["touched_ns"]), us(pair["kernel_ns"]), times(pair["strata_ns"], pair["kernel_ns"])] for pair in pages["pairs"]
    ]
    steps = [
        [
            size_text(step["bytes"]), us(step["first_ns"]), us(step["aged_ns"]), us(step["privileged_ns"]) if "privileged_ns" in step else "-",
            us(step["later_ns"]), us(step["copy_ns"]), times(step["first_ns"], step["copy_ns"]),
        ]
        for step in pages["doubling"]
    ]  # fmt: skip
    turns = [[size_text(step["bytes"]), us(step["first_ns"]), us(step["later_ns"])] for step in pages.get("turns", [])]
    in_turn = TextTable(
        "Pages: two blocks that grow by doubling in turn, us a step",
        "As above, the dearer of both: each lies where the other would grow, so that every second step gives a block another address.",
        ["to", "strata, first round", "strata, later"],
        turns,
    )
    swap = pages["swap"]
    swaps = [[f"two of {size_text(swap['bytes'])}", us(swap["strata_ns"]), us(swap["aged_ns"]), us(swap["copy_ns"]), times(swap["strata_ns"], swap["copy_ns"])]]
    return [
        TextTable(
            "Pages: allocation and release, us",
            "One block again and again. strata: `strata_page_alloc` and `strata_page_free`, which find the pages of the last one; the same, without the writing, where a "
            "byte is written into each page in between, which empties the processor's caches; the kernel: `mmap`, such writing, which makes the pages present, and "
            "`munmap`.",
            ["size", "strata", "strata, pages written", "kernel: map, write, unmap", "kernel : strata"],
            pairs,
        ),
        TextTable(
            "Pages: growth by doubling from 1 MiB, us a step",
            "Every page is written to before the next step. In the first round of a process its memory has never been that large; later ones meet what that left. "
            "With a history: the first round, after eight pairs of other blocks of 2 to 5 MiB were exchanged and freed. "
            "Privileged: the first round of a process that may lock all of its memory (`CAP_IPC_LOCK`), for which no address space is committed ahead. "
            "Copying is allocation, copy and release, in later rounds.",
            ["to", "strata, first round", "strata, with a history", "strata, privileged", "strata, later", "copying", "copying : first round"],
            steps,
        ),
        *([in_turn] if turns else []),
        TextTable(
            "Pages: an exchange, us",
            "Of blocks of which every page is present; after the history that growth has above; by copying through a buffer of 64 KiB.",
            ["blocks", "strata", "strata, with a history", "copying", "copying : strata"],
            swaps,
        ),
    ]


def all_tables(summary: dict) -> list[TextTable]:
    tables: list[TextTable | None] = []
    if summary["loads"]:
        tables += [best_other_table(summary)]
        tables += [metric_table(summary, metric) for metric in SCALES]
        tables += [tail_table(summary), scaling_table(summary), means_table(summary)]
    tables += [visits_table(summary)]
    if summary["micro"]:
        tables += [micro_table(summary), means_table(summary, "micro_means")]
    tables += pages_tables(summary)
    return [table for table in tables if table]


def bar_lines(summary: dict) -> list[str]:
    """The bar in words, a line each."""
    lines = []
    for verdict in summary["bar"]:
        detail = f" ({verdict['detail']})" if verdict["detail"] else ""
        wanted = f"at {'least' if verdict['at_least'] else 'most'} {verdict['wanted']:g}"
        lines.append(f"{verdict['what']}{detail}: {verdict['value']:.3f}, wanted {wanted}: {'met' if verdict['met'] else 'missed'}")
    return lines
