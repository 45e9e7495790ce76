"""`strata where` and the order in which the library is looked for."""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from strata import library
from strata.errors import StrataError
from tool_command import COMMAND, ORDINARY_RIGHTS

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def no_places(monkeypatch, tmp_path):
    """A machine on which the library is nowhere."""
    monkeypatch.delenv("STRATA_LIB", raising=False)
    monkeypatch.setattr(library, "__file__", str(tmp_path / "package" / "strata" / "library.py"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "python-prefix"))
    return tmp_path


def install(strata_lib, folder):
    folder.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(strata_lib, folder / "libstrata.so"))


def test_where(tool):
    assert tool("where").stdout == f"{tool.library}\n"
    assert tool("where", "-v").stdout == f"{tool.library}  (STRATA_LIB)\n"
    assert tool("where", "--lib", tool.library, "-v", env={"STRATA_LIB": "/no/such"}).stdout.endswith("(--lib)\n")


def test_where_prints_a_path_as_it_is(tool, strata_lib, tmp_path):
    path = install(strata_lib, tmp_path / os.fsdecode(b"not-text-\xff"))
    done = subprocess.run([*COMMAND, "where", "--lib", path], env=tool.environment({"PYTHONIOENCODING": "utf-8"}), capture_output=True)
    assert done.stdout == os.fsencode(path) + b"\n"


def test_order(strata_lib, no_places, monkeypatch):
    (no_places / "package" / "strata").mkdir(parents=True)
    (no_places / "package" / "strata" / "build_tree.txt").write_text(f"{no_places / 'tree'}\n")
    built = install(strata_lib, no_places / "tree" / "build")
    assert library.find_library().path == built
    release = install(strata_lib, no_places / "tree" / "build" / "release")
    assert library.find_library().path == release
    python_prefix = install(strata_lib, no_places / "python-prefix" / "lib")
    assert library.find_library().path == python_prefix
    recorded = install(strata_lib, no_places / "recorded" / "lib")
    (no_places / "package" / "strata" / "prefix.txt").write_text(f"{no_places / 'recorded'}\n")
    assert library.find_library().path == recorded
    data = install(strata_lib, no_places / "package" / "strata" / "lib")
    assert library.find_library().path == data
    monkeypatch.setenv("STRATA_LIB", str(strata_lib))
    assert library.find_library().path == strata_lib
    assert library.find_library(str(data)).path == data


def test_build_tree(strata_lib, no_places, monkeypatch):
    monkeypatch.setattr(library, "__file__", str(no_places / "tree" / "python" / "src" / "strata" / "library.py"))
    built = install(strata_lib, no_places / "tree" / "build" / "release")
    assert library.find_library().path == built


def test_nowhere_tells_where_it_looked(no_places):
    with pytest.raises(StrataError) as caught:
        library.find_library()
    assert caught.value.exit_status == 125
    assert "python-prefix/lib/libstrata.so (prefix of this Python)" in str(caught.value)
    assert "STRATA_LIB=PATH" in str(caught.value)


def test_a_folder_may_be_named(strata_lib, tmp_path):
    path = install(strata_lib, tmp_path)
    assert library.find_library(str(tmp_path)).path == path


@pytest.mark.parametrize("folder", ["with blank", "with:colon", "with$LIB", "with\ttab"])
def test_paths_that_ld_preload_cannot_carry(tool, strata_lib, tmp_path, folder):
    done = tool("run", "--lib", install(strata_lib, tmp_path / folder), "--", "true")
    assert done.returncode == 125 and "LD_PRELOAD cannot carry" in done.stderr


def test_a_wrong_place_that_was_named_is_not_passed_over(tool):
    done = tool("where", env={"STRATA_LIB": "/no/such/libstrata.so"})
    assert done.returncode == 125 and "STRATA_LIB: /no/such/libstrata.so: no such file" in done.stderr


def test_places_that_cannot_be_looked_at(tool, strata_lib, no_places):
    """A message, and the search goes on where nobody named the place."""
    long = f"/{'n' * 300}"
    done = tool("where", env={"STRATA_LIB": long})
    assert done.returncode == 125 and f"STRATA_LIB: {long}: file name too long; allowed: the path of libstrata.so" in done.stderr
    (no_places / "package" / "strata").mkdir(parents=True)
    (no_places / "package" / "strata" / "prefix.txt").write_text(f"{long}\n")
    python_prefix = install(strata_lib, no_places / "python-prefix" / "lib")
    assert library.find_library().path == python_prefix


def test_a_library_that_cannot_be_read(tool, strata_lib, tmp_path):
    path = install(strata_lib, tmp_path / "closed")
    path.chmod(0)
    done = tool("where", "--lib", path, before=ORDINARY_RIGHTS)
    assert done.returncode == 125 and f"{path}: cannot be read: Permission denied" in done.stderr
    path.parent.chmod(0)
    done = tool("where", "--lib", path, before=ORDINARY_RIGHTS)
    path.parent.chmod(0o700)
    assert done.returncode == 125 and f"--lib: {path}: permission denied" in done.stderr


def copied(source, target):
    """A copy of a folder of this tree without what was built in it."""
    return shutil.copytree(source, target, ignore=shutil.ignore_patterns(".git", "build", "*.egg-info", "__pycache__", ".*cache"))


def test_what_the_installation_records(strata_lib, tmp_path):
    """`pip install ./python` as a person types it, into an environment of its own: with STRATA_PREFIX the command finds the library there,
    and without what is built in the tree that it was installed from, also where that is built only later."""
    tree = copied(ROOT, tmp_path / "tree")
    venv.create(tmp_path / "venv", with_pip=True)
    python, strata = (tmp_path / "venv" / "bin" / name for name in ("python", "strata"))
    env = {key: value for key, value in os.environ.items() if not key.startswith(("STRATA_", "PYTHON"))}

    def pip_install(*options, **more_env):
        pip = [python, "-m", "pip", "-q", "--disable-pip-version-check", "install", *options, "./python"]
        subprocess.run(pip, env={**env, **more_env}, cwd=tree, check=True, timeout=300)

    def told(*args):
        done = subprocess.run([strata, *args], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout, done.stderr

    installed = install(strata_lib, tmp_path / "prefix" / "lib")
    pip_install(STRATA_PREFIX=str(tmp_path / "prefix"))
    assert told("where", "-v")[1] == f"{installed}  (prefix recorded at install)\n"
    # Again from the same tree, in which pip has left what it built: the prefix must be forgotten, although its library is still there.
    pip_install("--no-deps", "--force-reinstall")
    status, _, errors = told("where")
    assert status == 125 and f"{tree}/build/release/libstrata.so (build tree recorded at install)" in errors
    built = install(strata_lib, tree / "build" / "release")
    assert told("where", "-v") == (0, f"{built}  (build tree recorded at install)\n", "")
    assert told("run", "--verify", "--", "sh", "-c", "echo $LD_PRELOAD") == (0, f"{built}\n", "")


def test_a_source_archive_records_nothing(tmp_path):
    """Without the tree around it there is nothing that could be built: what lies around by chance is not looked into."""
    source = copied(ROOT / "python", tmp_path / "python")
    env = {key: value for key, value in os.environ.items() if not key.startswith(("STRATA_", "PYTHON"))}
    subprocess.run([sys.executable, "setup.py", "-q", "build"], env=env, cwd=source, check=True, timeout=60)
    package = source / "build" / "lib" / "strata"
    assert (package / "library.py").exists() and not list(package.glob("*.txt"))
