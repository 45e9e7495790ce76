"""Misuse of zones of frames and of handles: one process a case. A status and strata_zone_explain say what was wrong, and nothing is lost."""

import contextlib
import re
import signal
from pathlib import Path

import pytest

pytestmark = pytest.mark.strata_only

NOT_ALLOCATED = "a frame is not allocated"
PINNED = "a frame is pinned, or as often as it can be"
NOT_PINNED = "a frame is not pinned"
MAPPED = "a frame or a page is mapped already, or still"
NOT_MAPPED = "a page shows no frame"
BUSY = "being moved or reclaimed, or in use by others"
BAD = "bad argument"
NO_HANDLE = "not a handle, or freed"
IN_USE = "locked, guarded or pinned"
NOT_HELD = "not held in this way"
TOO_OFTEN = "held too often, or too many handles"
NO_MEMORY = "no memory"
UNSUPPORTED = "not with this backend, or on this system"
NO_HUGE_PAGES = "the system's pool has too few huge pages"

FREE = "frame = {n} (free; must be allocated)"
RUN = "frames = {n} (above 0, and not beyond the end of the zone)"
REQUESTED = "frames = {n} (1 and above, at most those of the zone)"
ALIGNMENT = "align_frames = {n} (0, or a power of two that is at most the zone's frames)"
WINDOW = "bytes = {n} (a multiple of the frame's size, of huge pages 2 MiB, above 0)"
CLOSED = "address = {n:#x} (where a window begins that shows no frames)"
TO_MAP = "address = {n:#x} (pages inside one window that show nothing, for frames that are allocated and in no window)"
TO_UNMAP = "address = {n:#x} (pages inside one window, all of which show frames that are not being moved)"
ORDER = "order = {n} (at most that of a superpage)"
OF_ALLOC = "handle = {n} (freed, or never was one; must be of strata_handle_alloc)"
NOT_IN_USE = "handle = {n} (locked, guarded or pinned; must not be)"
TO_END = "handle = {n} (not held in this way; must be)"
BYTES = "bytes = {n} (above 0, at most those of the zone)"

# case: the status, the function that is blamed, and what it says of the number that the program has told
CASES = {
    "pin free": (NOT_ALLOCATED, "strata_zone_pin", FREE),
    "pin nothing": (BAD, "strata_zone_pin", RUN),
    "pin beyond the end": (BAD, "strata_zone_pin", RUN),
    "pin too often": (PINNED, "strata_zone_pin", "frame = {n} (pinned; must not be, or less often)"),
    "unpin": (NOT_PINNED, "strata_zone_unpin", "frame = {n} (not pinned; must be)"),
    "unpin too often": (NOT_PINNED, "strata_zone_unpin", "frame = {n} (not pinned; must be)"),
    "unpin half": (NOT_PINNED, "strata_zone_unpin", "frame = {n} (not pinned; must be)"),
    "unpin free": (NOT_ALLOCATED, "strata_zone_unpin", FREE),
    "free pinned": (PINNED, "strata_zone_free", "frame = {n} (pinned; must not be, or less often)"),
    "free mapped": (MAPPED, "strata_zone_free", "frame = {n} (in a window; must not be)"),
    "free twice": (NOT_ALLOCATED, "strata_zone_free", FREE),
    "free beyond the block": (NOT_ALLOCATED, "strata_zone_free", FREE),
    "free foreign": (BAD, "strata_zone_free", "frame = {n} (below the number of frames)"),
    "free another zone's": (NOT_ALLOCATED, "strata_zone_free", FREE),
    "free nothing": (BAD, "strata_zone_free", RUN),
    "free what a capture holds": (NOT_ALLOCATED, "strata_zone_free", FREE),
    "discard free": (NOT_ALLOCATED, "strata_zone_discard", FREE),
    "populate free": (NOT_ALLOCATED, "strata_zone_populate", FREE),
    "copy to what is free": (NOT_ALLOCATED, "strata_zone_copy", FREE),
    "copy over itself": (BAD, "strata_zone_copy", "to = {n} (a run that does not overlap the other)"),
    "alloc nothing": (BAD, "strata_zone_alloc", REQUESTED),
    "alloc more than all": (BAD, "strata_zone_alloc", REQUESTED),
    "alloc of no mobility": (BAD, "strata_zone_alloc", "mobility = {n} (0 unmovable, 1 reclaimable, 2 movable)"),
    "alignment of no power of two": (BAD, "strata_zone_alloc_as", ALIGNMENT),
    "alignment above the zone": (BAD, "strata_zone_alloc_as", ALIGNMENT),
    "owner that is none": (BAD, "strata_zone_alloc_as", "owner = {n} (0, or what strata_zone_owner_add gave)"),
    "flags of alloc": (BAD, "strata_zone_alloc_as", "flags = {n} (those of strata_zone_alloc_flags)"),
    "capture across superpages": (BAD, "strata_zone_capture_run",
                                  "at = {n} (inside the zone; of runs above a superpage, where one begins; else inside one)"),
    "capture where it is not aligned": (BAD, "strata_zone_capture_run", "at = {n} (a multiple of align_frames)"),
    "capture of nothing": (BAD, "strata_zone_capture_run", REQUESTED),
    "end of a capture that has ended": (BAD, "strata_zone_capture_end", "capture = {n:#x} (under way: neither had nor given up)"),
    "window of nothing": (BAD, "strata_zone_window_open", WINDOW),
    "window of half a page": (BAD, "strata_zone_window_open", WINDOW),
    "close while it shows frames": (MAPPED, "strata_zone_window_close", CLOSED),
    "close what is no window": (BAD, "strata_zone_window_close", CLOSED),
    "map over a mapped page": (MAPPED, "strata_zone_map", TO_MAP),
    "map a mapped frame": (MAPPED, "strata_zone_map", TO_MAP),
    "map free": (NOT_ALLOCATED, "strata_zone_map", TO_MAP),
    "map beyond the window": (BAD, "strata_zone_map", TO_MAP),
    "map between pages": (BAD, "strata_zone_map", TO_MAP),
    "unmap what is not mapped": (NOT_MAPPED, "strata_zone_unmap", TO_UNMAP),
    "unmap half of what is mapped": (NOT_MAPPED, "strata_zone_unmap", TO_UNMAP),
    "pin at what is pinned too often": (PINNED, "strata_zone_pin_at", "address = {n:#x} (of frames that are pinned less often than can be counted)"),
    "unmap what is no window": (BAD, "strata_zone_unmap", TO_UNMAP),
    "frame at nothing": (NOT_MAPPED, "strata_zone_frame_at", "address = {n:#x} (in a page that shows a frame)"),
    "pin at nothing": (NOT_MAPPED, "strata_zone_pin_at", "address = {n:#x} (in a page that shows a frame which is not being moved)"),
    "partition larger than the zone": (BAD, "strata_zone_partition_resize", "bytes = {n} (at most the zone)"),
    "partition over unmovable frames": (BUSY, "strata_zone_partition_resize", "bytes = {n} (a size without unmovable frames)"),
    "reserve larger than the zone": (BAD, "strata_zone_set_reserve", "bytes = {n} (at most the zone)"),
    "partition of more than can be counted": (BAD, "strata_zone_partition_resize", "bytes = {n} (at most the zone)"),
    "reserve of more than can be counted": (BAD, "strata_zone_set_reserve", "bytes = {n} (at most the zone)"),
    "effort": (BAD, "strata_zone_set_effort", "effort = {n} (those of strata_zone_effort)"),
    "compact by too high an order": (BAD, "strata_zone_compact", ORDER),
    "indices of too high an order": (BAD, "strata_zone_indices_get", "order = {n} (below STRATA_ZONE_ORDERS, 31)"),
    "compactor by too high an order": (BAD, "strata_zone_compactor_start", ORDER),
    "compactor above all": (BAD, "strata_zone_compactor_start", "unusable = {n} (a number above 0, at most 1)"),
    "compactor too often": (BAD, "strata_zone_compactor_start", "interval_ns = {n} (1 ms at least, 2^56 ns at most)"),
    "reclaim by too high an order": (BAD, "strata_zone_reclaim", ORDER),
    "reclaim of nothing": (BAD, "strata_zone_reclaim", "frames = {n} (above 0)"),
    "reclaim of no policy": (BAD, "strata_zone_reclaim_start", "policy = {n} (0 lru, 1 linear, 2 area)"),
    "reclaim up to more than all": (BAD, "strata_zone_reclaim_start", "high_frames = {n} (at most the zone's frames)"),
    "lock a freed handle": (NO_HANDLE, "strata_handle_lock", OF_ALLOC),
    "read a freed handle": (NO_HANDLE, "strata_handle_read", OF_ALLOC),
    "write a freed handle": (NO_HANDLE, "strata_handle_write", OF_ALLOC),
    "free a freed handle": (NO_HANDLE, "strata_handle_free", OF_ALLOC),
    "unlock a freed handle": (NO_HANDLE, "strata_handle_unlock", OF_ALLOC),
    "lock no handle": (NO_HANDLE, "strata_handle_lock", OF_ALLOC),
    "unlock": (NOT_HELD, "strata_handle_unlock", TO_END),
    "unlock twice": (NOT_HELD, "strata_handle_unlock", TO_END),
    "free while locked": (IN_USE, "strata_handle_free", NOT_IN_USE),
    "free while read": (IN_USE, "strata_handle_free", NOT_IN_USE),
    "free while pinned in the zone": (IN_USE, "strata_handle_free", NOT_IN_USE),
    "end of a read that is none": (NOT_HELD, "strata_handle_read_end", TO_END),
    "end of a write that is none": (NOT_HELD, "strata_handle_write_end", TO_END),
    "end of a read for a write": (NOT_HELD, "strata_handle_read_end", TO_END),
    "lock too often": (TOO_OFTEN, "strata_handle_lock", "handle = {n} (held as often as can be counted; must be less often)"),
    "handle of nothing": (BAD, "strata_handle_alloc", BYTES),
    "handle of more than all": (BAD, "strata_handle_alloc", BYTES),
    "more handles than there can be": (BAD, "strata_handles_create", "handles_max = {n} (at most STRATA_HANDLES_MAX, 2^28)"),
    "destroy while locked": (IN_USE, "strata_handles_destroy", NOT_IN_USE),
    "destroy while pinned in the zone": (IN_USE, "strata_handles_destroy", NOT_IN_USE),
    "destroy while mapped": (IN_USE, "strata_handles_destroy", NOT_IN_USE),
}

# Without a number that is wrong: what is said, as a whole.
STATES = {
    "reclaim that was not started": (BAD, "strata_zone_reclaim: reclaim = 0 (started: strata_zone_reclaim_start)"),
    "reclaim started twice": (BUSY, "strata_zone_reclaim_start: reclaim = 1 (not started before)"),
    "capture of what is unmovable": ("no such run of frames is free",
                                     "strata_zone_capture_run: frames = 512 (a range without frames that stay, where the request may have it)"),
    "partition shrunk while full": ("success", "strata_zone_alloc_as: frames = 1 (as many as lie free together where the request may have them)"),
    "destroy with a pinned frame": (PINNED, "strata_zone_destroy: pinned frames = 1 (0)"),
    "destroy while capturing": (BUSY, "strata_zone_destroy: captures = 1 (0, and nothing that is being moved or reclaimed)"),
}


def misuse(strata, helper, case):
    return strata.run([helper("fault/linked_zone_misuse"), case], preload=False, prove=False)


@pytest.mark.parametrize("case", CASES)
def test_misuse(strata, helper, case):
    status, function, wording = CASES[case]
    number, said, end = misuse(strata, helper, case).text.splitlines()
    assert (said, end) == (f"{status} | {function}: {wording.format(n=int(number))}", "unharmed")


@pytest.mark.parametrize("case", STATES)
def test_states(strata, helper, case):
    status, wording = STATES[case]
    assert misuse(strata, helper, case).text.splitlines() == [f"{status} | {wording}", "unharmed"]


def test_every_case_is_here():
    source = (Path(__file__).parent / "linked_zone_misuse.c").read_text()
    assert sorted(re.findall(r'(?:CASE\(|strcmp\(name, )"([^"]+)"', source)) == sorted(
        [*CASES, *STATES, "pin after destroy", "touch after destroy", "lock after destroy"])


@pytest.mark.parametrize("case", ["pin", "touch", "lock"])
def test_use_after_destroy(strata, helper, case):
    """The memory of a zone, of its windows and of its handles is gone: whoever uses it gets what any wild pointer gets."""
    result = strata.run([helper("fault/linked_zone_misuse"), f"{case} after destroy"], preload=False, prove=False, expect=-signal.SIGSEGV)
    assert result.text == "destroyed\n"


# ---------------------------------------------------------------- a system that refuses something


SYSTEM = {
    "file size": [f"create: {NO_MEMORY}", "then: success"],
    "files": [f"create: {NO_MEMORY}", "then: success"],
    "address space": [f"create: {NO_MEMORY}", "then: success"],
    "address space, private": [f"create: {NO_MEMORY}", "then: success"],
    "huge pages": [f"create: {NO_HUGE_PAGES}", "then: success"],
    "the file is resized": ["shrink: Operation not permitted", "grow: Operation not permitted", "contents: whole", "discard: success",
                            "populate: success", "destroy: success"],
    "full": ["room: success", f"discard of what is locked: {UNSUPPORTED}", "an older system: success", f"an older system, full: {NO_MEMORY}", f"full: {NO_MEMORY}", "errno: kept",
             "contents: kept", "check: sound", "destroy: success"],
    "userfaultfd": ["compact: success", "left where they are: 96", "the owner's moved: yes", "the window's moved: no", "lost: 0", "check: sound",
                    "destroy: success"],
    "mappings": [f"map: {NO_MEMORY}", f"the page: {NOT_MAPPED}", f"the middle of a run: {NO_MEMORY}", "it: shows its frame", "compact: success",
                 "refused: yes", "lost: 0", "all: success", "again: success", "check: sound", "destroy: success"],
}


@pytest.mark.parametrize("case", SYSTEM)
def test_a_system_that_refuses(strata, helper, case):
    result = strata.run([helper("fault/linked_zone_system"), case], preload=False, prove=False)
    assert result.text.splitlines() == SYSTEM[case], result.describe()


MISSING_NODES = [f"no such node: {UNSUPPORTED}", f"no such node: {UNSUPPORTED}", "without a node: success"]


def test_nodes(strata, helper):
    """Memory comes from the node that was named, where the system has nodes at all; one that it has not is refused."""
    assert not Path("/sys/devices/system/node/node77").exists(), "a test for machines of fewer than 78 nodes"
    here = [": success", "node: 0"] if Path("/sys/devices/system/node/node0").exists() else [f": {UNSUPPORTED}"]
    result = strata.run([helper("fault/linked_zone_system"), "nodes"], preload=False, prove=False)
    expected = [line for name in ("memfd", "anon") for line in (name + here[0], *here[1:], *MISSING_NODES)]
    assert result.text.splitlines() == [*expected, "sim: success", *MISSING_NODES], result.describe()


HUGE_PAGES = ["create: success", f"window of a frame: {BAD}", "window: success", f"map a frame: {BAD}", f"map inside a superpage: {BAD}",
              "map: success", "map the other: success", "contents: shown", f"unmap a frame: {BAD}", "unmap: success", "window closed: success",
              "contents: kept", "discard: success", "zeros: yes", f"more than the pool: {NO_HUGE_PAGES}", "check: sound", "destroy: success"]


@contextlib.contextmanager
def pool_of_huge_pages(wanted):
    """Makes the system's pool larger by so many pages, where that is allowed; and as it was."""
    setting = Path("/proc/sys/vm/nr_hugepages")
    try:
        before = int(setting.read_text())
        setting.write_text(str(before + wanted))
    except (OSError, ValueError):
        yield
        return
    try:
        yield
    finally:
        setting.write_text(str(before))


def free_huge_pages():
    found = re.search(r"^HugePages_Free: +(\d+)$", Path("/proc/meminfo").read_text(), re.M)
    return int(found[1]) if found else 0


def test_windows_of_huge_pages(strata, helper):
    """Where there is a pool, or one can be made, it is used; else the refusal is as documented."""
    with pool_of_huge_pages(8):
        has_pool = free_huge_pages() >= 4
        lines = strata.run([helper("fault/linked_zone_system"), "pool of huge pages"], preload=False, prove=False).text.splitlines()
    assert lines == (HUGE_PAGES if has_pool else [f"create: {NO_HUGE_PAGES}"])
