"""The measuring of one run: that the figures are the program's own, and that nothing is left behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from strata.errors import StrataError
from strata.measure import Launch, children, measure, measuring
from strata.metrics import METRIC_NAMES, parse_reported

MIB = 1 << 20
TOUCH = """
#include <stdlib.h>
#include <string.h>
int main(int argc, char **argv) {
    size_t size = (size_t)atoi(argv[1]) << 20;
    char *p = malloc(size);
    memset(p, argc, size);
    return p[size - 1] != argc;
}
"""


@pytest.fixture
def adopting():
    with measuring():
        yield


def sh(text, **options):
    return measure(Launch(["/bin/sh", "-c", text], **options))


def test_peak_rss_is_not_that_of_python(adopting):
    """/bin/true takes 1 to 2 MB, also when it is measured from a Python that has 200."""
    code = """
from strata.measure import Launch, measure, measuring
ballast = b"x" * (200 << 20)
with measuring():
    print(measure(Launch(["/bin/true"])).metrics["peak_rss_bytes"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0.5 * MIB < int(done.stdout) < 4 * MIB


def test_peak_rss_and_faults_of_touched_memory(adopting, compile_c):
    program = str(compile_c("touch", TOUCH))
    small, large = (measure(Launch([program, str(size)])).metrics for size in (1, 65))
    grown = large["peak_rss_bytes"] - small["peak_rss_bytes"]
    assert 63 * MIB < grown < 66 * MIB
    assert large["minor_faults"] > small["minor_faults"]


def test_peak_rss_is_of_the_largest_process(adopting, compile_c):
    program = compile_c("touch", TOUCH)
    both = sh(f"{program} 40 & {program} 40; wait").metrics
    assert 40 * MIB < both["peak_rss_bytes"] < 60 * MIB


def test_times(adopting):
    sample = sh("sleep 0.3")
    assert 0.3 <= sample.metrics["wall_s"] < 10
    assert sample.metrics["user_s"] + sample.metrics["system_s"] < 0.2
    busy = sh("i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done")
    assert busy.metrics["user_s"] > sample.metrics["user_s"]


def test_descendants_that_were_waited_for_count(adopting, compile_c):
    program = compile_c("touch", TOUCH)
    assert sh(f"{program} 30; true").metrics["peak_rss_bytes"] > 30 * MIB


@pytest.mark.parametrize("text, status", [("exit 0", 0), ("exit 7", 7), ("kill -SEGV $$", -signal.SIGSEGV)])
def test_exit_status(adopting, text, status):
    assert sh(text).exit_status == status


def test_preload_is_in_the_program_only(adopting, strata_lib, tmp_path):
    report = tmp_path / "report"
    # The parent of the program is the Python that measures.
    text = f"""echo "$LD_PRELOAD" > {report}
cat /proc/$$/maps > {report}.own
cp /proc/$PPID/maps {report}.parent
cp /proc/$PPID/environ {report}.environ"""
    sample = sh(text, preload=str(strata_lib))
    assert sample.exit_status == 0, sample.error_tail
    assert report.read_text() == f"{strata_lib}\n"
    assert str(strata_lib) in Path(f"{report}.own").read_text()
    assert str(strata_lib) not in Path(f"{report}.parent").read_text()
    assert b"LD_PRELOAD=" not in Path(f"{report}.environ").read_bytes()


def test_a_preload_of_the_persons_own_stays_behind_it(adopting):
    sample = sh('echo "$LD_PRELOAD"', preload="libc.so.6", env={**os.environ, "LD_PRELOAD": "libm.so.6"})
    assert sample.output_tail == "libc.so.6:libm.so.6\n"


def test_environment_passes_whole(adopting):
    odd = {"WITH.DOT": "1", "WITH-DASH": "a b", "PLAIN": "$x 'y' \"z\"\n2nd", "EMPTY": ""}
    program = f"import os; [print(repr(key), repr(os.environ.get(key))) for key in {list(odd)!r}]"
    sample = measure(Launch([sys.executable, "-c", program], env={**os.environ, **odd}))
    assert sample.output_tail == "".join(f"{key!r} {value!r}\n" for key, value in odd.items())


def test_arguments_folder_and_stdin_pass(adopting, tmp_path):
    (tmp_path / "input").write_text("from the file\n")
    command = ["/bin/sh", "-c", 'cat; pwd; for word; do echo "[$word]"; done', "sh", "a  b", "", "$HOME", "*"]
    sample = measure(Launch(command, folder=tmp_path, stdin=tmp_path / "input"))
    assert sample.output_tail == f"from the file\n{tmp_path}\n[a  b]\n[]\n[$HOME]\n[*]\n"
    with pytest.raises(StrataError, match="stdin: .*No such file"):
        measure(Launch(["/bin/cat"], stdin=tmp_path / "missing"))


def test_descriptors_and_signals_are_ordinary(adopting):
    inherited = {fd for fd in range(3, 1024) if Path(f"/proc/self/fd/{fd}").exists() and os.get_inheritable(fd)}
    listed = sh("ls /proc/self/fd | xargs; grep SigIgn /proc/self/status")
    descriptors, mask = listed.output_tail.splitlines()
    # The standard three, 7 for reports, and the folder that ls reads: neither 8 nor 9 of the shell that waited.
    added = set(map(int, descriptors.split())) - inherited
    assert {0, 1, 2, 7} <= added and len(added) == 5 and not added & {8, 9}
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores for itself
        assert not int(mask.split()[1], 16) & 1 << (number - 1)


def test_pinned(adopting):
    cpu = max(os.sched_getaffinity(0))
    assert sh("grep Cpus_allowed_list /proc/self/status", cpus=frozenset([cpu])).output_tail.split()[1] == str(cpu)


def test_reported_measures_replace_measured_ones(adopting):
    sample = sh('echo "STRATA_METRIC wall_s=12.5" >&$STRATA_METRICS_FD; echo noise >&$STRATA_METRICS_FD; '
                'echo "STRATA_METRIC peak_rss_bytes=1000" >> $STRATA_METRICS_FILE')  # fmt: skip
    assert (sample.metrics["wall_s"], sample.metrics["peak_rss_bytes"]) == (12.5, 1000)
    assert sample.reported == ["peak_rss_bytes", "wall_s"]
    assert set(sample.metrics) == set(METRIC_NAMES) and sample.metrics["minor_faults"] > 0


@pytest.mark.parametrize(
    "line, message",
    [
        ("STRATA_METRIC walls=1", "metric 'walls': unknown; allowed: wall_s, user_s"),
        ("STRATA_METRIC wall_s=fast", "metric wall_s=fast: allowed: a number"),
        ("STRATA_METRIC wall_s=-1", "allowed: a number that is not negative"),
        ("STRATA_METRIC wall_s=nan", "allowed: a number"),
        ("STRATA_METRIC wall_s", "allowed: STRATA_METRIC name=value"),
    ],
)
def test_wrong_reports_are_errors(line, message):
    with pytest.raises(StrataError, match=message):
        parse_reported(f"text\n{line}\n")


def test_timeout_kills_all_of_it(adopting):
    sample = sh("sleep 61 & sleep 62", timeout_s=0.2)
    assert sample.timed_out and sample.exit_status == -signal.SIGKILL
    assert not children()


def test_what_is_left_running_is_killed_and_told(adopting):
    sample = sh("setsid sleep 63 & sleep 64 & exit 0")
    assert (sample.exit_status, sample.left_running) == (0, 2)
    assert not children()


def test_an_orphan_that_ends_soon_is_waited_for(adopting):
    assert sh("sleep 0.1 & exit 0").left_running == 0


def test_the_adopting_ends(adopting):
    with measuring():
        pass
    # Still within the outer one.
    assert sh("sleep 0.05 & exit 0").left_running == 0


def test_runs_need_no_terminal_and_leave_no_files(adopting, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    sh("echo out; echo err >&2")
    assert list(tmp_path.iterdir()) == []
