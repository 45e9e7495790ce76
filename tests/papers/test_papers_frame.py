"""The frame of the papers' experiments on experiments made up for it: validation, failures, plots, the page."""

import json
import math
import os
import signal
import subprocess
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
import vh_figure3
from frame import catalogue, markdown, plots, running
from frame.experiment import Claim, Comparison, Context, ExperimentFailed, Result, Series, claim_of
from papers_places import PAPERS


def run_all(experiments, tmp_path, quick=False):
    seen = []
    folder = tmp_path / "programs"
    outcomes = running.run_all(experiments, folder, folder, tmp_path / "out", quick, seen.append)
    assert seen == outcomes
    return outcomes


def writes(document):
    return f"cat >\"$OUTPUT\" <<'END'\n{json.dumps(document)}\nEND\n"


def test_catalogue_names_what_is_there():
    names = [one.id for one in catalogue.EXPERIMENTS]
    assert len(set(names)) == len(names)
    known = [paper.name for paper in catalogue.PAPERS]
    for one in catalogue.EXPERIMENTS:
        assert one.paper in known
        assert one.program.endswith(".py"), f"{one.id}: this test does not know where else to look for {one.program}"
        assert (PAPERS / one.program).is_file()


def test_a_document_of_the_helpers_satisfies_the_schema():
    result = Result("made-up/good", "t", "ns", "x", [Series("s", [(1, 2.5)])], [Claim("c", "section 1", True)])
    running.validate(json.loads(json.dumps(result.document(True))), catalogue.Experiment("made-up", "good", "good"))


@pytest.mark.parametrize(
    "changes",
    [
        {"id": "made-up/other"},
        {"title": ""},
        {"holds": []},
        {"holds": [{"statement": "s", "where": "w", "value": 1}]},
        {"holds": [{"statement": "s", "value": True}]},
        {"holds": [{"statement": "s", "where": "w", "value": None}]},
        {"holds": [{"statement": "s", "where": "w", "value": None, "noise": ""}]},
        {"holds": [{"statement": "s", "where": "w", "value": True, "noise": "n"}]},
        {"measured": []},
        {"measured": [{"name": "n", "panel": "", "points": []}]},
        {"measured": [{"name": "n", "panel": "", "points": [[1, 2, 3]]}]},
        {"measured": [{"name": "n", "panel": "", "points": [[1, "2"]]}]},
        {"published": [{"what": "w", "value": "fast", "unit": "", "where": "w"}]},
        {"published": [{"what": "w", "value": 1, "unit": "", "where": ""}]},
        {"published_curves": [{"name": "n", "panel": "left", "points": []}]},
        {"published_curves": [{"name": "n", "points": [[1, 2]]}]},
        {"panel_units": {"left": ""}},
        {"panel_x_labels": {"left": ""}},
        {"maps": [{"name": "m", "cells": ""}]},
        {"maps": [{"cells": "ab"}]},
        {"map_kinds": {"a": ""}},
        {"quick": "no"},
        {"surplus": 1},
    ],
)
def test_documents_that_the_schema_refuses(document, changes):
    experiment = catalogue.Experiment("made-up", "good", "good")
    running.validate(document(), experiment)
    with pytest.raises(ValueError):
        running.validate(document(**changes), experiment)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_number_is_refused(document, tmp_path, value):
    file = tmp_path / "document.json"
    file.write_text(json.dumps(document(measured=[{"name": "n", "panel": "", "points": [[1, value]]}])))
    with pytest.raises(ValueError, match="is not a number"):
        running.load(file, catalogue.Experiment("made-up", "good", "good"))


def test_a_failing_experiment_is_reported_and_the_rest_go_on(program, document, tmp_path):
    bad = document("schema")
    del bad["holds"]
    experiments = [
        program("status", "echo went wrong >&2\nexit 3\n"),
        program("signal", "kill -SEGV $$\n"),
        program("nothing", "exit 0\n"),
        program("text", 'echo hello >"$OUTPUT"\n'),
        program("schema", writes(bad)),
        program("other", writes(document("good"))),
        catalogue.Experiment("made-up", "absent", "absent"),
        program("good", writes(document("good"))),
    ]
    outcomes = {one.experiment.figure: one for one in run_all(experiments, tmp_path)}
    assert [name for name, one in outcomes.items() if one.document] == ["good"]
    assert outcomes["good"].document == document("good")
    assert outcomes["good"].failure == ""
    assert "exit status 3: went wrong" in outcomes["status"].failure
    assert "signal 11" in outcomes["signal"].failure
    assert "holds" in outcomes["schema"].failure
    assert "the catalogue says made-up/other" in outcomes["other"].failure
    assert all(one.failure for name, one in outcomes.items() if name != "good")
    assert [file.name for file in sorted((tmp_path / "out/made-up").iterdir())] == ["good.json"]


def test_an_earlier_document_does_not_pass_for_this_runs(program, document, tmp_path):
    run_all([program("good", writes(document("good")))], tmp_path)
    assert (tmp_path / "out/made-up/good.json").exists()
    run_all([program("good", "exit 1\n")], tmp_path)
    assert not (tmp_path / "out/made-up/good.json").exists()


def test_an_experiment_that_hangs_is_ended_with_its_children(program, tmp_path):
    pid_file = tmp_path / "pid"
    started = time.monotonic()
    [outcome] = run_all([program("hangs", f"sleep 300 & echo $! >{pid_file}\nwait\n", timeout_s=1)], tmp_path)
    assert outcome.failure == "not done within 1 s"
    assert time.monotonic() - started < 60
    child = int(pid_file.read_text())
    for _ in range(500):
        try:
            os.kill(child, 0)
        except ProcessLookupError:
            return
        # Dead, but nobody has asked for its status yet.
        if ") Z " in Path(f"/proc/{child}/stat").read_text():
            return
        time.sleep(0.02)
    pytest.fail("a child is still there")


@pytest.mark.parametrize("how", ["exit 0", "kill -KILL $$", "sleep 300"])
def test_temporary_files_go_with_the_experiment(program, tmp_path, how):
    place = tmp_path / "place"
    run_all([program("leaves", f'echo "$TMPDIR" >{place}\necho left >"$TMPDIR/file"\n{how}\n', timeout_s=2)], tmp_path)
    scratch = Path(place.read_text().strip())
    assert scratch.name.startswith("strata-papers-")
    assert not scratch.exists()


def test_an_interrupt_while_an_experiment_starts_leaves_no_process(program, tmp_path, monkeypatch):
    started, start = [], subprocess.Popen

    def interrupted(*args, **options):
        started.append(start(*args, **options))
        os.kill(os.getpid(), signal.SIGINT)
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_all([program("hangs", "sleep 300\n")], tmp_path)
    assert started[0].returncode == -signal.SIGKILL


def test_quick_is_passed_on(program, document, tmp_path):
    is_quick = program("good", '[ "$5" = --quick ] || exit 1\n' + writes(document("good", quick=True)))
    assert run_all([is_quick], tmp_path, quick=True)[0].document["quick"]
    assert "exit status 1" in run_all([is_quick], tmp_path)[0].failure


def test_a_panel_with_values_below_zero_has_them_in_its_plot(document, tmp_path):
    """Where others are logarithmic, on which there is no place for them."""
    drawn = {}
    for lowest in (-5.0, 5.0):
        one = document(y_log=True)
        one["measured"][0]["points"] = [[1, lowest], [2, 100.0]]
        plots.draw(one, tmp_path / "plot.svg")
        drawn[lowest] = "".join(ElementTree.parse(tmp_path / "plot.svg").getroot().itertext())
    assert ["80" in drawn[lowest] for lowest in (-5.0, 5.0)] == [True, False]  # no power of ten


def test_plots_are_whole_and_the_same_each_time(document, tmp_path):
    first, second = tmp_path / "one/plot.svg", tmp_path / "two.svg"
    plots.draw(document(), first)
    plots.draw(document(y_log=True), tmp_path / "log.svg")
    plots.draw(document(), second)
    assert first.read_bytes() == second.read_bytes()
    text = "".join(ElementTree.parse(first).getroot().itertext())
    for word in ("left", "right", "first", "second", "threads", "ns"):
        assert word in text


@pytest.fixture
def curves(document):
    """A document with a curve of the paper in one panel, and another unit in the other."""
    paper = [{"name": "first", "panel": "left", "points": [[1, 99], [3, 101.5]]}]
    return document(published_curves=paper, panel_units={"right": "rounds"})


def test_published_curves_are_drawn_and_stand_in_the_table_of_their_panel(curves, tmp_path):
    running.validate(curves, catalogue.Experiment("made-up", "good", "good"))
    plots.draw(curves, tmp_path / "plot.svg")
    text = "".join(ElementTree.parse(tmp_path / "plot.svg").getroot().itertext())
    assert text.count("first (published)") == 1
    lines = markdown.measured_tables(curves)
    assert "| threads | first (published) | first | second |" in lines
    assert "| 1 | 99 | 12.35 |  |" in lines
    assert "| 3 | 101.5 |  |  |" in lines
    assert "| threads | first |" in lines


def test_a_panel_may_have_a_unit_of_its_own(curves, tmp_path):
    plots.draw(curves, tmp_path / "plot.svg")
    text = "".join(ElementTree.parse(tmp_path / "plot.svg").getroot().itertext())
    assert "rounds" in text
    assert "ns" in text
    lines = markdown.measured_tables(curves)
    assert "Measured, left, in ns:" in lines
    assert "Measured, right, in rounds:" in lines


def test_a_course_over_time_is_drawn_but_no_table(document, tmp_path):
    points = [[x, x] for x in range(markdown.TABLE_ROWS_MAX + 1)]
    long = document(measured=[{"name": "n", "panel": "", "points": points}])
    plots.draw(long, tmp_path / "plot.svg")
    assert markdown.measured_tables(long) == []
    assert markdown.measured_tables(document(measured=[{"name": "n", "panel": "", "points": points[1:]}])) != []


def test_maps_are_drawn_before_the_panels(document, tmp_path):
    maps = [{"name": "before", "cells": "aab"}, {"name": "after", "cells": "bbbbb"}]
    plots.draw(document(maps=maps, map_kinds={"a": "full", "b": "empty"}), tmp_path / "plot.svg")
    text = "".join(ElementTree.parse(tmp_path / "plot.svg").getroot().itertext())
    assert text.index("before") < text.index("after") < text.index("left")
    for legend in ("full: 2", "empty: 1", "empty: 5"):
        assert legend in text
    assert "full: 0" not in text
    assert (tmp_path / "plot.svg").read_text().count("<image") == len(maps)


def test_a_letter_that_no_kind_has_is_refused(document, tmp_path):
    with pytest.raises(ValueError):
        plots.draw(document(maps=[{"name": "m", "cells": "ac"}], map_kinds={"a": "full"}), tmp_path / "plot.svg")


def test_panels_may_have_a_label_of_their_own(document, tmp_path):
    one = document(panel_x_labels={"right": "rounds"})
    plots.draw(one, tmp_path / "plot.svg")
    text = "".join(ElementTree.parse(tmp_path / "plot.svg").getroot().itertext())
    assert "threads" in text and "rounds" in text
    heads = [line for line in markdown.measured_tables(one) if line.startswith(("| threads", "| rounds"))]
    assert [head.split()[1] for head in heads] == ["threads", "rounds"]


def test_numbers():
    cases = {12.34567: "12.35", 1234.5: "1,234", 1000000: "1,000,000", 0.5: "0.5", 0: "0", 356.0: "356", 123456.7: "123,457"}
    assert {value: markdown.number(value) for value in cases} == cases


def test_the_page(document, tmp_path):
    experiments = [catalogue.Experiment("made-up", name, name) for name in ("good", "bad", "other")]
    paper = catalogue.Paper("made-up", "Nobody", "Nothing")
    documents = {"made-up/good": document("good"), "made-up/other": document("other", published=[])}
    page = tmp_path / "docs/papers.md"
    page.parent.mkdir()
    markdown.write(page, [paper], experiments, documents, {"made-up/bad": "exit status 3: went wrong\nmore"}, {"CPUs": "2"})
    text = page.read_text()
    lines = text.splitlines()
    assert "2 of 4 claims hold." in lines
    assert "## Nobody: Nothing" in lines
    assert lines.count("- holds: this is true (section 1)") == 2
    assert lines.count("- **does not hold**: this is false (figure 2)") == 2
    assert lines.count("| one \\| two | section 3.8 | 356 ns |") == 1
    assert "| 2 | 1,234 | 7 |" in lines
    assert "| 1 | 12.35 |  |" in lines
    assert "- made-up/bad: exit status 3: went wrong" in lines
    assert "- CPUs: 2" in lines
    assert "QUICK run" not in text
    for name in ("good", "other"):
        plot = f"images/papers/made-up-{name}.svg"
        assert f"![A title]({plot})" in lines
        assert (page.parent / plot).is_file()


def test_sections_take_their_places_in_the_page(document, tmp_path):
    experiments = [catalogue.Experiment("made-up", name, name) for name in ("good", "other")]
    paper = catalogue.Paper("made-up", "Nobody", "Nothing")
    good, other = document("good", title="A title"), document("other", title="Another title", published=[])
    page = tmp_path / "papers.md"
    markdown.write(page, [paper], experiments, {"made-up/good": good, "made-up/other": other}, {}, {"commit": "before"})
    before = page.read_text()
    fresh = document("other", title="Another title", published=[], note="Measured anew.")
    for claim in fresh["holds"]:
        claim["value"] = True
    markdown.update(page, {"made-up/other": fresh}, "commit after")
    text = page.read_text()
    assert "3 of 4 claims hold." in text.splitlines()
    assert text.count("Measured anew.") == 1 and text.count("### Another title") == 1
    assert text.split("### Another title")[0].split("### A title")[1] == before.split("### Another title")[0].split("### A title")[1]
    assert "- commit: before" in text and "- measured later: made-up/other (commit after)" in text
    assert text.split("## How to repeat")[1] == before.split("## How to repeat")[1]
    with pytest.raises(markdown.PageDiffers):
        markdown.update(page, {"made-up/new": document("new", title="New")}, "")
    assert page.read_text() == text


def test_what_the_noise_leaves_open(document, tmp_path):
    """The quartiles of 1 to 5 are 2 apart, so those of two such measurements 2.8 together."""
    runs = [3, 1, 2, 5, 4]

    def than(more):
        return Comparison(runs, [one + more for one in runs], f"{more} more", "ns")

    assert [than(more).value for more in (2.9, 2.8, 0, -2.8, -2.9)] == [True, None, None, None, False]
    assert Comparison([1, 1, 1], [1.01, 1.01, 1.01], "steady", "ns").value is True
    assert claim_of("s", "w", [than(3), than(4)]) == Claim("s", "w", True)
    assert claim_of("s", "w", [than(3), than(0), than(-3)]) == Claim("s", "w", False)
    undecided = claim_of("s", "section 9", [than(3), than(-1)])
    assert undecided == Claim("s", "section 9", None, "-1 more: a difference of -1 ns, a noise of 2.8")

    result = Result("made-up/good", "t", "ns", "x", [Series("s", [(1, 2.5)])], [undecided, Claim("true", "w", True), Claim("false", "w", False)])
    found = json.loads(json.dumps(result.document(False)))
    running.validate(found, catalogue.Experiment("made-up", "good", "good"))
    paper = catalogue.Paper("made-up", "Nobody", "Nothing")
    page = tmp_path / "papers.md"
    markdown.write(page, [paper], [catalogue.Experiment("made-up", "good", "good")], {"made-up/good": found}, {}, {})
    lines = page.read_text().splitlines()
    assert "1 of 3 claims hold, 1 undecided." in lines
    assert "- **undecided**: s (section 9): -1 more: a difference of -1 ns, a noise of 2.8" in lines


def test_the_page_says_when_it_is_from_a_quick_run(document, tmp_path):
    page = tmp_path / "papers.md"
    markdown.write(page, [], [], {"made-up/good": document(quick=True)}, {}, {})
    assert "QUICK run" in page.read_text()


def test_claims_about_several_cpus_are_not_made_of_one(tmp_path):
    context = Context(tmp_path, True)
    context.cpus = 1
    with pytest.raises(ExperimentFailed):
        context.several_cpus()
    context.cpus = 2
    assert context.several_cpus() == 2


@pytest.mark.parametrize("allocation_ns", [-0.5, 0])
def test_a_mean_time_below_zero_is_no_measurement(tmp_path, monkeypatch, allocation_ns):
    """Of groups that took less than what is taken off for the clock."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    run = {"events": 1, "check": 1, "samples": 1000, "group": 64, "left_out": 0, "global_accesses": 0, "requests": 1000, "release_ns": 3}
    simulate = tmp_path / "vh_simulate"
    for mean in (2, allocation_ns):
        simulate.write_text(f"#!/bin/sh\necho '{json.dumps({**run, 'allocation_ns': mean})}'\n")
        simulate.chmod(0o755)
        context = Context(tmp_path, quick=True)
        if mean > 0:
            assert vh_figure3.measure(context).id == "vh/figure-3"
        else:
            with pytest.raises(ExperimentFailed, match=rf"tandem, VH, 1: means of {allocation_ns:g}, 3 ns are none"):
                vh_figure3.measure(context)
