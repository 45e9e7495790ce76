"""Writes docs/papers.md and its plots from the documents of the experiments, or the sections of some into the page that is there."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from . import plots
from .catalogue import Experiment, Paper

INTRODUCTION = """\
# The papers' experiments

This page is written by `make papers`; do not edit it by hand.

strata implements what these papers describe. Here their experiments are repeated: what each paper published, what strata
and its rivals measured here, and whether the paper's claim is true of these measurements. Machines differ by decades, so published
and measured figures are not to be compared with each other; the claims are. Where a difference is smaller than what repeated measurements of the same
differ by, the claim is undecided. Every experiment works from fixed seeds and checks its own results.
"""

QUICK_WARNING = "**From a QUICK run of seconds: the figures are rough, and claims about time may fail by chance.**\n"

TABLE_ROWS_MAX = 80

REPEATING = """\
## How to repeat

    make papers                    # all, and this page
    make papers ONLY=kmem          # those of one paper; the page stays
    make papers ONLY=kmem PAPERS_ARGS=--update-docs    # and its sections take the place of those in the page
    QUICK=1 make papers            # seconds each
    build/venv/bin/python bench/papers/papers.py --help

The documents are `build/papers/PAPER/FIGURE.json`, each with its plot beside it. The list of experiments is
`bench/papers/frame/catalogue.py`.
"""


def number(value: float) -> str:
    """At most four significant digits, no exponent, thousands apart."""
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], text_columns: int = 1) -> list[str]:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("*", "\\*").replace("|", "\\|") for cell in cells) + " |"

    rule = "|" + "|".join([" --- "] * text_columns + [" ---: "] * (len(columns) - text_columns)) + "|"
    return [line(columns), rule, *map(line, rows), ""]


def measured_tables(document: dict) -> list[str]:
    lines: list[str] = []
    for panel in plots.panels_of(document):
        curves = plots.curves_of(document, panel)
        xs = sorted({x for _, one in curves for x, _ in one["points"]})
        if len(xs) > TABLE_ROWS_MAX:  # a course over time: the plot shows it, the document has it
            continue
        values = [dict(map(tuple, one["points"])) for _, one in curves]
        rows = [[number(x), *(number(points[x]) if x in points else "" for points in values)] for x in xs]
        lines += [f"Measured{', ' + panel if panel else ''}, in {plots.unit_of(document, panel)}:", ""]
        lines += table([plots.x_label_of(document, panel), *(name for name, _ in curves)], rows)
    return lines


def verdict(claim: dict) -> str:
    """What is said of a claim in front of it."""
    return {True: "holds", False: "does not hold", None: "undecided"}[claim["value"]]


def summary(claims: Sequence[dict]) -> str:
    """How many claims hold, and of how many nobody can tell."""
    values = [claim["value"] for claim in claims]
    undecided = f", {values.count(None)} undecided" if None in values else ""
    return f"{values.count(True)} of {len(values)} claims hold{undecided}"


def claim_line(claim: dict) -> str:
    said = verdict(claim)
    noise = f": {claim['noise']}" if claim["value"] is None else ""
    return f"- {said if claim['value'] else f'**{said}**'}: {claim['statement']} ({claim['where']}){noise}"


def section(document: dict, plot: str) -> list[str]:
    lines = [f"### {document['title']}", ""]
    if document["note"]:
        lines += [document["note"], ""]
    lines += [claim_line(claim) for claim in document["holds"]]
    lines += ["", f"![{document['title']}]({plot})", ""]
    if document["published"]:
        rows = [[one["what"], one["where"], f"{number(one['value'])} {one['unit']}".strip()] for one in document["published"]]
        lines += table(["published", "where", "value"], rows, text_columns=2)
    return lines + measured_tables(document)


def document_text(
    papers: Sequence[Paper],
    experiments: Sequence[Experiment],
    documents: Mapping[str, dict],
    failures: Mapping[str, str],
    machine: Mapping[str, str],
    plot_of: Mapping[str, str],
) -> str:
    lines = [INTRODUCTION]
    if any(document["quick"] for document in documents.values()):
        lines.append(QUICK_WARNING)
    claims = [claim for document in documents.values() for claim in document["holds"]]
    lines += [f"{summary(claims)}.", ""]
    for paper in papers:
        present = [one for one in experiments if one.paper == paper.name and one.id in documents]
        if present:
            lines += [f"## {paper.authors}: {paper.title}", ""]
            for one in present:
                lines += section(documents[one.id], plot_of[one.id])
    if failures:
        lines += ["## Failed", "", *(f"- {name}: {why.splitlines()[0]}" for name, why in failures.items()), ""]
    lines += ["## Where these figures come from", "", *(f"- {key}: {value}" for key, value in machine.items()), ""]
    return "\n".join([*lines, REPEATING])


SECTION = re.compile(r"^### (.*)\n(?:(?!##).*\n)*", re.MULTILINE)
CLAIM = re.compile(r"^- (holds|\*\*does not hold\*\*|\*\*undecided\*\*): ", re.MULTILINE)
SUMMARY = re.compile(r"^\d+ of \d+ claims hold(, \d+ undecided)?\.$", re.MULTILINE)
ORIGIN = "- measured later:"


class PageDiffers(Exception):
    """The page has no place for what is to be put into it."""


def updated_text(text: str, documents: Mapping[str, dict], plot_of: Mapping[str, str], origin: str) -> str:
    """The page with other sections for these experiments, and how many claims hold then. `origin`: where they come from, in a few words."""
    sections = {document["title"]: "\n".join(section(document, plot_of[name])) + "\n" for name, document in documents.items()}
    missing = sections.keys() - {found[1] for found in SECTION.finditer(text)}
    if missing or not SUMMARY.search(text) or "\n## How to repeat\n" not in text:
        raise PageDiffers(f"the page has no section {sorted(missing)[0]!r}" if missing else "the page is not one that `make papers` wrote")
    text = SECTION.sub(lambda found: sections.get(found[1], found[0]), text)
    said = CLAIM.findall(text)
    claims = [{"value": {"holds": True, "**does not hold**": False}.get(one)} for one in said]
    text = SUMMARY.sub(summary(claims) + ".", text, count=1)
    line = f"{ORIGIN} {', '.join(sorted(documents))} ({origin})\n"
    return text.replace("\n## How to repeat\n", f"{line}\n## How to repeat\n", 1)


def draw_all(page: Path, documents: Mapping[str, dict]) -> dict[str, str]:
    """The plots that the page shows, in images/papers beside it, and what it calls them."""
    plot_of = {}
    for name, document in documents.items():
        file = page.parent / f"images/papers/{name.replace('/', '-')}.svg"
        plots.draw(document, file)
        plot_of[name] = str(file.relative_to(page.parent))
    return plot_of


def replace(page: Path, text: str) -> None:
    part = page.with_name(page.name + ".part")
    part.write_text(text)
    part.replace(page)


def update(page: Path, documents: Mapping[str, dict], origin: str) -> None:
    """Puts the sections of these experiments in their places, and their plots. Raises PageDiffers, OSError where there is no page."""
    replace(page, updated_text(page.read_text(), documents, draw_all(page, documents), origin))


def write(
    page: Path,
    papers: Sequence[Paper],
    experiments: Sequence[Experiment],
    documents: Mapping[str, dict],
    failures: Mapping[str, str],
    machine: Mapping[str, str],
) -> None:
    """The page, and its plots."""
    replace(page, document_text(papers, experiments, documents, failures, machine, draw_all(page, documents)))
