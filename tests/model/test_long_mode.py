"""The long mode (make models): every runner has a test in it, and what it is asked for has to be a number."""

import re
from pathlib import Path

import conftest
import pytest

HERE = Path(__file__).parent
RUNNERS = sorted(name for file in HERE.glob("*.c") for name in re.findall(r"^MODEL_EXPORT\((\w+),", file.read_text(), re.M))


def test_there_are_runners():
    assert {"arena", "cache", "object_cache", "pool", "quantum", "debug", "api"} <= set(RUNNERS)


@pytest.mark.parametrize("name", RUNNERS)
def test_every_runner_takes_part(name):
    """By the name of its file, which ONLY= takes, and by that of its test, which -k for_long takes."""
    text = (HERE / f"test_{name}.py").read_text()
    assert re.search(rf'^def test_\w+_for_long\(model, random_runs\):\n    assert random_runs\(model\("{name}"\)\) > 0', text, re.M)


@pytest.mark.parametrize("value", ["many", "0", "-1", "1e7", "10_000_000", "\u00b2", str(1 << 64)])
def test_wrong_numbers_are_refused(monkeypatch, value):
    monkeypatch.setenv("STRATA_MODEL_LONG", value)
    with pytest.raises(pytest.fail.Exception, match=f"^STRATA_MODEL_LONG={value}: allowed is a number"):
        conftest.long_operations()


def test_right_numbers_are_taken(monkeypatch):
    monkeypatch.setenv("STRATA_MODEL_LONG", "10000000")
    assert conftest.long_operations() == 10_000_000
    monkeypatch.delenv("STRATA_MODEL_LONG")
    assert conftest.long_operations() is None
