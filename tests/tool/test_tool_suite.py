"""Suites: the file's keys, the life of a workload, and the summary over several; and the suite of the real programs."""

import json
import math
from pathlib import Path

import pytest
from strata.errors import StrataError
from strata.workload import load_suite

PROGRAMS = Path(__file__).resolve().parents[2] / "bench" / "suite" / "programs" / "demo.toml"


@pytest.fixture
def suite(tmp_path):
    """Writes a suite file and returns its path."""

    def write(text):
        path = tmp_path / "suite.toml"
        path.write_text(text)
        return path

    return write


def compare(tool, *args):
    return tool("compare", "-n", 2, "--warmup", 0, "--peers", "mimalloc,jemalloc", *args)


def test_geometric_means_over_workloads(tool, suite, tmp_path):
    """Reported figures, so that the means can be computed by hand."""
    text = """
[[workload]]
name = "first"
command = ["sh", "-c", '''
case "$LD_PRELOAD" in libc*) w=4 r=100;; *mimalloc*) w=2 r=200;; *jemalloc*) w=8 r=50;; *) w=1 r=400;; esac
echo "STRATA_METRIC wall_s=$w" >&7; echo "STRATA_METRIC peak_rss_bytes=$r" >&7''']
required_metrics = ["wall_s", "peak_rss_bytes"]

[[workload]]
name = "second"
command = ["sh", "-c", '''
case "$LD_PRELOAD" in libc*) w=1 r=100;; *mimalloc*) w=2 r=100;; *jemalloc*) w=2 r=100;; *) w=4 r=100;; esac
echo "STRATA_METRIC wall_s=$w" >&7; echo "STRATA_METRIC peak_rss_bytes=$r" >&7''']
"""
    done = compare(tool, "--suite", suite(text), "--json", tmp_path / "out.json")
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads((tmp_path / "out.json").read_text())
    wall = {name: row["wall_s"]["to_system"] for name, row in document["geometric_means"].items()}
    assert wall == {
        "system": pytest.approx(1),
        "strata": pytest.approx(1),  # 1/4 and 4
        "mimalloc": pytest.approx(1),  # 1/2 and 2
        "jemalloc": pytest.approx(2),  # 2 and 2
    }
    assert document["best_peer"]["wall_s"] == "mimalloc"
    assert document["best_peer"]["peak_rss_bytes"] == "jemalloc"
    rss = document["geometric_means"]["strata"]["peak_rss_bytes"]
    assert rss["to_system"] == pytest.approx(2)
    assert rss["to_best_peer"] == pytest.approx(2 / math.sqrt(0.5))
    # Each measure of each workload has its own best peer.
    assert [w["best_peer"]["wall_s"] for w in document["workloads"]] == ["mimalloc", "mimalloc"]
    assert document["workloads"][0]["summary"]["strata"]["peak_rss_bytes"]["to_best_peer"] == 8
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 100
    mean = next(line for line in lines if line.startswith((" geomean", "geomean")))
    assert mean.split() == ["geomean", "1.00*|2.00", "1.00*|1.41", "2.00", "|0.71*"]
    assert "peak RSS: strata is at 2.00 of the system's malloc and at 2.83 of the best peer, jemalloc" in done.stdout


def test_life_of_a_workload(tool, suite, tmp_path):
    """prepare once, then run and check in turn, all in one scratch folder that is gone in the end."""
    log = tmp_path / "log"
    text = f"""
[[workload]]
name = "life"
prepare = ["sh", "-c", "echo prepare $PWD $LD_PRELOAD >> {log}; echo data > input; echo 'data more' > wanted"]
command = ["sh", "-c", "read line; echo $line $1; echo run $PWD $KEY >> {log}", "sh", "more"]
check = ["sh", "-c", "grep -q 'data more' $STRATA_STDOUT && echo check $PWD $LD_PRELOAD >> {log}"]
stdin = "input"
expect_output = "{{work}}/wanted"
env = {{ KEY = "{{suite}}:{{work}}" }}
"""
    done = compare(tool, "--suite", suite(text), "--peers", "none")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split() for line in log.read_text().splitlines()]
    work = lines[0][1]
    assert lines[0] == ["prepare", work]
    assert lines[1:] == [["run", work, f"{tmp_path}:{work}"], ["check", work]] * 4
    assert not Path(work).exists()


@pytest.mark.parametrize(
    "keys, message",
    [
        ('command = ["sh", "-c", "echo other"]\nexpect_output = "{suite}/wanted"', "its output is not what wanted has"),
        ('command = ["true"]\nexpect_output = "nothing-there"', "expect_output: nothing-there does not exist"),
        ('command = ["true"]\ncheck = ["sh", "-c", "echo not so >&2; exit 9"]', "its check ended with status 9"),
        ('command = ["true"]\nrequired_metrics = ["wall_s"]', "did not report wall_s"),
        ('command = ["false"]', "ended with status 1"),
        ('command = ["sleep", "67"]\ntimeout_s = 0.2', "took longer than 0.2 s"),
        ('command = ["sh", "-c", "sleep 68 & exit 0"]', "left 1 process(es) running"),
        ('command = ["sh", "-c", "echo $LD_PRELOAD"]\nsame_output = true', "its output differs"),
    ],
)
def test_a_wrong_run_fails_the_comparison(tool, suite, tmp_path, keys, message):
    (tmp_path / "wanted").write_text("this\n")
    done = compare(tool, "--suite", suite(f'[[workload]]\nname = "w"\n{keys}\n'), "--peers", "none")
    assert done.returncode == 1, done.stdout + done.stderr
    assert message in done.stdout


def test_failing_preparation_ends_it(tool, suite):
    text = '[[workload]]\nname = "w"\ncommand = ["true"]\nprepare = ["sh", "-c", "echo no disk >&2; exit 4"]\n'
    done = compare(tool, "--suite", suite(text))
    assert done.returncode == 125 and "w: prepare ended with status 4" in done.stderr and "no disk" in done.stderr


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "no \\[\\[workload\\]\\] in it"),
        ("[[workload]\n", "not TOML"),
        ("[other]\n", "'other': unknown"),
        ('[[workload]]\ncommand = ["true"]\n', "without a name"),
        ('[[workload]]\nname = "w"\n', "workload 'w': no command"),
        ('[[workload]]\nname = "w"\ncommand = "true"\n', "command = 'true': allowed: a list of texts that is not empty"),
        ('[[workload]]\nname = "w"\ncommand = ["true"]\nruns = 3\n', "'runs': unknown; allowed: name, title, command"),
        ('[[workload]]\nname = "w"\ncommand = ["true"]\ntimeout_s = -1\n', "timeout_s = -1: allowed: a positive number"),
        ('[[workload]]\nname = "w"\ncommand = ["true"]\nexpect_status = true\n', "expect_status = True: allowed: a whole number"),
        ('[[workload]]\nname = "w"\ncommand = ["true"]\n' * 2, "two workloads are named 'w'"),
    ],
)
def test_wrong_suites(suite, text, message):
    with pytest.raises(StrataError, match=message) as caught:
        load_suite(suite(text))
    assert caught.value.exit_status == 2


def test_only(tool, suite, tmp_path):
    text = "".join(f'[[workload]]\nname = "{name}"\ncommand = ["true"]\n' for name in "abc")
    done = compare(tool, "--suite", suite(text), "--only", "c", "--only", "a", "--json", "-")
    assert [workload["name"] for workload in json.loads(done.stdout)["workloads"]] == ["a", "c"]
    done = compare(tool, "--suite", tmp_path, "--only", "d")
    assert done.returncode == 2 and "--only: 'd': no such workload; allowed: a, b, c" in done.stderr


def test_a_folder_of_executables(tool, script, tmp_path):
    script("b.sh", "#!/bin/sh\n")
    script("a.sh", "#!/bin/sh\n")
    script("notes.txt", "no program", mode=0o644)
    done = compare(tool, "--suite", tmp_path, "--json", "-")
    assert done.returncode == 0, done.stderr
    assert [workload["name"] for workload in json.loads(done.stdout)["workloads"]] == ["a", "b"]


def test_an_allocator_that_failed_has_no_mean(tool, suite):
    text = """
[[workload]]
name = "good"
command = ["true"]
[[workload]]
name = "bad"
command = ["sh", "-c", 'case "$LD_PRELOAD" in *mimalloc*) exit 1;; esac']
"""
    done = compare(tool, "--suite", suite(text), "--json", "-")
    assert done.returncode == 1
    document = json.loads(done.stdout)
    assert set(document["geometric_means"]) == {"system", "strata", "jemalloc"}
    assert document["best_peer"]["wall_s"] == "jemalloc"


def test_the_real_programs_pass_their_checks(tool):
    """What `make run` does, once: every workload under the system's malloc and under strata."""
    done = tool("compare", "--suite", PROGRAMS, "-n", 1, "--warmup", 0, "--peers", "none", "--json", "-")
    assert done.returncode == 0, done.stdout + done.stderr
    workloads = {workload["name"]: workload for workload in json.loads(done.stdout)["workloads"]}
    assert set(workloads) == {"gxx", "python", "redis", "sqlite"}
    redis = [run for run in workloads["redis"]["runs"] if run["candidate"] == "strata"]
    assert set(redis[0]["reported"]) >= {"wall_s", "peak_rss_bytes", "user_s"}
    # The work is large enough for an allocator to matter: tens of MiB each.
    assert all(workload["summary"]["strata"]["peak_rss_bytes"]["median"] > 30 << 20 for workload in workloads.values())
