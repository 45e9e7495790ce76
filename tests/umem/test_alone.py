"""libstrata-umem.so with nothing beside it: linked with -lstrata-umem alone, preloaded alone, loaded while the program runs. One heap, strata's, serves all of it."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.strata_only

ROOT = Path(__file__).parents[2]

# Mistakes with blocks of malloc and of C++, and blocks that are freed by the other interface, in C.
BLOCKS = """#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
%s
int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    char *volatile block = malloc(100);
    memset(block, 1, strcmp(how, "past") == 0 ? 101 : 100);
    free(block);
    %s
    Dl_info owner;
    static const char *const names[] = {"malloc", "free", "calloc", "realloc", "posix_memalign", "aligned_alloc", "malloc_usable_size", "_Znwm", "_ZdlPv", "_ZdlPvm"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!dladdr(dlsym(RTLD_DEFAULT, names[i]), &owner) || strstr(owner.dli_fname, "libstrata.so") == NULL) printf("%%s is another's\\n", names[i]);
    puts("done");
    return 0;
}
"""
PLAIN = BLOCKS % ("", "")
USER = BLOCKS % ("#include <umem.h>", "free(umem_alloc(50, UMEM_DEFAULT)); umem_free(malloc(50), 50); umem_free(umem_zalloc(50, UMEM_DEFAULT), 50);")
USER_CXX = """
#include <cstdio>
#include <cstring>
#include <new>
#include <umem.h>
int main(int argc, char **argv) {
    char *volatile block = new char[100];
    std::memset(block, 1, argc > 1 ? 101 : 100);
    delete[] block;
    umem_free(umem_alloc(50, UMEM_DEFAULT), 50);
    try {
        char *volatile huge = new char[(std::size_t)1 << 60];
        delete[] huge;
    } catch (const std::bad_alloc &) {
        std::puts("done");
    }
    return 0;
}
"""
LOADER = """
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    char *volatile before = malloc(100);
    void *library = dlopen(argv[argc - 1], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return puts(dlerror()), 1;
    void *(*allocate)(size_t, int) = (void *(*)(size_t, int))dlsym(library, "umem_alloc");
    void (*release)(void *, size_t) = (void (*)(void *, size_t))dlsym(library, "umem_free");
    release(allocate(100, 0), 100);
    char *volatile after = realloc(malloc(100), 100000);
    free(before);
    free(after);
    puts("done");
    return 0;
}
"""


@pytest.fixture
def build(strata_build, tmp_path):
    """Compiles a program that is linked to libstrata-umem.so and names no other library of strata."""

    def compile_alone(compiler, source, *flags):
        program = tmp_path / "alone"
        language = "c++" if "+" in compiler else "c"
        # libstrata.so lies beside libstrata-umem.so, and the linker may look there for what that needs.
        subprocess.run([compiler, "-O1", "-fno-builtin", "-Wall", "-Werror", "-x", language, "-", "-x", "none", "-o", program, f"-I{ROOT}/include", *flags],
                       input=source.encode(), check=True)
        needed = subprocess.run(["readelf", "-dW", program], capture_output=True, text=True, check=True).stdout
        assert "libstrata.so" not in needed and ("libstrata-umem.so" in needed) == bool(flags), needed
        return program

    return compile_alone


@pytest.fixture
def alone(strata_build):
    return [f"-L{strata_build}", "-Wl,--no-copy-dt-needed-entries", f"-Wl,-rpath-link,{strata_build}", "-lstrata-umem", f"-Wl,-rpath,{strata_build}"]


def found_past_the_end(result, cache):
    assert result.returncode == -signal.SIGABRT and f"written after its end (cache {cache})" in result.errors, result.describe()


@pytest.mark.parametrize("compiler, source", [("cc", USER), ("c++", USER_CXX)], ids=["c", "c++"])
def test_a_program_linked_with_it_alone(strata, build, alone, compiler, source):
    program = build(compiler, source, *alone)
    result = strata.run([program], preload=False)  # proves that strata's malloc served it
    assert result.text == "done\n", result.describe()
    assert strata.run([program], preload=False, prove=False, env={"UMEM_DEBUG": "default"}).text == "done\n"
    found_past_the_end(strata.run([program, "past"], preload=False, prove=False, quiet=False, expect=None, env={"UMEM_DEBUG": "default"}), "malloc-112")


def test_a_program_that_has_it_alone_preloaded(strata, build, strata_build):
    program = build("cc", PLAIN)
    preloaded = {"LD_PRELOAD": str(strata_build / "libstrata-umem.so")}
    assert strata.run([program], env=preloaded).text == "done\n"
    assert strata.run([program], env={**preloaded, "UMEM_DEBUG": "default"}, prove=False).text == "done\n"
    found_past_the_end(strata.run([program, "past"], env={**preloaded, "UMEM_DEBUG": "default"}, prove=False, quiet=False, expect=None), "malloc-112")


def test_programs_of_the_system_run_with_it_preloaded(strata, strata_build):
    preloaded = {"LD_PRELOAD": str(strata_build / "libstrata-umem.so"), "UMEM_DEBUG": "guards"}
    result = strata.run(["sh", "-c", "seq 1000 | sort -n | awk '{ s += $1 } END { print s }'"], env=preloaded, prove=False)
    assert result.text == "500500\n" and len(result.all_stats) >= 3, result.describe()


def test_loaded_by_a_running_program_it_leaves_its_malloc(strata, build, strata_build):
    program = build("cc", LOADER)
    result = strata.run([program, strata_build / "libstrata-umem.so"], preload=False, prove=False)
    assert result.text == "done\n", result.describe()


def test_it_serves_the_heap_once(strata, build, alone):
    """Preloaded and linked, with libstrata.so beside it or not, it is one heap: a block goes back by either interface."""
    program = build("cc", USER, *alone)
    for preloaded in ("libstrata-umem.so", "libstrata.so", "libstrata-umem.so libstrata.so"):
        folder = os.fspath(alone[0][2:])
        environment = {"LD_PRELOAD": " ".join(f"{folder}/{name}" for name in preloaded.split())}
        result = strata.run([program], env=environment)
        assert result.text == "done\n" and len(result.all_stats) == 1, result.describe()
