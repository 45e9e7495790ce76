"""Zones of frames against a naive reference: places, statuses, pins, captures, the partition, free blocks by order counted from scratch."""

import os

import pytest


@pytest.fixture(autouse=True)
def share(monkeypatch):
    """Two fifths of the budget for each test."""
    monkeypatch.setenv("STRATA_MODEL_SECONDS", str(float(os.environ.get("STRATA_MODEL_SECONDS", 3.5)) * 0.4))


def test_frames_agree_with_their_reference(model, explore):
    assert explore(model("frames"), longest=300) > 0


def test_frames_agree_with_their_reference_for_long(model, random_runs):
    assert random_runs(model("frames")) > 0
