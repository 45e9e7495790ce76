"""What programs rely on in glibc's malloc family and in the C++ operators. Where glibc can be asked, it has to agree."""

import platform
import re
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

GROUPS = ["zero", "overflow", "alignment", "aligned_functions", "bad_alignment", "errno", "realloc_zero", "usable", "calloc_zero", "sized",
          "stream", "glibc_names"]
RESIZES = [["pairs"], ["growth"], ["walk", "20000"]]
BOTH = pytest.mark.parametrize("strata", ["rseq", "no-rseq"], indirect=True)


@pytest.mark.parametrize("group", GROUPS)
def test_glibc_itself(plain, helper, group):
    """The points that we check are true of glibc, or they would not be its semantics."""
    plain.run([helper("stress/conformance"), group])


@BOTH
@pytest.mark.parametrize("group", GROUPS)
def test_strata(strata, helper, group):
    strata.run([helper("stress/conformance"), group])


@pytest.mark.strata_only
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("conf", ["magazine_max:0,populate_pages:1,thp:never", "populate_pages:512,thp:always,background:on,decay_ms:0"])
def test_with_extreme_options(strata, helper, group, conf):
    strata.run([helper("stress/conformance"), group], conf=conf)


def check_information(result):
    """One well-formed document in the manner of glibc's, and some figures on stderr."""
    root = ElementTree.fromstring(result.text)
    assert root.tag == "malloc" and root.get("version")
    assert any(element.tag == "system" and int(element.get("size")) > 0 for element in root.iter())
    assert len(result.errors.splitlines()) > 2


def test_information_of_glibc_itself(plain, helper):
    check_information(plain.run([helper("stress/conformance"), "information"]))


@BOTH
def test_information(strata, helper):
    check_information(strata.run([helper("stress/conformance"), "information"], quiet=False))


@BOTH
@pytest.mark.parametrize("arguments", RESIZES, ids=lambda arguments: arguments[0])
def test_resize(strata, helper, arguments):
    strata.run([helper("stress/resize"), *arguments])


@pytest.mark.strata_only
@pytest.mark.parametrize("arguments", RESIZES, ids=lambda arguments: arguments[0])
def test_resize_with_extreme_options(strata, helper, arguments):
    strata.run([helper("stress/resize"), *arguments], conf="magazine_max:0,decay_ms:0,populate_pages:1")


@BOTH
@pytest.mark.strata_only
@pytest.mark.parametrize("beside", ["nothing", "forks", "locked"])
@pytest.mark.parametrize("conf", ["", "page_moves:uffd", "grouping:on", "thp:always"])
def test_resize_in_turns(strata, helper, beside, conf):
    """What a block that grows holds goes along by moved pages or by copies, also where the system refuses to move some."""
    strata.run([helper("stress/resize"), "turns", 900000, beside], conf=conf)


def moves_pages():
    """Whether the system moves single pages (userfaultfd, from Linux 6.8 on), and no filter stands in front of it, behind which strata does not ask."""
    version = tuple(int(part) for part in re.match(r"(\d+)\.(\d+)", platform.release()).groups())
    return version >= (6, 8) and re.search(r"^Seccomp:\s*0$", Path("/proc/self/status").read_text(), re.MULTILINE) is not None


@BOTH
@pytest.mark.strata_only
def test_runs_that_grow_take_their_pages_along(strata, helper):
    """Below 256 KiB no page tables move. Without ticks it is the same count each time; six are of idle pages that fill gaps."""
    quiet = "background:off,decay_ms:3600000"
    moves, copies = (strata.run([helper("stress/resize"), "turns", 250000], conf=quiet + way).stats["heap"]["moves"] for way in ("", ",page_moves:copy"))
    assert copies == 0
    assert (moves > 100) == moves_pages()


@pytest.mark.slow
@BOTH
def test_resize_long(strata, helper):
    strata.run([helper("stress/resize"), "walk", 1000000], timeout_s=300)


@pytest.mark.parametrize("group", ["forms", "handler", "failure"])
def test_operators_of_libstdcxx_itself(plain, helper, group):
    plain.run([helper("stress/operators"), group])


@BOTH
@pytest.mark.parametrize("group", ["forms", "handler", "failure"])
def test_operators(strata, helper, group):
    strata.run([helper("stress/operators"), group])


@pytest.mark.strata_only
def test_operators_are_stratas(strata, helper):
    """Every form of the operators and every function of the family resolves to libstrata.so."""
    strata.run([helper("stress/operators"), "where"])


PLUGIN = r"""
#include <cstdlib>
#include <new>
static int calls;
static void handler() { if (++calls == 3) std::set_new_handler(nullptr); }
extern "C" int plugin_works(void) {
    size_t volatile much = (size_t)1 << 60;
    int right = 0;
    std::set_new_handler(handler);
    try { ::operator delete(::operator new(much)); } catch (const std::bad_alloc &) { right += calls == 3; }
    calls = 0;
    std::set_new_handler(handler);
    right += ::operator new(much, std::nothrow) == nullptr && calls == 3;
    try { ::operator delete[](::operator new[](much, std::align_val_t(64)), std::align_val_t(64)); } catch (const std::bad_alloc &) { right++; }
    return right;
}
"""
PLUGIN_HOST = r"""
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv) {
    void *plugin = dlopen(argv[argc - 1], RTLD_NOW | RTLD_LOCAL);
    int (*works)(void) = plugin ? (int (*)(void))dlsym(plugin, "plugin_works") : 0;
    return works ? printf("%d\n", works()) != 2 : 99;
}
"""


@pytest.mark.parametrize("strata", ["rseq", "no-rseq"], indirect=True)
def test_operators_for_a_plugin_of_a_c_program(strata, compile_c, tmp_path):
    """The C++ runtime comes by dlopen(RTLD_LOCAL), after strata: new still calls the handler and throws what the plugin catches."""
    host = compile_c("host", PLUGIN_HOST)
    plugin = tmp_path / "plugin.so"
    subprocess.run(["g++", "-std=c++17", "-O1", "-fPIC", "-shared", "-x", "c++", "-", "-o", plugin], input=PLUGIN.encode(), check=True, timeout=60)
    assert strata.run([host, plugin]).text == "3\n"
