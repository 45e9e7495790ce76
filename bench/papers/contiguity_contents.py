"""contiguity, section 7: contents while pages are moved and dropped for superpages: on real memory by threads that read and write, and for days, simulated."""

from contiguity_runs import ALL, Run, highalloc
from frame.experiment import Claim, Context, Published, Result, Series, main

THREADS = 2
SIMULATED_MIB = 64
DAY_S = 86400


def measure(context: Context) -> Result:
    mib, seconds = context.choose((1024, 180), (64, 2))
    run = context.run("contiguity_contents", mib, seconds, THREADS, "capture")
    racing = context.run("contiguity_contents", mib, max(1, seconds // 6), THREADS, "race")
    # The load runs for three times as long as is said, in all.
    warm_s = context.choose(DAY_S, DAY_S // 96)
    days = 3 * warm_s / DAY_S
    simulated = highalloc(context, {"days": Run(ALL, SIMULATED_MIB, warm_s)})["days"]
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
            Claim(
                f"nor did one in {days:g} simulated days of the loads of figures 6 and 7: {simulated['verified']:,} looks, {simulated['pages_moved']:,} pages moved, "
                f"{simulated['dropped']:,} dropped or written to swap",
                "section 7.1, and strata's own bar",
                simulated["pages_moved"] > 0 and simulated["verified"] > simulated["allocations"],
            ),
            Claim(f"superpages are had meanwhile ({run['had']:,} of {run['asked']:,} requests)", "section 7", run["had"] > 0),
            Claim(
                f"no frame that was held or emptied for a capture went to somebody else: {run['races_lost']:,}, in {run['tried']:,} ranges, of which {run['captured']:,} were had; "
                f"where captures hold nothing {racing['races_lost']:,} frames, in {racing['tried']:,} ranges",
                "section 8",
                run["races_lost"] == 0 and run["captured"] > 0,
            ),
        ],
        note=f"{mib:,} MiB of memfd; pages of 4 KiB, each checked as a whole whenever it is read. {100 * run['window_pages'] / run['pages']:.0f} % of them in a window, where each takes a mapping or two, the others with an owner that copies. "
        f"Simulated: {SIMULATED_MIB} MiB, a word a page, looked at whenever the page is used, moved, dropped or freed. A wrong word would have ended the program, and this "
        "experiment.",
    )


if __name__ == "__main__":
    main(measure)
