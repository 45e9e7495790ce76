"""slab/ against a naive reference: objects, places, contents and counts, with failing platform calls and pages of all sizes."""

import os

import pytest


@pytest.fixture(autouse=True)
def share(monkeypatch):
    """Two fifths of the budget for each test, so that the four of page/ and slab/ stay below 25 s together."""
    monkeypatch.setenv("STRATA_MODEL_SECONDS", str(float(os.environ.get("STRATA_MODEL_SECONDS", 3.5)) * 0.4))


def test_slab_agrees_with_its_reference(model, explore):
    assert explore(model("slab"), longest=300) > 0


def test_slab_agrees_with_its_reference_for_long(model, random_runs):
    assert random_runs(model("slab")) > 0
