"""contiguity, section 7: contents while pages are moved and dropped for superpages, on real memory, by threads that read and write."""

from frame.experiment import Claim, Context, Published, Result, Series, main

THREADS = 2


def measure(context: Context) -> Result:
    mib, seconds = context.choose((1024, 180), (64, 2))
    run = context.run("contiguity_contents", mib, seconds, THREADS)
    counted = ("read", "written", "freed", "pins", "moved_frames", "dropped", "had")
    return Result(
        id="contiguity/section-7",
        title="Contents while pages move",
        unit="a second",
        x_label="; ".join(f"{number} {what}" for number, what in enumerate(counted, 1)),
        y_log=True,
        published=[Published("unusable free space above which the daemon compacts", 0.75, "", "section 7.3")],
        measured=[Series("pages; superpages had", [(number, run[what] / seconds) for number, what in enumerate(counted, 1)])],
        holds=[
            Claim(
                f"no page lost a word: {run['read'] + run['written']:,} were read or written by {THREADS} threads in {seconds} s, "
                f"while {run['moved_frames']:,} moved and {run['dropped']:,} were dropped",
                "section 7.1, and strata's own bar",
                run["read"] > 0 and run["moved_frames"] > 0,
            ),
            Claim(f"superpages are had meanwhile ({run['had']:,} of {run['asked']:,} requests)", "section 7", run["had"] > 0),
            Claim("no frame that was emptied for a superpage went to somebody else", "section 8", run["races_lost"] == 0),
        ],
        note=f"{mib:,} MiB of memfd; pages of 4 KiB, each checked as a whole whenever it is read. Half of them in a window, the others with an owner that copies. "
        "A wrong word would have ended the program, and this experiment.",
    )


if __name__ == "__main__":
    main(measure)
