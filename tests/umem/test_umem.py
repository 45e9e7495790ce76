"""libstrata-umem as a shared library: what ends a program or is told of, one process a case, and the environment variables of libumem."""

import re
import signal

import pytest

pytestmark = pytest.mark.strata_only


@pytest.fixture
def run(strata, helper):
    def run_case(kind, how, program="umem/needs_umem_case", expect=None, conf="", **environment):
        return strata.run([helper(program), kind, how], env=environment, conf=conf, preload=False, prove=False, quiet=False, expect=expect)

    return run_case

#how, exit status, standard error
NOFAIL = [
    ("default", 255, ""),
    ("7", 7, ""),
    ("threads", 7, ""),
    ("nonsense", 255, "umem: the callback of umem_nofail_callback returned 0x2a, which is neither UMEM_CALLBACK_RETRY nor UMEM_CALLBACK_EXIT\n"),
]


@pytest.mark.parametrize("how, status, errors", NOFAIL)
def test_no_memory_for_what_must_not_fail(run, how, status, errors):
    result = run("nofail", how)
    assert (result.returncode, result.text, result.errors) == (status, "exit\n", errors)  # handlers of exit ran, once


def test_no_memory_in_a_handler_of_exit(run):
    result = run("nofail", "again")
    assert result.returncode == -signal.SIGABRT
    assert result.errors == "umem: no memory for an allocation with UMEM_NOFAIL, in a handler of exit\n"


ARENA_ENDS = {
    "size": r"umem: vmem_free\(space\): 0x[0-9a-f]+, size 11: .*size.*",
    "twice": r"umem: vmem_free\(space\): 0x[0-9a-f]+, size 10: nothing allocated starts there",
    "of its importer": r"umem: vmem_free\(space\): 0x[0-9a-f]+, size 10: nothing allocated starts there",
    "foreign": r"umem: vmem_xfree\(ids\): 0x[0-9a-f]+, size 10: nothing allocated starts there",
    "zero": r"umem: vmem_alloc\(space\): size 0: .*argument.*",
    "align": r"umem: vmem_xalloc\(space\): size 10: .*argument.*",
    "phase": r"umem: vmem_xalloc\(space\): size 10: .*argument.*",
    "window": r"umem: vmem_xalloc\(space\): size 10: more than there can ever be between minaddr and maxaddr",
    "window aligned": r"umem: vmem_xalloc\(space\): size 10: more than there can ever be between minaddr and maxaddr",
    "window crossed": r"umem: vmem_xalloc\(space\): size 10: more than there can ever be between minaddr and maxaddr",
    "window panic": r"umem: vmem_xalloc\(space\): size 10: more than there can ever be between minaddr and maxaddr",
    "huge": r"umem: vmem_alloc\(wide\): size 18446744073709551615: more than there can ever be.*",
    "panic": r"umem: vmem_alloc\(space\): size 1000: no free segment fits",
    "destroy twice": r"umem: vmem_destroy\(\): the arena was destroyed",
    "destroyed": r"umem: vmem_alloc\(\): the arena was destroyed",
    "no function": r"umem: vmem_walk\(space\): the function is NULL",
}


NULL_CALLS = ["vmem_alloc", "vmem_xalloc", "vmem_free", "vmem_xfree", "vmem_add", "vmem_contains", "vmem_walk", "vmem_size"]


@pytest.mark.parametrize("function", NULL_CALLS)
def test_no_arena(run, function):
    result = run("null", function)
    assert (result.returncode, result.errors) == (-signal.SIGABRT, f"umem: {function}(): the arena is NULL\n")


CACHE_ENDS = {
    "foreign": r"umem: umem_cache_free\(\): 0x[0-9a-f]+: no object of cache big, or free already",
    "of another": r"umem: umem_cache_free\(\): 0x[0-9a-f]+: no object of cache big, or free already",
    "twice": r"umem: umem_cache_free\(\): 0x[0-9a-f]+: no object of cache big, or free already",
    "alloc destroyed": r"umem: umem_cache_alloc\(\): the cache was destroyed",
    "free destroyed": r"umem: umem_cache_free\(\): the cache was destroyed",
    "destroy destroyed": r"umem: umem_cache_destroy\(\): the cache was destroyed",
    "small alloc destroyed": r"umem: umem_cache_alloc\(\): the cache was destroyed",
    "asked destroy destroyed": r"umem: umem_cache_destroy\(\): the cache was destroyed",
}


ENDS = [(kind, how, text) for kind, ends in (("arena", ARENA_ENDS), ("cache", CACHE_ENDS)) for how, text in ends.items()]


@pytest.mark.parametrize("kind, how, text", ENDS)
def test_misuse_ends_the_process(run, kind, how, text):
    result = run(kind, how)
    assert result.returncode == -signal.SIGABRT and re.fullmatch(text, result.errors.rstrip("\n")), result.describe()


DESTROYED = [(kind, how, text) for kind, how, text in ENDS if text.endswith("was destroyed")]


@pytest.mark.parametrize("settings", ["audit", "contents,audit", "default"])
@pytest.mark.parametrize("kind, how, text", DESTROYED)
def test_use_after_destruction_is_seen_with_debugging(run, kind, how, text, settings):
    """What describes a cache or an arena is a debugged buffer then, and filled with a pattern once it is free."""
    result = run(kind, how, UMEM_DEBUG=settings)
    assert result.returncode == -signal.SIGABRT and re.fullmatch(text, result.errors.rstrip("\n")), result.describe()


@pytest.mark.parametrize("how", ["leak", "leak from arena"])
def test_large_objects_that_were_not_freed(run, how):
    result = run("cache", how, expect=0)
    assert (result.errors, result.text) == ("umem: umem_cache_destroy(): cache big: 2 objects were not freed\n", "went on\n")


def test_a_reclaim_function_that_destroys_its_cache(run):
    result = run("reclaiming", "destroy")
    assert result.returncode == -signal.SIGABRT
    assert result.errors == "umem: umem_cache_destroy(): called by the reclaim function of cache reclaimed\n"


def test_large_objects_are_asked_for(run):
    """Where memory ends, as for all caches; where strata may have no thread for it, nobody is asked."""
    assert run("ask for large", "1000", conf="hard_limit:64M", expect=0).text == "served\nwent on\n"
    assert run("ask for large", "30", conf="hard_limit:64M,background:off", expect=0).text == "nobody was asked\nwent on\n"


def test_a_fork_while_a_reclaim_function_runs(run):
    """In the child nobody is in it."""
    result = run("reclaiming", "fork", expect=0)
    assert (result.errors, result.text) == ("", "went on\n")


@pytest.mark.parametrize("function", ["umem_cache_alloc", "umem_cache_free"])
def test_no_cache(run, function):
    result = run("null", function)
    assert (result.returncode, result.errors) == (-signal.SIGABRT, f"umem: {function}(): the cache is NULL\n")


def test_leaks_are_named(run):
    assert run("arena", "leak", expect=0).errors == "umem: vmem_destroy(space): leaked 10 bytes\numem: vmem_destroy(ids): leaked 3 identifiers\n"
    assert run("leak", "", expect=0).errors == "strata: strata_cache_destroy(): cache letters: 1 objects were not freed\n"
    assert run("arena", "busy", expect=0).errors == "umem: vmem_destroy(space): another arena imports from it: it stays\n"
    assert run("arena", "busy by function", expect=0).errors == "umem: vmem_destroy(space): another arena imports from it: it stays\n"
    # Of quantum caches, by size, beside what is in none: slabs with free objects are no leak.
    assert run("arena", "leak cached", expect=0).errors == "umem: vmem_destroy(cached): leaked 69632 bytes\n"


@pytest.mark.parametrize("how", ["unread", "cancelled"])
def test_a_line_ends_nobody(run, how):
    """Not where nobody reads it, and no thread that is to be cancelled."""
    assert run("told", how, expect=0).text == "destroyed\nwent on\n"


def test_without_settings_nothing_is_debugged(run):
    result = run("debug", "stats", expect=0)
    assert (result.text, result.errors) == ("plain 0 0\nwent on\n", "")
    assert run("debug", "mtbf", expect=0).text == 4 * "failed none none none 0\n" + "went on\n"  # umem_setmtbf needs UMEM_DEBUG


@pytest.mark.parametrize("settings", ["guards", "audit", "default", "audit=5,contents=64", "contents,guards,verbose"])
def test_guards_find_what_is_written_outside(run, settings):
    assert run("debug", "fresh", expect=0, UMEM_DEBUG=settings).text.startswith("fe")  # 0xbaddcafe, the lowest byte first
    for how, name in (("past", "letters"), ("past block", "malloc-112"), ("after", "letters")):
        result = run("debug", how, UMEM_DEBUG=settings)
        assert result.returncode == -signal.SIGABRT and f"cache {name}" in result.errors, result.describe()
        assert ("stack" in result.errors or "+0x" in result.errors) == ("audit" in settings or settings == "default"), result.describe()


@pytest.mark.parametrize("settings", ["audit", "guards", "firewall=16", ""])
@pytest.mark.parametrize("how", ["said", "importer", "plain"])
def test_objects_that_are_no_memory_are_not_touched(run, how, settings):
    result = run("identifiers", how, expect=0, UMEM_DEBUG=settings)
    assert (result.text, result.errors) == ("all\nwent on\n", "")


@pytest.mark.parametrize("which", ["star", "same"])
def test_a_cache_that_debugging_leaves_alone_is_no_name(run, which):
    result = run("spared", which, UMEM_DEBUG="guards")
    assert result.returncode == -signal.SIGABRT and result.errors.count("cache letters") == 1, result.describe()
    assert run("spared", which, expect=0).text == "went on\n"


def test_a_free_by_the_size_of_a_class_that_is_not_debugged(run):
    result = run("wrong size", "debugged")
    assert result.returncode == -signal.SIGABRT and "size is 1000, but this is a debugged block of 100 bytes" in result.errors, result.describe()
    assert run("wrong size", "other cache", expect=0).text == "another block\nwent on\n"


def test_an_error_may_be_survived(run):
    result = run("debug", "past", expect=0, UMEM_DEBUG="guards,noabort")
    assert "cache letters" in result.errors and result.text == "went on\n"


def test_a_wrong_size_is_found_at_once(run):
    result = run("debug", "size", UMEM_DEBUG="guards")
    assert result.returncode == -signal.SIGABRT
    said = r"strata: strata_kmem_free\(\): 0x[0-9a-f]+: size is 1000, but this is a debugged block of 100 bytes \(cache malloc-112\)\n"
    assert re.match(said + r"strata:   buffer 0x[0-9a-f]+ of 100 bytes, in use\n", result.errors), result.describe()
    result = run("debug", "size", expect=0, UMEM_DEBUG="guards,noabort")
    assert re.match(said, result.errors) and result.text == "went on\n", result.describe()


def test_a_wrong_size_within_a_class_is_found_too(run):
    for settings in ("guards", "firewall=0"):
        result = run("debug", "size in class", UMEM_DEBUG=settings)
        assert result.returncode == -signal.SIGABRT
        assert "size is 104, but this is a debugged block of 100 bytes" in result.errors, result.describe()
        for how, size in (("size below all of a class", 111), ("size beside a cookie", 96)):
            result = run("debug", how, UMEM_DEBUG=settings)
            assert result.returncode == -signal.SIGABRT, result.describe()
            assert f"size is {size}, but this is a debugged block of 112 bytes" in result.errors, result.describe()
        result = run("debug", "sizes", expect=0, UMEM_DEBUG=settings)
        assert (result.errors, result.text) == ("", "went on\n")


def test_a_firewall_stops_the_write_itself(run):
    """Buffers have pages of their own, outside the heap; frees by size find them there."""
    assert run("debug", "none", expect=0, UMEM_DEBUG="firewall=0").text == "went on\n"
    assert run("debug", "past", UMEM_DEBUG="firewall=64").returncode == -signal.SIGSEGV
    result = run("debug", "size", UMEM_DEBUG="firewall=0")
    assert "strata_kmem_free(): " in result.errors and "size is 1000, but this is a debugged block of 100 bytes" in result.errors, result.describe()


def test_maxverify_switches_nothing_on(run):
    """As there. (Once it checked every buffer of a cache with each transaction: 72 us a pair among 2,000.)"""
    assert run("debug", "stats", expect=0, UMEM_DEBUG="maxverify=64").text == "plain 0 0\nwent on\n"


def test_failures_on_demand(run):
    text = run("debug", "mtbf", expect=0, UMEM_DEBUG="guards").text
    assert text == "failed none none none 0\nfailed all all all 0\nfailed some some some 0\nfailed none none none 0\nwent on\n"


def test_failures_on_demand_are_for_what_may_fail(run):
    assert run("debug", "must", expect=0, UMEM_DEBUG="guards").text == "only what may fail\nwent on\n"


def test_a_cache_for_which_there_is_no_memory(run):
    assert run("debug", "create", expect=0, conf="hard_limit:16M", UMEM_DEBUG="guards").text == "EAGAIN EAGAIN\nwent on\n"


def test_failures_on_demand_are_not_for_the_library_itself(run):
    """Creating a cache or an arena; and what it notes of a large object, which would fail twice as often. Nor for large objects of a cache with
    UMC_NODEBUG."""
    assert run("debug", "spared", expect=0, UMEM_DEBUG="guards").text == "objects a tenth\nwent on\n"


@pytest.mark.parametrize("logging, transaction, fail", [("transaction", 1, 0), ("transaction=16k,fail=1M", 1, 0), ("fail", 0, 0), ("transaction=0", 0, 0)])
def test_logs(run, logging, transaction, fail):
    result = run("debug", "stats", expect=0, UMEM_DEBUG="audit", UMEM_LOGGING=logging)
    assert (result.text, result.errors) == (f"debugged {transaction} {fail}\nwent on\n", "")


@pytest.mark.parametrize("settings", ["", "audit", "default"])
def test_every_failure_is_logged(run, settings):
    """Whatever is debugged: UMEM_DEBUG need not be set for it."""
    failures = ["numbers 5", "numbers 11", f"malloc-large {1 << 62}", f"big {2 << 20}", "letters 96", "letters 96", "went on"]
    assert run("fail", "", expect=0, UMEM_LOGGING="fail", UMEM_DEBUG=settings).text.splitlines() == failures
    assert run("fail", "", expect=0, UMEM_DEBUG=settings).text == "went on\n"


WARNINGS = [
    ({"UMEM_DEBUG": "frob,guards"}, ["umem: UMEM_DEBUG: frob: not known; ignored"]),
    ({"UMEM_DEBUG": "audit=many"}, ["umem: UMEM_DEBUG: audit=many: not a number; 15 is used"]),
    ({"UMEM_DEBUG": "mtbf,firewall,maxverify,guards"}, [f"umem: UMEM_DEBUG: {item}: wants a number; ignored" for item in ("mtbf", "firewall", "maxverify")]),
    ({"UMEM_DEBUG": "mtbf=often"}, ["umem: UMEM_DEBUG: mtbf=often: wants a number; ignored"]),
    ({"UMEM_DEBUG": "maxverify=1k,guards"}, ["umem: UMEM_DEBUG: maxverify=1k: guards check all bytes of a buffer; it has no effect"]),
    ({"UMEM_DEBUG": "guards=2"}, ["umem: UMEM_DEBUG: guards=2: has no value; it is ignored"]),
    ({"UMEM_DEBUG": "guards," + 600 * "x"}, ["umem: UMEM_DEBUG: more than 511 characters; ignored"]),
    ({"UMEM_DEBUG": "audit", "UMEM_LOGGING": "transaction=64q,slab"},
     ["umem: UMEM_LOGGING: transaction=64q: not a size; this log is off", "umem: UMEM_LOGGING: slab: not known; ignored"]),
    ({"UMEM_DEBUG": "audit", "UMEM_LOGGING": "transaction=1"}, ["umem: UMEM_LOGGING: transaction=1: 4096 bytes are used"]),
    ({"UMEM_DEBUG": "audit", "UMEM_LOGGING": "fail=2T"}, ["umem: UMEM_LOGGING: fail=2T: 1048576 bytes are used"]),
    ({"UMEM_DEBUG": "audit", "UMEM_LOGGING": "contents=64k"},
     ["umem: UMEM_LOGGING: contents=64k: contents are kept with each buffer; the size has no effect"]),
    ({"UMEM_DEBUG": "audit", "UMEM_LOGGING": "contents,fail"}, []),
    ({"UMEM_OPTIONS": "backend=mmap,perthread_cache=1M,nomagazines"}, []),
    ({"UMEM_OPTIONS": "backend=sbrk"}, ["umem: UMEM_OPTIONS: backend=sbrk: memory is mapped here"]),
    ({"UMEM_OPTIONS": "backend=disk,backend"},
     ["umem: UMEM_OPTIONS: backend=disk: allowed: mmap, sbrk; ignored", "umem: UMEM_OPTIONS: backend=: allowed: mmap, sbrk; ignored"]),
    ({"UMEM_OPTIONS": "allocator=best"},
     ["umem: UMEM_OPTIONS: allocator=best: there is no heap of one fit here; vmem_create's fits are as asked for"]),
    ({"UMEM_OPTIONS": "allocator=worst"}, ["umem: UMEM_OPTIONS: allocator=worst: allowed: best, first, instant, next; ignored"]),
    ({"UMEM_OPTIONS": "perthread_cache=0"},
     ["umem: UMEM_OPTIONS: perthread_cache=0: caches are by CPU here; STRATA_CONF=magazine_max:0 turns them off"]),
    ({"UMEM_OPTIONS": "perthread_cache=lots"}, ["umem: UMEM_OPTIONS: perthread_cache=lots: not a size; ignored"]),
    ({"UMEM_OPTIONS": "nomagazines=1"}, ["umem: UMEM_OPTIONS: nomagazines=1: has no value; it is ignored"]),
    ({"UMEM_OPTIONS": "concurrency=4"}, ["umem: UMEM_OPTIONS: concurrency: not known; ignored"]),
]


@pytest.mark.parametrize("environment, lines", WARNINGS, ids=[str(n) for n in range(len(WARNINGS))])
def test_what_is_not_understood_is_a_warning(run, environment, lines):
    result = run("debug", "none", expect=0, **environment)
    assert (result.errors.splitlines(), result.text) == (lines, "went on\n")


@pytest.mark.parametrize("options, constructions", [("", 0), ("nomagazines", 5), ("backend=mmap,nomagazines", 5)])
def test_caches_without_magazines(run, options, constructions):
    """With nomagazines nothing is kept constructed, as though each cache had been created with UMC_NOMAGAZINE."""
    assert run("constructions", "5", expect=0, UMEM_OPTIONS=options).text == f"{constructions}\n"


def test_a_program_may_bring_settings(run):
    """_umem_debug_init and _umem_logging_init; the environment wins."""
    assert run("debug", "stats", program="umem/needs_umem_init", expect=0).text == "debugged 1 0\nwent on\n"
    assert run("debug", "stats", program="umem/needs_umem_init", expect=0, UMEM_DEBUG="", UMEM_LOGGING="").text == "plain 0 0\nwent on\n"


def test_its_malloc_is_stratas(strata, helper):
    """As with libumem, the library brings its malloc."""
    result = strata.run([helper("umem/needs_umem_case"), "debug", "none"], preload=False)
    assert result.stats is not None
