"""umpa, figures 5 and 6, table 1: what pages cost when faults bring them, when they are populated, when they are huge, and out of the lookaside."""

from frame.experiment import Claim, Context, Published, Result, Series, interleaved, main, median

WAYS = {
    "kernel": "faults, 4 KiB",
    "populated": "populated at once",
    "huge": "faults, huge pages asked for",
    "populated-huge": "populated at once, huge pages asked for",
    "strata": "strata's lookaside",
}
# Whose overhead over which way figure 5 shows. Where populating costs more, it is below zero.
POPULATED = {"kernel": "populated", "huge": "populated-huge"}
PAGE_BYTES = 4096
MIB = 1 << 20
# Table 1: size, and cycles a page on Linux: paged, not paged.
TABLE_1 = {16 << 10: (2847, 15.83), MIB: (3275, 14.53), 16 * MIB: (6353, 113.4), 512 * MIB: (6597, 115.9)}
# Touched pages a run, so that each size takes about as long as any other.
PAGES_A_RUN = 1 << 15
# A fault costs this much more than a page that is there before we say that faults are what costs.
LEAST_RATIO = 5


def measure(context: Context) -> Result:
    sizes = [PAGE_BYTES << shift for shift in range(0, context.choose(18, 13), context.choose(1, 4))]
    sizes = sorted({*sizes, 16 << 10, MIB, 16 * MIB, *([512 * MIB] if not context.quick else [])})

    def job(way: str, size: int):
        pages = size // PAGE_BYTES
        return lambda: context.run("umpa_pages", "fault", way, size, max(2, min(2000, context.choose(PAGES_A_RUN, PAGES_A_RUN // 8) // pages)))

    runs = interleaved(context.choose(3, 1), {(way, size): job(way, size) for way in WAYS for size in sizes})
    cycles = {key: median(done, "cycles_per_page") for key, done in runs.items()}
    touch = {key: median(done, "touch_cycles_per_page") for key, done in runs.items()}
    large = [size for size in sizes if size >= MIB]
    published = []
    for size, (paged, not_paged) in TABLE_1.items():
        name = f"{size >> 10:,} KiB"
        published += [
            Published(f"Linux, paged, {name}", paged, "cycles per page", "table 1"),
            Published(f"Linux, not paged, {name}", not_paged, "cycles per page", "table 1"),
        ]
    over = {way: {size: (cycles[way, size] / cycles[populated, size] - 1) * 100 for size in sizes} for way, populated in POPULATED.items()}
    overhead = over["kernel"]
    return Result(
        id="umpa/figures-5-6",
        title="A block is allocated, a byte written into each page, the block freed",
        unit="cycles per page",
        x_label="block size, bytes",
        x_log=True,
        y_log=True,
        panel_units={"figure 5: faults over populating": "per cent"},
        published=published,
        measured=[
            *[Series(title, [(size, cycles[way, size]) for size in sizes], "figure 6: all") for way, title in WAYS.items()],
            *[Series(title, [(size, touch[way, size]) for size in sizes], "the writes alone (table 1)") for way, title in WAYS.items()],
            *[Series(WAYS[way], list(over[way].items()), "figure 5: faults over populating") for way in POPULATED],
        ],
        holds=[
            Claim(
                f"writing to pages that faults bring costs at least {LEAST_RATIO} times what it costs where pages are populated, from 16 KiB on",
                "table 1",
                all(touch["kernel", size] >= LEAST_RATIO * touch["populated", size] for size in sizes if size >= 16 << 10),
            ),
            Claim(
                "allocation by faults costs more than allocation with all pages populated, at every size from 1 MiB on",
                "figure 5",
                all(overhead[size] > 0 for size in large),
            ),
            Claim(
                f"a block from the lookaside costs at most a {LEAST_RATIO}th of one by faults, at every size",
                "section 2",
                all(cycles["kernel", size] >= LEAST_RATIO * cycles["strata", size] for size in sizes),
            ),
        ],
        note="Cycles are ticks of the processor's counter. The paper's machine had a Core 2 at 2.67 GHz under Linux 2.6.32; under a hypervisor a fault "
        "costs more, as page tables are walked in two dimensions. Huge pages are asked for with madvise, in blocks at multiples of 2 MiB. "
        "Figure 5 is below zero where a call that populates a small block costs more than its few faults.",
    )


if __name__ == "__main__":
    main(measure)
