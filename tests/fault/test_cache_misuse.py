"""Misuse of object caches: one process a case, ended by SIGABRT with one line that says what, where, and the cache."""

import re
import signal

import pytest

pytestmark = pytest.mark.strata_only

FREE = r"strata: strata_cache_free\(\): "
CASES = {
    "foreign": FREE + r"{at}: not an object of this cache \(cache letters\)",
    "malloc": FREE + r"{at}: not an object of this cache \(cache letters\)",
    "other": FREE + r"{at}: not an object of this cache \(cache letters\)",
    "inside": FREE + r"{at}: not the start of an object \(cache letters\)",
    "twice": FREE + r"{at}: double free \(cache letters\)",
    "null": FREE + r"cache is NULL",
    **{
        f"{case} after destroy": rf"strata: strata_cache_{function}\(\): the cache was destroyed \(cache letters\)"
        for case, function in {
            "alloc": "alloc",
            "zeroed": "alloc",
            "free": "free",
            "batch": "alloc_batch",
            "free batch": "free_batch",
            "reap": "reap",
            "walk": "walk",
            "stats": "stats_get",
            "consolidate": "consolidate",
            "set_move": "set_move",
            "destroy": "destroy",
        }.items()
    },
    **{
        case: rf"strata: strata_cache_{function}\(\): {what}"
        for case, (function, what) in {
            "alloc of null": ("alloc", "cache is NULL"),
            "zeroed of null": ("alloc", "cache is NULL"),
            "free null of null": ("free", "cache is NULL"),
            "batch of null": ("alloc_batch", "cache is NULL"),
            "batch into null": ("alloc_batch", r"objects is NULL, count is 3 \(cache letters\)"),
            "free batch of null": ("free_batch", "cache is NULL"),
            "free batch at null": ("free_batch", r"objects is NULL, count is 3 \(cache letters\)"),
            "first of batch null": ("free_batch", r"objects\[0\] is NULL \(cache letters\)"),
            "within batch null": ("free_batch", r"objects\[17\] is NULL \(cache letters\)"),
            "last of batch null": ("free_batch", r"objects\[63\] is NULL \(cache letters\)"),
            "walk of null": ("walk", "cache is NULL"),
            "walk to null": ("walk", r"visit is NULL \(cache letters\)"),
            "stats of null": ("stats_get", "cache is NULL"),
            "stats into null": ("stats_get", r"stats is NULL \(cache letters\)"),
            "unknown flags": ("alloc", r"flags 0xff00: allowed are sums of 1, 2 and 4 \(cache letters\)"),
            "unknown flag and zero": ("alloc", r"flags 0xa: allowed are sums of 1, 2 and 4 \(cache letters\)"),
        }.items()
    },
    "free": r"strata: free\(\): {at}: not an allocated block \(double free, or never allocated by malloc\)",
}


@pytest.mark.parametrize("caching", ["", "magazine_max:0"])
@pytest.mark.parametrize("case", CASES)
def test_misuse(strata, helper, case, caching):
    result = strata.run([helper("fault/linked_cache_misuse"), case], conf=caching, preload=False, prove=False, quiet=False, expect=None)
    assert result.returncode == -signal.SIGABRT, result.describe()
    (address,) = result.text.splitlines()
    assert re.fullmatch(CASES[case].format(at=address), result.errors.rstrip("\n")), result.describe()


@pytest.mark.parametrize("caching", ["", "magazine_max:0", "debug:default"])
def test_what_is_allowed(strata, helper, caching):
    """No objects need no array, NULL may be freed, and every sum of flags is one."""
    strata.run([helper("fault/linked_cache_misuse"), "allowed"], conf=caching, preload=False, prove=False)


def test_objects_left_behind(strata, helper):
    """Destroying a cache whose objects are not all freed is reported, and the process goes on."""
    result = strata.run([helper("fault/linked_cache_misuse"), "left"], preload=False, quiet=False)
    assert result.errors == "strata: strata_cache_destroy(): cache letters: 2 objects were not freed\n"


CALLBACKS = {
    "destroy in move": ("", r"strata: strata_cache_destroy\(\): called by the move function of the cache \(cache letters\)"),
    "destroy in reclaim": ("hard_limit:8M", r"strata: strata_cache_destroy\(\): called by the reclaim function of the cache \(cache letters\)"),
    "no answer": ("", r"strata: move\(\): the answer is 5; allowed are 0 to 4 \(cache letters\)"),
    "moved and freed": ("", r"strata: move\(\): {at}: moved or not needed, but it had been freed \(cache letters\)"),
    "not needed and freed": ("", r"strata: move\(\): {at}: moved or not needed, but it had been freed \(cache letters\)"),
    "set_move of none": ("", r"strata: strata_cache_set_move\(\): cache is NULL"),
    "consolidate none": ("", r"strata: strata_cache_consolidate\(\): cache is NULL"),
}


@pytest.mark.parametrize("case", CALLBACKS)
def test_mistakes_in_callbacks(strata, helper, case):
    conf, message = CALLBACKS[case]
    result = strata.run([helper("fault/linked_cache_callbacks"), case], conf=conf, preload=False, prove=False, quiet=False, expect=None)
    assert result.returncode == -signal.SIGABRT, result.describe()
    address = "".join(result.text.splitlines()[-1:])
    assert re.fullmatch(message.format(at=address), result.errors.rstrip("\n")), result.describe()
