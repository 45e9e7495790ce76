"""magazines, sections 3.2 and 4.4.4: a pair of allocation and free from an arena's quantum caches, from an object cache with and without a constructor, and by malloc."""

import statistics

from frame.experiment import Claim, Context, Published, Result, Series, interleaved, main, median

NAMES = {
    "malloc": "malloc",
    "objects": "object cache",
    "building": "malloc, and a construction each time",
    "built": "object cache with that constructor",
    "near": "arena, near its first integer",
    "sleeping": "arena, near, STRATA_ARENA_SLEEP",
    "far": "arena, far from it",
    "scattered": "arena, in 16 spans far from each other",
    "beyond": "arena, in 16 spans behind 256 others",
    "scaled": "arena, near, quantum 4,096",
    "scaled_scattered": "arena, in 16 spans, quantum 4,096",
}
RATIOS = {"objects_to_malloc": "object cache to malloc", "malloc_to_malloc": "malloc to malloc, once more"}
QUARTILES = ("lower quartile", "median", "upper quartile")
RATIO_PANEL = "rounds that follow each other"
# What vmem_pairs holds at a time.
ONE, MANY = 1, 64
SUFFIX = {ONE: "", MANY: "_many"}
ROUNDS = 101
OPERATIONS = 20_000
# What an arena's pair may take beside an object cache's.
ARENA_RATIO = 1.5
# What of the construction has to be saved: the rest may hide behind the allocation's own instructions.
SAVED_SHARE = 0.8
ARENA_CLAIMS = {
    "near": "quantum caches are object caches: a pair takes at most {} times an object cache's",
    "sleeping": "also with STRATA_ARENA_SLEEP: at most {} times",
    "far": "also far from the arena's first integer: at most {} times",
    "scattered": "also in 16 spans far from each other, one after the other: at most {} times",
    "beyond": "also in 16 spans behind 256 that are far from each other: at most {} times",
    "scaled": "also where a quantum is 4,096 integers: at most {} times",
    "scaled_scattered": "also where it is, in 16 spans far from each other: at most {} times",
}


def measure(context: Context) -> Result:
    # Where a process has its memory matters: several of them.
    runs = interleaved(context.choose(15, 3), {"pairs": lambda: context.run("vmem_pairs", context.choose(ROUNDS, 21), OPERATIONS)})["pairs"]
    latency = {(name, held): median(runs, name + suffix) for name in NAMES for held, suffix in SUFFIX.items() if name + suffix in runs[0]}
    quartiles = {
        (name, held): [statistics.median(run[name + suffix][i] for run in runs) for i in range(len(QUARTILES))]
        for name in RATIOS
        for held, suffix in SUFFIX.items()
    }
    # How far a round of malloc lies from another one of malloc: by the quartile that is further away.
    noise = {held: max(abs(quartile - 1) for quartile in quartiles["malloc_to_malloc", held]) for held in SUFFIX}
    construction = median(runs, "construction")

    def within(name: str) -> bool:
        return all(latency[name, held] <= ARENA_RATIO * latency["objects", held] for held in SUFFIX if (name, held) in latency)

    def saved(held: int) -> float:
        return latency["building", held] - latency["built", held]

    return Result(
        id="magazines/section-4-4-4-pairs",
        title="A pair of allocation and free: quantum caches, object caches and malloc",
        unit="ns per pair",
        x_label="held at a time",
        published=[Published("vmem with quantum caches", 482, "ns", "section 4.5.1"), Published("a pair from the magazine layer", 356, "ns", "section 3.8")],
        measured=[Series(title, [(held, latency[name, held]) for held in SUFFIX if (name, held) in latency]) for name, title in NAMES.items()]
        + [Series("the construction alone", [(held, construction) for held in SUFFIX])]
        + [
            Series(f"{title}, {quartile}", [(held, quartiles[name, held][i]) for held in SUFFIX], RATIO_PANEL)
            for name, title in RATIOS.items()
            for i, quartile in enumerate(QUARTILES)
        ],
        panel_units={RATIO_PANEL: "ratio"},
        holds=[
            *(Claim(statement.format(ARENA_RATIO), "section 4.4.4", within(name)) for name, statement in ARENA_CLAIMS.items()),
            Claim(
                "an object cache's pair takes no longer than malloc's of that size: at most 1.0 times, and the noise of the rounds (how far the "
                "quartiles of malloc beside malloc lie from 1)",
                "section 3.2",
                all(quartiles["objects_to_malloc", held][1] <= 1 + noise[held] for held in SUFFIX),
            ),
            Claim(
                f"and saves the construction: at least {SAVED_SHARE:.0%} of what one takes, beside malloc with a construction each time",
                "section 3.2",
                all(saved(held) >= SAVED_SHARE * construction for held in SUFFIX),
            ),
        ],
        note=(
            "One thread in a process that has two; sizes of one quantum, and of 64 bytes; the quantum is 1 where nothing else is said. Every free of an integer is verified. Integers of an arena that "
            "lie within 2^24 quanta of the first ones have the bytes that this takes side by side; others are looked up by regions of 2^16. What is held "
            "together comes in random order, so that with 16 spans nearly every free is of another span than the last. Each source has a loop of its own "
            "around the calls alone: an object cache's pair waits for its own stores and hides what a longer loop takes, an arena's pair doesn't. The noise "
            f"was {noise[ONE]:.1%} with one object at a time and {noise[MANY]:.1%} with {MANY}. The constructor "
            f"multiplies and adds 64 times, each time with the result before: {construction:.0f} ns."
        ),
    )


if __name__ == "__main__":
    main(measure)
