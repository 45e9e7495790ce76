"""umpa, figures 7 and 8: blocks of pages of 4 KiB to 8 MiB in a ring, from the kernel and from strata, with and without their traversal."""

from frame.experiment import Claim, Context, Published, Result, Series, interleaved, main
from umpa_bins import MIB, curve, most_over_least, span

WAYS = {"kernel": "kernel (mmap)", "strata": "strata's page blocks"}
# The kernel's cost must grow with the size at least so much from 4 KiB to 1 MiB; a linear one would by 256.
LINEAR_RATIO = 20


def measure(context: Context) -> Result:
    members, operations = context.choose((512, 4000), (64, 1000))
    runs = interleaved(context.choose(3, 1), {way: lambda way=way: context.run("umpa_pages", "ring", way, members, operations) for way in WAYS})
    full = {way: curve(done, "all_ns") for way, done in runs.items()}
    bare = {way: curve(done, "notraverse_ns") for way, done in runs.items()}
    small = {way: most_over_least(bare[way], MIB) for way in WAYS}
    growth = span(bare["strata"], MIB) / span(bare["kernel"], MIB)
    sizes = list(bare["kernel"])
    return Result(
        id="umpa/figures-7-8",
        title=f"A ring of {members} blocks of pages: the oldest is freed, a new one allocated, and a byte written into each page",
        unit="ns per block",
        x_label="block size, bytes (from here to twice that)",
        x_log=True,
        y_log=True,
        published=[Published("up to which size the user mode page allocator is scale-invariant", 1, "MiB", "section 3, figure 7")],
        measured=[
            *[Series(title, list(full[way].items()), "figure 7: with traversal") for way, title in WAYS.items()],
            *[Series(title, list(bare[way].items()), "figure 8: adjusted for traversal") for way, title in WAYS.items()],
        ],
        holds=[
            Claim(
                f"the kernel's cost grows with the size: from 4 KiB to 1 MiB at least {LINEAR_RATIO}-fold ({small['kernel']:.0f}-fold)",
                "section 3, figure 8",
                small["kernel"] >= LINEAR_RATIO,
            ),
            Claim(
                f"that of blocks of the process's own pages is next to constant up to 1 MiB: it grows by at most a tenth of that ({growth:.1%})",
                "section 3, figure 8",
                growth <= 0.1,
            ),
            Claim(
                "blocks of the process's own pages cost less than the kernel's, at every size",
                "section 3, figure 7",
                all(bare["strata"][size] < bare["kernel"][size] for size in sizes),
            ),
        ],
        note="Sizes are drawn so that each power of two comes equally often; the paper draws them evenly, which fills 2 GiB. As there, the ring is filled and "
        "emptied first, so that the lookaside has pages. Traversal is what writing a byte into each page costs where all pages are present.",
    )


if __name__ == "__main__":
    main(measure)
