"""magazines, section 4.5.1: latency of an arena's allocation and free over fragmentation, against a resource map."""

from frame.experiment import (
    Claim,
    Context,
    Published,
    Result,
    Series,
    interleaved,
    main,
    median,
)

NAMES = {"arena": "strata's arena", "cached": "strata's arena with a quantum cache", "map": "resource map"}
# Of the program: in each of its rounds all numbers of segments have their turn.
ROUNDS = 41
OPERATIONS = 5000
# How much longer the largest may take than the smallest, and anything than the least, before we don't call it constant; a linear one would take a
# million times as long.
LARGEST_RATIO = 1.5
CONSTANT_RATIO = 2
# Linear: over the last two decades latency grows a hundredfold. Caches of the processor bend that.
LINEAR_RATIO = 30


def measure(context: Context) -> Result:
    counts = [10**power for power in range(1, context.choose(7, 5) + 1)]

    def job(name: str):
        return lambda: context.run("vmem_latency", name, ROUNDS, OPERATIONS, *counts)

    # Where a process has its memory matters, too: several of each, in turns.
    runs = interleaved(context.choose(5, 3), {name: job(name) for name in NAMES})
    latency = {(name, segments): median(done, str(segments)) for name, done in runs.items() for segments in counts}
    least, most = counts[0], counts[-1]
    constant = {name: [latency[name, segments] for segments in counts] for name in ("arena", "cached")}
    return Result(
        id="magazines/section-4-5-1",
        title="Latency of an arena over fragmentation",
        unit="ns per pair",
        x_label="segments",
        x_log=True,
        y_log=True,
        published=[
            Published("vmem without quantum caches, no fragmentation", 1560, "ns", "section 4.5.1"),
            Published("vmem with quantum caches", 482, "ns", "section 4.5.1"),
            Published("rmalloc, no fragmentation", 715, "ns", "section 4.5.1"),
        ],
        measured=[Series(title, [(segments, latency[name, segments]) for segments in counts]) for name, title in NAMES.items()],
        holds=[
            Claim(
                f"{most:,} segments take an arena at most {LARGEST_RATIO} times what {least} take, with quantum caches or without",
                "section 4.5.1",
                all(arena[-1] <= LARGEST_RATIO * arena[0] for arena in constant.values()),
            ),
            Claim(
                f"an arena takes constant time however many segments there are, with quantum caches or without: at most {CONSTANT_RATIO} times the least anywhere",
                "section 4.5.1",
                all(max(arena) <= CONSTANT_RATIO * min(arena) for arena in constant.values()),
            ),
            Claim(
                f"a resource map takes linear time: {most:,} segments at least {LINEAR_RATIO} times as long as {most // 100:,}",
                "section 4.5.1",
                latency["map", most] >= LINEAR_RATIO * latency["map", most // 100],
            ),
            Claim(
                "quantum caches make an arena faster, by a factor of two at least",
                "section 4.5.1",
                all(2 * latency["cached", segments] <= latency["arena", segments] for segments in counts),
            ),
            Claim(
                f"and faster than a resource map even where there is hardly any fragmentation ({least} segments)",
                "section 4.5.1",
                latency["cached", least] < latency["map", least],
            ),
            Claim(
                f"without them a resource map is the faster one where there is hardly any fragmentation ({least} segments)",
                "section 4.5.1",
                latency["map", least] < latency["arena", least],
            ),
            Claim(
                f"an arena is the faster one where there is much ({most:,} segments)", "section 4.5.1", latency["arena", most] < latency["map", most]
            ),
        ],
        note=(
            "Every other one of the segments is free, and too small for what is allocated then. The resource map is an array of free pieces in the "
            "order of their addresses, without a lock; the arena has one, its quantum caches need none. The pieces are allocated with constraints (xalloc), which goes round the "
            "caches; what is timed is not. All numbers of segments are measured at the same time, in turns."
        ),
    )


if __name__ == "__main__":
    main(measure)
