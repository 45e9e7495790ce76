"""VH, figure 3: average time of an allocation and of a release in two parallel simulations, under six allocators."""

from collections.abc import Sequence

from frame.experiment import (
    Claim,
    Comparison,
    Context,
    ExperimentFailed,
    Result,
    Series,
    claim_of,
    doubled,
    interleaved,
    main,
    median,
    same,
)

MODELS = {"tandem": "tandem network", "superping": "super-ping"}
METHODS = ("VH", "VH-stacks", "GP", "CM", "VMSR", "VMDR")
VH_METHODS = ("VH", "VH-stacks")
TIMES = {"allocation_ns": "allocation", "release_ns": "release"}
# Section 4, method VH.
M = 512
# Of the simulator.
THREADS_MAX = 64
# A full run times 100,000 operations at least, as for the paper's figure 3.
FULL_PERCENT, QUICK_PERCENT = 100, 10
SAMPLES_MIN = 100_000
# An average that grows by less with the processors is called scalable.
SCALABLE_RATIO = 2


def measure(context: Context) -> Result:
    most = min(context.several_cpus(), THREADS_MAX)
    counts = doubled(most)
    percent = context.choose(FULL_PERCENT, QUICK_PERCENT)

    def job(model: str, method: str, threads: int):
        return lambda: context.run("vh_simulate", model, method, threads, percent)

    keys = [(model, method, threads) for model in MODELS for method in METHODS for threads in counts]
    runs = interleaved(context.choose(5, 3), {key: job(*key) for key in keys})
    for model in MODELS:
        of_model = [run for key in keys if key[0] == model for run in runs[key]]
        same(f"{model}: results", [(run["events"], run["check"]) for run in of_model])
    for key in keys:
        for run in runs[key]:
            if min(run[name] for name in TIMES) <= 0:  # what the clock costs is taken off, and was more than all that was timed
                raise ExperimentFailed(f"{', '.join(map(str, key))}: means of {', '.join(f'{run[name]:g}' for name in TIMES)} ns are none")
    samples = min(run["samples"] for key in keys for run in runs[key])
    if not context.quick and samples < SAMPLES_MIN:
        raise ExperimentFailed(f"only {samples} operations were timed")
    group = runs[keys[0]][0]["group"]
    left_out = max(run["left_out"] / (2 * run["samples"]) for key in keys for run in runs[key])
    time = {(*key, name): median(runs[key], name) for key in keys for name in TIMES}

    def pairs(model: str, method: str, threads: int) -> list[float]:
        """An allocation and a release together, in each run."""
        return [sum(run[name] for name in TIMES) for run in runs[model, method, threads]]

    def before(method: str, others: Sequence[str]) -> list[Comparison]:
        return [
            Comparison(pairs(model, method, most), pairs(model, other, most), f"{method} and {other}, {model}", "ns") for model in MODELS for other in others
        ]

    def grows(method: str) -> list[Comparison]:
        return [Comparison(pairs(model, method, 1), pairs(model, method, most), f"{method}, {model}", "ns") for model in MODELS]

    def scales(model: str) -> Comparison:
        return Comparison(pairs(model, "VH", most), [SCALABLE_RATIO * one for one in pairs(model, "VH", 1)], f"VH, {model}", "ns")

    locked = ("GP", "CM")
    return Result(
        id="vh/figure-3",
        title="Two parallel simulations: average time of an allocation and of a release",
        unit="ns",
        x_label="threads",
        y_log=True,
        measured=[
            Series(method, [(threads, time[model, method, threads, name]) for threads in counts], f"{title}, {what}")
            for model, title in MODELS.items()
            for name, what in TIMES.items()
            for method in METHODS
        ],
        holds=[
            claim_of(
                f"VH takes less time for an allocation and a release together than GP, CM and VMSR, with {most} threads, in both simulations",
                "section 4.1, figure 3",
                before("VH", (*locked, "VMSR")),
            ),
            claim_of(
                f"VH takes less time than VMDR, with {most} threads, in both simulations",
                "section 4.1, figure 3",
                before("VH", ("VMDR",)),
            ),
            claim_of(
                f"VMDR comes next, before GP, CM and VMSR, with {most} threads",
                "section 4.1, figure 3",
                before("VMDR", (*locked, "VMSR")),
            ),
            claim_of(
                f"VH is scalable: with {most} threads less than {SCALABLE_RATIO} times as long as with one",
                "section 4.1",
                [scales(model) for model in MODELS],
            ),
            claim_of(
                "the methods with one lock take longer with more threads",
                "section 2.1",
                [one for method in locked for one in grows(method)],
            ),
            Claim(
                "the simulations stay within the bound on global accesses, floor(S / (m/2)) + P",
                "theorem 2.3",
                all(run["global_accesses"] <= run["requests"] // (M // 2) + key[2] for key in keys if key[1] in VH_METHODS for run in runs[key]),
            ),
        ],
        note=(
            f"17 stages with 4 servers, and 1,000 LPs; m = {M}, m/2 blocks a processor at the start and as many whenever the pool has run out. VH is strata's "
            "pool with arrays outside the program's memory, VH-stacks the same pool with the paper's Active and Backup stacks through the "
            "blocks; GP one locked list, CM lists by size under one lock, VMSR and VMDR a region for each processor, to which a block returns or "
            "not; none of these checks "
            "what it is given, as strata does with each pointer that is released. The "
            "simulators run on threads by safe times; what they compute is the same under every method and number of threads, and is checked. "
            "Topology and rates of super-ping are ours (a ring, four pings an LP), as the paper only draws it. "
            f"A thread allocates {group} events at a time, ahead of their use, and releases as many at a time after their end; such a group is timed as one, "
            "between two readings of the clock that wait for what is under way, as a single operation takes less than the reading. What that costs is taken "
            "off, the indirect call of the method is not; groups of more than 100 µs are left out, in which the system had stopped "
            f"the thread (at most {left_out:.2%} of a run's operations). "
            + ("A quick run times fewer" if context.quick else f"At least {SAMPLES_MIN:,}")
            + " operations of each kind. Noise is what the quartiles of a measurement's runs are apart, for two measurements the root of the sum of squares."
        ),
    )


if __name__ == "__main__":
    main(measure)
