"""What stands behind the papers' experiments on layers: the recorder, the replay, the counts, the model of scaling."""

import json
import os
import struct
import subprocess
from pathlib import Path

import pytest
from papers_places import TIMEOUT_S

MAGIC = 0x3145434152545453
ALLOC, FREE, RESIZE, TIME = range(4)
SIZES = [16 << index for index in range(9)]


@pytest.fixture
def run(build):
    def start(name, *args):
        command = [str(build / "bench/papers" / name), *map(str, args)]
        return subprocess.run(command, env={**os.environ, "STRATA_CONF": "verify:on"}, capture_output=True, text=True, timeout=TIMEOUT_S)

    return start


@pytest.fixture
def found(run):
    """What the program says; it must end well."""

    def start(*args):
        done = run(*args)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return start


# ------------------------------------------------------------------ traces by hand


def number(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class Trace:
    """Writes the format of trace.h."""

    def __init__(self, start_us=0):
        self.data = bytearray(struct.pack("<QQ24s", MAGIC, start_us, b"made up"))
        self.unit = 0

    def address(self, unit):
        difference = unit - self.unit
        self.unit = unit
        return number(difference << 1 if difference >= 0 else (-difference << 1) - 1)

    def event(self, kind, value=0, *units):
        self.data += number(value << 2 | kind)
        for unit in units:
            self.data += self.address(unit)

    def write(self, folder, name="1"):
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.trace").write_bytes(self.data)
        return folder


def row(found, size):
    return next(one for one in found["sizes"] if one["bytes"] == size)


@pytest.mark.parametrize("allocator", ["kmem", "strata"])
def test_a_replay_makes_the_requests_of_the_trace(found, tmp_path, allocator):
    trace = Trace()
    for unit in range(100):
        trace.event(ALLOC, 100, 1000 + unit)
    trace.event(ALLOC, 5000, 5000)  # beyond a page: left out
    for unit in range(40):
        trace.event(FREE, 0, 1000 + unit)
    trace.event(FREE, 0, 5000)
    trace.event(FREE, 0, 9999)  # from before the recording: left out
    trace.event(TIME, 7)
    trace.event(RESIZE, 400, 1050, 2000)  # moved
    trace.event(RESIZE, 300, 2000, 2000)  # stayed
    result = found("kmem_replay", allocator, 2, trace.write(tmp_path / "traces"))
    assert (result["processes"], result["large_requests"]) == (1, 1)
    assert row(result, 128)["alloc"]["requests"] == 100
    assert row(result, 512)["alloc"]["requests"] == 2
    # 40 by the program, one by the move, and the rest when the process ended.
    assert row(result, 128)["free"]["requests"] == 100
    assert row(result, 512)["free"]["requests"] == 2
    assert sum(row(result, size)["alloc"]["requests"] for size in SIZES) == 102


def test_the_papers_layers_move_what_the_paper_says(found, tmp_path):
    """16 bytes: target 20, and 15 lists at a time from pages of 256 blocks. 1,000 allocations, 1,000 frees, on one CPU."""
    trace = Trace()
    for unit in range(1000):
        trace.event(ALLOC, 16, 1000 + unit)
    for unit in range(1000):
        trace.event(FREE, 0, 1000 + unit)
    one = row(found("kmem_replay", "kmem", 1, trace.write(tmp_path / "traces")), 16)
    # A list of 20 is fetched 50 times, 15 of them at a time cut from pages: 4 times, 1,200 blocks of 5 pages.
    assert one["alloc"] == {"requests": 1000, "global": 50, "coalescing": 4, "pages": 5}
    # main and aux keep two lists, the other 48 go to the global layer, which had 10: when it has 30, 15 go to their pages. Of those 600 blocks, and 80
    # that never left, two pages at most can be whole.
    assert [one["free"][key] for key in ("requests", "global", "coalescing")] == [1000, 48, 2]
    assert one["free"]["pages"] <= 2
    assert one["flushes"] == 0


def test_stratas_flushes_are_the_arrays_that_are_emptied(found, tmp_path):
    """The first process leaves blocks of 16 bytes in the array of CPU 0 and ends; the second goes on, from CPU to CPU, with larger ones."""

    def replay(seconds):
        first, second = Trace(), Trace(1000)
        for unit in range(100):
            first.event(ALLOC, 16, 1000 + unit)
        for unit in range(100):
            first.event(FREE, 0, 1000 + unit)
        for _ in range(int(50 * seconds)):
            for unit in range(200):
                second.event(ALLOC, 1024, 10000 + 64 * unit)
            for unit in range(200):
                second.event(FREE, 0, 10000 + 64 * unit)
            second.event(TIME, 20_000)
        folder = tmp_path / f"traces-{seconds}"
        first.write(folder, "1")
        second.write(folder, "2")
        return found("kmem_replay", "strata", 64, folder)

    at_once, later = replay(0.2), replay(3)
    # That of the idle CPU alone: where the heap grew for its first blocks, small ones were too few for a reap. Of the 30 CPUs of the second, those of the
    # last second or so are left.
    assert [row(result, 16)["flushes"] for result in (at_once, later)] == [0, 1]
    assert row(later, 16)["free"]["global"] == row(at_once, 16)["free"]["global"] + 1
    assert 10 <= row(later, 1024)["flushes"] <= 30


def test_the_load_is_read_at_its_peak_and_below(found, tmp_path):
    trace = Trace()
    for unit in range(2560):
        trace.event(ALLOC, 256, 1000 + 16 * unit)
    for unit in range(0, 2560, 2):
        trace.event(FREE, 0, 1000 + 16 * unit)
    for unit in range(1, 2560, 2):
        trace.event(FREE, 0, 1000 + 16 * unit)
    result = found("kmem_replay", "kmem", 1, trace.write(tmp_path / "traces"))
    assert 256 * 2400 <= result["heavy_bytes"] <= 256 * 2560
    assert 0.4 * result["heavy_bytes"] <= result["low_bytes"] <= 0.54 * result["heavy_bytes"]
    one = row(result, 256)
    assert one["heavy"]["pages_bytes"] >= 256 * 2400
    # Every other block is free in its page, but for what caches and lists hold.
    assert 0.2 < one["low"]["waste_bytes"] / one["low"]["pages_bytes"] < 0.5


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "too short"),
        (struct.pack("<QQ24s", 1, 0, b"x"), "no trace"),
        (bytes(Trace().data) + b"\x80", "broken"),
    ],
    ids=["empty", "no-magic", "cut"],
)
def test_what_is_no_trace_is_refused(run, tmp_path, data, message):
    folder = tmp_path / "traces"
    folder.mkdir()
    (folder / "1.trace").write_bytes(data)
    done = run("kmem_replay", "kmem", 1, folder)
    assert done.returncode == 2
    assert message in done.stderr


def test_a_block_cannot_be_given_out_twice(run, tmp_path):
    trace = Trace()
    trace.event(ALLOC, 16, 1000)
    trace.event(ALLOC, 16, 1000)
    done = run("kmem_replay", "kmem", 1, trace.write(tmp_path / "traces"))
    assert done.returncode == 2
    assert "given out twice" in done.stderr


# ------------------------------------------------------------------ the recorder


def test_what_programs_allocate_is_recorded_and_can_be_replayed(build, found, tmp_path):
    """A shell that forks and executes: what each program recorded is consistent, or the replay would say so."""
    traces = tmp_path / "traces"
    traces.mkdir()
    env = {**os.environ, "LD_PRELOAD": str(build / "bench/papers/trace_recorder.so"), "TRACE_DIR": str(traces)}
    script = "sort /etc/passwd | head -n 3; (ls / | sort -r) | tail -n 1"
    done = subprocess.run(["sh", "-c", script], env=env, capture_output=True, text=True, timeout=TIMEOUT_S)
    plain = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert (done.returncode, done.stderr, done.stdout) == (plain.returncode, plain.stderr, plain.stdout)
    names = {Path(file).read_bytes()[16:40].rstrip(b"\0").decode() for file in traces.glob("*.trace")}
    assert {"sort", "ls", "head", "tail"} <= names
    counted = {}
    for allocator in ("kmem", "strata"):
        result = found("kmem_replay", allocator, 2, traces)
        assert result["processes"] == len(list(traces.glob("*.trace")))
        counted[allocator] = [(one["alloc"]["requests"], one["free"]["requests"]) for one in result["sizes"]]
        assert all(allocs == frees for allocs, frees in counted[allocator])
    assert counted["kmem"] == counted["strata"]
    assert sum(allocs for allocs, _ in counted["kmem"]) > 50


def test_a_trace_that_cannot_be_written_ends_the_program(build, tmp_path):
    env = {**os.environ, "LD_PRELOAD": str(build / "bench/papers/trace_recorder.so"), "TRACE_DIR": str(tmp_path / "nowhere")}
    done = subprocess.run(["ls"], env=env, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 2
    assert "can't write the trace" in done.stderr


# ------------------------------------------------------------------ counts


def test_the_lock_manager_does_the_same_over_both_allocators(found):
    kmem, strata = (found("kmem_lock_manager", name, 4, 3000) for name in ("kmem", "strata"))
    assert [kmem[name] for name in ("transactions", "waits", "messages")] == [strata[name] for name in ("transactions", "waits", "messages")]
    assert kmem["waits"] > 0
    for ours, theirs in zip(strata["sizes"], kmem["sizes"], strict=True):
        assert ours["alloc"]["requests"] == theirs["alloc"]["requests"]
        assert ours["free"]["requests"] == theirs["free"]["requests"]
        assert theirs["alloc"]["global"] <= theirs["alloc"]["requests"] // 10 + 4  # the bound of a target of 10, for each CPU


@pytest.mark.parametrize("kind", ["pairs", "bursts", "mixed", "passed"])
def test_visits_are_the_same_in_each_run(found, kind):
    first, second = (found("scaling_visits", kind, 16, 3000, "magazines") for _ in range(2))
    for result in (first, second):  # their order is that of addresses
        result["locks"].sort(key=lambda one: (one["layer"], one["taken"], one["handed_over"]))
    assert first == second
    assert first["operations"] >= 16 * 3000
    taken = sum(one["taken"] for one in first["locks"])
    assert all(one["handed_over"] <= one["taken"] for one in first["locks"])
    assert (taken == 0) == (kind == "pairs")
    # A visit of the depot takes its lock at least once, and twice at most.
    depot = sum(one["taken"] for one in first["locks"] if one["layer"] == "depot")
    assert first["depot_visits"] <= depot
    if kind in ("bursts", "passed"):
        assert 0 < first["depot_visits"] <= first["operations"] / 64 * 1.1


def test_without_magazines_every_operation_takes_a_lock(found):
    result = found("scaling_visits", "pairs", 4, 1000, "none")
    assert result["depot_visits"] == 0
    [slab] = [one for one in result["locks"] if one["layer"] == "slab"]
    assert slab["taken"] == result["operations"]
    # Four CPUs by turns at random, each with two operations: another one comes in nearly three of four turns.
    assert slab["handed_over"] / slab["taken"] == pytest.approx(3 / 8, abs=0.05)


def test_one_cpu_hands_over_nothing(found):
    for kind in ("bursts", "mixed"):
        assert all(one["handed_over"] == 0 for one in found("scaling_visits", kind, 1, 5000, "magazines")["locks"])


def test_the_working_set_is_what_the_load_needs(found):
    """2,048 blocks or less by 128 at a time, to which m has grown, are 16 magazines; the arrays of four CPUs hold a part of them."""
    result = found("magazines_working_set", 4, 3, 2048)
    assert result["transfer"] == 128
    assert len(result["intervals"]) == 3
    for one in result["intervals"]:
        assert one["least"] <= one["most"] <= 16
        assert one["kept"] <= one["most"] - one["least"]
    assert result["intervals"][0]["from_slabs"] > 0
    # A load of four times as much, and that again: what it left in the depot is gone two ticks later.
    result = found("magazines_working_set", 4, 4, 8192, 2048)
    assert max(one["most"] for one in result["intervals"][:4]) > 50
    assert max(one["most"] for one in result["intervals"][-2:]) <= 16
    assert result["intervals"][-1]["kept"] > 0
    assert result["left_by_reap"] == 0


def test_purity_follows_the_equations(found):
    """Section 5.5, by hand for r = 1: the caches are (1 + 2 p) / 3 pure, the pool (2 + p) / 3."""
    result = found("kmem_purity", "separate", 4, 1, 0.4, 2_000_000)
    assert result["cache_purity"] == pytest.approx((1 + 2 * 0.4) / 3, abs=0.02)
    assert result["pool_purity"] == pytest.approx((2 + 0.4) / 3, abs=0.02)
    assert found("kmem_purity", "shared", 4, 1, 0.4, 2_000_000)["pool_purity"] == pytest.approx(1 / 4, abs=0.02)


def test_an_arena_with_quantum_caches_loses_nothing(found):
    for kind in ("segments", "cached"):
        result = found("vmem_quantum", kind, "pieces", 60_000)
        assert result["held"] + result["free"] + result["free_in_slabs"] == 1 << 20
        assert (result["free_in_slabs"] > 0) == (kind == "cached")


# ------------------------------------------------------------------ the model


def test_the_model_in_its_limits():
    import scaling_model as model

    # Nobody meets anybody: linear. One lock is all there is: one CPU's worth. Half and half: the lock ends it at twice the speed.
    assert model.throughput(10, [], 100) == pytest.approx(10)
    assert model.throughput(0, [10], 100) == pytest.approx(0.1)
    assert model.throughput(5, [5], 1) == pytest.approx(0.1)
    assert model.throughput(5, [5], 1000) == pytest.approx(0.2)
    # Two customers, one queue, by hand: the second waits for the first with probability 1/2, for 5.
    assert model.throughput(5, [5], 2) == pytest.approx(2 / 12.5)


def test_the_models_demands_by_hand():
    import scaling_model as model

    constants = model.Constants(fast_ns=4, depot_ns=60, slab_ns=400, zone_ns=100, line_ns=40)
    counts = model.counts_of(
        {
            "operations": 1000,
            "depot_visits": 10,
            "slab_visits": 1,
            "contention": 0,
            "locks": [
                {"layer": "depot", "taken": 20, "handed_over": 5},
                {"layer": "slab", "taken": 1, "handed_over": 1},
                {"layer": "zone", "taken": 2, "handed_over": 0},
            ],
        }
    )
    # Two locks share a visit of the depot: 30 ns each, and two lines of 40 ns with each hand-over, beside the eight of a magazine.
    assert model.demands(counts, constants) == pytest.approx([0.02 * 30 + 0.005 * 400, 0.001 * 400 + 0.001 * 80, 0.002 * 100])
    assert model.demands(counts, constants, 0.5) == pytest.approx([0.02 * 15 + 0.005 * 400, 0.001 * 200 + 0.001 * 80, 0.002 * 50])
    assert model.own_ns(10, counts, constants) == pytest.approx(10 - 2.6 - 0.48 - 0.2)
    assert model.hold_share(10, counts, constants) == 1
    assert model.hold_share(4 + 1.64, counts, constants) == pytest.approx(0.5)
    assert model.hold_share(3, counts, constants) == 1  # nothing is known then
    assert model.own_ns(1, counts, constants) == 4  # never less than the array alone
