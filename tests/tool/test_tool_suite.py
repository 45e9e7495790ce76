"""Suites: the file's keys, the life of a workload, and the summary over several; and the suite of the real programs."""

import json
import math
import re
import subprocess
from pathlib import Path

import pytest
from strata.errors import StrataError
from strata.workload import load_suite
from tool_command import ORDINARY_RIGHTS

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


@pytest.mark.parametrize(
    "keys, message",
    [
        ('command = ["true"]\nprepare = ["sh", "-c", "echo no disk >&2; exit 4"]', "failed: w: prepare ended with status 4: no disk"),
        ('command = ["true"]\nprepare = ["no-such-program"]', "failed: w: no-such-program: No such file or directory"),
        ('command = ["no-such-program"]', "failed: w: no-such-program: not found in PATH"),
        ('command = ["true"]\nstdin = "no-such-file"', "no-such-file: No such file or directory"),
        ('command = ["true"]\ncheck = ["{suite}/check"]', "failed: w under system: its check: {suite}/check: Exec format error"),
        ('command = ["true"]\ncheck = ["no-such-program"]', "failed: w under system: its check: no-such-program: No such file or directory"),
        ('command = ["sh", "-c", "echo STRATA_METRIC x=1 >&7"]', "failed: w under system: metric 'x': unknown"),
    ],
)
def test_a_workload_that_cannot_be_measured_leaves_the_others_their_figures(tool, suite, script, tmp_path, keys, message):
    script("check", "true\n")
    good = '[[workload]]\nname = "{}"\ncommand = ["true"]\n'
    done = compare(tool, "--suite", suite(good.format("a") + f'[[workload]]\nname = "w"\n{keys}\n' + good.format("z")), "--json", tmp_path / "out")
    assert done.returncode == 1 and done.stderr == "", done.stderr
    assert message.replace("{suite}", str(tmp_path)) in re.sub(r"\s+", " ", done.stdout)
    document = json.loads((tmp_path / "out").read_text())
    assert [bool(workload["problems"]) for workload in document["workloads"]] == [False, True, False]
    assert document["workloads"][1]["summary"] == {} and document["geometric_means"] == {} and document["failed"] is True


def test_an_interrupted_suite_leaves_the_figures_that_it_has(tool, suite, eventually, tmp_path):
    log, out = tmp_path / "log", tmp_path / "out"
    text = f"""
[[workload]]
name = "short"
command = ["true"]
[[workload]]
name = "long"
command = ["sh", "-c", "echo begun > {log}; exec sleep 69"]
"""
    process = tool.start("compare", "-n", "1", "--peers", "none", "--suite", suite(text), "--json", out, stdout=subprocess.DEVNULL)
    try:
        eventually(log.exists, "the second workload runs")
        process.terminate()
        assert process.wait(30) == 143
    finally:
        process.kill()
        process.wait()
    document = json.loads(out.read_text())
    assert [workload["name"] for workload in document["workloads"]] == ["short"] and document["failed"] is True


def test_a_program_that_was_made_in_the_scratch_folder(tool, suite):
    text = """
[[workload]]
name = "made"
prepare = ["sh", "-c", "printf '#!/bin/sh\\necho made\\n' > made; chmod 755 made; cp made checks"]
command = ["./made"]
check = ["./checks"]
"""
    done = compare(tool, "--suite", suite(text), "--peers", "none")
    assert done.returncode == 0, done.stdout + done.stderr


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
        ('[[workload]]\nname = "w"\ncommand = ["true"]\ntimeout_s = -1\n', "timeout_s = -1: allowed: a number above 0, up to 2000000"),
        ('[[workload]]\nname = "w"\ncommand = ["true"]\ntimeout_s = inf\n', "timeout_s = inf: allowed: a number above 0"),
        ('[[workload]]\nname = "w"\ncommand = ["true"]\nexpect_status = true\n', "expect_status = True: allowed: a whole number"),
        ('[[workload]]\nname = "w"\ncommand = ["true"]\n' * 2, "two workloads are named 'w'"),
        ('[[workload]]\nname = "w"\ncommand = ["a\\u0000b"]\n', "command = .*: allowed: a list of texts that is not empty, without zero bytes"),
        ('[[workload]]\nname = "w"\ncommand = ["true"]\nstdin = "\\u0000"\n', "stdin = .*: allowed: a path, without zero bytes"),
        ('[[workload]]\nname = "w"\ncommand = ["true"]\nenv = { A = "\\u0000" }\n', "env = .*, without zero bytes"),
        ('[[workload]]\nname = "w"\ncommand = ["true"]\nenv = { "A=B" = "c" }\n', "env = .*: allowed: a table of texts, whose names are not empty and have no ="),
        (f"a = {'9' * 5000}\n", "not TOML"),
        (f"a = {'[' * 20000}\n", "not TOML: nested too deeply"),
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
    script("c.py", "#!/bin/sh\n")
    script("c.sh", "#!/bin/sh\n")
    script("notes.txt", "no program", mode=0o644)
    done = compare(tool, "--suite", tmp_path, "--json", "-")
    assert done.returncode == 0, done.stderr
    assert [workload["name"] for workload in json.loads(done.stdout)["workloads"]] == ["a", "b", "c.py", "c.sh"]


def test_a_folder_that_cannot_be_read(tool, tmp_path):
    folder = tmp_path / "closed"
    folder.mkdir(mode=0)
    done = tool("compare", "--suite", folder, before=ORDINARY_RIGHTS)
    assert done.returncode == 2 and f"--suite: {folder}: Permission denied" in done.stderr


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
