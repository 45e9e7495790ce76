"""magazines, section 4.4.5: the pieces that a resource falls into while segments come and go, with and without quantum caches."""

from frame.experiment import Claim, Context, Result, Series, main

NAMES = {"segments": "without quantum caches", "cached": "with"}
PIECES, USELESS = "pieces of free integers", "free, but in pieces too small for a slab"


def measure(context: Context) -> Result:
    counts = [250_000 << power for power in range(context.choose(6, 3))]
    runs = {(name, operations): context.run("vmem_quantum", name, "pieces", operations) for name in NAMES for operations in counts}
    last = counts[-1]

    def free(name: str, operations: int) -> float:
        return runs[name, operations]["free"] + runs[name, operations]["free_in_slabs"]

    def useless(name: str, operations: int) -> float:
        return 100 * runs[name, operations]["free_in_small_pieces"] / free(name, operations)

    slabs = 100 * runs["cached", last]["free_in_slabs"] / free("cached", last)
    return Result(
        id="magazines/section-4-4-5",
        title="Fragmentation of an arena with and without quantum caches",
        unit="%",
        x_label="allocations so far",
        x_log=True,
        panel_units={PIECES: "pieces"},
        measured=[
            *(Series(title, [(operations, runs[name, operations]["free_pieces"]) for operations in counts], PIECES) for name, title in NAMES.items()),
            *(Series(title, [(operations, useless(name, operations)) for operations in counts], USELESS) for name, title in NAMES.items()),
        ],
        holds=[
            Claim(
                "quantum caches reduce the fragmentation of the segment list: fewer pieces",
                "section 4.4.5",
                all(runs["cached", operations]["free_pieces"] < runs["segments", operations]["free_pieces"] for operations in counts),
            ),
            Claim(
                "and less of what is free lies in pieces too small for a slab",
                "section 4.4.5",
                all(useless("cached", operations) < useless("segments", operations) for operations in counts),
            ),
        ],
        note=(
            "An arena of 1,048,576 integers, at most 70% of them in use, by segments of 1 to 8; one in eight lives a hundred times as long as the others, "
            "which is what the paper says fragmentation comes of: sizes and lifetimes that differ. With quantum caches up to 8 the segment list sees slabs of "
            f"32 only. The free integers that are left in slabs ({slabs:.1f}% of all that are free, at the end) are of sizes that are known to be useful."
        ),
    )


if __name__ == "__main__":
    main(measure)
