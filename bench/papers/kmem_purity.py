"""kmem, equations 5 and 6: the purity of caches and global pools on a machine with near and far memory, by the model and by a simulation of it."""

from frame.experiment import Claim, Context, Result, Series, main

CPUS = 8
MISS_RATES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
FREED_PURITIES = (0.1, 0.5, 0.9)
# Below this rate an allocator counts as efficiently configured: the worst that the paper's targets allow is 0.1.
LOW_MISS_RATE = 0.05
KINDS = {"separate": "a pool for each CPU", "shared": "one pool for all"}
WHERE = "section 5.5, equations 5 and 6"


def equation_5(r: float, freed: float) -> float:
    """Purity of the caches of CPUs."""
    return (r * r + freed * r + freed) / (r * r + r + 1)


def equation_6(r: float, freed: float) -> float:
    """Purity of the global pool."""
    return (r * r + r + freed) / (r * r + r + 1)


def measure(context: Context) -> Result:
    steps = context.choose(20_000_000, 2_000_000)
    runs = {
        (kind, freed, r): context.run("kmem_purity", kind, CPUS, r, freed, steps) for kind in KINDS for freed in FREED_PURITIES for r in MISS_RATES
    }
    # Of so many draws with replacement, five standard deviations; those of neighbouring draws hang together, hence the factor.
    slack = context.choose(0.01, 0.03)

    def differs(kind: str, name: str, equation) -> float:
        return max(abs(runs[kind, freed, r][name] - equation(r, freed)) for freed in FREED_PURITIES for r in MISS_RATES)

    def low_rates_follow(kind: str, name: str) -> bool:
        low = [r for r in MISS_RATES if r <= LOW_MISS_RATE]
        return all(abs(runs[kind, freed, r][name] - freed) <= r + slack for freed in FREED_PURITIES for r in low)

    measured = []
    for freed in FREED_PURITIES:
        panel = f"{freed:.0%} of what is freed is close"
        measured += [
            Series("caches, equation 5", [(r, equation_5(r, freed)) for r in MISS_RATES], panel),
            Series("pool, equation 6", [(r, equation_6(r, freed)) for r in MISS_RATES], panel),
        ]
        for kind, title in KINDS.items():
            measured += [
                Series(f"caches, {title}", [(r, runs[kind, freed, r]["cache_purity"]) for r in MISS_RATES], panel),
                Series(f"pool, {title}", [(r, runs[kind, freed, r]["pool_purity"]) for r in MISS_RATES], panel),
            ]
    separate = max(differs("separate", "cache_purity", equation_5), differs("separate", "pool_purity", equation_6))
    return Result(
        id="kmem/equations-5-6",
        title="Memory that is close to its CPU: the model and its simulation",
        unit="share that is close",
        x_label="miss rate",
        x_log=True,
        measured=measured,
        holds=[
            Claim(
                f"the equations describe caches and pools where each CPU has a pool of its own (to within {slack:g}; found: {separate:.4f})",
                WHERE,
                separate <= slack,
            ),
            Claim(
                "they describe the caches too where all CPUs share a pool, as in the paper's allocator",
                WHERE,
                differs("shared", "cache_purity", equation_5) <= slack,
            ),
            Claim("and that pool", WHERE, differs("shared", "pool_purity", equation_6) <= slack),
            Claim(
                f"with few misses (at most {LOW_MISS_RATE:g}) caches are as pure as what is freed, to within the miss rate, with either kind of pool",
                "section 5.5",
                all(low_rates_follow(kind, "cache_purity") for kind in KINDS),
            ),
            Claim("and so is the pool that all CPUs share", "section 5.5", low_rates_follow("shared", "pool_purity")),
        ],
        note=(
            f"{CPUS} CPUs, {steps:,} pairs of an allocation and a free for each point, blocks taken at random from caches and pools, as the model has it. "
            "Close means: close to the CPU that allocates the block, or that takes it from the pool. Equation 4 counts a block that one CPU gave to the "
            "pool as close when another CPU takes it: true where each CPU (or node) has its own pool. In a pool that all share, a block is close to "
            f"whoever takes it by chance, one time in {CPUS}, whatever is freed and whatever comes from the coalescing layer. What follows in the paper, "
            "that only what is freed decides, and pools for each node are needed, is all the more true."
        ),
    )


if __name__ == "__main__":
    main(measure)
