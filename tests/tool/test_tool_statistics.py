"""`strata run --stats` and `--json`, with the library itself: what a person gets at the program's end."""

import json

# The sections of the table, and the lists of the JSON document.
SECTIONS = ("caches", "arenas", "groups")


def test_json_to_a_file_of_each_process(tool, tmp_path):
    done = tool("run", "--json", "-o", tmp_path / "%p.json", "--", "bash", "-c", "ls / >/dev/null; echo $$")
    assert done.returncode == 0, done.stderr
    files = {path.stem: json.loads(path.read_text()) for path in tmp_path.glob("*.json")}
    # bash, because dash ends by _exit(2), which no library sees.
    assert len(files) == 2, "one of the shell and one of ls"
    shell = files[done.stdout.strip()]
    assert shell["pid"] == int(done.stdout)
    assert all(shell[section] for section in SECTIONS)
    assert all("object_bytes" in cache for cache in shell["caches"])


def test_json_on_stderr(tool):
    done = tool("run", "--json", "--", "true")
    assert done.stdout == ""
    assert json.loads(done.stderr)["caches"]


def test_table_on_stderr(tool):
    done = tool("run", "--stats", "--", "cat", "/proc/self/status")
    assert done.stdout.startswith("Name:\tcat")
    assert "malloc" in done.stderr and "total" in done.stderr.lower()
    assert not done.stderr.lstrip().startswith("{")


def test_an_option_that_the_library_refuses_is_told(tool):
    done = tool("run", "-O", "decay_ms:never", "--", "true")
    assert done.returncode == 0
    assert "decay_ms" in done.stderr
