"""What the experiments with rings of blocks share: their times by powers of two."""

from statistics import median

MIB = 1 << 20


def curve(runs: list[dict], name: str) -> dict[int, float]:
    """The median of the runs for each size; a size of which no block came is left out."""
    sizes = [one["bytes"] for one in runs[0]["bins"] if one["count"]]
    return {size: median(one[name] for run in runs for one in run["bins"] if one["bytes"] == size) for size in sizes}


def most_over_least(times: dict[int, float], below: int) -> float:
    """By how much the dearest of the sizes below that one exceeds the cheapest."""
    some = [time for size, time in times.items() if size < below]
    return max(some) / max(min(some), 1)


def span(times: dict[int, float], below: int) -> float:
    """What the dearest of the sizes below that one costs more than the cheapest."""
    some = [time for size, time in times.items() if size < below]
    return max(some) - min(some)
