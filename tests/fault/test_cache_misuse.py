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
