"""magazines, section 3.8: latency of a pair of allocation and free, over the number of threads, with and without the magazine layer."""

from frame.experiment import Claim, Context, Published, Result, main, scaling

BLOCK_BYTES = 64
CONFS = {"with": "", "without": "magazine_max:0"}
LINEAR_SHARE = 0.8


def measure(context: Context) -> Result:
    def job(name: str, threads: int, milliseconds: int) -> dict:
        return context.run("best_case", "strata", threads, milliseconds, BLOCK_BYTES, conf=CONFS[name])

    runs = scaling(context, list(CONFS), job)
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
        measured=[runs.curve(f"{name} magazines", name) for name in CONFS],
        holds=[
            Claim("magazines make a single CPU faster", "section 3.8", runs.latency["with", 1] < runs.latency["without", 1]),
            Claim(
                f"with magazines throughput is linear: {runs.most} threads do at least {LINEAR_SHARE * runs.most:g} times the pairs of one",
                "section 3.8",
                runs.is_linear("with", LINEAR_SHARE),
            ),
            Claim(
                "without magazines more threads do less than one",
                "section 3.8",
                runs.is_best_on_one("without"),
            ),
        ],
        note=(
            f"`malloc` and `free` of {BLOCK_BYTES} bytes, each block written and read. The option `magazine_max:0` closes the CPU arrays, so that every "
            "call goes to the slabs, under the lock of the size class. A latency that stays as it is with more threads is linear scaling."
        ),
    )


if __name__ == "__main__":
    main(measure)
