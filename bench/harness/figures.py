"""What is made of the samples: medians, ratios, geometric means, the bar. No input or output here.

Tables are dicts: results[load][allocator] is a list of metric dicts, one a repetition; medians[load][allocator] is one dict.
A ratio below 1 is better: every metric is one of which less is better.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

Metrics = Mapping[str, float]
Medians = dict[str, dict[str, dict[str, float]]]

# What the bar is about, and what is shown beside it.
BAR_METRICS = ("wall_s", "peak_rss_bytes")
RATIO_METRICS = ("wall_s", "cpu_s", "peak_rss_bytes", "minor_faults")
SCALING_BAR = 1.9

# A run of no measurable system time or faults must not make a ratio infinite: values below these count as these.
FLOORS = {"wall_s": 1e-4, "user_s": 1e-3, "system_s": 1e-3, "cpu_s": 1e-3, "peak_rss_bytes": 4096.0, "minor_faults": 1.0, "ns": 1e-3}


def medians_of(samples: Sequence[Metrics]) -> dict[str, float]:
    return {name: statistics.median(sample[name] for sample in samples) for name in samples[0]}


def spread_of(samples: Sequence[Metrics], metric: str) -> float:
    """(largest - smallest) / median: how far repetitions were apart."""
    values = [sample[metric] for sample in samples]
    middle = statistics.median(values)
    return (max(values) - min(values)) / middle if middle else 0.0


def ratio(mine: Metrics, other: Metrics, metric: str) -> float:
    floor = FLOORS.get(metric, 1e-9)
    return max(mine[metric], floor) / max(other[metric], floor)


def geometric_mean(values: Iterable[float]) -> float | None:
    logs = [math.log(value) for value in values]
    return math.exp(statistics.fmean(logs)) if logs else None


def complete_loads(medians: Medians, names: Sequence[str]) -> list[str]:
    """Loads on which every allocator has figures: means over different sets of loads can't be compared."""
    return [load for load, row in medians.items() if all(name in row for name in names)]


def against_peers(medians: Medians, names: Sequence[str], core: Sequence[str], metric: str) -> dict[str, dict[str, float | None]]:
    """For each pair (mine, other): the geometric mean of mine / other over the loads that all of `core` and this pair ended."""
    means: dict[str, dict[str, float | None]] = {}
    for mine in names:
        means[mine] = {}
        for other in names:
            if other != mine:
                loads = complete_loads(medians, [*core, mine, other])
                means[mine][other] = geometric_mean(ratio(medians[load][mine], medians[load][other], metric) for load in loads)
    return means


def best_other(row: Mapping[str, Metrics], mine: str, names: Sequence[str], metric: str) -> str:
    """Who, other than `mine`, was best on this load."""
    return min((name for name in names if name != mine and name in row), key=lambda name: row[name][metric])


def against_best_other(medians: Medians, names: Sequence[str], core: Sequence[str], rivals: Sequence[str], metric: str) -> dict[str, float]:
    """For each allocator: the geometric mean of its ratio to whichever rival was best on each load.

    An opponent made of the best of all of them, load by load: nobody needs to beat it, but it shows what is left to gain.
    """
    means: dict[str, float] = {}
    for mine in names:
        others = [name for name in rivals if name != mine]
        loads = complete_loads(medians, [*core, mine])
        if others and loads:
            rows = [medians[load] for load in loads]
            mean = geometric_mean(ratio(row[mine], row[best_other(row, mine, others, metric)], metric) for row in rows)
            assert mean is not None
            means[mine] = mean
    return means


def bar(medians: Medians, mine: str, rivals: Sequence[str]) -> dict[str, dict]:
    """For each metric of the bar: is the geometric mean no worse than that of the best rival, taken as a whole?"""
    verdicts = {}
    core = [mine, *rivals]
    for metric in BAR_METRICS:
        means = against_peers(medians, core, core, metric)[mine]
        known = {name: mean for name, mean in means.items() if mean is not None}
        if known:
            hardest = max(known, key=lambda name: known[name])
            verdicts[metric] = {"best_rival": hardest, "ratio": known[hardest], "met": known[hardest] <= 1.0}
    return verdicts


def scaling(one: Sequence[Metrics], many: Sequence[Metrics], threads: int) -> float:
    """How many times the work of one thread `threads` threads get done; the programs' own clocks, without start and end.

    The median over the turns, in each of which the two ran one after the other.
    """
    return statistics.median(threads * a["inner_s"] / b["inner_s"] for a, b in zip(one, many, strict=True))
