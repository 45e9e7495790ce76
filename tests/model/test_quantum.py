"""Arenas with quantum caches, by their public interface, against a table of who has what: right and wrong frees, near and far integers, failing calls."""


def test_quantum_caches_agree_with_their_reference(model, explore):
    assert explore(model("quantum")) > 0


def test_quantum_caches_agree_with_their_reference_for_long(model, random_runs):
    assert random_runs(model("quantum")) > 0
