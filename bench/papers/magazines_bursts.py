"""magazines, section 3.2: bursts of objects of many sizes; how often a cache constructs, and what a pair takes beside malloc with a construction each time."""

from frame.experiment import Claim, Context, Result, Series, interleaved, main

PAIRS = 20_000
# Of all allocations: what arrays that grow and the clock's maintenance may cost.
CONSTRUCTED_MOST = 0.01
PANEL = "constructions per allocation"


def measure(context: Context) -> Result:
    runs = interleaved(
        context.choose(5, 1), {"bursts": lambda: context.run("magazines_bursts", context.choose(21, 3), context.choose(PAIRS, PAIRS // 4))}
    )["bursts"]
    points = [[run["bursts"][i] for run in runs] for i in range(len(runs[0]["bursts"]))]
    sizes = sorted({point[0]["bytes"] for point in points})

    def curve(size: int, metric: str) -> list[tuple[float, float]]:
        return [(point[0]["held"], sorted(one[metric] for one in point)[len(point) // 2]) for point in points if point[0]["bytes"] == size]

    return Result(
        id="magazines/section-3-2",
        title="Bursts of objects of a cache with a constructor, beside malloc and a construction each time",
        unit="ns per pair",
        x_label="held together",
        x_log=True,
        published=[],
        measured=[Series(f"cache, {size:,} bytes", curve(size, "cache_ns")) for size in sizes]
        + [Series(f"malloc and construction, {size:,} bytes", curve(size, "malloc_ns")) for size in sizes]
        + [Series(f"constructed anew, {size:,} bytes", curve(size, "constructed"), PANEL) for size in sizes],
        panel_units={PANEL: "constructions"},
        holds=[
            Claim(
                f"objects stay constructed, however large and many: at most {CONSTRUCTED_MOST:.0%} of the allocations construct",
                "section 3.2",
                all(share <= CONSTRUCTED_MOST for size in sizes for _, share in curve(size, "constructed")),
            ),
            Claim(
                "a pair from the cache takes less time than one of malloc with the construction, for each size and number",
                "section 3.2",
                all(
                    cache < other
                    for size in sizes
                    for (_, cache), (_, other) in zip(curve(size, "cache_ns"), curve(size, "malloc_ns"), strict=True)
                ),
            ),
        ],
        note=(
            "One thread in a process that has two. So many objects are allocated together and freed in another order, over and over; the constructor "
            "multiplies and adds 64 times, each time with the result before. A depot keeps all that was constructed until nobody needed it for an interval "
            "(section 3.7), or memory is wanted."
        ),
    )


if __name__ == "__main__":
    main(measure)
