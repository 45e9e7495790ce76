"""What strata has to reach, and whether it does: verdicts, each a claim with its value and the bound. No input or output here.

The best other is always the best of the rivals of the bar (allocators.py). A bound that nothing was measured for gives no
verdict; where strata failed in a load, none is met, as a load that it failed in must not make the bar easier. Likewise that on its
fallback where that failed.
"""

from collections.abc import Sequence

from . import figures, visits
from .allocators import FALLBACK, GLIBC, STRATA

TIME_BAR, TIME_EACH = 0.92, 1.10
MEMORY_BAR, MEMORY_EACH = 1.00, 1.15
MEMORY_TO_MIMALLOC = 0.85
TINY_BYTES, TINY_TIME = 300 << 10, 1.03
TAIL_BAR = 1.00
SCALING_BAR = 1.95
PIPELINE_BAR = 1.5
FALLBACK_BAR = 1.10
PAIR_SPREAD, PAIR_TO_KERNEL, PAIR_LARGE_BYTES = 3.0, 100.0, 4 << 20
STEP_US, SWAP_US = 20.0, 50.0
# Of the visits that the theorem allows; and of those that there are where no lock is found taken: half-way to what one doubling of m makes of them.
VISITS_BAR, VISITS_FALL_BAR = 1.0, 0.75
PIPELINE = "pipeline"


def _verdict(what: str, value: float, wanted: float, *, at_least: bool = False, detail: str = "") -> dict:
    met = value >= wanted if at_least else value <= wanted
    return {"what": what, "value": value, "wanted": wanted, "at_least": at_least, "detail": detail, "met": met}


def verdicts(
    medians: figures.Medians,
    rivals: Sequence[str],
    tiny: Sequence[str],
    scaling: float | None,
    depot_visits: Sequence[dict],
    strata_failed: bool,
    pages: dict | None = None,
    fallback_failed: bool = False,
) -> list[dict]:
    """`medians` without controls; `tiny` the loads that are starts of tiny programs; `scaling` of strata; `depot_visits` as visits.count has them;
    `pages` as pages.py builds it."""
    found: list[dict] = []
    words = {"wall_s": "wall time", "peak_rss_bytes": "peak RSS", "mean_rss_bytes": "time-averaged RSS"}
    for metric, name in words.items():
        found += _means(medians, rivals, metric, name)
    found += _tiny(medians, tiny) + _tails(medians, rivals)
    if scaling is not None:
        found.append(_verdict("two threads against one", scaling, SCALING_BAR, at_least=True))
    row = medians.get(PIPELINE, {})
    if STRATA in row and (others := [name for name in rivals if name in row]):
        best = figures.best_other(row, STRATA, others, "wall_s")
        value = 1 / figures.ratio(row[STRATA], row[best], "wall_s")
        found.append(_verdict("producer and consumer: throughput against the best other", value, PIPELINE_BAR, at_least=True, detail=best))
    fallback = figures.against_peers(medians, [FALLBACK, STRATA], [], "wall_s")[FALLBACK][STRATA]
    if fallback is not None:
        found.append(_verdict("wall time without rseq against that with", fallback, FALLBACK_BAR))
        found[-1]["met"] &= not fallback_failed
    found += _pages(pages)
    found += _visits(depot_visits)
    if strata_failed:
        for verdict in found:
            verdict["met"] = False
    return found


def _means(medians: figures.Medians, rivals: Sequence[str], metric: str, name: str) -> list[dict]:
    best = figures.best_as_a_whole(medians, STRATA, rivals, metric)
    if best is None:
        return []
    is_time = metric == "wall_s"
    found = [_verdict(f"{name}: geometric mean against the best other", best[1], TIME_BAR if is_time else MEMORY_BAR, detail=best[0])]
    if not is_time and "mimalloc" in rivals:
        mean = figures.against_peers(medians, [STRATA, "mimalloc"], rivals, metric)[STRATA]["mimalloc"]
        if mean is not None:
            found.append(_verdict(f"{name}: geometric mean against mimalloc", mean, MEMORY_TO_MIMALLOC))
    ratios = {}
    for load in figures.complete_loads(medians, [STRATA, *rivals]):
        row = medians[load]
        ratios[load] = figures.ratio(row[STRATA], row[figures.best_other(row, STRATA, rivals, metric)], metric)
    worst = max(ratios, key=lambda load: ratios[load])
    found.append(_verdict(f"{name}: worst load against the best of all", ratios[worst], TIME_EACH if is_time else MEMORY_EACH, detail=worst))
    return found


def _tiny(medians: figures.Medians, tiny: Sequence[str]) -> list[dict]:
    rows = {load: medians[load] for load in tiny if load in medians and STRATA in medians[load] and GLIBC in medians[load]}
    if not rows:
        return []
    more = {load: row[STRATA]["mean_rss_bytes"] - row[GLIBC]["mean_rss_bytes"] for load, row in rows.items()}
    times = {load: figures.ratio(row[STRATA], row[GLIBC], "wall_s") for load, row in rows.items()}
    fattest, slowest = max(more, key=lambda load: more[load]), max(times, key=lambda load: times[load])
    return [
        _verdict("tiny programs: KiB more than under glibc", more[fattest] / 1024, TINY_BYTES / 1024, detail=fattest),
        _verdict("tiny programs: time to start against glibc", times[slowest], TINY_TIME, detail=slowest),
    ]


def _tails(medians: figures.Medians, rivals: Sequence[str]) -> list[dict]:
    found = []
    for metric in figures.TAIL_METRICS:
        rows = {load: row for load, row in medians.items() if row and all(metric in values for values in row.values())}
        best = figures.best_as_a_whole(rows, STRATA, rivals, metric)
        if best is not None:
            call = metric.partition("_")[0]
            found.append(_verdict(f"p99.9 of {call} in server loads against the best other", best[1], TAIL_BAR, detail=best[0]))
    return found


def size_text(size: int) -> str:
    return f"{size >> 30} GiB" if size >= 1 << 30 else f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def _pages(pages: dict | None) -> list[dict]:
    if pages is None:
        return []
    pairs = pages["pairs"]
    dearest, cheapest = max(pairs, key=lambda pair: pair["strata_ns"]), min(pairs, key=lambda pair: pair["strata_ns"])
    gains = {pair["bytes"]: pair["kernel_ns"] / pair["strata_ns"] for pair in pairs if pair["bytes"] >= PAIR_LARGE_BYTES}
    least = min(gains, key=lambda size: gains[size])
    dearer = {True: "with a history", False: "in a fresh heap"}
    swap = pages["swap"]
    swap_aged = swap["aged_ns"] > swap["strata_ns"]
    return [
        _verdict(
            "pages: allocation and release from end to end, dearest size against cheapest",
            dearest["strata_ns"] / cheapest["strata_ns"], PAIR_SPREAD, detail=f"{size_text(dearest['bytes'])}, {size_text(cheapest['bytes'])}",
        ),
        _verdict(
            "pages: mmap, touch and munmap against allocation and release, from 4 MiB on", gains[least], PAIR_TO_KERNEL, at_least=True, detail=size_text(least)
        ),
        *(
            _verdict(
                f"pages: us for a step of growth by doubling, the dearest of a first round, {where}, without the right to lock memory",
                step[metric] / 1000, STEP_US, detail=f"to {size_text(step['bytes'])}",
            )
            for metric, where in (("first_ns", "in a fresh heap"), ("aged_ns", "with a history"))
            for step in [max(pages["doubling"], key=lambda step: step[metric])]
        ),
        _verdict(
            "pages: us for an exchange of two blocks", max(swap["strata_ns"], swap["aged_ns"]) / 1000, SWAP_US,
            detail=f"{size_text(swap['bytes'])}, {dearer[swap_aged]}",
        ),
    ]  # fmt: skip


def _visits(rows: Sequence[dict]) -> list[dict]:
    found = []
    if rows:
        worst = max(rows, key=lambda row: row["of_bound"])
        value, detail = worst["of_bound"], f"{worst['load']} on {worst['cpus']:,} CPUs"
        found.append(_verdict("simulated CPUs: visits of the depot against 2/m of an operation", value, VISITS_BAR, detail=detail))
    if falls := visits.falls(rows):
        load, cpus = max(falls, key=lambda key: falls[key])
        what = "simulated CPUs: visits of the depot where its lock is found taken against where it is not"
        found.append(_verdict(what, falls[load, cpus], VISITS_FALL_BAR, detail=f"{load} on {cpus:,} CPUs"))
    return found
