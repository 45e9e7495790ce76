"""arena/ against a naive reference: every status, address and size, also with failing memory and failing or lying sources."""


def test_arena_agrees_with_its_reference(model, explore):
    assert explore(model("arena")) > 0


def test_arena_agrees_with_its_reference_for_long(model, random_runs):
    assert random_runs(model("arena")) > 0
