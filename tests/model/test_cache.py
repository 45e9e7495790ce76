"""cache/ against a naive reference: every array, magazine and held object, with drains, ticks, failing platform calls and a full heap."""


def test_cache_agrees_with_its_reference(model, explore):
    assert explore(model("cache")) > 0


def test_cache_agrees_with_its_reference_for_long(model, random_runs):
    assert random_runs(model("cache")) > 0
