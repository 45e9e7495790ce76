"""The harness's arithmetic: ratios, means, intervals, the bar; by figures that can be worked out by hand."""

import math

import pytest
from harness import bar, figures
from harness.measuring import in_turn

PEERS = ["glibc", "mimalloc"]


def medians(**loads):
    return {load: {name: {metric: value for metric in figures.BAR_METRICS} for name, value in row.items()} for load, row in loads.items()}


def test_the_best_other_is_one_allocator_over_all_loads():
    """Not whoever was best on each load: glibc is at 1/2 and 4, mimalloc at 1 and 1."""
    made_up = medians(a={"strata": 1.0, "glibc": 0.5, "mimalloc": 1.0}, b={"strata": 1.0, "glibc": 4.0, "mimalloc": 1.0})
    name, ratio = figures.best_as_a_whole(made_up, "strata", PEERS, "wall_s")
    assert name == "mimalloc" and ratio == pytest.approx(1)
    assert figures.against_best_other(made_up, ["strata"], ["strata", *PEERS], PEERS, "wall_s")["strata"] == pytest.approx(math.sqrt(2))


def test_a_load_that_one_of_the_rivals_did_not_end_is_in_no_mean():
    made_up = medians(a={"strata": 1.0, "glibc": 2.0, "mimalloc": 2.0}, b={"strata": 9.0, "glibc": 1.0})
    assert figures.best_as_a_whole(made_up, "strata", PEERS, "wall_s")[1] == pytest.approx(0.5)


def test_a_figure_of_nothing_makes_no_infinite_ratio():
    assert figures.ratio({"minor_faults": 0}, {"minor_faults": 0}, "minor_faults") == 1
    assert figures.ratio({"minor_faults": 8}, {"minor_faults": 0}, "minor_faults") == 8


def test_intervals_of_what_never_varies_are_points():
    samples = {"a": {"x": [{"wall_s": 2.0}] * 5, "y": [{"wall_s": 1.0}] * 5}}
    assert figures.interval(samples, ["a"], "x", "y", "wall_s") == pytest.approx((2, 2))


def test_intervals_hold_the_ratio_and_grow_with_the_noise():
    def interval(noise):
        xs = [{"wall_s": 2.0 + noise * turn} for turn in (-2, -1, 0, 1, 2)]
        ys = [{"wall_s": 1.0 + noise * turn} for turn in (1, -2, 0, 2, -1)]
        return figures.interval({"a": {"x": xs, "y": ys}}, ["a"], "x", "y", "wall_s")

    low, high = interval(0.01)
    wider_low, wider_high = interval(0.1)
    assert wider_low < low < 2 < high < wider_high
    assert interval(0.1) == (wider_low, wider_high)  # the same figures each time


def test_of_repetitions_the_median_counts_and_how_far_they_were_apart_is_known():
    samples = [{"wall_s": value} for value in (1.0, 9.0, 2.0)]
    assert figures.medians_of(samples) == {"wall_s": 2.0} and figures.spread_of(samples, "wall_s") == 4


@pytest.mark.parametrize("turns, left_out", [(5, 0), (7, 1), (9, 1)])
def test_intervals_hold_what_nineteen_of_twenty_resamples_come_to(turns, left_out):
    """
    At each end 2.5 of 100 resamples are left out. Of five turns the largest is the median of 5.8 of 100; of seven it is that of 1.0, and it or the next
    one of 10.7; of nine of 0.1, and it or the next one of 3.0.
    """
    samples = {"a": {"x": [{"wall_s": 2.0**turn} for turn in range(turns)], "y": [{"wall_s": 1.0}] * turns}}
    assert figures.interval(samples, ["a"], "x", "y", "wall_s") == pytest.approx((2**left_out, 2 ** (turns - 1 - left_out)))


def test_the_median_of_an_even_number_of_turns_is_between_the_two_in_the_middle():
    samples = {"a": {"x": [{"wall_s": float(turn)} for turn in range(1, 7)], "y": [{"wall_s": 1.0}] * 6}}
    assert figures.interval(samples, ["a"], "x", "y", "wall_s") == pytest.approx((1.5, 5.5))


def test_intervals_take_no_common_pace_for_a_difference():
    """A machine that was three times as slow in two of five turns, for both."""
    paces = [1, 3, 1, 3, 1]
    samples = {"a": {"x": [{"wall_s": 2.0 * pace} for pace in paces], "y": [{"wall_s": 1.0 * pace} for pace in paces]}}
    assert figures.interval(samples, ["a"], "x", "y", "wall_s") == pytest.approx((2, 2))


def test_scaling():
    one, two = [{"inner_s": 1.0}, {"inner_s": 1.0}, {"inner_s": 2.0}], [{"inner_s": 1.0}, {"inner_s": 2.0}, {"inner_s": 2.5}]
    assert figures.scaling(one, two, 2) == pytest.approx(1.6)


def test_everybody_is_first_and_neighbours_change():
    names = list("abc")
    orders = [in_turn(names, turn) for turn in range(6)]
    assert {order[0] for order in orders} == set(names) == {order[-1] for order in orders}
    assert all(sorted(order) == names for order in orders)


def verdict(found, words):
    matching = [one for one in found if words in one["what"]]
    assert len(matching) == 1, [one["what"] for one in found]
    return matching[0]


def test_the_bar():
    made_up = medians(
        pipeline={"strata": 1.0, "glibc": 2.0, "mimalloc": 1.6}, tiny={"strata": 1.04, "glibc": 1.0, "mimalloc": 3.0}, c={"strata": 0.5, "glibc": 1.0, "mimalloc": 1.0}
    )  # fmt: skip
    for row in made_up.values():
        for name, values in row.items():
            values |= {"malloc_p99_9_ns": 100.0 if name == "strata" else 90.0, "free_p99_9_ns": 50.0}
    made_up["tiny"]["strata"]["mean_rss_bytes"] = (1 << 20) + (299 << 10)
    made_up["tiny"]["glibc"]["mean_rss_bytes"] = 1 << 20
    found = bar.verdicts(made_up, PEERS, ["tiny"], 1.97, [], False)
    mean = verdict(found, "wall time: geometric mean")
    assert mean["value"] == pytest.approx((0.5 * 1.04 * 0.5) ** (1 / 3)) and mean["detail"] == "glibc" and mean["met"]
    worst = verdict(found, "wall time: worst load")
    assert worst["detail"] == "tiny" and worst["value"] == pytest.approx(1.04) and worst["met"]
    assert verdict(found, "KiB more")["value"] == pytest.approx(299) and verdict(found, "KiB more")["met"]
    made_up["tiny"]["strata"]["mean_rss_bytes"] += 2 << 10
    assert not verdict(bar.verdicts(made_up, PEERS, ["tiny"], 1.97, [], False), "KiB more")["met"]
    assert not verdict(found, "time to start")["met"]
    assert verdict(found, "producer and consumer")["value"] == pytest.approx(1.6) and verdict(found, "producer and consumer")["met"]
    assert not verdict(found, "p99.9 of malloc")["met"] and verdict(found, "p99.9 of free")["met"]
    assert verdict(found, "two threads")["met"]
    assert not any("rseq" in one["what"] for one in found)  # not measured
    failed = bar.verdicts(made_up, PEERS, ["tiny"], 1.97, [], True)
    assert len(failed) == len(found) and not any(one["met"] for one in failed)


def test_the_path_without_rseq_is_held_against_that_with():
    made_up = medians(a={"strata": 1.0, "strata-no-rseq": 1.2, "glibc": 2.0, "mimalloc": 2.0})
    found = verdict(bar.verdicts(made_up, PEERS, [], None, [], False), "without rseq")
    assert found["value"] == pytest.approx(1.2) and not found["met"]


def made_up_pages(**changes):
    """Figures that meet every bar by little."""
    pages = {
        "pairs": [
            {"bytes": 4096, "strata_ns": 300.0, "touched_ns": 1.0, "kernel_ns": 900.0},
            {"bytes": 4 << 20, "strata_ns": 100.0, "touched_ns": 1.0, "kernel_ns": 10_000.0},
            {"bytes": 64 << 20, "strata_ns": 200.0, "touched_ns": 1.0, "kernel_ns": 21_000.0},
        ],
        "doubling": [
            {"bytes": 2 << 20, "first_ns": 20_000.0, "aged_ns": 19_000.0, "later_ns": 1000.0, "copy_ns": 9e5},
            {"bytes": 1 << 30, "first_ns": 8000.0, "aged_ns": 7000.0, "later_ns": 99_000.0, "copy_ns": 9e8},
        ],
        "swap": {"bytes": 64 << 20, "strata_ns": 49_000.0, "aged_ns": 50_000.0, "copy_ns": 9e6},
    }
    return pages | changes


def test_the_bar_of_pages():
    found = bar.verdicts({}, PEERS, [], None, [], False, made_up_pages())
    assert [one["what"].partition(":")[0] for one in found] == ["pages"] * 5 and all(one["met"] for one in found)
    spread = verdict(found, "end to end")
    assert spread["value"] == pytest.approx(3) and spread["detail"] == "4 KiB, 4 MiB"
    assert verdict(found, "mmap")["value"] == pytest.approx(100) and verdict(found, "mmap")["detail"] == "4 MiB"  # small blocks have no such bar
    for where, value in (("in a fresh heap", 20), ("with a history", 19)):
        assert verdict(found, where)["value"] == pytest.approx(value) and verdict(found, where)["detail"] == "to 2 MiB"
    assert verdict(found, "exchange")["value"] == pytest.approx(50) and verdict(found, "exchange")["detail"] == "64 MiB, with a history"
    assert not any(one["what"].startswith("pages") for one in bar.verdicts({}, PEERS, [], None, [], False))
    assert not any(one["met"] for one in bar.verdicts({}, PEERS, [], None, [], True, made_up_pages()))


@pytest.mark.parametrize(
    "part, place, metric, value, words",
    [("pairs", 0, "strata_ns", 301.0, "end to end"), ("pairs", 2, "kernel_ns", 19_999.0, "mmap"), ("doubling", 1, "first_ns", 20_100.0, "fresh heap"),
     ("doubling", 1, "aged_ns", 20_100.0, "with a history"), ("swap", None, "strata_ns", 50_001.0, "exchange"), ("swap", None, "aged_ns", 50_001.0, "exchange")],
)  # fmt: skip
def test_each_bar_of_pages_is_missed_by_itself(part, place, metric, value, words):
    pages = made_up_pages()
    (pages[part] if place is None else pages[part][place])[metric] = value
    found = bar.verdicts({}, PEERS, [], None, [], False, pages)
    assert [one["met"] for one in found] == [words not in one["what"] for one in found]
