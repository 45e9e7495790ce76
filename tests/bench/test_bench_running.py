"""Running: every load under strata, what the launcher measures, and runs with a wrong result, which give no figures."""

import json
import os
import stat

import pytest
from conftest import BENCH, Collected
from harness import launching
from harness.allocators import Allocator
from harness.catalogue import LOADS, STARTUPS, Load, StartUp
from harness.launching import RunFailed
from harness.measuring import SCALING_TURNS, run_loads, run_micro, run_startups
from harness.programs import run_programs, suite

GLIBC = Allocator("glibc")
TINY_PERCENT = 1


def quiet(_what, _runs=1):
    pass


@pytest.mark.parametrize("load", LOADS, ids=[load.name for load in LOADS])
def test_a_load_ends_well_under_strata_as_under_glibc(load, launcher, programs, strata_lib):
    """At one hundredth of its work; the same result, whoever serves the memory."""
    found = Collected()
    run_loads([load], [Allocator("strata", str(strata_lib)), GLIBC], launcher, programs, 1, TINY_PERCENT, None, found, quiet)
    assert found.problems == []
    sample = found.samples[load.name]["strata"][0]
    assert sample["operations_per_s"] > 0 and sample["peak_rss_bytes"] >= 1 << 19 and sample["mean_rss_bytes"] > 0
    assert ("malloc_p99_9_ns" in sample) == load.server
    if load.server:
        assert 0 < sample["malloc_p50_ns"] <= sample["malloc_p99_ns"] <= sample["malloc_p99_9_ns"]


def test_start_ups(launcher, strata_lib):
    found = Collected()
    run_startups(STARTUPS[:2], [Allocator("strata", str(strata_lib)), GLIBC], launcher, 1, 2, None, found, quiet)
    assert found.problems == []
    assert 0 < found.samples["start-true"]["strata"][0]["wall_s"] < 1  # of one start


# A realloc that keeps the first word of a block.
FORGETFUL = """
#define _GNU_SOURCE
#include <malloc.h>
#include <string.h>
extern void *__libc_realloc(void *, size_t);
void *realloc(void *block, size_t bytes) {
    size_t before = block ? malloc_usable_size(block) : 0, kept = before < bytes ? before : bytes;
    char *moved = __libc_realloc(block, bytes);
    if (moved && kept > 8) memset(moved + 8, 0x5a, kept - 8);
    return moved;
}
"""


@pytest.mark.parametrize("name", ["grow-vectors", "grow-strings", "large", "server"])
def test_a_load_sees_that_realloc_has_lost_contents(name, launcher, programs, compile_c):
    forgetful = Allocator("forgetful", str(compile_c("forgetful.so", FORGETFUL, "-shared", "-fPIC")))
    found = Collected()
    [load] = [load for load in LOADS if load.name == name]
    run_loads([load], [forgetful], launcher, programs, 1, 20, None, found, quiet)
    assert len(found.problems) == 1 and "load failed: " in found.problems[0] and not found.samples.get(name)


def test_start_ups_are_the_mean_of_their_starts(launcher):
    """Not the sums that the launcher gives, but for memory, which is that of the largest."""
    found = Collected()
    startups = [StartUp("once", ("/bin/true",), ""), StartUp("often", ("/bin/true",), "", 60)]
    run_startups(startups, [GLIBC], launcher, 1, 100, None, found, quiet)
    assert found.problems == []
    once, often = (found.samples[name]["glibc"][0] for name in ("once", "often"))
    for metric in ("minor_faults", "peak_rss_bytes"):
        assert often[metric] == pytest.approx(once[metric], rel=0.3)
    assert 0.5 * often["peak_rss_bytes"] < often["mean_rss_bytes"] <= often["peak_rss_bytes"]


def test_the_launcher_looks_at_the_whole_tree(launcher):
    """Two shells that hold 24 MB each, at the same time, for most of their lives; the sum is theirs, the peak that of one."""
    hold = "import time; a = bytearray(b'x') * 24_000_000; time.sleep(0.5)"
    sample = launcher.run(["sh", "-c", f'/usr/bin/python3 -c "{hold}" & /usr/bin/python3 -c "{hold}"; wait']).metrics
    assert 24e6 < sample["peak_rss_bytes"] < 48e6 < sample["tree_peak_rss_bytes"]
    assert 24e6 < sample["mean_rss_bytes"] < sample["tree_peak_rss_bytes"]


def test_repeated_runs_are_summed_and_end_with_the_first_failure(launcher, tmp_path):
    count = tmp_path / "count"
    sample = launcher.run(["sh", "-c", f"echo run >> {count}"], repeat=7)
    assert count.read_text() == "run\n" * 7 and sample.metrics["minor_faults"] > 7 * 20
    with pytest.raises(RunFailed, match="exit status 1"):
        launcher.run(["sh", "-c", f"echo run >> {count}; exit $(wc -l < {count} | awk '{{print ($1 == 9)}}')"], repeat=7)
    assert count.read_text() == "run\n" * 9


@pytest.fixture
def load(tmp_path):
    """A load made up: a shell script in place of a program."""

    def make(text, name="made-up", **more):
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return Load(name, name, "", **more)

    return make


GOOD = """echo '{"seconds": 1, "operations_per_second": 5, "check": "'"$CHECK"'"}'"""


def test_loads_of_one_thread_are_pinned_and_no_others(launcher, load, tmp_path):
    cpus = os.sched_getaffinity(0)
    where = """echo '{"seconds": 1, "operations_per_second": 5, "check": "'"$(grep Cpus_allowed_list /proc/self/status | tr -dc 0-9,-)"'"}'"""
    found = Collected()
    run_loads([load(where, "one"), load(where, "two", threads=2)], [GLIBC], launcher, tmp_path, 1, 100, max(cpus), found, quiet)
    assert found.problems == [] and found.checks["one"] == str(max(cpus))
    assert len(cpus) == 1 or found.checks["two"] != str(max(cpus))


def test_allocators_are_measured_as_they_come(launcher, monkeypatch):
    """A person's own settings of an allocator reach no program, but for those that the allocator is named with."""
    for name in ("LD_PRELOAD", "STRATA_CONF", "GLIBC_TUNABLES", "MALLOC_ARENA_MAX", "MIMALLOC_VERBOSE", "TCMALLOC_X", "_RJEM_MALLOC_CONF"):
        monkeypatch.setenv(name, "libm.so.6")
    seen = launcher.run(["/usr/bin/env"], "libc.so.6", {"STRATA_CONF": "thp:never"}).output.splitlines()
    assert {line for line in seen if line.startswith(("LD_", "STRATA_CONF", "GLIBC_T", "MALLOC_", "MIMALLOC_", "TCMALLOC_", "_RJEM"))} == {
        "LD_PRELOAD=libc.so.6", "STRATA_CONF=thp:never",
    }  # fmt: skip


def test_a_result_that_differs_gives_no_figures(launcher, load, tmp_path):
    allocators = [Allocator("good", env={"CHECK": "1"}), Allocator("bad", env={"CHECK": "2"}), Allocator("fine", env={"CHECK": "1"})]
    found = Collected()
    run_loads([load(GOOD)], allocators, launcher, tmp_path, 2, 100, None, found, quiet)
    assert set(found.samples["made-up"]) == {"good", "fine"}
    assert found.problems == ["made-up under bad: its result 2 differs from 1, that of the first run"]


@pytest.mark.parametrize(
    "text, more, message",
    [
        ("echo nothing", {}, "its report is not what a load prints"),
        (GOOD, {"server": True}, "its report has no latencies"),
        (GOOD + "; exit 2", {}, "exit status 2"),
        ("kill -11 $$", {}, "ended by signal 11"),
    ],
)
def test_a_run_that_went_wrong_gives_no_figures(launcher, load, tmp_path, text, more, message):
    found = Collected()
    run_loads([load(text, **more)], [GLIBC], launcher, tmp_path, 2, 100, None, found, quiet)
    assert found.samples.get("made-up", {}) == {} and len(found.problems) == 1 and message in found.problems[0]


def test_what_fails_in_a_later_turn_has_no_figures_of_earlier_ones(launcher, load, tmp_path):
    once = f"[ ! -e {tmp_path}/was ] || exit 2; : >{tmp_path}/was; "
    found = Collected()
    run_loads([load(once + GOOD)], [GLIBC], launcher, tmp_path, 2, 100, None, found, quiet)
    assert found.samples.get("made-up", {}) == {} and len(found.problems) == 1


def test_loads_of_a_scaling_group_run_by_turns_and_fail_together(launcher, load, tmp_path):
    seen, found = [], Collected()
    group = [load(GOOD, "one", scaling_group="g"), load(f"[ -z $BAD ] || exit 2; {GOOD}", "two", threads=2, scaling_group="g")]
    allocators = [Allocator("good"), Allocator("bad", env={"BAD": "1"})]
    run_loads(group, allocators, launcher, tmp_path, 2, 100, None, found, lambda what, _runs=1: seen.append(what.split()[::2]))
    assert seen[:4] == [["one", "good"], ["two", "good"], ["one", "bad"], ["two", "bad"]]
    assert {name: {allocator: len(samples) for allocator, samples in row.items()} for name, row in found.samples.items()} == {
        "one": {"good": 2 * SCALING_TURNS}, "two": {"good": 2 * SCALING_TURNS},
    }  # fmt: skip


def test_a_start_up_whose_output_differs_gives_no_figures(launcher):
    found = Collected()
    startup = StartUp("made-up", ("/bin/sh", "-c", "echo $WORD"), "", 3)
    run_startups([startup], [Allocator("a", env={"WORD": "x"}), Allocator("b", env={"WORD": "y"})], launcher, 1, 100, None, found, quiet)
    assert set(found.samples["made-up"]) == {"a"} and "its output differs" in found.problems[0]


BATCHES = """case $BATCHES in
no) skipped=', "error_occurred": true, "error_message": "no batches", "iterations": 0, "real_time": 0, "cpu_time": 0' ;;
esac
row() { echo "{\\"name\\": \\"$1\\", \\"time_unit\\": \\"ns\\", \\"real_time\\": 5, \\"cpu_time\\": 5$2}"; }
echo "{\\"benchmarks\\": [$(row plain/1), $(row batch/1 "$skipped"), $(row batch/16 "$skipped")]}"
"""


def test_a_benchmark_that_was_skipped_gives_no_figures(launcher, load, tmp_path):
    """Google Benchmark reports what a program skipped with times of 0, which would be the best of all."""
    load(BATCHES, "micro_made_up")
    found = Collected()
    with_batches, without = Allocator("strata"), Allocator("glibc", env={"BATCHES": "no"})
    run_micro([tmp_path / "micro_made_up"], ".", [with_batches, without], launcher, 2, 0.01, found, quiet)
    assert found.problems == [] and found.skipped == ["batch under glibc: no batches"]
    figures = {name: {allocator: len(samples) for allocator, samples in row.items()} for name, row in found.micro.items()}
    assert figures == {"plain/1": {"strata": 2, "glibc": 2}, "batch/1": {"strata": 2}, "batch/16": {"strata": 2}}


def test_a_benchmark_that_fails_takes_no_figures_of_other_programs_along(launcher, load, tmp_path):
    row = 'echo "{\\"benchmarks\\": [{\\"name\\": \\"NAME\\", \\"time_unit\\": \\"ns\\", \\"real_time\\": 5, \\"cpu_time\\": 5}]}"\n'
    load(row.replace("NAME", "first"), "micro_first")
    load("[ $FAILS$(cat seen 2>/dev/null) = yesonce ] && exit 3; [ $FAILS = yes ] && echo once >seen\n".replace("seen", f"{tmp_path}/seen") + row.replace("NAME", "second"), "micro_second")
    found = Collected()
    well, failing = Allocator("strata", env={"FAILS": "no"}), Allocator("glibc", env={"FAILS": "yes"})
    run_micro([tmp_path / "micro_first", tmp_path / "micro_second"], ".", [well, failing], launcher, 2, 0.01, found, quiet)
    assert len(found.problems) == 1 and "micro_second under glibc: exit status 3" in found.problems[0]
    figures = {name: {allocator: len(samples) for allocator, samples in row.items()} for name, row in found.micro.items()}
    assert figures == {"first": {"strata": 2, "glibc": 2}, "second": {"strata": 2}}


def test_times_of_benchmarks_are_in_nanoseconds_and_of_the_clock_where_threads_run(launcher, load, tmp_path):
    rows = [
        {"name": "alone", "time_unit": "us", "real_time": 7, "cpu_time": 5},
        {"name": "beside", "time_unit": "ms", "real_time": 7, "cpu_time": 14, "threads": 2},
    ]
    load(f"echo '{json.dumps({'benchmarks': rows})}'", "micro_made_up")
    found = Collected()
    run_micro([tmp_path / "micro_made_up"], ".", [GLIBC], launcher, 1, 0.01, found, quiet)
    assert found.micro == {"alone": {"glibc": [{"ns": 5e3}]}, "beside": {"glibc": [{"ns": 7e6}]}}


def test_a_peak_that_can_only_be_inherited_is_seen(launcher, monkeypatch):
    assert launcher.check() > 1 << 19
    monkeypatch.setattr(launching, "TRUE_RSS_LIMIT_BYTES", 1 << 19)
    with pytest.raises(RunFailed, match="peak RSS is not measured right"):
        launcher.check()


@pytest.fixture
def programs_of(tmp_path):
    def write(keys):
        (tmp_path / "suite.toml").write_text(f'[[workload]]\nname = "w"\n{keys}\n')
        return suite(tmp_path, ["suite.toml"])

    return write


@pytest.mark.parametrize(
    "keys, message",
    [
        ('command = ["sh", "-c", "echo other"]\nprepare = ["sh", "-c", "echo this >wanted"]\nexpect_output = "wanted"', "its output is not what wanted has"),
        ('command = ["sh", "-c", "true"]\nexpect_output = "wanted"', "wanted does not exist"),
        ('command = ["sh", "-c", "echo $LD_PRELOAD$W"]\nsame_output = true\nenv = { W = "{work}" }', ""),
        ('command = ["sh", "-c", "true"]\ncheck = ["sh", "-c", "echo not so >&2; exit 9"]', "its check ended with status 9: not so"),
        ('command = ["sh", "-c", "true"]\nrequired_metrics = ["wall_s"]', "did not report wall_s"),
        ('command = ["sh", "-c", "echo BENCH_METRIC wall_s=no >>$STRATA_METRICS_FILE"]\nsame_output = true', "reported wall_s=no, which is no number"),
        ('command = ["sh", "-c", "echo BENCH_METRIC wall_s=nan >>$STRATA_METRICS_FILE"]\nsame_output = true', "reported wall_s=nan, which is no number"),
        ('command = ["sh", "-c", "exit 3"]\nsame_output = true', "exit status 3"),
        ('command = ["sh", "-c", "sleep 60"]\nsame_output = true\ntimeout_s = 1', "timed out"),
        ('command = ["sh", "-c", "true"]\nprepare = ["sh", "-c", "exit 4"]\nsame_output = true', "its prepare ended with status 4"),
    ],
)
def test_programs_that_fail_their_checks_give_no_figures(launcher, programs_of, keys, message):
    found = Collected()
    run_programs(programs_of(keys), [GLIBC], launcher, 1, found, quiet)
    if not message:
        assert found.problems == [] and len(found.samples["program:w"]["glibc"]) == 1
        return
    assert found.samples.get("program:w", {}) == {} and len(found.problems) == 1 and message in found.problems[0]


def test_a_program_whose_output_differs_gives_no_figures(launcher, programs_of):
    found = Collected()
    workloads = programs_of('command = ["sh", "-c", "echo $WORD"]\nsame_output = true')
    run_programs(workloads, [Allocator("a", env={"WORD": "x"}), Allocator("b", env={"WORD": "y"})], launcher, 1, found, quiet)
    assert set(found.samples["program:w"]) == {"a"} and "its output differs" in found.problems[0]


def test_a_program_that_printed_nothing_the_first_time_has_to_print_nothing_again(launcher, programs_of):
    found = Collected()
    workloads = programs_of('command = ["sh", "-c", "printf \'%s\' $WORD"]\nsame_output = true')
    silent, loud = Allocator("a", env={"WORD": ""}), Allocator("b", env={"WORD": "y"})
    run_programs(workloads, [silent, loud], launcher, 1, found, quiet)
    assert set(found.samples["program:w"]) == {"a"} and "its output differs" in found.problems[0]


def test_of_a_program_of_several_processes_all_count(launcher, programs_of, tmp_path):
    hold = "import time; a = bytearray(b'x') * 24_000_000; time.sleep(0.3)"
    (tmp_path / "two.sh").write_text(f'/usr/bin/python3 -c "{hold}" & /usr/bin/python3 -c "{hold}"; wait\n')
    found = Collected()
    run_programs(programs_of(f'command = ["sh", "{tmp_path}/two.sh"]\nsame_output = true'), [GLIBC], launcher, 1, found, quiet)
    assert found.problems == []
    sample = found.samples["program:w"]["glibc"][0]
    assert sample["peak_rss_bytes"] == sample["tree_peak_rss_bytes"] > 48e6 and sample["cpu_s"] == sample["user_s"] + sample["system_s"]


def test_under_glibc_a_program_that_brings_an_allocator_gets_glibcs(launcher, programs_of):
    found = Collected()
    keys = 'command = ["sh", "-c", "echo $LD_PRELOAD"]\nprepare = ["sh", "-c", "echo libc.so.6 >wanted"]\nexpect_output = "wanted"'
    run_programs(programs_of(keys), [GLIBC], launcher, 1, found, quiet)
    assert found.problems == []


def test_what_a_server_reports_takes_the_place_of_its_driver(launcher, programs_of):
    found = Collected()
    words = "for m in peak_rss_bytes=77 user_s=3 system_s=4; do echo STRATA_METRIC $m; done >>$STRATA_METRICS_FILE; echo BENCH_METRIC request_p50_ns=5.5 >>$STRATA_METRICS_FILE"
    run_programs(programs_of(f'command = ["sh", "-c", "{words}"]\nrequired_metrics = ["peak_rss_bytes"]'), [GLIBC], launcher, 1, found, quiet)
    sample = found.samples["program:w"]["glibc"][0]
    assert sample["peak_rss_bytes"] == 77 and sample["cpu_s"] == 7 and sample["request_p50_ns"] == 5.5 and sample["wall_s"] > 0


@pytest.mark.parametrize("keys, message", [('command = ["true"]', "nothing checks its result"), ('command = "true"', "allowed: a list"),
                                           ('command = ["true"]\nsame_output = true\nexpect_status = 3', "expect_status 3")])  # fmt: skip
def test_suites_that_check_nothing_are_refused(programs_of, keys, message):
    with pytest.raises(RunFailed, match=message):
        programs_of(keys)


def test_the_real_suite_is_complete():
    """What a table names in the suite's folder is there."""
    for workload in suite(BENCH / "suite/programs"):
        for word in (*workload.prepare, *workload.command, *workload.check):
            for part in word.split():
                if part.startswith("{suite}/"):
                    assert os.path.isfile(part.replace("{suite}", str(BENCH / "suite/programs"))), f"{workload.name}: {part}"
