"""Visits of depots on simulated CPUs: what the library's own code does there, and what the bar makes of it."""

import json

import jsonschema
import pytest
from conftest import BENCH, Collected
from harness import bar, summary, tables, visits
from harness.allocators import Allocator

SETTINGS = {"repetitions": 1, "program_repetitions": 1, "work_percent": 1, "pinned": True, "only": "", "minutes": 1.0, "load_average": 0.1}


def quiet(_what, _runs=1):
    pass


def row(load, cpus, contended, visits_per_operation, of_bound=0.5):
    return {
        "load": load, "cpus": cpus, "contended": contended, "m": 256 if contended else 128, "visits_per_operation": visits_per_operation,
        "found_taken_per_visit": 0.5 * contended, "of_bound": of_bound,
    }  # fmt: skip


def verdicts(rows):
    return {one["what"].partition(": ")[2]: one for one in bar.verdicts({}, ["glibc"], [], None, rows, False)}


BOUND = "visits of the depot against 2/m of an operation"
FALL = "visits of the depot where its lock is found taken against where it is not"


def test_many_cpus_come_to_the_depot_as_rarely_as_the_bound_says(launcher, programs):
    """At most once in m/2 operations, half as often once m has doubled; and where each block is passed on, just as often."""
    found = Collected()
    rows = visits.count(launcher, programs, (1, 64), found, quiet)
    assert found.problems == [] and len(rows) == visits.runs((1, 64)) == 8
    for one in rows:
        grown = one["contended"] and one["cpus"] > 1
        assert one["m"] == (256 if grown else 128) and one["of_bound"] <= 1, one
        assert (one["found_taken_per_visit"] > 0) == grown, one
        if one["load"] == "passed" and one["cpus"] > 1:
            # But for what each CPU starts with, from the slabs, and what it ends with, in its array: a visit of each kind. Never more.
            ends = 2 * one["cpus"] / visits.OPERATIONS
            assert 2 / one["m"] - ends <= one["visits_per_operation"] <= 2 / one["m"], one
    made = verdicts(rows)
    assert made[BOUND]["met"] and made[FALL]["met"] and made[FALL]["value"] == pytest.approx(0.5, abs=0.05)


def test_the_worst_of_all_rows_counts():
    made = verdicts([row("a", 1, False, 0.01, 0.9), row("a", 1, True, 0.01), row("b", 4, False, 0.02, 1.01), row("b", 4, True, 0.01), row("b", 8, False, 0.02),
                     row("b", 8, True, 0.018)])  # fmt: skip
    assert made[BOUND]["value"] == 1.01 and not made[BOUND]["met"] and made[BOUND]["detail"] == "b on 4 CPUs"
    # One CPU finds no lock taken: there is nothing to fall.
    assert made[FALL]["value"] == pytest.approx(0.9) and not made[FALL]["met"] and made[FALL]["detail"] == "b on 8 CPUs"
    assert verdicts([]) == {}


def test_what_can_not_be_counted_is_a_problem_and_meets_no_bar(launcher, tmp_path):
    found = Collected()
    (tmp_path / "papers").mkdir()
    program = tmp_path / visits.PROGRAM
    program.write_text("#!/bin/sh\n[ $1 = bursts ] || exit 3\n" """echo '{"operations": 1000, "depot_visits": 5, "transfer": 64, "contention": 1}'\n""")
    program.chmod(0o755)
    found.depot_visits = visits.count(launcher, tmp_path, (2,), found, quiet)
    assert [one["load"] for one in found.depot_visits] == ["bursts", "bursts"]
    assert found.depot_visits[0]["of_bound"] == pytest.approx(3 * 64 / 1000)
    assert len(found.problems) == 2 and all("passed on 2 CPUs: " in problem and "exit status 3" in problem for problem in found.problems)
    made = json.loads(json.dumps(summary.build(found, [Allocator("strata"), Allocator("glibc", in_bar=True)], {"CPU": "one"}, "abc", SETTINGS, True, {})))
    jsonschema.validate(made, json.loads((BENCH / "harness/summary.schema.json").read_text()))
    assert made["bar"] and not any(one["met"] for one in made["bar"])
    [table] = [one for one in tables.all_tables(made) if "simulated" in one.title]
    assert table.rows == [["bursts on 2 CPUs", "128", "5.00", "0.19", "20", "128", "5.00", "0.19"]]
