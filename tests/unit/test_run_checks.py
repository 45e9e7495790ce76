"""What runs the checks: a step that could not even begin has failed, and so have those that need it."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def checks(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("run_checks", ROOT / "tools/run_checks.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "run_checks", module)  # its dataclass looks itself up there
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "LOGS", tmp_path / "logs")
    return module


@pytest.mark.parametrize("logs", [True, False])
def test_a_step_that_cannot_be_started_has_failed(checks, logs):
    if logs:
        checks.LOGS.mkdir()
    absent, sound = checks.Step("absent", ["/no/such/command"], "well"), checks.Step("sound", ["echo", "well"], "well")
    needy = checks.Step("needy", ["echo", "well"], "well", ["absent"])
    checks.Scheduler([absent, needy, sound]).work()
    assert "No such file" in absent.failure and "a step that it needs has failed" in needy.failure
    assert (sound.failure == "") == logs
