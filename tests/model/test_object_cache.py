"""Object caches against a naive reference: constructors that refuse, moves with every answer, reclaim, failing platform calls, a full heap."""


def test_object_cache_agrees_with_its_reference(model, explore):
    assert explore(model("object_cache")) > 0


def test_object_cache_agrees_with_its_reference_for_long(model, random_runs):
    assert random_runs(model("object_cache")) > 0
