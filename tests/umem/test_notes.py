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


SESSION = ["add the first note", "add a second note", "add " + 1500 * "long ", "find note", "drop 2", "find note", "drop 2", "find long", "load 500", "used", "find line",
           "find client"]
ANSWERS = ["1", "2", "3", "note: 1 2", "dropped", "note: 1", "no such note", "long: 3", "loaded, 4 words", "4 words, places taken, disk enough", "line:", "client:",
           "bye, 0 notes are constructed"]
SETTINGS = [{}, {"UMEM_DEBUG": "default"}, {"UMEM_DEBUG": "default", "UMEM_LOGGING": "transaction"}, {"UMEM_DEBUG": "guards", "UMEM_LOGGING": "transaction=1M,fail"},
            {"UMEM_DEBUG": "firewall=64"}, {"UMEM_DEBUG": "audit=3,guards", "UMEM_OPTIONS": "nomagazines"}, {"UMEM_LOGGING": "transaction"}]


@pytest.mark.parametrize("program", ["plain", "shipped"])
@pytest.mark.parametrize("settings", SETTINGS, ids=[",".join(settings.values()) or "none" for settings in SETTINGS])
def test_a_session(notes, settings, program):
    """The same answers whatever is debugged, everything is given back, and nothing is said."""
    result = notes(*SESSION, program=program, expect=0, **settings)
    assert (result.text.splitlines(), result.errors) == (ANSWERS, ""), result.describe()


DEBUG = {"UMEM_DEBUG": "default", "UMEM_LOGGING": "transaction"}
ENDS = "strata: the process ends here, because of the error above (debug_error:continue goes on)"
RAW = "ef be ad de"
REPORTS = {
    "past": [
        "strata: strata_kmem_free(): ADDRESS: written after its end (cache malloc-32)",
        "strata:   buffer ADDRESS of 22 bytes, in use: at offset 22, expected 0xbb, found 0x21",
        "strata:     allocated by thread N, T s before: STACK",
        f"strata:     contents when it was allocated: {5 * (RAW + ' ')}ef be",
        ENDS,
    ],
    "twice": [
        "strata: strata_cache_free(): ADDRESS: double free (cache note_cache)",
        "strata:   buffer ADDRESS of SIZE bytes, not in use",
        "strata:     freed by thread N, T s before: STACK",
        "strata:     allocated by thread N, T s before: STACK",
        "strata:     contents when it was freed: CONTENTS",
        f"strata:     contents when it was allocated: {8 * (RAW + ' ')}...",
        ENDS,
    ],
    "after": [
        "strata: strata_cache_alloc(): ADDRESS: written after it was freed (cache note_cache)",
        "strata:   buffer ADDRESS of SIZE bytes, not in use: at offset OFFSET, expected 0xef, found 0x07",
        "strata:     freed by thread N, T s before: STACK",
        "strata:     allocated by thread N, T s before: STACK",
        "strata:     contents when it was freed: CONTENTS",
        f"strata:     contents when it was allocated: {8 * (RAW + ' ')}...",
        ENDS,
    ],
    "size": [
        "strata: strata_kmem_free(): ADDRESS: size is 121, but this is a debugged block of 22 bytes (cache malloc-32)",
        "strata:   buffer ADDRESS of 22 bytes, in use",
        "strata:     allocated by thread N, T s before: STACK",
        f"strata:     contents when it was allocated: {5 * (RAW + ' ')}ef be",
        ENDS,
    ],
    "number": ["umem: vmem_free(numbers): ADDRESS, size 1: nothing allocated starts there"],
    "place": ["umem: vmem_free(places): ADDRESS, size 300: what starts there has another size"],
}


def told(errors):
    """A report without what differs from run to run and from compiler to compiler. A stack counts where the program is in it."""
    text = re.sub(r"((?:\nstrata:       \S+\+0x[0-9a-f]+)+)", lambda stack: " STACK" if "/notes-" in stack[0] else " no stack of the program", errors)
    for pattern, word in ((r"(?<=\): )0x[0-9a-f]+|(?<=buffer )0x[0-9a-f]+", "ADDRESS"), (r"thread \d+", "thread N"), (r"\d+\.\d+ s before", "T s before"),
                          (r"of (?!22 )\d+ bytes, not", "of SIZE bytes, not"), (r"not in use: at offset \d+", "not in use: at offset OFFSET"),
                          (r"(contents when it was freed:)( [0-9a-f]{2}){32} \.\.\.", r"\1 CONTENTS")):
        text = re.sub(pattern, word, text)
    return text.splitlines()


@pytest.mark.parametrize("program, settings", [("plain", DEBUG), ("plain", {"UMEM_DEBUG": "default"}), ("shipped", {})], ids=["both", "debug", "shipped"])
@pytest.mark.parametrize("kind", REPORTS)
def test_mistakes_are_reported(notes, kind, program, settings):
    """UMEM_DEBUG=default is audit, contents and guards: who allocated and freed the buffer, what was in it, and which byte is wrong."""
    result = notes("add one", f"fault {kind}", program=program, **settings)
    assert result.returncode == -signal.SIGABRT and result.text == "1\n", result.describe()
    assert told(result.errors) == REPORTS[kind], result.describe()


def test_what_arenas_find_without_debugging(notes):
    """Numbers and places are verified always, those that come from quantum caches too; as are two frees of an object, when they meet in its slab."""
    for kind in ("number", "place"):
        result = notes(f"fault {kind}")
        assert (result.returncode, told(result.errors)) == (-signal.SIGABRT, REPORTS[kind]), result.describe()
    result = notes("fault twice")
    assert (result.returncode, told(result.errors)) == (-signal.SIGABRT, REPORTS["twice"][:1]), result.describe()


@pytest.mark.parametrize("settings", [{}, DEBUG], ids=["none", "debug"])
def test_what_is_left_is_named(notes, settings):
    """Two objects leak, the texts of two notes, a number, and a place; the slab of the quantum cache that the place is from goes back to the disk."""
    result = notes("fault leak", expect=0, **settings)
    assert result.errors.splitlines() == [
        "strata: strata_cache_destroy(): cache note_cache: 2 objects were not freed",
        "umem: vmem_destroy(places): leaked 64 bytes",
        "umem: vmem_destroy(numbers): leaked 1 identifiers",
    ], result.describe()


@pytest.mark.parametrize("settings", [{}, DEBUG], ids=["none", "debug"])
def test_the_callback_decides_where_there_is_no_memory(notes, settings):
    result = notes("fault memory", expect=42, **settings)
    assert (result.text, result.errors) == ("the callback was asked\n", "")
