"""contiguity, section 1: random reads over the superpages of a zone, as huge pages and as base pages."""

from frame.experiment import Claim, Context, Published, Result, Series, interleaved, main, median

WAYS = {"super": "superpages", "base": "base pages"}
# A superpage that the system could not back by a huge page would be a base page by another name.
HUGE_SHARE_MIN = 0.9


def measure(context: Context) -> Result:
    sizes = context.choose([16, 64, 256, 1024, 4096], [16, 128])
    reads = context.choose(20_000_000, 1_000_000)
    jobs = {(way, mib): lambda way=way, mib=mib: context.run("contiguity_tlb", way, mib, reads) for mib in sizes for way in WAYS}
    runs = interleaved(context.choose(3, 1), jobs)
    read_ns = {key: median(done, "read_ns") for key, done in runs.items()}
    present_ns = {key: median(done, "present_ns") for key, done in runs.items()}
    largest = sizes[-1]
    share = min(median(runs["super", mib], "huge_share") for mib in sizes)
    gain = {mib: read_ns["base", mib] / read_ns["super", mib] for mib in sizes}
    return Result(
        id="contiguity/section-1",
        title="Random reads over superpages and over base pages",
        unit="ns a read",
        x_label="MiB",
        x_log=True,
        panel_units={"making memory present": "ns for 4 KiB", "gain": "times"},
        published=[Published("share of memory that TLBs cover today", 0.01, "per cent", "section 1")],
        measured=[
            *[Series(title, [(mib, read_ns[way, mib]) for mib in sizes], "dependent random reads") for way, title in WAYS.items()],
            *[Series(title, [(mib, present_ns[way, mib]) for mib in sizes], "making memory present") for way, title in WAYS.items()],
            Series("base pages to superpages", list(gain.items()), "gain"),
        ],
        holds=[
            Claim(f"the zone's superpages can be huge pages (least: {100 * share:.0f} % of them were)", "section 1", share >= HUGE_SHARE_MIN),
            Claim(
                f"misses of the TLB cost: over {largest:,} MiB random reads from superpages are faster ({gain[largest]:.2f} times)",
                "section 1",
                gain[largest] > 1.05,
            ),
        ],
        note=f"{reads:,} reads of random cache lines, each decided by the one before it. Memory of a zone of anonymous memory, for which huge pages are asked, or forbidden.",
    )


if __name__ == "__main__":
    main(measure)
