"""What a failure shows of a child that said much: the end, and where all of it is. Logs of a hundred thousand lines had hidden what was wrong."""

import re
import sys
from pathlib import Path

import pytest
from logs import LINES_MAX, last_lines

LINES = 5000
TALKS = f"import sys, time; [print(f'line {{i}}') for i in range({LINES})]; sys.stdout.flush(); print('x' * 100000, file=sys.stderr, flush=True); time.sleep(60)"


def test_what_fits_is_shown_as_it_is():
    text = "\n".join(f"line {i}" for i in range(LINES_MAX))
    assert last_lines(text, "short") == text
    assert last_lines(b"", "none") == ""


def test_a_hang_shows_the_end_and_names_the_file(plain):
    with pytest.raises(pytest.fail.Exception) as failure:
        plain.run([sys.executable, "-c", TALKS], timeout_s=1.5)
    shown = str(failure.value)
    assert "did not end within 1.5 s" in shown
    assert f"line {LINES - 1}\n" in shown and f"line {LINES - LINES_MAX}\n" in shown and f"line {LINES - LINES_MAX - 1}\n" not in shown
    assert max(map(len, shown.splitlines())) < 400
    files = [Path(path) for path in re.findall(r"all of them: (\S+)\]", shown)]
    assert [len(path.read_text().splitlines()) for path in files] == [LINES, 1]
    for path in files:
        path.unlink()
