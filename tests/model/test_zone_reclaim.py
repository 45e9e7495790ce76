"""Reclaim in zones against two plain lists: which block goes next, whether it is dirty, and what stays."""

import os

import pytest


@pytest.fixture(autouse=True)
def share(monkeypatch):
    """Two fifths of the budget for each test."""
    monkeypatch.setenv("STRATA_MODEL_SECONDS", str(float(os.environ.get("STRATA_MODEL_SECONDS", 3.5)) * 0.4))


def test_reclaim_agrees_with_its_reference(model, explore):
    assert explore(model("zone_reclaim"), longest=200) > 0


def test_reclaim_agrees_with_its_reference_for_long(model, random_runs):
    assert random_runs(model("zone_reclaim")) > 0
