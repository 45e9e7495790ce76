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

PACKAGE = Path(__file__).resolve().parents[2] / "python"


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


def test_order(strata_lib, no_places, monkeypatch):
    python_prefix = install(strata_lib, no_places / "python-prefix" / "lib")
    assert library.find_library().path == python_prefix
    recorded = install(strata_lib, no_places / "recorded" / "lib")
    (no_places / "package" / "strata").mkdir(parents=True)
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


@pytest.mark.parametrize("folder", ["with blank", "with:colon"])
def test_paths_that_ld_preload_cannot_carry(tool, strata_lib, tmp_path, folder):
    done = tool("run", "--lib", install(strata_lib, tmp_path / folder), "--", "true")
    assert done.returncode == 125 and "LD_PRELOAD cannot carry" in done.stderr


def test_a_wrong_place_that_was_named_is_not_passed_over(tool):
    done = tool("where", env={"STRATA_LIB": "/no/such/libstrata.so"})
    assert done.returncode == 125 and "STRATA_LIB: /no/such/libstrata.so: no such file" in done.stderr


def test_prefix_is_recorded_by_the_installation(strata_lib, tmp_path):
    """A wheel built with STRATA_PREFIX finds the library there, from an environment of its own."""
    installed = install(strata_lib, tmp_path / "prefix" / "lib")
    source = shutil.copytree(PACKAGE, tmp_path / "python", ignore=shutil.ignore_patterns("*.egg-info", "build", "__pycache__"))
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    env = {key: value for key, value in os.environ.items() if key != "STRATA_LIB"}
    pip = [python, "-m", "pip", "-q", "--disable-pip-version-check", "install", source]
    subprocess.run(pip, env={**env, "STRATA_PREFIX": str(tmp_path / "prefix")}, check=True, timeout=300)
    command = [tmp_path / "venv" / "bin" / "strata", "where", "-v"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout == f"{installed}  (prefix recorded at install)\n", done.stderr
