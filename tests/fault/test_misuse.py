"""Misuse of the malloc family: one process a case, ended by SIGABRT with one line that says what, where, and the cache."""

import re
import signal

import pytest

pytestmark = pytest.mark.strata_only

FOREIGN = r"{at}: not a pointer of this heap"
INSIDE = r"{at}: not the start of an object \(cache malloc-{object}\)"
TWICE = r"{at}: double free \(cache malloc-{object}\)"
NO_BLOCK = r"{at}: not an allocated block \(double free, or never allocated by malloc\)"
NO_CACHING = "magazine_max:0"


def within(offset):
    """What is said of an address that is so many bytes inside a large block."""
    return rf"{{at}}: not the start of a block \((?P<offset>{offset}) bytes inside the block at (?P<start>0x[0-9a-f]+)\)"


# case, the function that the line names, what it says, options
CASES = [
    ("free stack", "free", FOREIGN, ""),
    ("free static", "free", FOREIGN, ""),
    ("free mapping", "free", FOREIGN, ""),
    ("free low", "free", FOREIGN, ""),
    ("free high", "free", FOREIGN, ""),
    ("free_sized stack", "free_sized", FOREIGN, ""),
    ("free_aligned_sized stack", "free_aligned_sized", FOREIGN, ""),
    ("delete stack", r"(free|operator delete)", FOREIGN, ""),
    ("delete sized stack", r"(free|free_sized|operator delete\[\]|operator delete)", FOREIGN, ""),
    ("realloc stack", "realloc", FOREIGN, ""),
    ("realloc mapping", "realloc", FOREIGN, ""),
    ("measure stack", "malloc_usable_size", FOREIGN, ""),
    ("free small+1", "free", INSIDE, ""),
    ("free small+8", "free", INSIDE, ""),
    ("free small+16", "free", INSIDE, ""),
    ("free small+16", "free", INSIDE, NO_CACHING),
    ("free middle+16", "free", INSIDE, ""),
    ("realloc small+8", "realloc", INSIDE, ""),
    ("realloc small+16", "realloc", INSIDE, ""),
    ("measure small+8", "malloc_usable_size", INSIDE, ""),
    ("free large+1", "free", within(1), ""),
    ("free large+16", "free", within(16), ""),
    ("free large+page", "free", within(4096), ""),
    ("free huge+2M", "free", within(2 << 20), ""),
    ("free huge+page", "free", within(3 * 4096), ""),
    ("realloc large+page", "realloc", within(4096), ""),
    ("measure large+page", "malloc_usable_size", within(4096), ""),
    ("twice small", "free", TWICE, ""),
    ("twice middle", "free", TWICE, ""),
    ("twice small, two threads", "free", TWICE, ""),
    ("twice small, at once", "free", TWICE, NO_CACHING),
    ("twice large", "free", NO_BLOCK, ""),
    ("twice huge", "free", NO_BLOCK, ""),
    ("realloc large after free", "realloc", NO_BLOCK, ""),
    ("free large after it moved", "free", NO_BLOCK, "background:off"),  # a thread that starts as the block grows may get its memory
]


def assert_one_line(result, function, wording):
    """The process has ended by SIGABRT; on stderr is exactly the line, on stdout nothing after the announcement."""
    assert result.returncode == -signal.SIGABRT, result.describe()
    address, usable = result.text.splitlines()[0].split()
    # A cache is named after the size of its objects, which is the usable size of each.
    line = f"strata: {function}\\(\\): " + wording.format(at=address, object=usable)
    match = re.fullmatch(line + "\n", result.errors)
    assert match, f"{result.errors!r} is not {line!r}"
    if (start := match.groupdict().get("start")) is not None:
        assert int(start, 16) + int(match["offset"]) == int(address, 16), result.errors


@pytest.mark.parametrize("strata", ["rseq", "no-rseq"], indirect=True)
@pytest.mark.parametrize(("case", "function", "wording", "conf"), [pytest.param(*case, id=f"{case[0]} {case[3]}".strip()) for case in CASES])
def test_case(strata, helper, case, function, wording, conf):
    result = strata.run([helper("fault/misuse"), case], conf=conf, expect=None, prove=False, quiet=False)
    assert_one_line(result, function, wording)
    assert len(result.text.splitlines()) == 1, result.describe()


@pytest.mark.parametrize(("case", "wording"), [("free foreign, reported", FOREIGN), ("twice small, reported", TWICE)], ids=["foreign", "twice"])
def test_a_handler_of_the_abort_may_allocate(strata, helper, case, wording):
    """Crash reporters do; the line is out by then, and no lock is held that they need."""
    result = strata.run([helper("fault/misuse"), case], expect=None, prove=False, quiet=False)
    assert_one_line(result, "free", wording)
    assert result.text.splitlines()[1:] == ["reported"]


@pytest.mark.parametrize("case", ["free stack", "twice small"])
def test_statistics_are_not_printed_on_the_way_out(strata, helper, case):
    result = strata.run([helper("fault/misuse"), case], env={"STRATA_CONF": "stats:table"}, expect=None, prove=False, quiet=False)
    assert result.returncode == -signal.SIGABRT
    assert len(result.errors.splitlines()) == 1, result.describe()
