"""magazines, section 3.8: latency of a pair of allocation and free, over the number of threads, with and without the magazine layer."""

from frame.experiment import (
    Claim,
    Context,
    Published,
    Result,
    Series,
    interleaved,
    main,
    median,
)

BLOCK_BYTES = 64
CONFS = {"with": "", "without": "magazine_max:0"}
LINEAR_SHARE = 0.8


def measure(context: Context) -> Result:
    most = context.several_cpus()
    counts = sorted({1, 2, 4, 8, 16, 32, 64, most} & set(range(1, most + 1)))
    milliseconds = context.choose(1000, 100)

    def job(conf: str, threads: int):
        return lambda: context.run("best_case", "strata", threads, milliseconds, BLOCK_BYTES, conf=conf)

    runs = interleaved(context.choose(5, 3), {(name, threads): job(CONFS[name], threads) for name in CONFS for threads in counts})
    latency = {key: median(done, "ns_per_pair") for key, done in runs.items()}
    rate = {key: median(done, "pairs_per_second") for key, done in runs.items()}
    return Result(
        id="magazines/section-3-8",
        title="Latency and scaling with and without the magazine layer",
        unit="ns per pair",
        x_label="threads, one a CPU",
        y_log=True,
        published=[
            Published("with magazines, one CPU", 356, "ns per pair", "section 3.8"),
            Published("without, one CPU", 743, "ns per pair", "section 3.8"),
            Published("what locking alone costs", 186, "ns per pair", "section 3.8"),
            Published("throughput of 16 CPUs, with magazines, against one", 16, "times", "section 3.8"),
            Published("throughput of 16 CPUs, with against without", 340, "times", "section 3.8"),
        ],
        measured=[Series(f"{name} magazines", [(threads, latency[name, threads]) for threads in counts]) for name in CONFS],
        holds=[
            Claim("magazines make a single CPU faster", "section 3.8", latency["with", 1] < latency["without", 1]),
            Claim(
                f"with magazines throughput is linear: {most} threads do at least {LINEAR_SHARE * most:g} times the pairs of one",
                "section 3.8",
                rate["with", most] >= LINEAR_SHARE * most * rate["with", 1],
            ),
            Claim(
                "without magazines more threads do less than one",
                "section 3.8",
                all(rate["without", threads] < rate["without", 1] for threads in counts[1:]),
            ),
        ],
        note=(
            f"`malloc` and `free` of {BLOCK_BYTES} bytes, each block written and read. The option `magazine_max:0` closes the CPU arrays, so that every "
            "call goes to the slabs, under the lock of the size class. A latency that stays as it is with more threads is linear scaling."
        ),
    )


if __name__ == "__main__":
    main(measure)
