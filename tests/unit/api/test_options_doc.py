"""docs/options.md is what tools/gen_options.py makes of src/api/options.def, and the generator refuses what it doesn't understand."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def tree(tmp_path):
    """A copy of the three files, to be damaged."""
    for name in ("tools/gen_options.py", "src/api/options.def", "docs/options.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    return tmp_path


def generate(root, *arguments):
    return subprocess.run([sys.executable, root / "tools/gen_options.py", *arguments], capture_output=True, text=True, timeout=60)


def test_page_is_up_to_date():
    result = generate(ROOT, "--check")
    assert (result.returncode, result.stderr) == (0, "")


def test_every_option_has_a_row():
    definition = (ROOT / "src/api/options.def").read_text()
    page = (ROOT / "docs/options.md").read_text()
    starts = ("OPTION_CHOICE(", "OPTION_NUMBER(", "OPTION_SIZE(", "OPTION_TEXT(", "OPTION_FILE(")
    keys = [line.split("(")[1].split(",")[0] for line in definition.splitlines() if line.startswith(starts)]
    assert len(keys) >= 12
    assert [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")] == keys


def test_an_edit_of_either_file_is_seen(tree):
    page, definition = tree / "docs/options.md", tree / "src/api/options.def"
    original = page.read_bytes()
    page.write_bytes(original.replace(b"| 1 to 512 |", b"| 1 to 511 |"))
    assert page.read_bytes() != original
    result = generate(tree, "--check")
    assert result.returncode == 1 and "run tools/gen_options.py" in result.stderr

    assert generate(tree).returncode == 0
    assert page.read_bytes() == original

    definition.write_text(definition.read_text().replace("populate_pages, 16, 1, 512", "populate_pages, 32, 1, 512"))
    assert generate(tree, "--check").returncode == 1
    page.unlink()
    assert generate(tree, "--check").returncode == 1


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('CHOICE(THP, NEVER, "never")', 'CHOICE(RSEQ, NEVER, "never")', "expected THP"),
        ("OPTION_CHOICE_END(thp)", "OPTION_CHOICE_END(rseq)", "another key"),
        ("OPTION_CHOICE(thp, THP, AUTO,", "OPTION_CHOICE(thp, THP, SOMETIMES,", "a default that is no choice"),
        ("OPTION_CHOICE_END(verify)", "", "expected CHOICE"),
        ("populate_pages, 16, 1, 512", "populate_pages, 0, 1, 512", "the default is not allowed"),
        ("OPTION_FILE(stats_file, stats_file,", "OPTION_FILE(stats_file,", "not understood"),
    ],
)
def test_what_is_not_understood_is_refused(tree, old, new, message):
    definition = tree / "src/api/options.def"
    text = definition.read_text()
    assert text.count(old) == 1
    definition.write_text(text.replace(old, new))
    result = generate(tree)
    assert result.returncode == 1 and message in result.stderr
