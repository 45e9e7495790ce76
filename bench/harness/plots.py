"""Draws a summary as bars: each allocator against strata over all loads, and strata against the best other on each load."""

from pathlib import Path

import matplotlib

matplotlib.use("svg")

from matplotlib import pyplot  # noqa: E402  (the backend has to be chosen first)

from .allocators import STRATA  # noqa: E402

TITLES = {"wall_s": "wall time", "peak_rss_bytes": "peak RSS", "mean_rss_bytes": "time-averaged RSS"}
WIDTH_INCHES, ROW_INCHES, MARGIN_INCHES = 4.0, 0.24, 1.0
BETTER, WORSE, OTHER = "#2a7f62", "#c0504d", "#8c9bb0"

# One document gives one file, byte for byte; text stays text, so that the file is small and can be searched.
matplotlib.rcParams.update({"svg.hashsalt": "strata", "svg.fonttype": "none", "font.size": 8, "axes.axisbelow": True})


def draw(summary: dict, folder: Path) -> list[Path]:
    """Writes means.svg and loads.svg into the folder; returns what was written."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    if any(summary["against_best_other"].values()):
        written.append(_means(summary, folder / "means.svg"))
    if STRATA in summary["against_best_other"] and any(STRATA in load["allocators"] for load in summary["loads"].values()):
        written.append(_loads(summary, folder / "loads.svg"))
    return written


def _panels(rows: int):
    height = MARGIN_INCHES + ROW_INCHES * rows
    return pyplot.subplots(1, len(TITLES), figsize=(WIDTH_INCHES * len(TITLES), height), squeeze=False, layout="constrained", sharey=True)


def _bars(axis, title: str, names: list[str], values: list[float], errors: list[tuple[float, float]], colours: list[str]) -> None:
    around = [[max(0.0, v - low) for v, (low, _) in zip(values, errors, strict=True)],
              [max(0.0, high - v) for v, (_, high) in zip(values, errors, strict=True)]]  # fmt: skip
    axis.barh(names, values, xerr=around, color=colours, error_kw={"elinewidth": 0.8, "capsize": 1.5})
    axis.axvline(1, color="black", linewidth=0.8)
    for name, value in zip(names, values, strict=True):
        axis.annotate(f"{value:.2f}", (0, name), xytext=(2, 0), textcoords="offset points", va="center", color="white", fontsize=7)
    axis.set_title(title)
    axis.set_xlim(left=0)
    axis.grid(axis="x", alpha=0.3)


def _means(summary: dict, file: Path) -> Path:
    names = list(summary["against_best_other"])
    figure, axes = _panels(len(names))
    for axis, (metric, title) in zip(axes.flat, TITLES.items(), strict=True):
        found = {name: row[metric] for name, row in summary["against_best_other"].items() if metric in row}
        shown = [name for name in names if name in found]
        _bars(axis, f"{title}: against the best other", shown, [found[name]["ratio"] for name in shown],
              [(found[name]["low"], found[name]["high"]) for name in shown], [BETTER if name == STRATA else OTHER for name in shown])  # fmt: skip
    return _save(figure, axes, file)


def _loads(summary: dict, file: Path) -> Path:
    mine = {load: document["allocators"][STRATA] for load, document in summary["loads"].items() if STRATA in document["allocators"]}
    mine = {load: row for load, row in mine.items() if row["intervals"]}
    figure, axes = _panels(len(mine))
    for axis, (metric, title) in zip(axes.flat, TITLES.items(), strict=True):
        values = [row["to_best_other"][metric] for row in mine.values()]
        errors = [tuple(row["intervals"][metric]) for row in mine.values()]
        _bars(axis, f"{title}: strata against the best other", list(mine), values, errors, [BETTER if v <= 1 else WORSE for v in values])
    return _save(figure, axes, file)


def _save(figure, axes, file: Path) -> Path:
    axes.flat[0].invert_yaxis()  # shared: the first row on top in all panels
    figure.savefig(file, metadata={"Date": None})
    pyplot.close(figure)
    # The library ends lines with blanks, which would show in every diff.
    file.write_text("\n".join(line.rstrip() for line in file.read_text().splitlines()) + "\n")
    return file
