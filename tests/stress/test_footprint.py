"""What a program pays for the library alone."""

import re
import subprocess
from pathlib import Path

import pytest

PAGE_KIB = 4


def mappings(smaps, name):
    """(permissions, size, resident), in KiB, of the mappings of a file."""
    found = []
    for line in smaps.splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            fields = line.split()
            found.append([fields[1], 0, 0, fields[5] if len(fields) > 5 else ""])
        elif line.startswith("Size:"):
            found[-1][1] = int(line.split()[1])
        elif line.startswith("Rss:"):
            found[-1][2] = int(line.split()[1])
    return [(permissions, size, rss) for permissions, size, rss, path in found if Path(path).name.startswith(name)]


@pytest.mark.strata_only
def test_small_program_maps_what_it_uses(strata):
    """
    The kernel maps 16 pages round each one that is touched. Code that small programs never use lies in windows of its own (cmake/layout.ld), and
    nobody touches the unwinding tables.
    """
    environment = strata.environment()
    del environment["STRATA_CONF"]  # reading options is not of what every program does
    smaps = subprocess.run(["/bin/cat", "/proc/self/smaps"], env=environment, capture_output=True, check=True, text=True).stdout
    found = mappings(smaps, "libstrata.so")
    assert found
    code = [(size, rss) for permissions, size, rss in found if "x" in permissions]
    assert len(code) == 1
    assert 0 < code[0][1] <= code[0][0] - 6 * PAGE_KIB, "all of the code is present, also what cat has no use for"
    assert any(rss == 0 and size >= 5 * PAGE_KIB for permissions, size, rss in found if permissions.startswith("r--")), found
    assert sum(rss for _, _, rss in found) <= 128
