"""Debugged memory against a list of what is wrong: every report names the right buffer, place and transaction, while the features change."""

import os

import pytest


@pytest.fixture(autouse=True)
def share(monkeypatch):
    """A fifth of the budget for each test: there are few states, and each run has many of them."""
    monkeypatch.setenv("STRATA_MODEL_SECONDS", str(float(os.environ.get("STRATA_MODEL_SECONDS", 3.5)) * 0.2))


def test_reports_agree_with_their_reference(model, explore):
    assert explore(model("debug"), longest=300) > 0


def test_reports_agree_with_their_reference_for_long(model, random_runs):
    assert random_runs(model("debug")) > 0
