"""magazines, section 3.7: the depot keeps what its working set needs under a load that goes up and down by steps, and gives back the rest."""

from frame.experiment import Claim, Context, Published, Result, Series, main

CPUS = 4
AMPLITUDES = (2048, 8192, 2048)
# Of a step, before which the depot has not seen what the load needs.
LEARNING_INTERVALS = 1
# A load that varies by a tenth may need a little more than in the interval before; so many objects of a hundred allocations are still "mostly" none.
SLABS_PERCENT_MAX = 1
FORGETTING_INTERVALS = 2
DEPOT, SLABS = "full magazines in the depot", "objects from the slabs"


def measure(context: Context) -> Result:
    length = context.choose(20, 6)
    run = context.run("magazines_working_set", CPUS, length, *AMPLITUDES)
    intervals, transfer = run["intervals"], run["transfer"]
    x = range(1, len(intervals) + 1)

    def working_set(one: dict) -> int:
        return one["most"] - one["least"]

    def steady(step: int, skip: int) -> list[dict]:
        return intervals[step * length + skip : (step + 1) * length]

    def curve(name: str, of, panel: str) -> Series:
        return Series(name, [(number, of(one)) for number, one in zip(x, intervals, strict=True)], panel)

    most_from_slabs = max(100 * one["from_slabs"] / one["allocations"] for step in range(len(AMPLITUDES)) for one in steady(step, LEARNING_INTERVALS))
    down = steady(2, FORGETTING_INTERVALS)
    return Result(
        id="magazines/section-3-7",
        title="Working set of a depot under a step load",
        unit="magazines",
        x_label="intervals between ticks",
        panel_units={SLABS: "objects"},
        published=[Published("working set of a list that varies between 37 and 47 magazines", 10, "magazines", "section 3.7")],
        measured=[
            curve("most in the interval", lambda one: one["most"], DEPOT),
            curve("fewest", lambda one: one["least"], DEPOT),
            curve("working set: most less fewest", working_set, DEPOT),
            curve("left by the tick at the end", lambda one: one["kept"], DEPOT),
            curve("in the interval", lambda one: one["from_slabs"], SLABS),
        ],
        holds=[
            Claim(
                "a tick leaves no more than the working set of the interval before it",
                "section 3.7",
                all(one["kept"] <= working_set(one) for one in intervals),
            ),
            Claim(
                f"the working set is what a steady load needs: after the first interval of a step at most {SLABS_PERCENT_MAX}% of what is allocated in one "
                f"comes from the slabs (found: {most_from_slabs:.2f}%)",
                "section 3.7",
                most_from_slabs <= SLABS_PERCENT_MAX,
            ),
            Claim(
                f"when the load goes down the rest goes back: {FORGETTING_INTERVALS} intervals later the depot has at most what it had before the load went up",
                "section 3.7",
                max(one["most"] for one in down) <= max(one["most"] for one in steady(0, LEARNING_INTERVALS)),
            ),
            Claim("and when memory runs low everything does: a reap leaves no full magazine", "section 3.7", run["left_by_reap"] == 0),
        ],
        note=(
            f"The library's own code on its simulated machine with {CPUS} CPUs. Beside 400,000 blocks of 64 bytes that stay (a depot may hold a sixteenth of its "
            f"class), the CPUs go up to about {AMPLITUDES[0]:,} blocks and down to none, eight times in an interval; then {AMPLITUDES[1]:,}, then "
            f"{AMPLITUDES[2]:,} again. Magazines have {transfer} rounds. The paper's depot keeps track of its working set and gives back the rest only when "
            "memory runs low; strata's does so at each tick, twice a second by default, and everything when memory is short."
        ),
    )


if __name__ == "__main__":
    main(measure)
