"""slab/ against a naive reference: objects, places, contents and counts, with failing platform calls and pages of all sizes."""

import os

import pytest


@pytest.fixture(autouse=True)
def share(monkeypatch):
    """Half of the budget for each test: the two of page/ and the two of slab/ take as long as any two."""
    monkeypatch.setenv("STRATA_MODEL_SECONDS", str(float(os.environ.get("STRATA_MODEL_SECONDS", 10)) / 2))


def test_slab_agrees_with_its_reference(model, explore):
    assert explore(model("slab"), longest=300) > 0


def test_slab_agrees_with_its_reference_for_long(model, random_runs):
    assert random_runs(model("slab")) > 0
