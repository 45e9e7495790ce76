"""A libumem program of several modules (tests/umem/notes), built as its users build: by the compiler and what pkg-config says, with nothing of strata's in it."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.strata_only

SOURCES = Path(__file__).parent / "notes"
ROOT = Path(__file__).parents[2]
WARNINGS = ["-std=c99", "-D_POSIX_C_SOURCE=200809L", "-O1", "-Wall", "-Wextra", "-Werror"]


@pytest.fixture(scope="module")
def built(strata_build, tmp_path_factory):
    """Programs by what they were built with, from a tree as `make install` lays it down."""
    prefix = tmp_path_factory.mktemp("prefix")
    (prefix / "lib/pkgconfig").mkdir(parents=True)
    (prefix / "include").symlink_to(ROOT / "include")
    for library in strata_build.glob("libstrata*.so*"):
        (prefix / "lib" / library.name).symlink_to(library)
    for name in ("strata", "strata-umem"):
        (prefix / f"lib/pkgconfig/{name}.pc").write_text((strata_build / f"{name}.pc").read_text())
    environment = {**os.environ, "PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig")}
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "strata-umem"], env=environment, capture_output=True, text=True, check=True).stdout.split()
    programs = {}
    for name, defines in (("plain", []), ("shipped", ["-DSHIPPED_SETTINGS"])):
        programs[name] = prefix / f"notes-{name}"
        sources = sorted(SOURCES.glob("*.c"))
        assert len(sources) == 5
        subprocess.run(["cc", *WARNINGS, *defines, *sources, "-o", programs[name], *flags, f"-Wl,-rpath,{prefix}/lib", "-pthread", "-rdynamic"], check=True)
    return programs


@pytest.fixture
def notes(strata, built):
    def run(*lines, program="plain", expect=None, **environment):
        text = "".join(f"{line}\n" for line in lines).encode()
        return strata.run([built[program]], env=environment, input=text, preload=False, prove=False, quiet=False, expect=expect)

    return run


SESSION = ["add the first note", "add a second note", "add " + 1500 * "long ", "find note", "drop 2", "find note", "drop 2", "find long", "load 3000", "used", "find line",
           "find client"]
ANSWERS = ["1", "2", "3", "note: 1 2", "dropped", "note: 1", "no such note", "long: 3", "loaded, 4 words", "4 words, places taken, disk enough", "line:", "client:",
           "bye, 0 notes are constructed"]
SETTINGS = [{}, {"UMEM_DEBUG": "default"}, {"UMEM_DEBUG": "default", "UMEM_LOGGING": "transaction"}, {"UMEM_DEBUG": "default,verify", "UMEM_LOGGING": "transaction=1M,fail"},
            {"UMEM_DEBUG": "firewall=64"}, {"UMEM_DEBUG": "audit=3,guards", "UMEM_OPTIONS": "nomagazines"}, {"UMEM_LOGGING": "transaction"}]


@pytest.mark.parametrize("program", ["plain", "shipped"])
@pytest.mark.parametrize("settings", SETTINGS, ids=[",".join(settings.values()) or "none" for settings in SETTINGS])
def test_a_session(notes, settings, program):
    """The same answers whatever is debugged, everything is given back, and nothing is said."""
    result = notes(*SESSION, program=program, expect=0, **settings)
    assert (result.text.splitlines(), result.errors) == (ANSWERS, ""), result.describe()


DEBUG = {"UMEM_DEBUG": "default", "UMEM_LOGGING": "transaction"}


def test_everything_has_a_report(notes):
    """TODO"""
    for kind in ("past", "twice", "after", "size", "number", "place", "leak", "memory"):
        for environment in (DEBUG, {}):
            print(kind, notes(f"fault {kind}", **environment).describe())
    assert False
