"""The experiments themselves, by QUICK runs: what they compute is right, and what doesn't depend on the machine's mood holds."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from frame import catalogue, running
from papers_places import TIMEOUT_S

METHODS = ("VH", "VH-stacks", "GP", "CM", "VMSR", "VMDR")


@pytest.fixture
def run(build):
    """Runs a C program of the experiments with strata as its malloc, which is proved: run("vh_bound", 8)."""

    def start(name, *args, conf="verify:on"):
        command = [str(build / "bench/papers" / name), *map(str, args)]
        return subprocess.run(command, env={**os.environ, "STRATA_CONF": conf}, capture_output=True, text=True, timeout=TIMEOUT_S)

    return start


def claims(document):
    return {claim["statement"]: claim["value"] for claim in document["holds"]}


def test_quick_run_of_one_paper_with_its_page(papers, build, tmp_path):
    done = papers("--build", build, "--only", "vh/theorem-2-5", "--write-docs", env={"QUICK": "1"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 of 1 experiments ran" in done.stdout
    [experiment] = [one for one in catalogue.EXPERIMENTS if one.id == "vh/theorem-2-5"]
    document = running.load(tmp_path / "out/vh/theorem-2-5.json", experiment)
    assert document["quick"]
    assert (tmp_path / "out/vh/theorem-2-5.svg").is_file()
    page = (tmp_path / "docs/papers.md").read_text()
    assert "QUICK run" in page
    assert document["title"] in page
    assert (tmp_path / "docs/images/papers/vh-theorem-2-5.svg").is_file()
    # Nothing of this is about time.
    found = claims(document)
    assert found["no program makes more accesses than floor(S / (phi_min + 1)) + P, for any m_alpha and m_beta"]
    assert found["the bound, as the formula has it, is least where both transfer sizes are half of m, and only there"]
    assert found["to within P accesses it is least where both are half of m or one more or less"]


def test_quick_runs_of_all_others(papers, build, tmp_path):
    """Claims about time may fail on a busy machine; documents must not."""
    done = papers("--build", build, "--quick", "--only", "^(?!vh/theorem)")
    assert done.returncode == 0, done.stdout + done.stderr
    others = [one for one in catalogue.EXPERIMENTS if one.id != "vh/theorem-2-5"]
    documents = {one.id: running.load(tmp_path / f"out/{one.id}.json", one) for one in others}
    assert f"{len(others)} of {len(others)} experiments ran" in done.stdout
    assert not (tmp_path / "docs/papers.md").exists()
    # What is counted, not timed.
    for value in claims(documents["magazines/section-3-1-thrash"]).values():
        assert value
    assert next(value for text, value in claims(documents["kmem/figure-9"]).items() if text.startswith("memory of one size serves the next"))
    assert next(value for text, value in claims(documents["vh/figure-3"]).items() if "bound on global accesses" in text)
    for name in ("kmem/section-4-4", "magazines/section-3-7", "magazines/section-4-4-5"):
        assert all(claims(documents[name]).values()), name
    many_cpus = claims(documents["magazines/section-3-8-many-cpus"])
    for what in ("in the best case no CPU meets another", "without magazines throughput ends", "bursts and blocks that are passed on", "where CPUs find the depot's lock taken", "up to 8 CPUs whose bursts are their own"):
        assert next(value for text, value in many_cpus.items() if text.startswith(what))
    purity = claims(documents["kmem/equations-5-6"])
    assert next(value for text, value in purity.items() if text.startswith("the equations describe caches and pools where each CPU"))
    # A pool that all share is not what the equations are about.
    assert not purity["and that pool"]
    # A real compile was recorded: it has all sizes, and every process gave back what it had.
    tables = documents["kmem/tables-2-6"]
    assert {series["name"] for series in tables["measured"]} == {"the paper's layers", "strata"}
    assert all(y > 0 for series in tables["measured"] if series["panel"].startswith("allocations") for _, y in series["points"])

    # Counted in simulated time, with contents that are checked: nothing of it depends on the machine.
    for name in ("contiguity/figures-6-7", "contiguity/figures-6-7-large", "contiguity/figures-4-8-9"):
        for text, value in claims(documents[name]).items():
            assert value, text
    assert next(value for text, value in claims(documents["contiguity/figure-1"]).items() if text.startswith("areas hold pages of mixed types"))
    assert next(value for text, value in claims(documents["contiguity/figure-11"]).items() if text.startswith("capture loses no race"))
    assert next(value for text, value in claims(documents["contiguity/section-7"]).items() if text.startswith("no page lost a word"))
    assert next(value for text, value in claims(documents["contiguity/section-7"]).items() if text.startswith("no frame that was held or emptied"))
    for what in ("in a zone full of movable blocks", "compaction makes free space usable", "all superpages and runs", "metadata are at most"):
        assert next(value for text, value in claims(documents["contiguity/section-7-large"]).items() if text.startswith(what)), what

    # Blocks of every power of two came, and each program did its work under both allocators.
    rings = documents["umpa/figures-7-8"]
    assert all(len(series["points"]) == 11 and all(y > 0 for _, y in series["points"]) for series in rings["measured"])
    lists = documents["umpa/section-4-1"]
    assert len(lists["measured"]) == 9 and all(y > 0 for series in lists["measured"] for _, y in series["points"])
    vectors = documents["umpa/section-2-vector"]
    assert len(vectors["measured"]) == 9 and all(y > 0 for series in vectors["measured"] for _, y in series["points"])
    assert next(value for text, value in claims(vectors).items() if text.startswith("and its peak is its size"))
    programs = documents["umpa/table-2"]
    assert all(y > 1 for series in programs["measured"] if series["panel"] == "peak of memory" for _, y in series["points"])


MIB = 1 << 20


@pytest.mark.parametrize(
    "arguments",
    [(), ("fault", "nobody", 4096, 1), ("fault", "kernel", 5, 1), ("ring", "strata", 513, 1), ("resize", "kernel", 4096, 1), ("double", "kernel", 4 * MIB, 1),
     ("double", "strata", MIB, 1), ("double", "strata", 3 * MIB, 1), ("double", "strata", 4 * MIB, 102), ("turns", "strata", 4 * MIB, 102), ("swap", "strata", 5, 1), ("swap", "copy", 4096, 102)],
)  # fmt: skip
def test_page_experiments_refuse_what_they_do_not_know(run, arguments):
    done = run("umpa_pages", *arguments)
    assert done.returncode != 0
    assert "usage" in done.stderr


@pytest.mark.parametrize("way", ["kernel", "populated", "huge", "populated-huge", "strata", "malloc", "libc"])
def test_every_way_to_pages_keeps_what_is_written(run, way):
    """The program looks itself: a byte that is lost ends it."""
    for done in (run("umpa_pages", "fault", way, 1 << 21, 2), run("umpa_pages", "ring", way, 8, 50)):
        assert done.returncode == 0, done.stderr
        json.loads(done.stdout)


@pytest.mark.parametrize("heap", ["", "aged-"])
@pytest.mark.parametrize("way", ["strata", "copy"])
def test_growth_and_exchange_keep_what_is_written(run, way, heap):
    done = run("umpa_pages", f"{heap}double", way, 8 * MIB, 2)
    assert done.returncode == 0, done.stderr
    assert [step["bytes"] for step in json.loads(done.stdout)["steps"]] == [2 * MIB, 4 * MIB, 8 * MIB]
    done = run("umpa_pages", f"{heap}turns", way, 4 * MIB, 2)
    assert done.returncode == 0, done.stderr
    assert [step["bytes"] for step in json.loads(done.stdout)["steps"]] == [2 * MIB, 4 * MIB]
    done = run("umpa_pages", f"{heap}swap", way, 4 * MIB, 4)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ns"] > 0


@pytest.mark.parametrize("way", ["libc", "std", "strata"])
def test_a_vector_keeps_what_is_pushed(run, way):
    """The program looks itself. Its peak is its own, not that of the larger process which starts it."""
    done = run("umpa_vector", way, 3 * MIB, 1)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["first_ns"] > 0 and found["again_ns"] > 0
    assert 3 < found["peak_mib"] < 16
    for arguments in ((), (way, 7, 1), (way, MIB, 0), ("nobody", MIB, 1)):
        done = run("umpa_vector", *arguments)
        assert done.returncode == 2 and "usage" in done.stderr


def test_the_costs_of_moves_are_measured(run):
    """The program looks itself: a page that is lost ends it. Where pages can't move one by one, these two are 0."""
    done = run("umpa_costs", 3)
    assert done.returncode == 0, done.stderr
    costs = json.loads(done.stdout)
    assert all(costs[name] > 0 for name in ("touch_page_ns", "copy_page_ns", "tables_ns"))
    assert "usage" in run("umpa_costs", 0).stderr


def test_page_from_the_documents_of_an_earlier_run(papers, build, tmp_path):
    assert papers("--build", build, "--quick", "--only", "vh/theorem").returncode == 0
    done = papers("--docs-from", tmp_path / "out")
    assert done.returncode == 1  # the others have no documents
    page = (tmp_path / "docs/papers.md").read_text()
    assert "## Failed" in page
    assert "images/papers/vh-theorem-2-5.svg" in page


def test_failed_experiments_make_a_failure(papers, tmp_path):
    (tmp_path / "build/bench/papers").mkdir(parents=True)
    done = papers("--build", tmp_path / "build", "--quick", "--only", "kmem", "--write-docs")
    assert done.returncode == 1
    assert "kmem/figure-9: failed" in done.stdout
    assert "No such file" in done.stdout
    of_paper = [one for one in catalogue.EXPERIMENTS if one.paper == "kmem"]
    assert f"0 of {len(of_paper)} experiments ran" in done.stdout
    assert "- kmem/figure-7-8: exit status 1: best_case" in (tmp_path / "docs/papers.md").read_text()


def command_lines():
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield file.read_bytes()
        except OSError:
            continue


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_no_process(papers, build, tmp_path, number):
    """The experiment's command line has the output folder in it; it takes a minute when nobody interrupts."""
    part = str(tmp_path / "out/magazines/section-4-5-1").encode()
    running_now = papers("--build", build, "--only", "4-5-1", start=subprocess.Popen, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 30
    while not any(part in line for line in command_lines()):
        assert time.monotonic() < deadline, "the experiment was not started"
        time.sleep(0.05)
    running_now.send_signal(number)
    _, errors = running_now.communicate(timeout=30)
    assert running_now.returncode == 130
    assert "interrupted" in errors
    assert not any(part in line for line in command_lines())


def test_claims_can_be_demanded(papers, build):
    """The count at worst is least at m/2 + 1, so a claim of this experiment does not hold."""
    assert papers("--build", build, "--quick", "--only", "vh/theorem", "--check-claims").returncode == 1


@pytest.mark.parametrize("args", [["--only", "nothing-like-it"], ["--only", "("], ["--build", "/nonexistent"], ["--nonsense"]])
def test_wrong_command_lines(papers, args):
    done = papers(*args)
    assert done.returncode == 2
    assert "papers" in done.stderr


def test_list(papers):
    done = papers("--list")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == [one.id for one in catalogue.EXPERIMENTS]
    assert {line.split("/")[0] for line in papers("--list", "--only", "vh").stdout.splitlines()} == {"vh"}


@pytest.mark.parametrize("model", ["tandem", "superping"])
def test_simulations_compute_the_same_under_every_method_and_number_of_threads(run, model):
    results = set()
    for method in METHODS:
        for threads in (1, 2, 5):
            done = run("vh_simulate", model, method, threads, 2)
            assert done.returncode == 0, done.stderr
            found = json.loads(done.stdout)
            results.add((found["events"], found["check"]))
            assert found["requests"] >= 2 * found["events"]
            if method.startswith("VH"):
                assert found["global_accesses"] <= found["requests"] // 256 + threads
    assert len(results) == 1
    assert results.pop()[0] > 10_000


def test_a_tandem_network_does_the_work_that_its_rates_say(run):
    """3.2 jobs a unit of time for 20,000 units, an arrival and a departure at each of 17 stages, and the source: to within 2 %."""
    found = json.loads(run("vh_simulate", "tandem", "GP", 1, 100).stdout)
    assert found["events"] == pytest.approx(3.2 * 20_000 * (2 * 17 + 1), rel=0.02)


def test_worst_case_gets_back_what_it_freed(run):
    found = json.loads(run("kmem_worst_case", 32 << 20, conf="verify:on,hard_limit:32M").stdout)
    assert [one["bytes"] for one in found["up"]] == [1 << shift for shift in range(4, 13)]
    assert [one["bytes"] for one in found["down"]] == [1 << shift for shift in range(12, 3, -1)]
    assert min(one["share"] for way in found.values() for one in way) > 0.75


@pytest.mark.parametrize(
    "command",
    [
        ("best_case", "nobody", 1, 10, 64),
        ("best_case", "strata", 0, 10, 64),
        ("best_case", "strata", 1, 10, 4),
        ("kmem_worst_case",),
        ("magazines_thrash", 0, 1),
        ("magazines_bursts", 0, 1),
        ("vh_bound", 1),
        ("vh_simulate", "tandem", "nobody", 1, 1),
        ("vh_simulate", "nothing", "VH", 1, 1),
        ("vmem_latency", "arena", 1, 1, 11),
        ("vmem_latency", "arena", 1, 0, 10),
        ("vmem_latency", "tree", 1, 1, 10),
        ("vmem_pairs", 0, 1),
        ("best_case", "cookie", 1, 10, 128),
        ("vmem_quantum", "segments", "pairs", 0, 10),
        ("vmem_quantum", "nothing", "pieces", 10),
        ("kmem_purity", "shared", 8, 0, 0.5, 100),
        ("kmem_purity", "separate", 65, 0.1, 0.5, 100),
        ("kmem_lock_manager", "kmem", 8, 0),
        ("kmem_lock_manager", "nobody", 8, 100),
        ("kmem_replay", "kmem", 8, "/nonexistent"),
        ("magazines_working_set", 4, 1, 0),
        ("magazines_resizing", 0, 1, 1, 1),
        ("scaling_visits", "pairs", 4097, 10, "magazines"),
        ("scaling_visits", "nothing", 1, 10, "magazines"),
        ("scaling_visits", "passed", 1, 10, "magazines", 0),
        ("scaling_constants", "passed", 1, 10),
        ("contiguity_highalloc",),
        ("contiguity_highalloc", "sim", 63, "highalloc", "grouped", "area", "still", "race", 1),
        ("contiguity_highalloc", "disk", 64, "highalloc", "grouped", "area", "still", "race", 1),
        ("contiguity_highalloc", "sim", 64, "highalloc", "grouped", "oldest", "still", "race", 1),
        ("contiguity_highalloc", "sim", 64, "highalloc", "apart", "area", "still", "race", 1),
        ("contiguity_contents", 15, 1, 1, "capture"),
        ("contiguity_contents", 16, 1, 0, "capture"),
        ("contiguity_contents", 16, 1, 1, "hold"),
        ("contiguity_tlb", "large", 16, 1),
        ("contiguity_large", 0),
        ("contiguity_pairs", 513, 1, 10, "movable", "bare"),
        ("contiguity_pairs", 1, 0, 10, "movable", "bare"),
        ("contiguity_pairs", 1, 1, 10, "fixed", "bare"),
        ("contiguity_pairs", 1, 1, 10, "movable", "reclaimed"),
        ("contiguity_large", 4097),
    ],
)
def test_programs_refuse_what_they_do_not_know(run, command):
    done = run(*command)
    assert done.returncode == 2
    assert done.stderr.startswith("load failed: ")


def test_a_worst_case_without_a_limit_fails(run):
    done = run("kmem_worst_case", 1 << 20)
    assert done.returncode == 2
    assert "beyond the limit" in done.stderr


def test_a_load_of_frames_is_the_same_each_time(run):
    """Simulated time, fixed seeds: two runs differ in nothing but the time that they took. And frames are conserved, which the program checks itself."""
    command = ("contiguity_highalloc", "sim", 64, "highalloc", "grouped", "area", "compact", "capture", 20)
    first, second = (json.loads(run(*command).stdout) for _ in range(2))
    first.pop("wall_s"), second.pop("wall_s")
    assert first == second
    assert first["superpages"] == len(first["map_before"]) == 32
    assert first["verified"] > 0
