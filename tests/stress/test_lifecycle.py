"""Calls of malloc before strata's own constructor and after its destructor, and programs that are linked to it."""

import subprocess

import pytest

MODES = pytest.mark.parametrize("strata", ["rseq", "no-rseq", "refused"], indirect=True)

STEPS = ["preinit", "constructor", "main", "main end", "atexit", "destructor"]

# A library that nothing depends on but the program: the loader sets it up before strata, and takes it down after.
OUTER = r"""
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static char *kept;
static void say(const char *text) { if (write(1, text, strlen(text)) < 0) abort(); }
__attribute__((constructor)) static void first(void) {
    kept = strdup("kept");
    for (int i = 1; i < 100000; i *= 3) free(malloc((size_t)i));
    say("outer first\n");
}
__attribute__((destructor)) static void last(void) {
    for (int i = 1; i < 100000; i *= 3) free(realloc(calloc(1, (size_t)i), (size_t)i * 2));
    if (strcmp(kept, "kept") != 0) abort();
    free(kept);
    say("outer last\n");
}
int outer_is_here(void) { return 1; }
"""

PROGRAM = r"""
#include <stdlib.h>
int outer_is_here(void);
int main(void) { free(malloc(10)); return outer_is_here() - 1; }
"""


@MODES
def test_before_constructors_and_after_destructors(strata, helper):
    assert strata.run([helper("stress/lifecycle")]).text.splitlines() == STEPS


@MODES
def test_library_that_outlives_strata(strata, compile_c, tmp_path):
    outer = compile_c("libouter.so", OUTER, "-shared", "-fPIC")
    # The program comes by a file too: the compiler reads one source from its input.
    (tmp_path / "program.c").write_text(PROGRAM)
    program = tmp_path / "program"
    subprocess.run(["cc", tmp_path / "program.c", outer, f"-Wl,-rpath,{tmp_path}", "-o", program], check=True, timeout=60)
    assert strata.run([program]).text.splitlines() == ["outer first", "outer last"]


@pytest.mark.strata_only
@pytest.mark.parametrize("name", ["stress/linked_names", "stress/static_names"])
def test_linked_programs(strata, helper, name):
    """Linked to the library or with it inside: malloc is strata's without LD_PRELOAD, and strata_* are the same functions."""
    assert strata.run([helper(name)], preload=False).text == "linked\n"


@pytest.mark.strata_only
def test_c_programs_get_no_cxx_runtime(strata, strata_lib, helper):
    """libstrata.so defines the C++ operators without asking for the C++ library."""
    dynamic = subprocess.run(["readelf", "-d", strata_lib], capture_output=True, text=True, check=True, timeout=60).stdout
    needed = [line for line in dynamic.splitlines() if "(NEEDED)" in line]
    assert needed and not any("libstdc++" in line or "libgcc_s" in line or "libc++" in line for line in needed)
    maps = strata.run(["/bin/cat", "/proc/self/maps"]).text
    assert "libstrata" in maps and "libstdc++" not in maps
    ldd = subprocess.run(["ldd", helper("stress/static_names")], capture_output=True, text=True, check=True, timeout=60).stdout
    assert "libstdc++" not in ldd and "libstrata" not in ldd
