"""Programs that replace some of what strata defines, and rely on the rest to come to theirs: operators (ISO C++, [new.delete]), realloc and free. And
libraries in front of strata's that wrap its malloc."""

import subprocess
from pathlib import Path

import pytest

BOTH = pytest.mark.parametrize("strata", ["rseq", "no-rseq"], indirect=True)

SOURCE = Path(__file__).with_name("replaced.cpp")

# All that Firefox has of the family, and no reallocarray: a heap of its own, where addresses of any other one would end it.
OWN_MALLOC = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
extern void *reallocarray(void *, size_t, size_t);
static char heap[1 << 24] __attribute__((aligned(64)));
static size_t used;
static void check(void *p) { if ((char *)p < heap || (char *)p >= heap + used) { write(2, "a foreign block\n", 16); abort(); } }
void *malloc(size_t bytes) {
    size_t at = __atomic_fetch_add(&used, (bytes + 31) / 16 * 16, __ATOMIC_RELAXED);
    if (at + bytes + 16 > sizeof heap) abort();
    memcpy(heap + at, &bytes, sizeof bytes);
    return heap + at + 16;
}
void free(void *p) { if (p != NULL) check(p); }
void *calloc(size_t count, size_t bytes) { return malloc(count * bytes); }
void *realloc(void *p, size_t bytes) {
    void *fresh = malloc(bytes);
    if (p == NULL) return fresh;
    check(p);
    size_t old;
    memcpy(&old, (char *)p - 16, sizeof old);
    return memcpy(fresh, p, old < bytes ? old : bytes);
}
int main(void) {
    int *numbers = malloc(8 * sizeof *numbers);
    for (int i = 0; i < 8; i++) numbers[i] = i;
    for (size_t count = 9; count < 400; count += 31) numbers = reallocarray(numbers, count, sizeof *numbers);
    for (int i = 0; i < 8; i++) if (numbers[i] != i) return 1;
    errno = 0;
    volatile size_t much = SIZE_MAX / 2;
    int right = reallocarray(NULL, much, 3) == NULL && errno == ENOMEM;
    free(numbers);
    void (*sized)(void *, size_t) = (void (*)(void *, size_t))dlsym(RTLD_DEFAULT, "free_sized"); /* C23: not every C library has it */
    void (*aligned_sized)(void *, size_t, size_t) = (void (*)(void *, size_t, size_t))dlsym(RTLD_DEFAULT, "free_aligned_sized");
    if (sized != NULL) sized(malloc(100), 100), sized(NULL, 100);
    if (aligned_sized != NULL) aligned_sized(malloc(100), 16, 100);
    char *text = strdup("a text");
    free(text);
    printf("own: %d, strata: %d\n", right, dlsym(RTLD_DEFAULT, "strata_malloc") != NULL);
    return 0;
}
"""

FORMS = {
    "one": ["ONE"],
    "array": ["ARRAY"],
    "aligned": ["ALIGNED"],
    "aligned-array": ["ALIGNED_ARRAY"],
    "all": ["ONE", "ARRAY", "ALIGNED", "ALIGNED_ARRAY"],
    "none": [],
}
# Not position-independent: addresses of functions that the program takes are places of its own.
KINDS = {"pie": [], "fixed": ["-no-pie", "-fno-pie"]}


def compile_cxx(output, *arguments):
    flags = ["-std=c++17", "-O1", "-fno-builtin", "-Wno-mismatched-new-delete"]
    subprocess.run(["g++", *flags, "-o", output, SOURCE, *arguments], check=True, timeout=60)
    return output


@BOTH
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("forms", FORMS)
def test_replaced_operators(plain, strata, tmp_path, forms, kind):
    """Whatever form is called, those of the program are, as often as with the C++ runtime alone."""
    program = compile_cxx(tmp_path / "operators", *(f"-D{form}" for form in FORMS[forms]), *KINDS[kind])
    expected = plain.run([program]).text
    assert "usual:" in expected and strata.run([program]).text == expected


@BOTH
def test_own_malloc(plain, strata, compile_c):
    program = compile_c("own", OWN_MALLOC)
    assert plain.run([program]).text == "own: 1, strata: 0\n"
    assert strata.run([program], conf="verify:off", prove=False).text == "own: 1, strata: 1\n"


# As libmemusage.so does: a header in front of each block.
WRAPPER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
enum { HEADER = 16 };
void *malloc(size_t bytes) { char *p = NEXT(malloc)(bytes + HEADER); return p != NULL ? p + HEADER : NULL; }
void free(void *p) { if (p != NULL) NEXT(free)((char *)p - HEADER); }
void *calloc(size_t count, size_t bytes) { void *p = malloc(count * bytes); return p != NULL ? memset(p, 0, count * bytes) : NULL; }
void *realloc(void *p, size_t bytes) { char *q = NEXT(realloc)(p != NULL ? (char *)p - HEADER : NULL, bytes + HEADER); return q != NULL ? q + HEADER : NULL; }
"""
WRAPPED = r"""
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
int main(void) {
    for (int i = 0; i < 1000; i++) free(malloc(100));
    malloc_trim(0); /* all that is in arrays goes to the slabs, which know where an object begins */
    return puts("well") < 0;
}
"""


@BOTH
def test_verify_behind_a_wrapper(strata, compile_c):
    """What it asks for as a proof it gives back the way that it came."""
    wrapper, program = compile_c("wrapper.so", WRAPPER, "-shared", "-fPIC"), compile_c("wrapped", WRAPPED)
    assert strata.run([program], conf="verify:on", env={"LD_PRELOAD": f"{wrapper}:{strata.library}"}).text == "well\n"
