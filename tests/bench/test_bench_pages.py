"""Blocks of pages: the program of their figures runs, what is wrong in it gives no figures, and the page shows what was measured."""

import json
import re
import stat

import jsonschema
import pytest
from conftest import BENCH, Collected
from harness import markdown, pages, summary
from harness.allocators import Allocator

MIB = 1 << 20
SCHEMA = json.loads((BENCH / "harness/summary.schema.json").read_text())
SETTINGS = {"repetitions": 1, "program_repetitions": 1, "work_percent": 1, "pinned": True, "only": "", "minutes": 1.0, "load_average": 0.1}


def quiet(_what, _runs=1):
    pass


@pytest.fixture
def small(monkeypatch):
    """The same figures of blocks that take milliseconds."""
    monkeypatch.setattr(pages, "PAIR_SIZES", (4096, 4 * MIB))
    monkeypatch.setattr(pages, "DOUBLING_BYTES", 8 * MIB)
    monkeypatch.setattr(pages, "TURNS_BYTES", 4 * MIB)
    monkeypatch.setattr(pages, "SWAP_BYTES", 4 * MIB)


def summary_of(found):
    made = summary.build(found, [Allocator("strata", "/x/libstrata.so")], {"CPU": "one"}, "abc", SETTINGS, True, {})
    return json.loads(json.dumps(made))


def test_pages_are_measured_and_shown(small, launcher, programs, strata_lib):
    found = Collected()
    pages.run_pages(Allocator("strata", str(strata_lib)), launcher, programs, 2, 1, None, found, quiet)
    assert found.problems == [] and len(found.pages) == 2
    made = summary_of(found)
    jsonschema.validate(made, SCHEMA)
    measured = made["pages"]
    assert [pair["bytes"] for pair in measured["pairs"]] == [4096, 4 * MIB]
    assert [step["bytes"] for step in measured["doubling"]] == [2 * MIB, 4 * MIB, 8 * MIB]
    assert measured["swap"]["aged_ns"] > 0 and all(step["aged_ns"] > 0 and step["privileged_ns"] > 0 for step in measured["doubling"])
    assert [step["bytes"] for step in measured["turns"]] == [2 * MIB, 4 * MIB] and all(step["later_ns"] > 0 for step in measured["turns"])
    large = measured["pairs"][1]
    assert large["kernel_ns"] > 1024 * 50 > large["strata_ns"]  # 1,024 first touches against a lock and some marks
    assert sum(verdict["what"].startswith("pages") for verdict in made["bar"]) == 5
    page = markdown.document(made)
    for text in ("## Pages: allocation and release, us", "## Pages: growth by doubling", "## Pages: two blocks", "## Pages: an exchange", "| 4 KiB |", "| two of 4 MiB |", "with a history", "- pages: us for an exchange"):
        assert text in page


def test_less_work_means_fewer_rounds_of_the_same_blocks():
    full, little = pages.jobs(100), pages.jobs(1)
    assert list(full) == list(little)
    for key, arguments in full.items():
        least = 1 if key[0] in ("double aged", "double privileged") else 2  # a first round is the only one
        assert arguments[:3] == little[key][:3] and int(arguments[3]) >= int(little[key][3]) >= least


@pytest.mark.parametrize("text, message", [("exit 3", "exit status 3"), ("echo 5,", "Expecting value|Extra data")])
def test_a_program_that_fails_gives_no_figures(launcher, tmp_path, text, message):
    program = tmp_path / pages.PROGRAM
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    found = Collected()
    pages.run_pages(Allocator("strata"), launcher, tmp_path, 1, 100, None, found, quiet)
    assert found.pages == [] and len(found.problems) == 1
    assert re.search(message, found.problems[0])
    made = summary_of(found)
    jsonschema.validate(made, SCHEMA)
    assert made["pages"] is None and "## Pages" not in markdown.document(made)
