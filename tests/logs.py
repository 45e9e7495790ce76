"""What failures show of long output: its last lines, and the name of a file that has all of it."""

import os
import tempfile

LINES_MAX = 100
LINE_CHARACTERS_MAX = 240


def shortened(line):
    """The line, or its start and its end."""
    half = LINE_CHARACTERS_MAX // 2
    return line if len(line) <= LINE_CHARACTERS_MAX else f"{line[:half]} [...] {line[-half:]}"


def last_lines(text, name):
    """The last LINES_MAX lines of what was said, as bytes or a string; where that is not all of it, all is in a file, which the first line names."""
    if isinstance(text, bytes):
        text = text.decode(errors="replace")
    lines = text.splitlines()
    last = [shortened(line) for line in lines[-LINES_MAX:]]
    if last == lines:
        return "\n".join(last)
    file, path = tempfile.mkstemp(prefix=f"strata-{name}-", suffix=".txt")
    with os.fdopen(file, "w", errors="replace") as output:
        output.write(text)
    return "\n".join([f"[the end of {len(lines)} lines; all of them: {path}]", *last])
