"""fork beside running threads; threads that come and go, that are many, that end with work left; signals; hand-over between threads."""

import json
import re

import pytest

BOTH = pytest.mark.parametrize("strata", ["rseq", "no-rseq"], indirect=True)
MIB_KIB = 1024


def figures(result):
    """The name=number pairs that a helper program prints."""
    return {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", result.text)}


def test_fork_ten_thousand_times(strata, helper):
    result = strata.run([helper("stress/fork_storm"), 10000, 3], timeout_s=120)
    assert figures(result)["forks"] == 10000


@pytest.mark.parametrize("strata", ["no-rseq", "refused"], indirect=True)
def test_fork_with_thread_caches(strata, helper):
    strata.run([helper("stress/fork_storm"), 1500, 3])


@BOTH
def test_fork_with_maintenance_thread(strata, helper):
    strata.run([helper("stress/fork_storm"), 1500, 2], conf="background:on,decay_ms:1")


@pytest.mark.slow
@pytest.mark.parametrize("strata", ["no-rseq", "refused"], indirect=True)
def test_fork_ten_thousand_times_with_thread_caches(strata, helper):
    strata.run([helper("stress/fork_storm"), 10000, 3], conf="background:on", timeout_s=300)


@pytest.mark.parametrize(("strata", "threads"), [("rseq", 0), ("rseq", 3), ("no-rseq", 3)], indirect=["strata"])
def test_children_of_vfork_that_allocate(strata, helper, threads):
    """In their parent's memory, beside its threads and strata's own; every eighth has a child of its own."""
    result = figures(strata.run([helper("stress/vfork_storm"), 400, threads], conf="background:on,decay_ms:1"))
    assert (result["vforks"], result["nested"]) == (400, 50)


@pytest.mark.parametrize(("strata", "threads"), [("rseq", 100000), ("no-rseq", 20000), ("refused", 4000)], indirect=["strata"])
def test_threads_come_and_go(strata, helper, threads):
    """What a thread leaves behind is bounded: memory does not grow with the number of threads that have been."""
    result = figures(strata.run([helper("stress/thread_churn"), threads], timeout_s=120))
    assert result["late_kib"] < result["early_kib"] + 8 * MIB_KIB


@pytest.mark.slow
def test_threads_come_and_go_no_rseq_all(strata, helper):
    result = figures(strata.run([helper("stress/thread_churn"), 100000], conf="rseq:off", prove=False, timeout_s=300))
    assert result["late_kib"] < result["early_kib"] + 8 * MIB_KIB


@pytest.mark.parametrize("strata", ["rseq", "no-rseq", "refused"], indirect=True)
def test_threads_that_never_allocate(strata, helper):
    """The C library frees on them when nothing can be told of their ends any more."""
    assert figures(strata.run([helper("stress/thread_silent"), 10]))["threads"] == 400


def crowd(strata, helper, tmp_path, few, many):
    """The figures and the three statistics of a crowd: FEW threads alive, MANY, none."""
    paths = [tmp_path / f"{name}.json" for name in ("few", "many", "gone")]
    result = strata.run([helper("stress/thread_crowd"), few, many, *paths], conf="background:off", timeout_s=120)
    return figures(result), [json.loads(path.read_text()) for path in paths]


def cached_bytes(stats):
    return sum(cache["cached"] * cache["object_bytes"] for cache in stats["caches"])


@pytest.mark.strata_only
def test_ten_thousand_threads_share_the_caches_of_two_cpus(strata, helper, tmp_path):
    """10,000 threads that have each used 64 sizes hold no more cached memory than 100 of them: caches belong to CPUs."""
    numbers, (few, many, _gone) = crowd(strata, helper, tmp_path, 100, 10000)
    if strata.per_cpu:
        assert cached_bytes(many) < 1.25 * cached_bytes(few) + (1 << 20)
        live = many["heap"]["in_use_bytes"] - few["heap"]["in_use_bytes"]
        grown = 1024 * (numbers["many_kib"] - numbers["few_kib"])
        assert grown < live + (16 << 20), f"{grown} bytes more are resident, of which {live} are in use"
    else:
        assert many["mode"] == "thread"


@pytest.mark.strata_only
@pytest.mark.parametrize("strata", ["no-rseq", "refused"], indirect=True)
def test_crowd_with_thread_caches_leaves_nothing(strata, helper, tmp_path):
    """Where every thread has caches of its own, they go with it."""
    numbers, (few, many, gone) = crowd(strata, helper, tmp_path, 50, 1000)
    assert cached_bytes(gone) < cached_bytes(few) + (4 << 20)
    assert gone["heap"]["in_use_bytes"] <= many["heap"]["in_use_bytes"]
    assert numbers["gone_kib"] < numbers["many_kib"] + 4 * MIB_KIB


@pytest.mark.parametrize(("strata", "threads"), [("rseq", 4000), ("no-rseq", 4000), ("refused", 2000)], indirect=["strata"])
def test_work_at_the_end_of_threads(strata, helper, threads):
    """Destructors of pthread keys, in four rounds, and of C++ thread_local objects allocate and free; nothing of it is lost."""
    result = figures(strata.run([helper("stress/thread_exit"), threads]))
    assert result["late_kib"] < result["early_kib"] + 8 * MIB_KIB


@pytest.mark.strata_only
@pytest.mark.parametrize("kind", ["warm", "wander"])
def test_signal_handlers_that_allocate(strata, helper, kind):
    """Handlers interrupt malloc and free at any instruction of the restartable sequences, and call both themselves.

    Only with rseq: no malloc promises this, and the caches of threads do not have it to give.
    """
    result = figures(strata.run([helper("stress/signal_storm"), 500, 2, 40, kind]))
    assert result["inside"] >= 500, f"too few of {result['handled']} signals interrupted the allocator: nothing is tested"


@pytest.mark.parametrize("strata", ["rseq", "no-rseq"], indirect=True)
def test_threads_that_are_cancelled(strata, helper):
    """A cancellation that is pending ends no thread within malloc or free."""
    assert figures(strata.run([helper("stress/cancelled")], conf="decay_ms:20"))["through"] == 3


@BOTH
@pytest.mark.parametrize(("producers", "consumers"), [(2, 2), (1, 3)])
def test_handover(strata, helper, producers, consumers):
    """Blocks freed by another thread keep their contents till then, and their memory is found again."""
    result = figures(strata.run([helper("stress/handover"), 300000, producers, consumers]))
    assert result["late_kib"] < 1.25 * result["early_kib"] + 8 * MIB_KIB
