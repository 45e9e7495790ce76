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
@pytest.mark.parametrize("case", ["server", "reader", "pressure"])
def test_threads_that_are_refused(strata, helper, case):
    """Two at once want a thread of strata's that the system refuses: none waits for ever, or is told that it has begun; later they are served."""
    assert strata.run([helper("stress/linked_threads_refused"), case], preload=False, prove=False).text == "refused, and served later\n"


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


# Reads the C library's word for "one thread", of which it has a copy therefore, and keeps it at 1 while two threads allocate.
ONE_THREAD_BY_ITS_COPY = r"""
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/single_threaded.h>
enum { THREADS = 2, BLOCKS = 3000, ROUNDS = 60 };
static void *work(void *argument) {
    static unsigned char *blocks[THREADS][BLOCKS];
    unsigned char **mine = blocks[(size_t)argument];
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < BLOCKS; i++) {
            if ((mine[i] = malloc(16 + i % 40 * 8)) == NULL) abort();
            memset(mine[i], (int)(size_t)argument + 1, 16);
        }
        for (size_t i = 0; i < BLOCKS; i++) {
            for (int b = 0; b < 16; b++)
                if (mine[i][b] != (size_t)argument + 1) abort();
            free(mine[i]);
        }
    }
    return NULL;
}
int main(void) {
    pthread_t threads[THREADS];
    if (!__libc_single_threaded) return 3;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    pthread_cancel(pthread_self());
    for (size_t t = 0; t < THREADS; t++)
        if (pthread_create(&threads[t], NULL, work, (void *)t) != 0) return 4;
    if (!__libc_single_threaded) return 5;
    for (size_t t = 0; t < THREADS; t++) pthread_join(threads[t], NULL);
    return 0;
}
"""


def test_a_copy_of_the_word_for_one_thread_is_not_believed(strata, compile_c):
    """Locks leave out atomic instructions in a process with one thread: whether it has is asked of the C library, not of what a program has of it."""
    subprocess.run([compile_c("one_thread_by_its_copy", ONE_THREAD_BY_ITS_COPY)], env=strata.environment(), check=True, timeout=60)
