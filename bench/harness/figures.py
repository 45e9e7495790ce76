"""What is made of the samples: medians, ratios, geometric means, intervals. No input or output here.

Tables are dicts: results[load][allocator] is a list of metric dicts, one a repetition; medians[load][allocator] is one dict.
A ratio below 1 is better: every metric is one of which less is better.
"""

import math
import random
import statistics
from collections.abc import Iterable, Mapping, Sequence

Metrics = Mapping[str, float]
Medians = dict[str, dict[str, dict[str, float]]]
Samples = Mapping[str, Mapping[str, Sequence[Metrics]]]

# What the bar is about, and what is shown beside it.
BAR_METRICS = ("wall_s", "peak_rss_bytes", "mean_rss_bytes")
RATIO_METRICS = ("wall_s", "cpu_s", "peak_rss_bytes", "mean_rss_bytes", "minor_faults", "switches")
TAIL_METRICS = ("malloc_p99_9_ns", "free_p99_9_ns")

# Intervals hold the true value in nineteen of twenty repetitions of the whole benchmark, as far as its own runs tell.
CONFIDENCE = 0.95
RESAMPLES = 1000
SEED = 20010625

# A run of no measurable system time or faults must not make a ratio infinite: values below these count as these.
FLOORS = {"wall_s": 1e-4, "user_s": 1e-3, "system_s": 1e-3, "cpu_s": 1e-3, "peak_rss_bytes": 4096.0, "minor_faults": 1.0, "switches": 1.0, "ns": 1e-3}
FLOORS |= {"mean_rss_bytes": 4096.0, "malloc_p99_9_ns": 1.0, "free_p99_9_ns": 1.0}


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


def best_as_a_whole(medians: Medians, mine: str, rivals: Sequence[str], metric: str) -> tuple[str, float] | None:
    """The rival that `mine` fares worst against over all loads that all of them ended, and the geometric mean of mine / rival."""
    others = [name for name in rivals if name != mine]
    core = [mine, *others]
    means = against_peers(medians, core, core, metric)[mine]
    known = {name: mean for name, mean in means.items() if mean is not None}
    if not known:
        return None
    hardest = max(known, key=lambda name: known[name])
    return hardest, known[hardest]


def interval(samples: Samples, loads: Sequence[str], mine: str, other: str, metric: str) -> tuple[float, float]:
    """By bootstrap: between which values the geometric mean of mine / other over these loads lies.

    Each resample draws the turns of each load anew, with replacement, the same for both: what ran side by side stays together,
    and a pace of the machine that changed between turns is no difference between allocators. The loads themselves are fixed.
    """
    rng = random.Random(SEED)
    floor = FLOORS.get(metric, 1e-9)
    rows = []
    for load in loads:
        pairs = zip(samples[load][mine], samples[load][other], strict=False)
        rows.append([(max(a[metric], floor), max(b[metric], floor)) for a, b in pairs])
    means = []
    for _ in range(RESAMPLES):
        total = 0.0
        for row in rows:
            drawn = rng.choices(row, k=len(row))
            total += math.log(_median([a for a, _ in drawn]) / _median([b for _, b in drawn]))
        means.append(total / len(rows))
    means.sort()
    beyond = (1 - CONFIDENCE) / 2
    low, high = means[round(beyond * (RESAMPLES - 1))], means[round((1 - beyond) * (RESAMPLES - 1))]
    return math.exp(low), math.exp(high)


def _median(values: list[float]) -> float:
    """statistics.median for short lists, which is called hundreds of thousands of times here."""
    values.sort()
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


def scaling(one: Sequence[Metrics], many: Sequence[Metrics], threads: int) -> float:
    """How many times the work of one thread `threads` threads get done; the programs' own clocks, without start and end.

    The median over the turns, in each of which the two ran one after the other.
    """
    return statistics.median(threads * a["inner_s"] / b["inner_s"] for a, b in zip(one, many, strict=True))
