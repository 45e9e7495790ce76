"""Strata in a process that started without it: a library linked to it, or with it in itself, comes by dlopen(RTLD_LOCAL) and goes by dlclose."""

import shutil
import subprocess
from pathlib import Path

import pytest

MODES = pytest.mark.parametrize("strata", ["rseq", "no-rseq", "refused"], indirect=True)

# Thread-local storage that must be in the static block: dlopen fails once the room for it is used up.
STATIC_TLS = '__thread char room[64] __attribute__((tls_model("initial-exec"))); char *touch(void) { return room; }'
# Ordinary thread-local storage of a library.
DYNAMIC_TLS = "__thread char room[20000]; char *touch(void) { room[19999] = 1; return room; }"


def host(strata, helper, strata_build, turns, libraries=(), conf="", plugin="lib_plugin"):
    """Runs plugin_host with the plugin on the libstrata of the mode, which the loader finds before the one it was linked to."""
    env = {"LD_LIBRARY_PATH": str(strata.library.parent)} if strata.library else {}
    # The process's own malloc is the C library's, so it can't say at exit what strata did: no proof but that the plugin works.
    result = strata.run([helper("stress/plugin_host"), helper(f"stress/{plugin}.so"), turns, *libraries], conf=conf, env=env, preload=False,
                        prove=False)
    return int(result.text.split("=")[1])


@pytest.mark.strata_only
@MODES
def test_plugin_comes_and_goes(strata, helper, strata_build):
    host(strata, helper, strata_build, 60)


@pytest.mark.strata_only
@pytest.mark.parametrize("strata", ["rseq", "no-rseq"], indirect=True)
def test_plugin_with_maintenance_thread(strata, helper, strata_build):
    """A thread that strata started must not be left running in a library that is gone."""
    host(strata, helper, strata_build, 40, conf="background:on,decay_ms:1")


@pytest.mark.strata_only
@pytest.mark.parametrize("conf", ["", "rseq:off", "background:on,decay_ms:1"])
def test_plugin_with_strata_in_itself(strata, helper, strata_build, conf):
    """The kernel, ends of threads, forks and strata's own thread come back to it after dlclose, too."""
    host(strata, helper, strata_build, 40, conf=conf, plugin="lib_static_plugin")


@pytest.mark.strata_only
@MODES
def test_plugin_beside_much_thread_local_storage(strata, helper, strata_build, compile_c, tmp_path):
    """With the static block full to the last library, and a hundred libraries with ordinary thread-local storage loaded."""
    first_static = compile_c("static0.so", STATIC_TLS, "-shared", "-fPIC")
    first_dynamic = compile_c("dynamic0.so", DYNAMIC_TLS, "-shared", "-fPIC")
    libraries = [shutil.copy(first_dynamic, tmp_path / f"dynamic{i}.so") for i in range(1, 100)]
    libraries += [shutil.copy(first_static, tmp_path / f"static{i}.so") for i in range(1, 100)]
    opened = host(strata, helper, strata_build, 5, libraries)
    assert 99 < opened < 198, f"{opened} libraries opened: the static block was not filled"


# In a namespace of dlmopen's there is another C library, whose keys mean the same places of a thread as the program's. Values of the program stay, and
# threads end, whoever has keys there: the stacks are so large that they are unmapped then.
NAMESPACE_HOST = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
enum { KEYS = 4, THREADS = 4, TURNS = 10, STACK_BYTES = 64 << 20 };
static pthread_key_t keys[KEYS];
static void (*work)(void), (*trim)(void);
static void check_values(const int *values) { for (int i = 0; i < KEYS; i++) if (pthread_getspecific(keys[i]) != &values[i]) abort(); }
static void *run(void *unused) {
    int values[KEYS];
    for (int i = 0; i < KEYS; i++) pthread_setspecific(keys[i], &values[i]);
    for (int i = 0; i < 2000; i++) free(malloc(i));
    work();
    check_values(values);
    for (int i = 0; i < KEYS; i++) pthread_setspecific(keys[i], NULL);
    return unused;
}
int main(int argc, char **argv) {
    pthread_t threads[THREADS];
    pthread_attr_t large;
    int values[KEYS];
    int foreign = argc > 2; /* a plugin that has keys itself: then only threads are looked at, and they end */
    for (int i = 0; i < KEYS; i++) pthread_key_create(&keys[i], NULL);
    for (int i = 0; i < KEYS; i++) pthread_setspecific(keys[i], &values[i]);
    void *plugin = dlmopen(LM_ID_NEWLM, argv[1], RTLD_NOW | RTLD_LOCAL);
    if (plugin == NULL) return puts(dlerror());
    work = (void (*)(void))dlsym(plugin, "work"), trim = (void (*)(void))dlsym(plugin, "trim");
    pthread_attr_init(&large), pthread_attr_setstacksize(&large, STACK_BYTES);
    for (int turn = 0; turn < TURNS; turn++) {
        work();
        if (!foreign) check_values(values);
        for (int i = 0; i < THREADS; i++) if (pthread_create(&threads[i], &large, foreign ? (void *(*)(void *))work : run, NULL) != 0) return 2;
        for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
        trim();
    }
    return puts("well") < 0;
}
"""
NAMESPACE_PLUGIN = r"""
#include <malloc.h>
#include <stdlib.h>
void work(void) {
    void *blocks[1000];
    for (int i = 0; i < 5000; i++) {
        if (i >= 1000) free(blocks[i % 1000]);
        blocks[i % 1000] = malloc(i % 777);
    }
    for (int i = 0; i < 1000; i++) free(blocks[i]);
}
void trim(void) { malloc_trim(0); }
"""
NAMESPACE_KEYS = r"""
#include <pthread.h>
#include <stdlib.h>
static pthread_key_t keys[4];
static int made;
void trim(void) {}
void *work(void) {
    if (!made) for (int i = 0; i < 4; i++) pthread_key_create(&keys[i], NULL);
    made = 1;
    for (int i = 0; i < 4; i++) pthread_setspecific(keys[i], &keys[i]);
    return NULL;
}
"""


@pytest.mark.strata_only
@MODES
def test_strata_in_a_namespace_of_its_own(strata, compile_c):
    folder = strata.library.parent
    plugin = compile_c("inside.so", NAMESPACE_PLUGIN, "-shared", "-fPIC", f"-L{folder}", "-Wl,--no-as-needed,-lstrata")
    host = compile_c("host", NAMESPACE_HOST, "-pthread")
    result = strata.run([host, plugin], env={"LD_LIBRARY_PATH": str(folder)}, preload=False, prove=False)
    assert result.text == "well\n" and result.all_stats, result.describe()


@MODES
def test_keys_of_another_namespace(strata, compile_c):
    """Strata's own are in the way of those of a library there."""
    plugin = compile_c("inside.so", NAMESPACE_KEYS, "-shared", "-fPIC")
    assert strata.run([compile_c("host", NAMESPACE_HOST, "-pthread"), plugin, "foreign"]).text == "well\n"


# Of a library that sees no names of others, and by a compiler that makes none unique in the process.
RESOURCE_PLUGIN = r"""
#include <strata/memory_resource.hpp>
extern "C" const std::pmr::memory_resource *plugin_heap() { return strata::heap(); }
extern "C" int plugin_equals(const std::pmr::memory_resource *other) {
    return strata::heap()->is_equal(*other) && !strata::heap()->is_equal(*std::pmr::new_delete_resource());
}
"""
RESOURCE_HOST = r"""
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv) {
    const void *heaps[2];
    int (*equals[2])(const void *);
    for (int i = 0; i < 2; i++) {
        void *plugin = dlopen(argv[argc - 1 - i], RTLD_NOW | RTLD_LOCAL);
        if (plugin == NULL) return fprintf(stderr, "%s\n", dlerror());
        heaps[i] = ((const void *(*)(void))dlsym(plugin, "plugin_heap"))();
        equals[i] = (int (*)(const void *))dlsym(plugin, "plugin_equals");
    }
    return printf("%d %d %d\n", heaps[0] != heaps[1], equals[0](heaps[1]), equals[1](heaps[0])) != 6;
}
"""


@pytest.mark.strata_only
@pytest.mark.parametrize("strata", ["rseq"], indirect=True)
def test_resources_of_plugins_are_equal(strata, compile_c, tmp_path):
    """Each of two libraries may have a strata::heap() of its own; what one allocated the other may free."""
    plugins = [tmp_path / "one.so", tmp_path / "two.so"]
    include = Path(__file__).resolve().parents[2] / "include"
    for plugin in plugins:
        subprocess.run(["clang++-19", "-std=c++17", "-O2", "-fPIC", "-shared", f"-I{include}", "-x", "c++", "-", "-o", plugin],
                       input=RESOURCE_PLUGIN.encode(), check=True, timeout=60)
    assert strata.run([compile_c("host", RESOURCE_HOST), *plugins]).text == "1 1 1\n"
