"""Batches against a list of blocks, each element judged as a call of its own: places, contents, errors, counts, with failing platform calls."""

import os

import pytest


@pytest.fixture(autouse=True)
def share(monkeypatch):
    """Two fifths of the budget for each test, as for the malloc family."""
    monkeypatch.setenv("STRATA_MODEL_SECONDS", str(float(os.environ.get("STRATA_MODEL_SECONDS", 3.5)) * 0.4))


def test_batches_agree_with_their_reference(model, explore):
    assert explore(model("batch"), longest=300) > 0


def test_batches_agree_with_their_reference_for_long(model, random_runs):
    assert random_runs(model("batch")) > 0
