"""The table of presets in docs/architecture.md: every preset that a person can name, and what `make test` does with it."""

import importlib.util
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def rows():
    """Preset -> what the table says of it."""
    lines = (ROOT / "docs/architecture.md").read_text().splitlines()
    start = lines.index("| preset | what it is for | `make test` |") + 2
    found = {}
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        names, _, checked = [cell.strip() for cell in line.strip("|").split("|")]
        for name in re.findall(r"`([^`]+)`", names):
            assert name not in found, f"{name} has two rows"
            found[name] = checked
    return found


def steps():
    """The names of the steps of `make test`."""
    spec = importlib.util.spec_from_file_location("run_checks", ROOT / "tools/run_checks.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["run_checks"] = module  # its dataclass looks itself up there
    spec.loader.exec_module(module)
    return {step.name for step in module.all_steps()}


def test_the_table_has_every_preset():
    presets = json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]
    assert set(rows()) == {preset["name"] for preset in presets if not preset.get("hidden")}


def test_the_table_says_what_is_checked():
    names = steps()
    expected = {name: ", ".join(word for word, kind in (("builds", "build"), ("ctest", "ctest")) if f"{kind}:{name}" in names) for name in rows()}
    assert rows() == expected
    assert "builds, ctest" in expected.values() and "" in expected.values()
