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
    "free": r"strata: free\(\): {at}: not an allocated block \(double free, or inside a block\)",
}


@pytest.mark.parametrize("caching", ["", "magazine_max:0"])
@pytest.mark.parametrize("case", CASES)
def test_misuse(strata, helper, case, caching):
    result = strata.run([helper("fault/linked_cache_misuse"), case], conf=caching, preload=False, prove=False, quiet=False, expect=None)
    assert result.returncode == -signal.SIGABRT, result.describe()
    (address,) = result.text.splitlines()
    assert re.fullmatch(CASES[case].format(at=address), result.errors.rstrip("\n")), result.describe()


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
