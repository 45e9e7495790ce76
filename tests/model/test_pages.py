"""Blocks of pages against lists of their pages: contents, zeros, errors, batches, with failing platform calls, few mappings and pages of all sizes."""

import os

import pytest


@pytest.fixture(autouse=True)
def share(monkeypatch):
    """Two fifths of the budget for each test, as for the other tests of the public interface."""
    monkeypatch.setenv("STRATA_MODEL_SECONDS", str(float(os.environ.get("STRATA_MODEL_SECONDS", 3.5)) * 0.4))


def test_pages_agree_with_their_reference(model, explore):
    assert explore(model("pages")) > 0


def test_pages_agree_with_their_reference_for_long(model, random_runs):
    assert random_runs(model("pages")) > 0
