"""Strata in a process that started without it: a library linked to it comes by dlopen(RTLD_LOCAL) and goes by dlclose."""

import shutil

import pytest

MODES = pytest.mark.parametrize("strata", ["rseq", "no-rseq", "refused"], indirect=True)

# Thread-local storage that must be in the static block: dlopen fails once the room for it is used up.
STATIC_TLS = '__thread char room[64] __attribute__((tls_model("initial-exec"))); char *touch(void) { return room; }'
# Ordinary thread-local storage of a library.
DYNAMIC_TLS = "__thread char room[20000]; char *touch(void) { room[19999] = 1; return room; }"


def host(strata, helper, strata_build, turns, libraries=(), conf=""):
    """Runs plugin_host with the plugin on the libstrata of the mode, which the loader finds before the one it was linked to."""
    env = {"LD_LIBRARY_PATH": str(strata.library.parent)} if strata.library else {}
    # The process's own malloc is the C library's, so it can't say at exit what strata did: no proof but that the plugin works.
    result = strata.run([helper("stress/plugin_host"), helper("stress/lib_plugin.so"), turns, *libraries], conf=conf, env=env, preload=False,
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
@MODES
def test_plugin_beside_much_thread_local_storage(strata, helper, strata_build, compile_c, tmp_path):
    """With the static block full to the last library, and a hundred libraries with ordinary thread-local storage loaded."""
    first_static = compile_c("static0.so", STATIC_TLS, "-shared", "-fPIC")
    first_dynamic = compile_c("dynamic0.so", DYNAMIC_TLS, "-shared", "-fPIC")
    libraries = [shutil.copy(first_dynamic, tmp_path / f"dynamic{i}.so") for i in range(1, 100)]
    libraries += [shutil.copy(first_static, tmp_path / f"static{i}.so") for i in range(1, 100)]
    opened = host(strata, helper, strata_build, 5, libraries)
    assert 99 < opened < 198, f"{opened} libraries opened: the static block was not filled"
