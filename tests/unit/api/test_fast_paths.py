"""Protects the comparison of the fast paths' machine code with its golden file (tools/fast_paths.py): what is longer or other is seen."""
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / f"tests/golden/fast_paths.{platform.machine()}.txt"


def compare(golden: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "tools/fast_paths.py", os.environ["STRATA_BUILD"], "--golden", golden]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize(
    "change, expected",
    [
        (lambda text: text.replace("\n 18 dec %ecx", "", 1), "malloc: 43 instructions were 44 now"),
        (lambda text: text.replace(" 18 dec %ecx", " 18 sub $0x1,%ecx", 1), "malloc: 44 instructions were 44 now"),
        (lambda text: re.sub(r"^compiled by .*\n(?s:.*?)\nfree:(?s:.*?)\n\n", "compiled by another\n\nfree:\n  0 ret\n\n", text), "above the golden file's 1"),
    ],
    ids=["one more", "another one", "another compiler"],
)
def test_a_difference_is_seen(tmp_path: Path, change, expected: str) -> None:
    text = GOLDEN.read_text()
    other = tmp_path / "golden.txt"
    other.write_text(change(text))
    assert other.read_text() != text
    result = compare(other)
    assert result.returncode == 1
    assert expected in result.stdout


def test_another_compiler_is_held_to_the_number(tmp_path: Path) -> None:
    other = tmp_path / "golden.txt"
    other.write_text(re.sub("^compiled by .*", "compiled by another", GOLDEN.read_text()))
    result = compare(other)
    assert result.returncode == 0 and "compared by number" in result.stdout
