"""`strata run`: the program is the one that was asked for, with the library in it, and nothing else about it changes."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest
from tool_command import COMMAND


def test_library_is_mapped_in_the_program(tool):
    done = tool("run", "--", "cat", "/proc/self/maps")
    assert done.returncode == 0 and done.stderr == ""
    assert str(tool.library) in done.stdout


def test_debug_is_an_option_of_the_library(tool):
    """The last one counts, and what it is made of is the library's to judge."""
    done = tool("run", "--debug", "mtbf=1+seed=7@malloc-none;guard", "--", "echo", "x")
    assert (done.returncode, done.stdout) == (0, "x\n")
    assert done.stderr.startswith('strata: debug: features = "guard": allowed: off, or of default, audit')
    done = tool("run", "--debug", "default", "--", "python3", "-c", "print(sum(range(10)))")
    assert (done.returncode, done.stdout, done.stderr) == (0, "45\n", "")
    done = tool("run", "--debug", "a,b", "--", "true")
    assert done.returncode == 125 and "without commas" in done.stderr


def test_options_of_the_program_are_not_ours(tool):
    done = tool("run", "echo", "--stats", "-q", "--", "-n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "--stats -q -- -n\n", "")


@pytest.mark.parametrize("status", [0, 1, 2, 77, 125, 127, 255])
def test_exit_status_is_the_programs(tool, status):
    assert tool("run", "--", "sh", "-c", f"exit {status}").returncode == status


@pytest.mark.parametrize(
    "args, status, message",
    [
        (["no-such-program"], 127, "no-such-program: not found in PATH"),
        (["/no/such/program"], 127, "/no/such/program: no such file"),
        (["/etc/passwd"], 126, "not an executable file"),
        (["/etc"], 126, "/etc: is a folder"),
        ([""], 127, "empty"),
        (["--no-such-option", "true"], 125, "--no-such-option"),
        (["--lib", "/no/such/lib.so", "true"], 125, "--lib: /no/such/lib.so: no such file"),
        (["--lib", "/etc/passwd", "true"], 125, "not a shared library"),
        (["--option", "thp", "true"], 125, "'thp': allowed: KEY:VALUE"),
        (["--option", "thp:a,b", "true"], 125, "'thp:a,b': allowed: KEY:VALUE"),
        (["--output", "file", "true"], 125, "only together with --stats or --json"),
        (["--stats", "--output", "/no/such/folder/file", "true"], 125, "the folder does not exist"),
        (["--stats", "--output", "a,b", "true"], 125, "without commas"),
        (["--stats", "--output", "a ", "true"], 125, "without blanks in front or behind"),
        (["--debug", "", "true"], 125, "--debug: '': allowed: FEATURES"),
        (["--debug", "guards@a b", "true"], 125, "--debug: 'guards@a b': allowed: FEATURES"),
        ([], 125, "Missing argument"),
    ],
)
def test_failures_have_the_statuses_of_coreutils(tool, args, status, message):
    done = tool("run", *args)
    assert done.returncode == status, done.stderr
    assert message in re.sub(r"\s+", " ", done.stderr)
    assert "Traceback" not in done.stderr


def refuse_to_start(kind, tmp_path, script):
    """Arguments, and what to add to the environment, with which execve of the program fails in the named way."""
    if kind == "not found":
        return ["no-such-program"], {}
    if kind == "not found at a path":
        return ["/no/such/program"], {}
    if kind == "dangling link":
        (tmp_path / "dangling").symlink_to("nowhere")
        return [tmp_path / "dangling"], {}
    if kind == "interpreter missing":
        return [script("orphan", "#!/no/such/interpreter\n")], {}
    if kind == "below a file":
        return ["/etc/passwd/x"], {}
    if kind == "not found, a file at the end of PATH":
        return ["no-such-program"], {"PATH": f"{os.environ['PATH']}:/etc/passwd"}
    if kind == "not found, a file within PATH":
        return ["no-such-program"], {"PATH": f"/etc/passwd:{os.environ['PATH']}"}
    if kind == "not executable":
        return ["/etc/passwd"], {}
    if kind == "a folder":
        return ["/etc"], {}
    if kind == "link to itself":
        (tmp_path / "loop").symlink_to("loop")
        return [tmp_path / "loop"], {}
    if kind == "link to itself in PATH":
        (tmp_path / "loop").symlink_to("loop")
        return ["loop"], {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    if kind == "name too long":
        return ["n" * 256], {}
    if kind == "name too long, a folder of PATH missing":
        return ["n" * 256], {"PATH": f"{os.environ['PATH']}:/no/such/folder"}
    if kind == "name too long at a path":
        return ["/" + "n" * 256], {}
    assert kind == "interpreter is a folder"
    return [script("folder", "#!/etc\n")], {}


@pytest.mark.parametrize(
    "kind, status",
    [
        ("not found", 127),
        ("not found at a path", 127),
        ("dangling link", 127),
        ("interpreter missing", 127),
        ("not found, a file within PATH", 127),
        ("not found, a file at the end of PATH", 126),
        ("below a file", 126),
        ("not executable", 126),
        ("a folder", 126),
        ("link to itself", 126),
        ("link to itself in PATH", 126),
        ("name too long", 126),
        ("name too long, a folder of PATH missing", 126),
        ("name too long at a path", 126),
        ("interpreter is a folder", 126),
    ],
)
def test_a_program_that_cannot_start_has_the_status_of_env(tool, script, tmp_path, kind, status):
    args, env = refuse_to_start(kind, tmp_path, script)
    reference = subprocess.run(["/usr/bin/env", *args], env=tool.environment(env), capture_output=True)
    assert reference.returncode == status, reference.stderr
    done = tool("run", "-q", *args, env=env)
    assert done.returncode == status, done.stderr
    assert done.stderr.startswith("strata run: ") and len(done.stderr.splitlines()) == 1


def test_a_file_that_is_being_written_cannot_start(tool, tmp_path):
    program = tmp_path / "busy"
    shutil.copy("/bin/true", program)
    with program.open("r+b"):
        done = tool("run", "-q", program)
    assert done.returncode == 126 and "Text file busy" in done.stderr


def test_too_many_arguments_with_ours_added(tool):
    """The kernel takes 128 KiB a string; the caller's STRATA_CONF is just within, and -O takes it beyond."""
    conf = "," * (131071 - len("STRATA_CONF=") - 4)
    assert tool("run", "-q", "--", "true", env={"STRATA_CONF": conf}).returncode == 0
    done = tool("run", "-q", "-O", "thp:never", "--", "true", env={"STRATA_CONF": conf})
    assert done.returncode == 126 and "Argument list too long" in done.stderr


def test_not_found_through_the_interpreter(tool, script):
    path = script("orphan", "#!/no/such/interpreter\n")
    done = tool("run", "-q", path)
    assert done.returncode == 127 and str(path) in done.stderr


def test_found_in_path_but_not_executable(tool, script, tmp_path):
    script("plain-file", "text", mode=0o644)
    done = tool("run", "plain-file", env={"PATH": str(tmp_path)})
    assert done.returncode == 126


def test_a_later_executable_in_path_wins_over_an_earlier_file(tool, tmp_path):
    for folder, mode in (("first", 0o644), ("second", 0o755)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "prog").write_text("#!/bin/sh\necho found\n")
        (tmp_path / folder / "prog").chmod(mode)
    done = tool("run", "prog", env={"PATH": f"{tmp_path}/first:{tmp_path}/second"})
    assert (done.returncode, done.stdout) == (0, "found\n")


def test_script_without_interpreter_runs_in_the_shell(tool, script):
    done = tool("run", script("bare", "echo from the shell: $1\n"), "word")
    assert (done.returncode, done.stdout) == (0, "from the shell: word\n")


@pytest.mark.parametrize("name", ["./prog", "./-v", ".//prog", "./sub/../prog"])
@pytest.mark.parametrize("first", ["#!/bin/sh\n", ""])
def test_a_script_sees_the_name_that_it_was_started_by(tool, script, tmp_path, name, first):
    (tmp_path / "sub").mkdir()
    script(name.rpartition("/")[2], first + 'echo "$0 $1"\n')
    done = tool("run", "--", name, "x", cwd=tmp_path)
    assert (done.stdout, done.stderr) == (f"{name} x\n", "")


@pytest.mark.parametrize("name", ["./prog", "./-v", "prog"])
def test_a_program_in_the_working_folder_can_be_proved(tool, tmp_path, name):
    shutil.copy("/usr/bin/true", tmp_path / name.rpartition("/")[2])
    done = tool("run", "--verify", "--", name, cwd=tmp_path, env={"PATH": f":{os.environ['PATH']}"})
    assert (done.returncode, done.stderr) == (0, "")


def test_stdin_passes(tool):
    done = tool("run", "--", "sort", input="b\na\n")
    assert done.stdout == "a\nb\n"


def test_pid_and_signals_are_the_programs(tool, eventually):
    process = tool.start("run", "--", "sleep", "60")
    try:
        comm = Path(f"/proc/{process.pid}/comm")
        eventually(lambda: comm.read_text() == "sleep\n", "the program replaces the command")
        process.terminate()
        assert process.wait(30) == -signal.SIGTERM
    finally:
        process.kill()
        process.wait()


def test_signal_dispositions_are_the_default(tool):
    done = tool("run", "--", "grep", "SigIgn", "/proc/self/status")
    ignored = int(done.stdout.split()[1], 16)
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        assert not ignored & 1 << (number - 1), f"{number!r} is ignored in the program"


@pytest.mark.parametrize("name, kept", [("INT", True), ("HUP", True), ("USR1", True), ("PIPE", False), ("XFSZ", False)])
def test_signals_that_the_caller_ignores(tool, name, kept):
    """They stay ignored, but for the two of which Python does not know; the manual says so."""
    command = ["bash", "-c", f'trap "" {name}; exec "$@"', "bash", *COMMAND, "run", "--", "grep", "SigIgn", "/proc/self/status"]
    done = subprocess.run(command, env=tool.environment(), capture_output=True, text=True)
    assert bool(int(done.stdout.split()[1], 16) & 1 << (signal.Signals[f"SIG{name}"] - 1)) == kept


def test_environment_is_kept_and_extended(tool):
    env = {"LD_PRELOAD": "libm.so.6", "STRATA_CONF": "thp:never", "KEPT": "a b=c"}
    done = tool("run", "-q", "-O", "decay_ms:100", "-O", "thp:auto", "--", "env", env=env)
    shown = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert shown["LD_PRELOAD"] == f"{tool.library}:libm.so.6"
    assert shown["STRATA_CONF"] == "thp:never,decay_ms:100,thp:auto"
    assert shown["KEPT"] == "a b=c"


def test_locale_that_python_sets_does_not_leak(tool):
    locale = [key for key in os.environ if key.startswith("LC_") or key == "LANG"]
    without = tool("run", "--", "env", drop=locale)
    assert "LC_CTYPE" not in without.stdout
    asked = tool("run", "--", "env", drop=locale, env={"LC_CTYPE": "C.UTF-8"})
    assert "LC_CTYPE=C.UTF-8\n" in asked.stdout


@pytest.mark.parametrize("value", ["", "C", "POSIX"])
@pytest.mark.parametrize("command", [["run"], ["compare", "-n", 1, "--warmup", 0, "--peers", "none"]])
def test_locale_that_python_changes_is_given_back(tool, tmp_path, command, value):
    locale = [key for key in os.environ if key.startswith("LC_") or key == "LANG"]
    log = tmp_path / "log"
    done = tool(*command, "--", "sh", "-c", f'echo "<$LC_CTYPE>" >> {log}', drop=locale, env={"LC_CTYPE": value})
    assert done.returncode == 0, done.stderr
    assert set(log.read_text().splitlines()) == {f"<{value}>"}


def test_standard_error_that_is_closed_or_full(tool, compile_c):
    """The program starts, also where there is something to tell, and finds it as the caller left it."""
    static = compile_c("static", '#include <stdio.h>\nint main(void) { puts("ran"); return 0; }\n', "-static")
    for program in (["sh", "-c", "echo ran"], [static]):
        for redirection in ("2>&-", "2>/dev/full"):
            command = ["sh", "-c", f'exec "$@" {redirection}', "sh", *COMMAND, "run", "--", *map(str, program)]
            done = subprocess.run(command, env=tool.environment(), capture_output=True, text=True)
            assert (done.returncode, done.stdout) == (0, "ran\n"), (program, redirection)
    command = ["sh", "-c", 'exec "$@" 2>&-', "sh", *COMMAND, "run", "--"]
    done = subprocess.run([*command, "ls", "/proc/self/fd"], env=tool.environment(), capture_output=True, text=True)
    assert done.stdout.split()[:3] == ["0", "1", "2"] and len(done.stdout.split()) == 3, "2 is the folder that ls reads"
    done = subprocess.run([*command, "no-such-program"], env=tool.environment(), capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (127, ""), "a message has no place on standard output"


def test_a_working_folder_that_is_gone(tool):
    command = ["sh", "-c", 'mkdir gone && cd gone && rmdir ../gone && exec "$@"', "sh", *COMMAND]
    with tempfile.TemporaryDirectory() as folder:
        for words in (["run", "--", "true"], ["run", "--stats", "-o", "x", "--", "true"], ["compare", "-n", "1", "--", "true"]):
            done = subprocess.run([*command, *words], env=tool.environment(), cwd=folder, capture_output=True, text=True)
            assert "Traceback" not in done.stderr and done.returncode == (125 if "-o" in words else 0), done.stderr


def test_nothing_extra_in_the_environment(tool):
    done = tool("run", "--", "env")
    assert "STRATA_CONF" not in done.stdout
    # A shell's own variables come from no one.
    shown = {line.split("=", 1)[0] for line in done.stdout.splitlines() if "=" in line}
    assert shown - set(tool.environment()) <= {"LD_PRELOAD"}


def test_file_descriptors_pass_and_none_are_added(tool):
    read_end, write_end = os.pipe()
    # bash, as dash writes only to descriptors of one digit.
    program = ["bash", "-c", f"ls /proc/self/fd | wc -l; echo hello >&{write_end}"]
    done = subprocess.run(
        [*COMMAND, "run", "--", *program], env=tool.environment(), pass_fds=[write_end], capture_output=True, text=True
    )
    os.close(write_end)
    with open(read_end, encoding="ascii") as stream:
        assert stream.read() == "hello\n", done.stderr
    # 0, 1, 2, the pipe, and the folder that ls reads.
    assert done.stdout.strip() == "5"


def test_statistics_options(tool, tmp_path):
    def conf(*options):
        done = tool("run", *options, "--", "sh", "-c", 'echo "$STRATA_CONF"', cwd=tmp_path)
        return done.stdout.splitlines()[0]

    assert conf("--stats") == "stats:table"
    assert conf("--json") == conf("--stats", "--json") == "stats:json"
    assert conf("--json", "-o", "a-%p.json") == f"stats:json,stats_file:{tmp_path}/a-%p.json"
    # Only in the name as it was given is a percent sign more than that.
    folder = tmp_path / "100%p"
    folder.mkdir()
    tool("run", "--json", "-o", "%%-%p.json", "--", "/bin/true", cwd=folder)
    (file,) = folder.iterdir()
    assert re.fullmatch(r"%-\d+\.json", file.name)
    assert conf("--verify", "--stats") == "verify:on,stats:table"


def test_version_and_help(tool):
    assert re.fullmatch(r"strata \d\S*\n", tool("--version").stdout)
    for args in (["--help"], ["run", "--help"], ["compare", "-h"], ["where", "-h"]):
        done = tool(*args)
        assert done.returncode == 0 and "Usage:" in done.stdout
