"""umpa, figure 11: a block that doubles its size, by pages that change their address, against allocation, copy and free."""

from frame.experiment import Claim, Context, Published, Result, Series, interleaved, main, median

WAYS = {"strata": "strata_page_realloc", "copy": "allocate, copy, free"}
MIB = 1 << 20
# Up to here it is said to be scale-invariant; the dearest may take so many times what the cheapest takes.
INVARIANT_BYTES = 128 << 10
INVARIANT_RATIO = 4


def measure(context: Context) -> Result:
    sizes = [4096 << shift for shift in range(0, context.choose(17, 13))]
    jobs = {
        (way, size): lambda way=way, size=size: context.run("umpa_pages", "resize", way, size, max(3, min(200, context.choose(256, 32) * MIB // size)))
        for way in WAYS
        for size in sizes
    }
    runs = interleaved(context.choose(3, 1), jobs)
    time = {key: median(done, "ns") for key, done in runs.items()}
    ratio = {size: time["copy", size] / time["strata", size] for size in sizes}
    small = [time["strata", size] for size in sizes if size <= INVARIANT_BYTES]
    large = [size for size in sizes if size >= 4 * MIB]
    return Result(
        id="umpa/figure-11",
        title="A block in use doubles its size",
        unit="ns per step",
        x_label="size before, bytes",
        x_log=True,
        y_log=True,
        panel_units={"figure 11: how many times as fast": "times"},
        published=[Published("up to which size resizing is scale-invariant", 128, "KiB", "section 3.2")],
        measured=[
            *[Series(title, [(size, time[way, size]) for size in sizes], "time") for way, title in WAYS.items()],
            Series("realloc to copy", list(ratio.items()), "figure 11: how many times as fast"),
        ],
        holds=[
            Claim(
                f"resizing is scale-invariant up to 128 KiB: at most {INVARIANT_RATIO} times the least (it was {max(small) / min(small):.1f} times)",
                "section 3.2",
                max(small) <= INVARIANT_RATIO * min(small),
            ),
            Claim(
                "and would go on so, given support by the operating system: from 4 MiB on at least 10 times as fast as a copy",
                "section 3.2",
                all(ratio[size] >= 10 for size in large),
            ),
        ],
        note=f"The longest step here took {max(time['strata', size] for size in sizes) / 1000:.0f} us. Each block is written to before, and looked at after; "
        "a neighbour lies behind it, unless it has superpages of its own.",
    )


if __name__ == "__main__":
    main(measure)
