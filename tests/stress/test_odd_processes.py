"""Processes that do what few do: fork handlers that allocate, limits and locks of their own making, main ending first, files closed, crashes."""

import re
import resource
import signal
import sys
from pathlib import Path

import pytest

BOTH = pytest.mark.parametrize("strata", ["rseq", "no-rseq"], indirect=True)
HOW = pytest.mark.parametrize("how", ["malloc", "calloc", "calloc-again", "realloc", "aligned_alloc"])
MIB = 1 << 20
MIB_KIB = 1024


def figures(result):
    """The name=number pairs that a helper program prints."""
    return {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", result.text)}


# A library whose constructor registers its handlers without a call of malloc, and before strata's: they run while strata holds its locks. It runs
# that early because the library asks the loader for it, too, and of several that ask the one that was loaded last is heard. What the handlers
# allocate outlives the fork.
FORK_HANDLERS = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
enum { KINDS = 6, STEP = 1000 };
static const size_t sizes[KINDS] = {24, 1000, 5000, 40000, 100 << 10, 3 << 20};
static unsigned char *kept[KINDS];
static unsigned prepared, returned;
static void wrong(const char *text) { _exit(write(2, text, strlen(text)) < 0 ? 2 : 3); }
static unsigned char *filled(unsigned char *block, size_t bytes, int kind) {
    if (block == NULL) wrong("a fork handler got no memory\n");
    for (size_t i = 0; i < bytes; i += STEP) block[i] = kind + 1;
    return block;
}
static void check(const unsigned char *block, size_t bytes, int kind) {
    for (size_t i = 0; i < bytes; i += STEP) if (block[i] != kind + 1) wrong("a block of a fork handler has changed\n");
}
static void work(void) {
    for (int kind = 0; kind < KINDS; kind++) {
        unsigned char *block = filled(malloc(sizes[kind]), sizes[kind], kind);
        block = realloc(block, sizes[kind] * 2);
        if (block == NULL) wrong("a fork handler got no memory\n");
        check(block, sizes[kind], kind);
        block = realloc(block, sizes[kind] / 2);
        check(block, sizes[kind] / 2, kind);
        free(block);
    }
}
static void before(void) {
    work();
    for (int kind = 0; kind < KINDS; kind++) kept[kind] = filled(malloc(sizes[kind]), sizes[kind], kind);
    prepared++;
}
static void after(void) {
    for (int kind = 0; kind < KINDS; kind++) {
        check(kept[kind], sizes[kind], kind);
        free(kept[kind]);
    }
    work();
    returned++;
}
__attribute__((constructor)) static void enter(void) { if (pthread_atfork(before, after, after) != 0) wrong("pthread_atfork\n"); }
__attribute__((destructor)) static void leave(void) { dprintf(1, "prepared=%u returned=%u\n", prepared, returned); }
"""


@BOTH
def test_fork_handlers_that_allocate(strata, compile_c, tmp_path):
    """fork_storm, linked to the library; its threads allocate meanwhile."""
    handlers = compile_c("libhandlers.so", FORK_HANDLERS, "-shared", "-fPIC", "-Wl,-z,initfirst")
    source = Path(__file__).with_name("fork_storm.c")
    # The library as an option of the linker: the compiler takes every file for source here.
    storm = compile_c("storm", source.read_text(), f"-I{source.parents[1]}", "-pthread", f"-Wl,--no-as-needed,{handlers}")
    result = figures(strata.run([storm, 200, 3], timeout_s=30))
    assert result["forks"] == result["prepared"] == result["returned"] == 200


@BOTH
@pytest.mark.parametrize("percent", [90, 10])
@pytest.mark.parametrize("which", ["as", "data"])
def test_limits_lowered_below_what_is_in_use(strata, helper, which, percent):
    """Blocks grow, come and go as far as they may, and all is as before once the limit is lifted."""
    strata.run([helper("stress/odd_memory"), "limits", which, percent])


def data_limit(mib):
    """For preexec_fn: RLIMIT_DATA."""

    def limit():
        resource.setrlimit(resource.RLIMIT_DATA, (mib * MIB, mib * MIB))

    return limit


@BOTH
@pytest.mark.parametrize("mib", [6, 20, 45])
def test_programs_with_little_data(strata, mib):
    """The caches belong to threads then, whatever the build: those of all CPUs would take too large a part."""
    lines = b"".join(b"%d %d\n" % (i * 7919 % 100003, i) for i in range(6000))
    python = [sys.executable, "-I", "-S", "-c", "print(sum(len(str(i)) for i in range(20000)))"]
    for argv, data, expected in [
        (["sort", "--parallel=1", "-S", "1M"], lines, b"".join(sorted(lines.splitlines(keepends=True)))),
        (python, None, b"88890\n"),
    ]:
        result = strata.run(argv, env={"LC_ALL": "C"}, input=data, prove=False, preexec_fn=data_limit(mib))
        assert result.out == expected
        if strata.reference is None:
            assert result.stats["heap"]["populated_bytes_total"] > 0


@BOTH
@pytest.mark.parametrize("left", [0, 100, 200, 400])
def test_mappings_used_up_by_the_program(strata, helper, left):
    strata.run([helper("stress/odd_memory"), "mappings", left])


@BOTH
@pytest.mark.parametrize("conf", ["", "background:on"])
@pytest.mark.parametrize("who", ["self", "child"])
def test_main_ends_first(strata, helper, who, conf):
    """A process ends, with 0, when the last of its own threads has ended."""
    strata.run([helper("stress/odd_ends"), "leave", who], conf=conf, timeout_s=5)


@BOTH
def test_all_files_closed_and_own_ones_opened(strata, helper):
    """The program's eventfds under the numbers that strata's files had are neither read nor closed."""
    result = strata.run([helper("stress/odd_ends"), "close"], conf="background:on")
    if strata.reference is None:
        assert figures(result)["closed"] > 0, "strata had no files open: nothing is tested"


# Waits until the maintenance thread has files, and prints the numbers of all but the standard ones and that of page moves.
FILE_NUMBERS = """
import os, time
def numbers():
    found = []
    for name in os.listdir("/proc/self/fd"):
        try: target = os.readlink("/proc/self/fd/" + name)
        except OSError: continue
        if int(name) > 2 and "userfaultfd" not in target: found.append(int(name))
    return sorted(found)
kept = [bytes(1000) for _ in range(100000)]
deadline = time.monotonic() + 20
while (seen := numbers()) != numbers() or not seen:
    assert time.monotonic() < deadline, "strata opened no files: nothing is tested"
    time.sleep(0.05)
print(*seen)
"""


@pytest.mark.strata_only
@BOTH
def test_files_of_strata_leave_a_servers_first_numbers_alone(strata):
    """A table of files that threads share grows beyond 64 entries after a grace period (5 to 20 ms), for which a server's accept would wait."""
    result = strata.run([sys.executable, "-S", "-E", "-c", FILE_NUMBERS], conf="background:on")
    assert all(number >= 128 for number in map(int, result.text.split()))


@pytest.mark.strata_only
@BOTH
def test_own_thread_without_file_numbers(strata, helper):
    """It can't wait on its files any more, and does so without them, instead of trying all the time."""
    result = figures(strata.run([helper("stress/own_thread"), "files"], prove=False, quiet=False))
    assert result["used_ms"] < result["idle_ms"] / 4


@pytest.mark.strata_only
@BOTH
def test_own_thread_is_not_begun_by_a_child_of_vfork(strata, helper):
    """There it would end with that child, and never be begun again."""
    assert figures(strata.run([helper("stress/own_thread"), "vfork"]))["threads"] == 2


@pytest.mark.strata_only
@BOTH
def test_own_thread_is_begun_by_the_child_of_a_fork(strata, helper):
    """Of a process with one thread, as daemons are begun: nothing else has to be put in order there."""
    assert figures(strata.run([helper("stress/own_thread"), "fork"]))["threads"] == 2


@pytest.mark.strata_only
@BOTH
def test_own_thread_is_begun_by_a_process_that_a_child_of_vfork_forks(strata, helper):
    assert figures(strata.run([helper("stress/own_thread"), "vfork-fork"]))["threads"] == 2


@BOTH
def test_a_process_ends_with_its_last_thread_without_proc(strata, helper, tmp_path):
    strata.run([helper("stress/own_thread"), "proc", tmp_path], prove=False, quiet=False, timeout_s=20)


@BOTH
def test_audit_where_the_unwinder_allocates(strata, helper):
    """Under a lock of its own, which that allocation must not want."""
    assert figures(strata.run([helper("stress/own_thread"), "frames"], conf="debug:audit", timeout_s=20))["allocated"] == 100


@pytest.mark.strata_only
@BOTH
def test_a_program_that_locks_itself_in(strata, helper):
    """What caches hold and nobody uses goes back, where the process is ended for any call but those that a malloc is known to need."""
    result = figures(strata.run([helper("stress/locked_in"), "small"], conf="decay_ms:40", prove=False))
    assert result["before"] > 100000, "little was cached: nothing is tested"
    assert result["after"] < result["before"] / 4


@pytest.mark.strata_only
@BOTH
def test_a_large_program_that_locks_itself_in(strata, helper):
    """It has no thread of strata's, and nothing is asked of the system that other mallocs don't ask."""
    strata.run([helper("stress/locked_in"), "large"], conf="decay_ms:40", prove=False)


@pytest.mark.strata_only
@BOTH
@pytest.mark.parametrize("how", ["fork", "trim"])
def test_handlers_of_the_abort(strata, helper, how):
    """Misuse is found while locks are held; a handler that needs them must not wait for them."""
    result = strata.run([helper("stress/odd_ends"), "abort", how], expect=-signal.SIGABRT, prove=False, quiet=False, timeout_s=20)
    assert result.text == "handled\n"
    assert re.fullmatch(r"strata: free\(\): 0x[0-9a-f]+: double free \(cache malloc-64\)\n", result.errors), result.describe()


@pytest.mark.strata_only
@BOTH
def test_a_handler_of_the_abort_that_jumps_out(strata, helper):
    result = strata.run([helper("stress/odd_ends"), "abort", "jump"], prove=False, quiet=False, timeout_s=20)
    assert result.text == "went on\n"
    assert "double free" in result.errors, result.describe()


def meminfo(*names):
    """The sum of these fields of /proc/meminfo in bytes."""
    text = Path("/proc/meminfo").read_text()
    return sum(int(re.search(rf"^{name}:\s+(\d+) kB$", text, re.M)[1]) * 1024 for name in names)


def may_be_had(size):
    """Whether a block of that size that is never touched can be had, by what vm.overcommit_memory promises."""
    mode = int(Path("/proc/sys/vm/overcommit_memory").read_text())
    if mode == 1:
        return True
    if mode == 2:
        return size <= meminfo("CommitLimit") - meminfo("Committed_AS")
    return size <= meminfo("MemTotal", "SwapTotal")


def untouched(strata, helper, how, size):
    """Takes a block that is never touched; it is there or not, and costs next to nothing."""
    result = figures(strata.run([helper("stress/odd_memory"), "untouched", how, size]))
    assert result["given"] == may_be_had(size)
    assert result["peak_kib"] < 24 * MIB_KIB


@BOTH
@HOW
@pytest.mark.parametrize("gib", [4, 16])
def test_large_blocks_that_are_never_touched(strata, helper, how, gib):
    untouched(strata, helper, how, gib << 30)


@BOTH
@HOW
def test_more_than_the_machine_has(strata, helper, how):
    """Where the system refuses what it could never give, so does malloc; where it promises all, malloc does too."""
    untouched(strata, helper, how, 4 * meminfo("MemTotal", "SwapTotal"))


@BOTH
@pytest.mark.parametrize("what", ["block", "all"])
def test_locked_memory_comes_back(strata, helper, what):
    """What was locked and freed does not keep the pages around it either."""
    result = figures(strata.run([helper("stress/odd_memory"), "locked", what], conf="background:off,decay_ms:3600000"))
    assert result["peak_kib"] > result["start_kib"] + 100 * MIB_KIB, "little was taken: nothing is tested"
    assert result["end_kib"] < result["start_kib"] + 3 * MIB_KIB


@BOTH
@pytest.mark.parametrize("right", ["keep", "drop"])
def test_what_is_committed_ahead_is_never_locked(strata, helper, right):
    """A block that grows has address space committed ahead of need only where no mlockall could make that present."""
    result = figures(strata.run([helper("stress/odd_memory"), "ahead", right], quiet=False))
    if result["privileged"]:
        assert result["locked"]
        assert result["more_kib"] < 100 * MIB_KIB  # the heap's usual step, the arrays, the C library
        assert result["data_kib"] < 300 * MIB_KIB
    else:
        assert not result["locked"] and result["more_kib"] == 0
        if strata.reference is None and Path("/proc/sys/vm/overcommit_memory").read_text().strip() != "2":
            assert result["data_kib"] > 1000 * MIB_KIB, "nothing was committed ahead: nothing is tested"
