"""Paged blocks against a byte model: contents, limits, what is on the disk after a sync and after an end, with a file that fails and threads that meet."""

import os

import pytest


@pytest.fixture(autouse=True)
def share(monkeypatch):
    """A third of the budget for each test."""
    monkeypatch.setenv("STRATA_MODEL_SECONDS", str(float(os.environ.get("STRATA_MODEL_SECONDS", 3.5)) / 3))


def test_pager_agrees_with_its_model(model, explore):
    assert explore(model("pager")) > 0


def test_pager_agrees_with_its_model_for_long(model, random_runs):
    assert random_runs(model("pager")) > 0


def test_who_waits_for_a_page_that_is_given_up_goes_on(model):
    """The worker waited for a frame whose read the server gave up, which told nobody: so it slept for ever, and who closed the block with it."""
    model("pager").run_random(1795476669333208, 100_000)
