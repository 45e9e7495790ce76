"""Draws the plot of a document: panels in rows, the same colour for the same name in all of them."""

import math
from pathlib import Path

import matplotlib

matplotlib.use("svg")

from matplotlib import pyplot  # noqa: E402  (the backend has to be chosen first)

PANEL_WIDTH_INCHES, HEIGHT_INCHES = 5.2, 3.9
MARKERS = "osD^vPX*"
MARKED_POINTS_MAX = 80
TICKS_MAX = 12
# Labels of numbers beyond would touch each other; powers of ten say as much.
TICK_VALUE_MAX = 100_000

# One document gives one file, byte for byte; text stays text, so that the file is small and can be searched.
matplotlib.rcParams.update({"svg.hashsalt": "strata", "svg.fonttype": "none", "axes.grid": True, "grid.alpha": 0.3, "font.size": 9})


def panels_of(document: dict) -> list[str]:
    return list(dict.fromkeys(series["panel"] for series in document["measured"]))


def unit_of(document: dict, panel: str) -> str:
    return document.get("panel_units", {}).get(panel, document["unit"])


def curves_of(document: dict, panel: str) -> list[tuple[str, dict]]:
    """What stands in a panel, published curves first, under the names to show."""
    published = [(f"{one['name']} (published)", one) for one in document.get("published_curves", []) if one["panel"] == panel]
    return published + [(one["name"], one) for one in document["measured"] if one["panel"] == panel]


def draw(document: dict, file: Path) -> None:
    panels = panels_of(document)
    names = list(dict.fromkeys(name for panel in panels for name, _ in curves_of(document, panel)))
    columns = 2 if len(panels) in (2, 4) else min(3, len(panels))
    rows = math.ceil(len(panels) / columns)
    size = (PANEL_WIDTH_INCHES * columns, HEIGHT_INCHES * rows)
    figure, axes = pyplot.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    for axis in axes.flat[len(panels) :]:
        axis.remove()
    for axis, panel in zip(axes.flat, panels, strict=False):
        xs: set[float] = set()
        for name, series in curves_of(document, panel):
            index = names.index(name)
            x, y = zip(*series["points"], strict=True)
            xs.update(x)
            if document["y_log"]:  # nothing has no place there; lines end beside it
                y = [value if value > 0 else math.nan for value in y]
            # Many points are a line; the marks of a hundred would hide it.
            marker = MARKERS[index % len(MARKERS)] if len(x) <= MARKED_POINTS_MAX else ""
            style = "--" if name != series["name"] else "-"
            axis.plot(x, y, style, label=name, color=f"C{index % 10}", marker=marker, markersize=4, linewidth=1.3)
        axis.set_title(panel)
        axis.set_xlabel(document["x_label"])
        axis.set_ylabel(unit_of(document, panel))
        if document["x_log"]:
            axis.set_xscale("log")
        if len(xs) <= TICKS_MAX and max(xs) < TICK_VALUE_MAX and all(float(x).is_integer() for x in xs):
            axis.set_xticks(sorted(xs), labels=[f"{x:,.0f}" for x in sorted(xs)])
            axis.set_xticks([], minor=True)
        if document["y_log"]:
            axis.set_yscale("log")
        else:
            axis.set_ylim(bottom=0)
        axis.legend(fontsize=8)
    file.parent.mkdir(parents=True, exist_ok=True)
    # No date in the file: it says nothing that the document does not.
    figure.savefig(file, metadata={"Date": None})
    pyplot.close(figure)
    # The library ends lines with blanks, which would show in every diff.
    file.write_text("\n".join(line.rstrip() for line in file.read_text().splitlines()) + "\n")
