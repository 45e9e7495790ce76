"""The programs of examples/ are built as their comments say, run, and do what they claim."""

import re
import signal
import subprocess
import tempfile
from array import array
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WARNINGS = ["-std=c11", "-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Wno-sign-conversion", "-Werror"]
MIB = 1 << 20
# What each must print, besides ending well: they check themselves.
ARENA_EXAMPLES = {
    "process_ids": [r"100000 processes, \d{5} with a number that had been used, after 3746 others at least",
                    r"number 1 a second time: no free segment fits", r"number 1 given back twice: nothing allocated starts there"],
    "ports": [r"rule: port 49200; stream: ports \d+[02468] and \d+", r"8 customers waited, all were served; 1 ports are free"],
    "file_extents": [r"filled +file_bytes=2752512 in_use=\d+ extents=1000", r"refilled file_bytes=2752512 in_use=\d+ extents=750",
                     r"empty +file_bytes=0 in_use=0 extents=0"],
    "dma_space": [r"rings +100 of 100, .*", r"packets +2000 of 2000, .*", r"low +70 of 70, .*", r".* in 2170 segments; 0 in a wrong place"],
    "arena_stack": [r"sent   window=5177344 addresses=5177344 pages=5177344 messages=5120000 accessible=5177344",
                    r"65536 messages, then: no free segment fits", r"empty  window=0 addresses=0 pages=0 messages=0 accessible=0"],
}


@pytest.fixture
def example(strata, tmp_path):
    """Compiles examples/NAME.c and links it to the libstrata of the mode."""

    def build(name):
        folder = strata.library.parent
        program = tmp_path / name
        subprocess.run(["cc", *WARNINGS, "-O2", f"-I{ROOT}/include", ROOT / "examples" / f"{name}.c", "-o", program, f"-L{folder}", "-lstrata",
                        f"-Wl,-rpath,{folder}", "-pthread"], check=True, timeout=60)
        return program

    return build


def test_every_example_has_a_test():
    assert [path.stem for path in sorted((ROOT / "examples").iterdir())] == sorted(
        ["buffer_pool", "connections", "event_pool", "frames", "give_back", "index_nodes", "leak_report", "list_batches", "movable_pages", "paging_sort",
         "snapshots", *ARENA_EXAMPLES])


@pytest.mark.strata_only
@pytest.mark.parametrize("strata", ["rseq", "no-rseq", "refused"], indirect=True)
def test_give_back(strata, example):
    result = strata.run([example("give_back")], preload=False)
    moments = {moment: (int(in_use), int(idle)) for moment, in_use, idle in re.findall(r"^(\w+) +in_use_bytes=(\d+) idle_bytes=(\d+)$", result.text, re.M)}
    assert list(moments) == ["start", "built", "dropped", "released"], result.describe()
    # 200,000 entries of 16 to 415 bytes.
    assert moments["start"][0] < MIB and 40 * MIB < moments["built"][0] < 60 * MIB
    assert moments["dropped"][0] < MIB
    assert moments["released"][1] <= MIB
    handed_back = int(re.search(r"^handed back (\d+) bytes$", result.text, re.M)[1])
    assert handed_back > 30 * MIB, "the example's options keep idle pages, so that there is something to hand back"


@pytest.mark.strata_only
@pytest.mark.parametrize("strata", ["rseq", "no-rseq"], indirect=True)
@pytest.mark.parametrize("compiler", ["g++", "clang++-19"])
@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_list_batches(strata, tmp_path, compiler, batch):
    """The list has the same contents whatever the batches are; the program checks the heap in the end."""
    program, folder = tmp_path / "list_batches", strata.library.parent
    warnings = [option for option in WARNINGS if not option.startswith("-std")]
    subprocess.run([compiler, "-std=c++17", *warnings, "-O2", f"-I{ROOT}/include", ROOT / "examples" / "list_batches.cpp", "-o", program, f"-L{folder}",
                    "-lstrata", f"-Wl,-rpath,{folder}"], check=True, timeout=120)
    result = strata.run([program, "30000", str(batch)], preload=False)
    sums = re.findall(r"^(one by one|batches) +nodes=30000 sum=(\d+) built_ms=[\d.]+ ended_ms=[\d.]+$", result.text, re.M)
    assert sums == [("one by one", "449985000"), ("batches", "449985000")], result.describe()


@pytest.mark.strata_only
@pytest.mark.parametrize("strata", ["rseq", "no-rseq", "refused"], indirect=True)
def test_buffer_pool(strata, example):
    """The pool never frees to make room, pins frames during io, and gets 2 MiB after each turn of churn."""
    result = strata.run([example("buffer_pool")], preload=False)
    assert result.text == "sorts=4 evicted=yes written=yes moved=yes log_moved=0 wrong=0 check=ok\n", result.describe()


@pytest.mark.strata_only
@pytest.mark.parametrize("strata", ["rseq", "no-rseq", "refused"], indirect=True)
def test_movable_pages(strata, example):
    """Two megabytes among pages of which none has a neighbour that is free: all that was unusable, and four are had."""
    result = strata.run([example("movable_pages")], preload=False)
    assert re.fullmatch(r"pages=\d+ unusable_before=1\.00 buffers=4 moved=yes locked_moves=0 wrong=0\n", result.text), result.describe()


@pytest.mark.strata_only
@pytest.mark.parametrize("strata", ["rseq", "no-rseq", "refused"], indirect=True)
def test_frames(strata, example):
    result = strata.run([example("frames")], preload=False)
    assert re.fullmatch(r"frames=60 log_bytes=67108864 moved=(yes|no) wrong=0\n", result.text), result.describe()


@pytest.mark.strata_only
@pytest.mark.parametrize("watch", ["auto", "signals"])
def test_snapshots(strata, example, watch):
    """It restores every snapshot and compares; here: that only what changed was saved, by either mechanism."""
    result = strata.run([example("snapshots")], preload=False, conf=f"watch:{watch}")
    saved, mechanism = re.search(r"^(\d+) pages saved in place of 32768, by (userfaultfd|signals); 8 snapshots restored and compared$", result.text, re.M).groups()
    assert 700 < int(saved) <= 800, result.describe()
    assert watch == "auto" or mechanism == "signals"


@pytest.mark.strata_only
@pytest.mark.parametrize("strata", ["rseq", "no-rseq", "refused"], indirect=True)
def test_connections(strata, example):
    """Constructions are as many as objects ever were at once and in the caches, not as many as were served."""
    result = strata.run([example("connections")], preload=False)
    constructions = int(re.search(r"^served 200000 connections with (\d+) constructions$", result.text, re.M)[1])
    assert 50 <= constructions <= 2000, result.describe()
    in_use, cached = map(int, re.search(r"^in use (\d+), cached (\d+), in \d+ slabs of \d+ bytes$", result.text, re.M).groups())
    assert in_use == 0 and cached <= constructions
    rows = [row for row in result.stats["caches"] if row["name"] == "connections"]
    assert rows == [], "it was destroyed before the end"


@pytest.mark.strata_only
@pytest.mark.parametrize("strata", ["rseq", "no-rseq", "refused"], indirect=True)
def test_index_nodes(strata, example):
    """Moving gives back the slabs that thinning could not, and under the limit old entries make room for a million."""
    result = strata.run([example("index_nodes")], preload=False)
    lines = re.findall(r"^(\w+) +entries=(\d+) memory_bytes=(\d+) moved=(\d+) reclaimed_bytes=(\d+)$", result.text, re.M)
    moments = {moment: tuple(map(int, figures)) for moment, *figures in lines}
    assert list(moments) == ["built", "thinned", "moved", "added"], result.describe()
    node_bytes = 112
    assert moments["built"][0] == 80_000 and 7000 < moments["thinned"][0] < 9000
    assert moments["thinned"][1] > 0.9 * moments["built"][1], "nearly each slab has a node left"
    assert moments["moved"][0] == moments["thinned"][0] and moments["moved"][1] < 1.1 * moments["moved"][0] * node_bytes
    assert int(re.search(r"^consolidation freed (\d+) bytes$", result.text, re.M)[1]) == moments["thinned"][1] - moments["moved"][1]
    assert moments["added"][0] > 100_000 and moments["added"][1] < 24 * MIB
    dropped = int(re.search(r"^(\d+) of the oldest made room$", result.text, re.M)[1])
    assert moments["added"][3] == dropped * node_bytes > 10 * MIB


@pytest.mark.strata_only
@pytest.mark.parametrize("strata", ["rseq", "no-rseq"], indirect=True)
@pytest.mark.parametrize("name", ARENA_EXAMPLES)
def test_arenas(strata, example, tmp_path, name):
    arguments = [tmp_path / "records"] if name == "file_extents" else []
    result = strata.run([example(name), *arguments], preload=False)
    for line in ARENA_EXAMPLES[name]:
        assert re.search(f"^{line}$", result.text, re.M), f"{line}: {result.describe()}"


@pytest.mark.strata_only
@pytest.mark.parametrize("strata", ["rseq", "no-rseq"], indirect=True)
@pytest.mark.parametrize("transfers, bound", [([], 600_000 // 256 + 4), (["64", "8", "56"], 600_000 // 8 + 4), (["8", "8", "8"], None)])
def test_event_pool(strata, example, transfers, bound):
    result = strata.run([example("event_pool"), *transfers], preload=False)
    match = re.search(r"^m=(\d+) m_alpha=(\d+) m_beta=(\d+) requests=600000 accesses=(\d+) bound=(\w+)$", result.text, re.M)
    assert match, result.describe()
    assert [match[1], match[2], match[3]] == (transfers or ["512", "256", "256"])
    assert match[5] == str(bound or "none").lower()
    assert 0 < int(match[4]) <= (bound or 600_000)


@pytest.mark.strata_only
def test_event_pool_refuses_what_is_no_pool(strata, example):
    result = strata.run([example("event_pool"), "8", "9"], preload=False, expect=1, prove=False)
    assert b"bad argument" in result.err, result.describe()


@pytest.mark.strata_only
@pytest.mark.parametrize("strata", ["rseq", "no-rseq"], indirect=True)
def test_leak_report(strata, example):
    result = strata.run([example("leak_report")], preload=False)
    lines = result.text.splitlines()
    assert lines[:3] == ["plain   0 refused", "audited 0 refused", "leaks   100, each with the stack that allocated it"], result.describe()
    assert re.fullmatch(r"20000 bytes in 100 buffers of sessions, such as 0x[0-9a-f]+, allocated at", lines[3]), result.describe()
    assert re.search(r"^    .*/leak_report\+0x[0-9a-f]+$", result.text, re.M), result.describe()
    assert lines[-4:] == ["20000 bytes in 100 buffers are in use", "mtbf    about a quarter refused", "off     0 refused", "damaged 0"], result.describe()


@pytest.mark.strata_only
@pytest.mark.parametrize("strata", ["rseq", "no-rseq"], indirect=True)
def test_paging_sort(strata, example, tmp_path):
    """A file four times larger than the limit of resident pages, sorted in place; order and contents are verified here too."""
    program, path = example("paging_sort"), tmp_path / "numbers"
    strata.run([program, "--make", path, "8"], preload=False)
    numbers = array("Q", path.read_bytes())
    result = strata.run([program, path, "2"], preload=False)
    match = re.search(r": (\d+) numbers in (\d+) of (\d+) pages: \d+ faults, (\d+) pages read \((\d+) ahead\), (\d+) written$", result.text, re.M)
    assert match, result.describe()
    count, limit, pages, read, ahead, written = map(int, match.groups())
    assert count == MIB and pages == 4 * limit
    assert read >= pages and ahead > 0 and written >= pages
    assert array("Q", path.read_bytes()) == array("Q", sorted(numbers))


GROUP_BYTES, RESIDENT_MIB = 8 * MIB, 4


@pytest.mark.strata_only
@pytest.mark.parametrize("strata", ["rseq"], indirect=True)
def test_paging_sort_in_a_memory_group(strata, example, memory_cgroup):
    """
    A file four times larger than what the process's group may have, which the file's pages in the system's cache count for: made and sorted inside. The
    group is what ends a process that keeps more.
    """
    with tempfile.TemporaryDirectory(dir=strata.library.parent) as folder:
        file_system = subprocess.run(["stat", "-f", "-c", "%T", folder], check=True, capture_output=True, text=True).stdout.strip()
        assert file_system != "tmpfs", "files are in memory here: build strata on a disk"
        program, path, mib = example("paging_sort"), Path(folder) / "numbers", 4 * GROUP_BYTES // MIB
        inside = {"preload": False, "prove": False, "preexec_fn": memory_cgroup(GROUP_BYTES).join}
        for _ in range(2):
            strata.run([program, "--make", path, str(mib)], **inside)
            result = strata.run([program, path, str(RESIDENT_MIB)], **inside)
            assert f"in {RESIDENT_MIB * 256} of {mib * 256} pages" in result.text, result.describe()
        numbers = array("Q", path.read_bytes())
        assert all(numbers[i - 1] <= numbers[i] for i in range(1, len(numbers)))
        strata.run([program, path, str(mib)], expect=-signal.SIGKILL, quiet=False, **inside)


@pytest.mark.strata_only
def test_paging_sort_refuses_too_little_memory(strata, example, tmp_path):
        path = tmp_path / "numbers"
        path.write_bytes(bytes(65536))
        result = strata.run([example("paging_sort"), path, "0"], preload=False, expect=1, prove=False)
        assert b"bad argument" in result.err, result.describe()
