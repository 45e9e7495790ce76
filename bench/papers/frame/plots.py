"""Draws the plot of a document: panels in rows, the same colour for the same name in all of them."""

import math
from pathlib import Path

import matplotlib

matplotlib.use("svg")

from matplotlib import pyplot  # noqa: E402  (the backend has to be chosen first)
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.colors import ListedColormap  # noqa: E402
from matplotlib.patches import Patch  # noqa: E402

PANEL_WIDTH_INCHES, HEIGHT_INCHES = 5.2, 3.9
MARKERS = "osD^vPX*"
MARKED_POINTS_MAX = 80
TICKS_MAX = 12
# Labels of numbers beyond would touch each other; powers of ten say as much.
TICK_VALUE_MAX = 100_000
# Of the kinds of things in a map, in their order; width by height of a map.
MAP_COLOURS = ("#eeeeee", "#1f77b4", "#2ca02c", "#d62728", "#ff7f0e", "#9467bd", "#8c564b", "#e377c2")
MAP_ASPECT = 4 / 3

# One document gives one file, byte for byte; text stays text, so that the file is small and can be searched.
matplotlib.rcParams.update({"svg.hashsalt": "strata", "svg.fonttype": "none", "axes.grid": True, "grid.alpha": 0.3, "font.size": 9})


def panels_of(document: dict) -> list[str]:
    return list(dict.fromkeys(series["panel"] for series in document["measured"]))


def unit_of(document: dict, panel: str) -> str:
    return document.get("panel_units", {}).get(panel, document["unit"])


def x_label_of(document: dict, panel: str) -> str:
    return document.get("panel_x_labels", {}).get(panel, document["x_label"])


def curves_of(document: dict, panel: str) -> list[tuple[str, dict]]:
    """What stands in a panel, published curves first, under the names to show."""
    published = [(f"{one['name']} (published)", one) for one in document.get("published_curves", []) if one["panel"] == panel]
    return published + [(one["name"], one) for one in document["measured"] if one["panel"] == panel]


def draw_map(axis: Axes, cells: str, kinds: dict[str, str]) -> None:
    """A square for each letter, line by line; one more kind is what is left of the last line."""
    colours = [*(MAP_COLOURS[index % len(MAP_COLOURS)] for index in range(len(kinds))), "white"]
    order = list(kinds)
    numbers = [order.index(letter) for letter in cells]
    width = math.ceil(math.sqrt(len(cells) * MAP_ASPECT))
    numbers += [len(kinds)] * (-len(numbers) % width)
    picture = [numbers[start : start + width] for start in range(0, len(numbers), width)]
    axis.imshow(picture, cmap=ListedColormap(colours), vmin=0, vmax=len(kinds), interpolation="none", aspect="auto")
    axis.set_xticks([])
    axis.set_yticks([])
    axis.grid(False)
    shown = [Patch(color=colours[index], label=f"{text}: {cells.count(letter):,}") for index, (letter, text) in enumerate(kinds.items()) if letter in cells]
    axis.legend(handles=shown, fontsize=7, loc="lower right", framealpha=0.85)


def draw(document: dict, file: Path) -> None:
    panels = panels_of(document)
    maps = document.get("maps", [])
    names = list(dict.fromkeys(name for panel in panels for name, _ in curves_of(document, panel)))
    count = len(maps) + len(panels)
    columns = 2 if count in (2, 4) else min(3, count)
    rows = math.ceil(count / columns)
    size = (PANEL_WIDTH_INCHES * columns, HEIGHT_INCHES * rows)
    figure, grid = pyplot.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    for axis in grid.flat[count:]:
        axis.remove()
    for axis, one in zip(grid.flat, maps, strict=False):
        axis.set_title(one["name"])
        draw_map(axis, one["cells"], document["map_kinds"])
    axes = grid.flat[len(maps) : count]
    for axis, panel in zip(axes, panels, strict=True):
        xs: set[float] = set()
        negative = any(y < 0 for _, series in curves_of(document, panel) for _, y in series["points"])
        y_log = document["y_log"] and not negative  # below nothing there are no powers of ten
        for name, series in curves_of(document, panel):
            index = names.index(name)
            x, y = zip(*series["points"], strict=True)
            xs.update(x)
            if y_log:  # nothing has no place there; lines end beside it
                y = [value if value > 0 else math.nan for value in y]
            # Many points are a line; the marks of a hundred would hide it.
            marker = MARKERS[index % len(MARKERS)] if len(x) <= MARKED_POINTS_MAX else ""
            style = "--" if name != series["name"] else "-"
            axis.plot(x, y, style, label=name, color=f"C{index % 10}", marker=marker, markersize=4, linewidth=1.3)
        axis.set_title(panel)
        axis.set_xlabel(x_label_of(document, panel))
        axis.set_ylabel(unit_of(document, panel))
        if document["x_log"]:
            axis.set_xscale("log")
        if len(xs) <= TICKS_MAX and max(xs) < TICK_VALUE_MAX and all(float(x).is_integer() for x in xs):
            axis.set_xticks(sorted(xs), labels=[f"{x:,.0f}" for x in sorted(xs)])
            axis.set_xticks([], minor=True)
        if y_log:
            axis.set_yscale("log")
        elif not negative:
            axis.set_ylim(bottom=0)
        axis.legend(fontsize=8)
    file.parent.mkdir(parents=True, exist_ok=True)
    # No date in the file: it says nothing that the document does not.
    figure.savefig(file, metadata={"Date": None})
    pyplot.close(figure)
    # The library ends lines with blanks, which would show in every diff.
    file.write_text("\n".join(line.rstrip() for line in file.read_text().splitlines()) + "\n")
