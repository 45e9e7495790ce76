"""The malloc family against a list of blocks: places, contents, errors, with failing platform calls, limits and pages of all sizes."""

import os

import pytest


@pytest.fixture(autouse=True)
def share(monkeypatch):
    """Two fifths of the budget for each test, as for page/ and slab/."""
    monkeypatch.setenv("STRATA_MODEL_SECONDS", str(float(os.environ.get("STRATA_MODEL_SECONDS", 3.5)) * 0.4))


def test_api_agrees_with_its_reference(model, explore):
    assert explore(model("api"), longest=300) > 0


def test_api_agrees_with_its_reference_for_long(model, random_runs):
    assert random_runs(model("api")) > 0
