"""magazines, section 3.1: K allocations and K frees in a loop; how many of them come to the layers below the CPU's, at worst."""

from frame.experiment import Claim, Context, Published, Result, Series, main

# Maintenance would move objects too while the loop runs: none within an hour.
CONF = "decay_ms:3600000"


def measure(context: Context) -> Result:
    repetitions = context.choose(200, 50)
    found = context.run("magazines_thrash", context.choose(1, 8), repetitions, conf=CONF)
    rounds = found["rounds"]
    rate = {name: {one["length"]: one[name] for one in found["bursts"]} for name in ("strata", "one", "two")}
    worst = {name: max(curve.values()) for name, curve in rate.items()}
    # Each run may begin with one access that the loop does not repeat.
    bound = {length: 1 / rounds + 1 / (2 * length * repetitions) for length in rate["strata"]}
    return Result(
        id="magazines/section-3-1-thrash",
        title="Bursts of K allocations and K frees: accesses to the layers below the CPU's, at worst",
        unit="accesses per transaction",
        x_label="K",
        x_log=True,
        published=[
            Published("one magazine, two allocations and two frees, any M", 0.5, "accesses per transaction", "section 3.1, figure 3.1a"),
        ],
        measured=[
            Series(f"one magazine of {rounds} rounds (simulated)", list(rate["one"].items())),
            Series(f"two magazines of {rounds} rounds (simulated)", list(rate["two"].items())),
            Series(f"strata, arrays of {2 * rounds}, {rounds} at a time", list(rate["strata"].items())),
        ],
        holds=[
            Claim("one magazine: half of all transactions come to the depot at K = 2, however large M is", "section 3.1", rate["one"][2] == 0.5),
            Claim(
                f"two magazines: never more than one transaction in M = {rounds}",
                "section 3.1",
                all(rate["two"][length] <= bound[length] for length in bound),
            ),
            Claim(
                f"strata: never more than one transaction in M = {rounds} (at worst one in {1 / worst['strata'] if worst['strata'] else 0:,.0f})",
                "section 3.1; VH, theorem 2.5",
                all(rate["strata"][length] <= bound[length] for length in bound),
            ),
        ],
        note=(
            "For each K the worst of all numbers of blocks that the program may hold beforehand. The layers of magazines are simulated by their "
            "numbers of rounds; strata is measured by its statistics, in blocks of 64 bytes. Instead of two magazines it has one array "
            "of two magazines' size, and moves half of it at a time."
        ),
    )


if __name__ == "__main__":
    main(measure)
