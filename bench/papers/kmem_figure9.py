"""kmem, figure 9: the worst case over block sizes: allocate until memory is exhausted, free all, next size, without a restart."""

from statistics import median

from frame.experiment import Claim, Context, Published, Result, Series, main, same

# What each size must get of the limit before we say that the memory of the others came back.
LEAST_SHARE = 0.8


def measure(context: Context) -> Result:
    limit_mib = context.choose(512, 64)
    runs = [context.run("kmem_worst_case", limit_mib << 20, conf=f"hard_limit:{limit_mib}M") for _ in range(context.choose(5, 1))]
    sizes = [one["bytes"] for one in runs[0]["up"]]
    same("block sizes", [tuple(one["bytes"] for one in run["up"]) for run in runs])

    def curve(way: str, name: str) -> dict[int, float]:
        return {size: median(one[name] for run in runs for one in run[way] if one["bytes"] == size) for size in sizes}

    allocation, release = curve("up", "allocation_ns"), curve("up", "release_ns")
    pair = {size: allocation[size] + release[size] for size in sizes}
    share = min(one["share"] for run in runs for way in ("up", "down") for one in run[way])
    return Result(
        id="kmem/figure-9",
        title="Worst case: memory exhausted with blocks of one size, freed, and exhausted with the next, without a restart",
        unit="ns",
        x_label="block size, bytes",
        x_log=True,
        y_log=True,
        published=[
            Published("target (blocks moved at a time), 16-byte blocks", 10, "blocks", "section 4.3"),
            Published("target, 4,096-byte blocks", 2, "blocks", "section 4.3"),
        ],
        measured=[
            Series("allocation", list(allocation.items())),
            Series("release", list(release.items())),
            Series("both", list(pair.items())),
        ],
        holds=[
            Claim(
                f"memory of one size serves the next at once: each size, up and down again, gets at least {LEAST_SHARE:.0%} of the limit "
                f"(the least: {share:.0%})",
                "section 4.3",
                share >= LEAST_SHARE,
            ),
            Claim(
                "large blocks cost more than small ones: a pair of 4,096 bytes more than one of 16", "section 4.3, figure 9", pair[4096] > pair[16]
            ),
            Claim("freeing a small block (16 bytes) costs more than allocating it", "section 4.3, figure 9", release[16] > allocation[16]),
        ],
        note=(
            f"The option `hard_limit` ends memory at {limit_mib} MiB. Allocation includes fetching pages from the system and the first touch of the "
            "block, freeing includes giving pages back and the cache misses of walking the list of blocks. After the paper's sizes in ascending "
            "order the process goes down through them again."
        ),
    )


if __name__ == "__main__":
    main(measure)
