#!/usr/bin/env python3
"""Repeats the experiments of the papers that strata implements: `make papers`.

Runs each experiment of frame/catalogue.py, validates its document, draws its plot, and says of each claim of the papers whether
it holds here; with --write-docs also docs/papers.md, with --update-docs what ran of it. A failing experiment is reported, and the rest go on.

Environment: QUICK=1 for seconds each.
Exit status: 0, whether claims hold or not; 1 if an experiment failed, or with --check-claims if a claim does not hold; 2 for a wrong
command line or setup; 130 after Ctrl-C.
"""

import argparse
import os
import re
import signal
import sys
from pathlib import Path

# The sources stay as they were checked out.
sys.dont_write_bytecode = True
PROJECT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(PROJECT / "bench"))
BUSY_LOAD = 0.5

try:
    from frame import catalogue, markdown, plots, running
    from rich.console import Console
except ImportError as error:
    print(f"papers: the Python package {error.name} is missing; `make papers` installs it into build/venv", file=sys.stderr)
    sys.exit(2)

from harness import machine  # noqa: E402


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--only", default="", metavar="PAPER", help="a paper, or a regular expression for PAPER/FIGURE")
    parser.add_argument("--quick", action="store_true", default=os.environ.get("QUICK", "") not in ("", "0"), help="seconds each; default $QUICK")
    parser.add_argument("--build", type=Path, default=PROJECT / "build/experiments", help="where cmake built with STRATA_EXPERIMENTS=ON")
    parser.add_argument("--output", type=Path, default=PROJECT / "build/papers", help="documents and plots")
    parser.add_argument("--write-docs", action="store_true", help="write docs/papers.md from what ran")
    parser.add_argument("--update-docs", action="store_true", help="put the sections of what ran into docs/papers.md, in place of those there")
    parser.add_argument("--docs-from", type=Path, metavar="DIR", help="run nothing: write docs/papers.md from the documents of an earlier run")
    parser.add_argument("--docs", type=Path, default=PROJECT / "docs/papers.md", help="the page that --write-docs writes")
    parser.add_argument("--check-claims", action="store_true", help="exit with 1 where a claim does not hold")
    parser.add_argument("--list", action="store_true", help="list the experiments and end")
    options = parser.parse_args()
    try:
        re.compile(options.only)
    except re.error as error:
        parser.error(f"--only {options.only}: {error}")
    return options


def chosen(only: str) -> list[catalogue.Experiment]:
    """All, those of the paper of that name, or those whose id matches."""
    if only in {paper.name for paper in catalogue.PAPERS}:
        return [one for one in catalogue.EXPERIMENTS if one.paper == only]
    return [one for one in catalogue.EXPERIMENTS if re.search(only, one.id)]


def facts() -> dict[str, str]:
    return {**machine.describe(), "commit": machine.commit(PROJECT)}


def write_docs_from(folder: Path, page: Path) -> int:
    documents, failures = {}, {}
    for one in catalogue.EXPERIMENTS:
        try:
            documents[one.id] = running.load(folder / f"{one.id}.json", one)
        except (OSError, ValueError) as error:
            failures[one.id] = str(error)
            print(f"papers: {one.id}: {error}", file=sys.stderr)
    markdown.write(page, catalogue.PAPERS, catalogue.EXPERIMENTS, documents, failures, facts())
    return 1 if failures else 0


def interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    options = arguments()
    console = Console() if sys.stdout.isatty() else Console(width=150)
    experiments = chosen(options.only)
    if options.list:
        for one in experiments:
            console.print(f"{one.id:<28} {one.program}", highlight=False)
        return 0
    if options.docs_from:
        return write_docs_from(options.docs_from, options.docs)
    if not experiments:
        papers = ", ".join(paper.name for paper in catalogue.PAPERS)
        print(f"papers: --only {options.only}: nothing matches; the papers are {papers}", file=sys.stderr)
        return 2
    programs = options.build / "bench/papers"
    if not programs.is_dir():
        print(f"papers: {programs}: no such folder; build with STRATA_EXPERIMENTS=ON", file=sys.stderr)
        return 2

    load = machine.load_average()
    if load > BUSY_LOAD:
        console.print(f"[yellow]The machine is busy (load average {load:.1f}): times will be worth little.[/]")

    def report(outcome: running.Outcome) -> None:
        name = outcome.experiment.id
        if outcome.document is None:
            console.print(f"[bold red]{name}: failed[/] after {outcome.seconds:.1f} s", highlight=False)
            console.print(outcome.failure, highlight=False, markup=False)
            return
        console.print(f"{name}: {outcome.document['title']} ({outcome.seconds:.1f} s)", highlight=False, markup=False)
        for claim in outcome.document["holds"]:
            said = markdown.verdict(claim)
            noise = f" ({claim['noise']})" if claim["value"] is None else ""
            console.print(f"  {said if claim['value'] else said.upper()}: {claim['statement']}{noise}", highlight=False, markup=False)
        plots.draw(outcome.document, options.output / f"{name}.svg")

    # An experiment in its process group ends with us, however we are ended.
    signal.signal(signal.SIGTERM, interrupt)
    try:
        outcomes = running.run_all(experiments, PROJECT / "bench/papers", programs, options.output, options.quick, report)
    except KeyboardInterrupt:
        print("papers: interrupted", file=sys.stderr)
        return 130
    documents = {one.experiment.id: one.document for one in outcomes if one.document is not None}
    failures = {one.experiment.id: one.failure for one in outcomes if one.document is None}
    claims = [claim for document in documents.values() for claim in document["holds"]]
    console.print(
        f"papers: {len(documents)} of {len(outcomes)} experiments ran, {markdown.summary(claims)}; "
        f"documents and plots: {options.output}",
        highlight=False,
    )
    if options.write_docs:
        origin = {**facts(), "load average at the start": f"{load:.1f}"}
        markdown.write(options.docs, catalogue.PAPERS, catalogue.EXPERIMENTS, documents, failures, origin)
        console.print(f"Written: {options.docs}", highlight=False)
    elif options.update_docs and documents:
        try:
            markdown.update(options.docs, documents, f"commit {machine.commit(PROJECT)}, load average at the start {load:.1f}")
        except (OSError, markdown.PageDiffers) as error:
            print(f"papers: --update-docs: {options.docs}: {error}", file=sys.stderr)
            return 1
        console.print(f"Updated: {options.docs}", highlight=False)
    missed = options.check_claims and any(claim["value"] is False for claim in claims)
    return 1 if failures or missed else 0


if __name__ == "__main__":
    sys.exit(main())
