"""All that moves and drops blocks in a zone, against a list of blocks: compaction, handles, reclaim and captures."""

import os

import pytest


@pytest.fixture(autouse=True)
def share(monkeypatch):
    """Two fifths of the budget for each test."""
    monkeypatch.setenv("STRATA_MODEL_SECONDS", str(float(os.environ.get("STRATA_MODEL_SECONDS", 3.5)) * 0.4))


def test_moves_agree_with_their_reference(model, explore):
    assert explore(model("zone_moves"), longest=200) > 0


def test_moves_agree_with_their_reference_for_long(model, random_runs):
    assert random_runs(model("zone_moves")) > 0
