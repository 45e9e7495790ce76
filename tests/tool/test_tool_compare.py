"""`strata compare` on one program: order, figures, JSON document, table, failures."""

import json
import math
import os
import re
import shlex
import signal
import statistics
import subprocess
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
from strata.candidates import SYSTEM, choose_peers, installed_peers
from strata.cli import parse_cpus
from strata.compare import geometric_mean, ratio
from strata.errors import StrataError
from strata.library import target_of
from strata.metrics import METRIC_NAMES
from tool_command import COMMAND, ORDINARY_RIGHTS

PEER = "jemalloc"


@pytest.fixture
def compared(tool, tmp_path):
    """Runs `compare` and returns what it did together with the JSON document."""

    def run(*args, **options):
        file = tmp_path / "figures.json"
        file.unlink(missing_ok=True)
        done = tool("compare", "--json", file, *args, **options)
        return done, json.loads(file.read_text()) if file.exists() else None

    return run


def test_rounds_are_interleaved(compared, tool, tmp_path, strata_lib):
    """What the program itself saw, run by run."""
    log = tmp_path / "log"
    done, document = compared("-n", 3, "--warmup", 2, "--peers", PEER, "--", "sh", "-c", f'echo "$LD_PRELOAD" >> {log}')
    assert done.returncode == 0, done.stderr
    peer = str(installed_peers(target_of(strata_lib))[PEER])
    assert log.read_text().splitlines() == ["libc.so.6", str(tool.library), peer] * 5
    runs = document["workloads"][0]["runs"]
    assert [(run["round"], run["candidate"]) for run in runs] == [
        (number, name) for number in (-2, -1, 0, 1, 2) for name in ("system", "strata", PEER)
    ]
    assert [run["warmup"] for run in runs] == [run["round"] < 0 for run in runs]


def test_json_document(compared, tool):
    done, document = compared("-n", 3, "--peers", PEER, "-O", "thp:never", "--", "sort", "/etc/passwd")
    assert done.returncode == 0, done.stderr
    assert set(document) == {
        "schema", "tool", "started", "host", "settings", "metrics", "candidates", "workloads", "geometric_means", "best_peer",
        "failed",
    }  # fmt: skip
    assert document["schema"] == 1 and document["failed"] is False
    assert document["settings"] == {"runs": 3, "warmup": 1, "cpus": None}
    assert document["metrics"] == list(METRIC_NAMES)
    assert [c["name"] for c in document["candidates"]] == ["system", "strata", PEER]
    assert document["candidates"][1] == {"name": "strata", "preload": str(tool.library), "env": {"STRATA_CONF": "thp:never"}}
    (workload,) = document["workloads"]
    assert workload["command"] == ["sort", "/etc/passwd"] and workload["problems"] == []
    for name, row in workload["summary"].items():
        runs = [run for run in workload["runs"] if run["candidate"] == name and not run["warmup"]]
        assert len(runs) == 3
        for metric in METRIC_NAMES:
            values = [run["metrics"][metric] for run in runs]
            assert row[metric]["median"] == statistics.median(values)
            assert (row[metric]["min"], row[metric]["max"]) == (min(values), max(values))
            base = workload["summary"]["system"][metric]["median"]
            assert row[metric]["to_system"] == (row[metric]["median"] / base if base else None)
        assert row["peak_rss_bytes"]["to_best_peer"] == pytest.approx(
            row["peak_rss_bytes"]["median"] / workload["summary"][PEER]["peak_rss_bytes"]["median"]
        )
    assert workload["best_peer"] == dict.fromkeys(METRIC_NAMES, PEER)


def test_json_alone_on_standard_output(tool):
    done = tool("compare", "-n", 1, "--warmup", 0, "--peers", "none", "--json", "-", "--", "true")
    assert json.loads(done.stdout)["settings"]["runs"] == 1
    assert done.stderr == ""


def test_table_fits_100_columns(tool):
    done = tool("compare", "-n", 2, "--", "sort", "/etc/passwd")
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 100
    assert "…" not in done.stdout, "something was cut off"
    heading = next(line for line in lines if line.lstrip().startswith("allocator"))
    for word in ("wall s", "user s", "system s", "peak RSS MiB", "minor faults", "major"):
        assert word in heading
    names = [line.split()[0] for line in lines if line.strip()]
    assert names.index("system") < names.index("strata") < names.index(PEER)
    assert "*" in done.stdout and "vs best peer" in done.stdout
    assert done.stderr == "", "no progress bar where there is no terminal"


def test_wide_figures_fit_too(tool, script):
    figures = (
        "wall_s=12345.678 user_s=99999.5 system_s=1234.5 peak_rss_bytes=99999999999 minor_faults=987654321 major_faults=123456"
    )
    path = script("wide", f'#!/bin/sh\nfor m in {figures}; do echo "STRATA_METRIC $m" >&7; done\n')
    done = tool("compare", "-n", 1, "--warmup", 0, "--", "./wide", cwd=path.parent)
    assert done.returncode == 0
    assert max(map(len, done.stdout.splitlines())) <= 100 and "…" not in done.stdout


def test_narrow_terminal_leaves_columns_out(tool):
    done = tool("compare", "-n", 1, "--", "true", env={"COLUMNS": "80"})
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "wall s" in done.stdout and "user s" not in done.stdout and "…" not in done.stdout


def test_other_exit_status_under_one_allocator(compared):
    text = f'case "$LD_PRELOAD" in *{PEER}*) echo broke >&2; exit 3;; esac'
    done, document = compared("-n", 3, "--warmup", 0, "--peers", f"{PEER},mimalloc", "--", "sh", "-c", text)
    assert done.returncode == 1
    assert f"failed: sh under {PEER}: ended with status 3" in done.stdout and "broke" in done.stdout
    (workload,) = document["workloads"]
    # It is left out from there on, and the others are compared.
    assert [run["candidate"] for run in workload["runs"]].count(PEER) == 1
    assert set(workload["summary"]) == {"system", "strata", "mimalloc"}
    assert document["failed"] is True and len(workload["problems"]) == 1
    assert PEER not in document["geometric_means"]


def test_crash_is_named(compared):
    done, document = compared("-n", 1, "--peers", "none", "--", "sh", "-c", 'case "$LD_PRELOAD" in /*) kill -SEGV $$;; esac')
    assert done.returncode == 1 and "under strata: was killed by SIGSEGV" in done.stdout
    assert [r["exit_status"] for r in document["workloads"][0]["runs"]] == [0, -signal.SIGSEGV, 0]


def test_a_status_that_is_always_wrong_fails_unless_expected(tool):
    wrong = ("compare", "-n", 1, "--warmup", 0, "--peers", "none")
    assert tool(*wrong, "--", "sh", "-c", "exit 5").returncode == 1
    assert tool(*wrong, "--expect-status", 5, "--", "sh", "-c", "exit 5").returncode == 0


def test_same_output(tool):
    args = ("-n", 1, "--warmup", 0, "--peers", "none", "--", "sh", "-c", 'echo "$LD_PRELOAD"')
    assert tool("compare", *args).returncode == 0
    done = tool("compare", "--same-output", *args)
    assert done.returncode == 1 and "its output differs from that under system" in done.stdout


def test_output_that_differs_by_itself(tool):
    """No allocator is blamed for it, with or without runs of the system's in front."""
    for warmup in (0, 1):
        done = tool("compare", "--same-output", "-n", 2, "--warmup", warmup, "--peers", "none", "--", "sh", "-c", "echo $$")
        assert done.returncode == 1 and "failed: sh under system: its output differs from run to run" in done.stdout
        assert "under strata" not in done.stdout


def test_timeout(tool):
    begin = time.monotonic()
    done = tool("compare", "--timeout", 0.2, "-n", 3, "--peers", "none", "--", "sleep", "65")
    assert done.returncode == 1 and "took longer than 0.2 s" in done.stdout
    assert time.monotonic() - begin < 60


def test_as_is_preloads_nothing_for_the_system(tool, tmp_path):
    log = tmp_path / "log"
    tool("compare", "--as-is", "-n", 1, "--warmup", 0, "--peers", "none", "--", "sh", "-c", f'echo "<$LD_PRELOAD>" >> {log}')
    assert log.read_text().splitlines() == ["<>", f"<{tool.library}>"]


def test_system_row_takes_a_linked_allocator_out(tool, compile_c, strata_lib):
    """Whose malloc a program that is linked with jemalloc calls, under each candidate."""
    source = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
int main(void) { Dl_info info; return dladdr((void *)(size_t)malloc, &info) ? puts(info.dli_fname) < 0 : 1; }
"""
    path = compile_c("linked", source, f"-Wl,--no-as-needed,{installed_peers(target_of(strata_lib))[PEER]}")
    done = tool("compare", "-n", 1, "--warmup", 0, "--peers", "none", "--same-output", "--", path)
    assert done.returncode == 1, "strata and the system differ"
    as_is = tool("run", "--", "env", "-u", "LD_PRELOAD", path)
    assert "libjemalloc" in as_is.stdout
    log = tool("compare", "-n", 1, "--warmup", 0, "--peers", "none", "--", "sh", "-c", f"{path} >> {path}.log")
    assert log.returncode == 0
    system, strata = Path(f"{path}.log").read_text().splitlines()
    assert system.endswith("/libc.so.6") and strata == str(tool.library)


def test_program_that_nothing_can_be_preloaded_into(tool, compile_c):
    path = compile_c("static", "int main(void) { return 0; }\n", "-static")
    done = tool("compare", "--", path)
    assert done.returncode == 2 and "a static program" in done.stderr


def test_script_that_takes_the_allocator_away(tool, script):
    done = tool("compare", "--", script("alone", "#!/usr/bin/env -S -i sh\n"))
    assert done.returncode == 2 and "its first line takes LD_PRELOAD from what it starts (env -S -i sh)" in done.stderr


@pytest.mark.parametrize(
    "args, message",
    [
        ([], "nothing to run; allowed: -- PROGRAM ARGS, or --suite PATH"),
        (["--runs", "0", "true"], "runs"),
        (["--peers", "nomalloc", "true"], "--peers: 'nomalloc': allowed: auto, none, or a list"),
        (["--peers", "/no/such.so", "true"], "--peers: /no/such.so: no such file"),
        (["--pin", "all", "true"], "--pin: 'all': allowed: CPU numbers"),
        (["--only", "x", "true"], "--only: only together with --suite"),
        (["--suite", "/no/such.toml"], "--suite: /no/such.toml: No such file"),
        (["--suite", "x", "true"], "--suite and a program (true): allowed: one of them"),
        (["--pin", "0-30000000000", "true"], "--pin: '0-30000000000': allowed: CPU numbers"),
        (["--timeout", "inf", "true"], "--timeout: inf: allowed: a number above 0, up to 2000000"),
        (["--timeout", "nan", "true"], "--timeout: nan: allowed"),
        (["--timeout", "3000000", "true"], "--timeout: 3000000.0: allowed"),
        (["--timeout", "0", "true"], "--timeout: 0.0: allowed"),
        (["--suite", "n" * 300], "File name too long"),
        (["--peers", f"/{'n' * 300}", "true"], "no such file"),
        (["--json", "/no/such/folder/file", "true"], "--json: /no/such/folder/file: No such file or directory"),
        (["--json", "", "true"], "--json: the file's name is empty"),
        (["--json", ".", "true"], "--json: .: Is a directory"),
        (["--svg", "/no/such/folder/file", "true"], "--svg: /no/such/folder/file: No such file or directory"),
        (["--svg", "", "true"], "--svg: the file's name is empty"),
        (["--svg", "x.svg", "--json", "-", "true"], "--svg: not together with --json -"),
        (["no-such-program"], "no-such-program: not found in PATH"),
    ],
)
def test_wrong_command_lines(tool, args, message):
    done = tool("compare", *args)
    assert done.returncode == 2, done.stderr
    assert message in re.sub(r"\s+", " ", done.stderr)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_comparison_ends_its_program(tool, eventually, tmp_path, number, status):
    file = tmp_path / "pid"
    process = tool.start("compare", "--peers", "none", "--", "sh", "-c", f"echo $$ > {file}; exec sleep 66")
    try:
        pid = int(eventually(lambda: file.exists() and file.read_text(), "the program runs"))
        process.send_signal(number)
        assert process.wait(30) == status
        assert not Path(f"/proc/{pid}").exists()
    finally:
        process.kill()
        process.wait()


def test_a_signal_that_the_caller_ignores_ends_nothing(tool, eventually, tmp_path):
    """As after nohup: neither the comparison nor what it runs."""
    file, go = tmp_path / "pid", tmp_path / "go"
    program = f"echo $$ > {file}; while ! [ -e {go} ]; do sleep 0.05; done; kill -HUP $$"
    process = tool.start("compare", *ONCE[1:], "--", "sh", "-c", program, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    try:
        eventually(lambda: file.exists() and file.read_text(), "the program runs")
        process.send_signal(signal.SIGHUP)
        go.touch()
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()


def test_picture(tool, tmp_path):
    """--svg: the tables that were printed, as a picture."""
    done = tool("compare", "--runs", "1", "--warmup", "0", "--peers", "none", "--svg", str(tmp_path / "x.svg"), "--", "true")
    assert done.returncode == 0, done.stderr
    root = ElementTree.parse(tmp_path / "x.svg").getroot()
    assert root.tag.endswith("svg")
    words = "".join(root.itertext()).replace("\N{NO-BREAK SPACE}", " ")
    assert "strata" in words and "system" in words and "peak RSS MiB" in words


ONCE = ("compare", "-n", 1, "--warmup", 0, "--peers", "none")


def test_a_file_that_is_there_keeps_what_it_is(tool, tmp_path):
    """A link and a mode stay; a pipe, as a device, is written to, not replaced; nothing else is left beside them."""
    file, link, pipe = (tmp_path / name for name in ("file", "link", "pipe"))
    file.write_text("before")
    file.chmod(0o640)
    link.symlink_to("file")
    assert tool(*ONCE, "--json", link, "--", "true").returncode == 0
    assert link.is_symlink() and json.loads(file.read_text())["schema"] == 1
    assert file.stat().st_mode & 0o777 == 0o640
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
        assert tool(*ONCE, "--json", pipe, "--", "true").returncode == 0
        assert json.loads(reader.stdout.read())["schema"] == 1
    assert pipe.is_fifo()
    link.unlink()
    link.symlink_to("not-yet")
    assert tool(*ONCE, "--svg", link, "--", "true").returncode == 0
    assert link.is_symlink() and {path.name for path in tmp_path.iterdir()} == {"file", "link", "pipe", "not-yet"}


def test_a_file_that_cannot_be_written_is_told_of_before_the_measuring(tool, tmp_path):
    log, file, folder = tmp_path / "log", tmp_path / "file", tmp_path / "closed"
    file.write_text("before")
    file.chmod(0o444)
    folder.mkdir(mode=0o555)
    for option, path in (("--json", file), ("--json", folder / "new"), ("--svg", file), ("--json", folder)):
        done = tool(*ONCE, option, path, "--", "sh", "-c", f"echo ran >> {log}", before=ORDINARY_RIGHTS)
        assert done.returncode == 2 and f"{option}: {path}: " in done.stderr and "Traceback" not in done.stderr
    assert not log.exists() and file.read_text() == "before"
    assert not list(tmp_path.glob("**/*.part"))


def test_a_failed_comparison_leaves_no_part_of_a_file(tool, tmp_path):
    file = tmp_path / "file"
    file.write_text("before")
    assert tool(*ONCE, "--json", file, "--stdin", "/no/such", "--", "true").returncode == 125
    assert [path.name for path in tmp_path.iterdir()] == ["file"] and file.read_text() == "before"


@pytest.mark.parametrize("redirection", ["| true", "> /dev/full", ">&-"])
def test_figures_are_written_where_nothing_can_be_printed(tool, tmp_path, redirection):
    file = tmp_path / "figures.json"
    text = f'{shlex.join([*COMMAND, *map(str, ONCE)])} --json {file} -- sleep 0.3 {redirection}; exit "${{PIPESTATUS[0]}}"'
    done = subprocess.run(["bash", "-c", text], env=tool.environment(), capture_output=True, text=True)
    assert json.loads(file.read_text())["workloads"][0]["problems"] == []
    if redirection == ">&-":
        assert (done.returncode, done.stderr) == (0, "")
    else:
        assert done.returncode == 125 and done.stderr.startswith("strata compare: standard output: ") and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "ascii"])
def test_names_of_any_kind(tool, compared, script, tmp_path, encoding):
    """Not text in any encoding, what rich would read as markup, and what standard output has no letter for."""
    odd = os.fsdecode(b"[red] [bold]x \xff :smile: \xe2\x82\xac \x1b[1m")
    done, document = compared("-n", 1, "--peers", "none", "--svg", tmp_path / "x.svg", "--", "true", odd, env={"PYTHONIOENCODING": encoding})
    assert (done.returncode, done.stderr) == (0, "")
    assert "[red] [bold]x ? :smile: " in done.stdout
    assert document["workloads"][0]["command"] == ["true", odd]
    ElementTree.parse(tmp_path / "x.svg")
    folder = tmp_path / "suite"
    folder.mkdir()
    for name in (odd, "[\\bold]", "[bold"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    done, document = compared("-n", 1, "--peers", "none", "--suite", folder, env={"PYTHONIOENCODING": encoding})
    assert (done.returncode, done.stderr) == (0, "") and len(document["workloads"]) == 3
    assert done.stdout.count("[red]") == done.stdout.count("[\\bold]") == 2


def test_names_that_are_wrong_markup(tool, tmp_path):
    names = ["[/red]", "[/]"]
    (tmp_path / "suite.toml").write_text("".join(f'[[workload]]\nname = "{name}"\ncommand = ["true"]\n' for name in names))
    done = tool(*ONCE, "--suite", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert all(done.stdout.count(name) == 2 for name in names)


def test_columns_of_nothing(tool):
    lines = tool(*ONCE, "--", "true", env={"COLUMNS": "0"}).stdout.splitlines()
    assert lines and max(map(len, lines)) <= 100 and "user s" in "".join(lines)


def test_a_wrong_report_fails_the_run(compared):
    done, document = compared("-n", 1, "--peers", "none", "--", "sh", "-c", 'case "$LD_PRELOAD" in /*) echo STRATA_METRIC x=1 >&7;; esac')
    assert done.returncode == 1 and "failed: sh under strata: metric 'x': unknown; allowed: wall_s" in done.stdout
    assert set(document["workloads"][0]["summary"]) == {"system"}


def test_peers(strata_lib):
    target = target_of(strata_lib)
    installed = installed_peers(target)
    # Those that tools/setup.sh installs.
    assert {"mimalloc", "jemalloc", "tcmalloc-min", "tcmalloc"} <= set(installed)
    assert [peer.name for peer in choose_peers("auto", target)] == list(installed)
    assert choose_peers("none", target) == []
    named = choose_peers(f"tcmalloc,{strata_lib},{strata_lib}", target)
    assert len({peer.name for peer in named} | {SYSTEM, "strata"}) == 5, "a name twice would mix two rows"


def test_cpus():
    assert parse_cpus(None) is None
    assert parse_cpus("0") == {0}
    for wrong in ("", "-1", "1-0", "0,,1", "a", "0-", "99999"):
        with pytest.raises(StrataError, match="--pin"):
            parse_cpus(wrong)


def test_means():
    assert geometric_mean([0.5, 2.0]) == pytest.approx(1.0)
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    assert geometric_mean([1.0, None]) is None and geometric_mean([]) is None and geometric_mean([0.0, 1.0]) is None
    assert ratio(1.0, 0.0) is None and math.isclose(ratio(3.0, 2.0), 1.5)
