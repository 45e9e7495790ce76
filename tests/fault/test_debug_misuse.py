"""Misuse of memory under debugging: one process a case, ended by a report that begins with one line, or by the fault itself at a firewall."""

import re
import signal

import pytest

pytestmark = pytest.mark.strata_only

END = r"strata: the process ends here, because of the error above \(debug_error:continue goes on\)"
FRAMES = r"(strata:       \S+\+0x[0-9a-f]+\n)+"
ALLOCATED = r"strata:     allocated by thread \d+, 0\.\d{6} s before:\n" + FRAMES
FREED = r"strata:     freed by thread \d+, 0\.\d{6} s before:\n" + FRAMES
CONTENTS = r"(strata:     contents when it was (freed|allocated):( [0-9a-f]{2})+( \.\.\.)?\n)*"


def report(function, at, what, cache, size, state, damage, transactions):
    return (rf"strata: {function}\(\): {at}: {what} \(cache {cache}\)\n"
            rf"strata:   buffer BUFFER of {size} bytes, {state}{damage}\n" + transactions + CONTENTS + END + "\n")


def damage(offset, expected, found="41"):
    return rf": at offset {offset}, expected 0x{expected}, found 0x{found}"


GUARDS = {
    "over": report("free", "BUFFER", "written after its end", "malloc-64", 50, "in use", damage(50, "bb"), ALLOCATED),
    "under": report("free", "BUFFER", "written in front of it", "malloc-64", 50, "in use", damage(-1, "fe"), ALLOCATED),
    "after-free": report("malloc", "BUFFER", "written after it was freed", "malloc-64", 50, "not in use", damage(49, "be"), FREED + ALLOCATED),
    "after-free-verify": report("strata_debug_verify", "BUFFER", "written after it was freed", "malloc-64", 50, "not in use", damage(49, "be"),
                                FREED + ALLOCATED),
    "twice": report("free", "BUFFER", "double free", "malloc-64", 50, "not in use", "", FREED + ALLOCATED),
    "size": report("strata_kmem_free", "BUFFER", "size is 51, but this is a debugged block of 50 bytes", "malloc-64", 50, "in use", "", ALLOCATED),
    "size-sized": report("free_sized", "BUFFER", "size is 49, but this is a debugged block of 50 bytes", "malloc-64", 50, "in use", "", ALLOCATED),
    "inside": report("free", "TOUCHED", "not the start of a buffer", "malloc-64", 50, "in use", "", ALLOCATED),
    "cache-over": report("strata_cache_free", "BUFFER", "written after its end", "letters", 100, "in use", damage(100, "bb"), ALLOCATED),
    "cache-after-free": report("strata_cache_alloc", "BUFFER", "written after it was freed", "letters", 100, "not in use", damage(0, "ef"),
                               FREED + ALLOCATED),
    "cache-twice": report("strata_cache_free", "BUFFER", "double free", "letters", 100, "not in use", "", FREED + ALLOCATED),
    "cache-other": report("strata_cache_free", "BUFFER", "an object of another cache than was said", "parcels", 100, "in use", "", ALLOCATED),
    "cache-malloc": report("free", "BUFFER", "an object of a cache, which strata_cache_free takes back", "letters", 100, "in use", "", ALLOCATED),
}


def run(strata, helper, case, conf):
    return strata.run([helper("fault/linked_debug_misuse"), case], conf=conf, preload=False, prove=False, quiet=False, expect=None)


@pytest.mark.parametrize("mode", ["", ",rseq:off", ",magazine_max:0"])
@pytest.mark.parametrize("case", GUARDS)
def test_guards(strata, helper, case, mode):
    result = run(strata, helper, case, "debug:default" + mode)
    assert result.returncode == -signal.SIGABRT, result.describe()
    buffer, touched = result.text.splitlines()
    assert re.fullmatch(GUARDS[case].replace("BUFFER", buffer).replace("TOUCHED", touched), result.errors), result.describe()


@pytest.mark.parametrize("case", ["over-page", "read-page", "after-free-read", "after-free"])
def test_firewall(strata, helper, case):
    """The access itself is the fault, at its instruction: nothing is written by strata."""
    result = run(strata, helper, case, "debug:firewall")
    assert (result.returncode, result.errors) == (-signal.SIGSEGV, ""), result.describe()
    assert len(result.text.splitlines()) == 2


@pytest.mark.parametrize("case", ["over", "under", "size", "size-sized", "after-free", "after-free-verify", "cache-over"])
def test_the_process_can_go_on(strata, helper, case):
    result = run(strata, helper, case, "debug:guards,debug_error:continue")
    assert result.returncode == 0 and result.text.endswith("survived\n"), result.describe()
    first = GUARDS[case].split(r"\n")[0].replace("BUFFER", result.text.splitlines()[0])
    assert re.match(first, result.errors) and len(re.findall(r"^strata: \S", result.errors, re.M)) == 1, result.describe()


def test_without_misuse_nothing_is_said(strata, helper):
    for conf in ["debug:default+verify=1", "debug:firewall+guards+audit=64+frames=32+contents=4096", "debug:default,debug_log:transaction+fail"]:
        result = run(strata, helper, "none", conf)
        assert (result.returncode, result.errors) == (0, ""), result.describe()


def test_slack_under_a_firewall(strata, helper):
    """What alignment leaves in front of the page is for guards."""
    result = run(strata, helper, "over", "debug:firewall+guards")
    assert result.returncode == -signal.SIGABRT
    assert re.match(r"strata: free\(\): 0x[0-9a-f]+: written after its end \(cache malloc-64\)\n.*at offset 50, expected 0xbb", result.errors)
