"""contiguity, sections 7 and 8 at sizes that the paper's machines did not have: what calls and metadata cost, and how much can be had, up to 1 TiB."""

from frame.experiment import Claim, Context, Published, Result, Series, main

# A zone's arrays take at most this: marks of superpages, and of each frame note, token, links of lists, and on a simulated zone its word.
METADATA_BYTES_MAX = 24
# What a request may cost more in the largest zone, whose metadata are in no cache, than in the smallest, whose are.
TIMES_SLOWER_MAX = 8
HAD_PERCENT_MIN = 90


def measure(context: Context) -> Result:
    sizes = context.choose([1, 16, 64, 256, 1024], [1, 16])
    runs = {gib: context.run("contiguity_large", gib) for gib in sizes}
    smallest, largest = sizes[0], sizes[-1]
    last = runs[largest]

    def curve(what: str, scale: float = 1) -> list[tuple[float, float]]:
        return [(gib, scale * run[what]) for gib, run in runs.items()]

    had = {gib: 100 * run["captures"] / run["possible"] for gib, run in runs.items()}
    slower = {what: last[what] / runs[smallest][what] for what in ("alloc_ns", "free_ns", "superpage_us")}
    worst = max(slower, key=lambda what: slower[what])
    return Result(
        id="contiguity/section-7-large",
        title="Zones of up to 1 TiB",
        unit="us",
        x_label="GiB",
        x_log=True,
        y_log=True,
        panel_units={
            "a page": "ns",
            "passes over all of the zone": "ms",
            "unusable free space": "share, for superpages",
            "full zone: had of what is free": "per cent",
            "metadata": "bytes a frame",
        },
        published=[
            Published("main memory, x86-64", 1024, "MiB", "section 4, figure 3"),
            Published("main memory, PPC64", 4019, "MiB", "section 4, figure 3"),
        ],
        measured=[
            Series("allocated", curve("alloc_ns"), "a page"),
            Series("freed", curve("free_ns"), "a page"),
            Series("superpage, of what is free", curve("superpage_us"), "requests"),
            Series("run of 1 GiB", [(gib, run["run_us"]) for gib, run in runs.items() if run["runs"]], "requests"),
            Series("superpage, captured in a full zone, first 16", curve("capture_us"), "requests"),
            Series("superpage, captured in a full zone, all others", curve("capture_rest_us"), "requests"),
            Series("indices", curve("indices_ms"), "passes over all of the zone"),
            Series("compaction", curve("compact_ms"), "passes over all of the zone"),
            *[
                Series(name, [(gib, run["unusable"][number]) for gib, run in runs.items()], "unusable free space")
                for number, name in enumerate(("before compaction", "after it"))
            ],
            Series("by capture", list(had.items()), "full zone: had of what is free"),
            Series("reserved", curve("metadata_bytes_a_frame"), "metadata"),
        ],
        holds=[
            Claim(
                f"in a zone full of movable blocks, an eighth of each superpage free, at least {HAD_PERCENT_MIN} % of what is free can be had as superpages "
                f"(least: {min(had.values()):.1f} %; of {largest:,} GiB {last['captures']:,})",
                "section 8, and strata's own bar",
                min(had.values()) >= HAD_PERCENT_MIN,
            ),
            Claim(
                f"compaction makes free space usable at any size (unusable after it at most half of before; at {largest:,} GiB "
                f"{last['unusable'][0]:.4f} and {last['unusable'][1]:.4f}, {last['moved']:,} pages moved)",
                "section 7.3",
                all(run["unusable"][1] <= run["unusable"][0] / 2 for run in runs.values()),
            ),
            Claim(
                f"all superpages and runs of 1 GiB that are asked for beside mixed pages are had (at {largest:,} GiB {last['superpages']} and {last['runs']})",
                "section 2.1",
                all(run["superpages"] == last["superpages"] and run["runs"] == min(last["runs"], gib // 2) for gib, run in runs.items()),
            ),
            Claim(
                f"to allocate and free pages, and superpages of what is free, does not grow with the zone: at most {TIMES_SLOWER_MAX} times from "
                f"{smallest} to {largest:,} GiB ({worst.rsplit('_', 1)[0]}: {slower[worst]:.1f} times)",
                "strata's own bar",
                slower[worst] <= TIMES_SLOWER_MAX,
            ),
            Claim(
                f"metadata are at most {METADATA_BYTES_MAX} bytes a frame ({last['metadata_bytes_a_frame']:.2f})",
                "strata's own bar",
                max(run["metadata_bytes_a_frame"] for run in runs.values()) <= METADATA_BYTES_MAX,
            ),
        ],
        note="Simulated zones, on one thread; times are of the processor. The load of compile jobs on 1 TiB is figures-6-7-large. Here "
        "fill and rate are scaled down, the zone is not. Low fill: pages on a sixteenth of the zone, 4 % unmovable, 6 % reclaimable, the rest movable, of which three of "
        "four at random are freed again; requests for superpages and runs; a pass of compaction. Full: movable blocks of 64 frames everywhere, one in each superpage "
        "freed at random; then superpages are captured, one after another without a pause, until there are none. Every page and block holds a word that is "
        f"checked at its end. At {largest:,} GiB it takes some 6 GiB of memory." if not context.quick else "Small zones.",
    )


if __name__ == "__main__":
    main(measure)
