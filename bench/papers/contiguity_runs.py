"""What the experiments of the contiguity paper share: runs of contiguity_highalloc, and the words for what was switched."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from frame.experiment import Context

LONG_RUN_S = 3600
# Letters of the maps that contiguity_highalloc prints.
KINDS = {
    ".": "free",
    "S": "had as a superpage",
    "M": "movable",
    "R": "reclaimable",
    "U": "unmovable",
    "r": "movable with reclaimable",
    "u": "movable with unmovable",
    "#": "reclaimable with unmovable",
}


@dataclass(frozen=True)
class Way:
    """How a zone is run: placement, policy of reclaim, and what else it may do for a superpage."""

    grouped: bool
    reclaim: str
    compact: bool = True
    capture: bool = True

    def arguments(self) -> list[str]:
        return [
            "grouped" if self.grouped else "mixed",
            self.reclaim,
            "compact" if self.compact else "still",
            "capture" if self.capture else "race",
        ]


ALL = Way(grouped=True, reclaim="area")
# What the paper compares: placement and reclaim as they were before it, and after; nothing compacts or captures in either.
STANDARD = Way(grouped=False, reclaim="regular", compact=False, capture=False)
GROUPED_REGULAR = Way(grouped=True, reclaim="regular", compact=False, capture=False)
GROUPED_AREA = Way(grouped=True, reclaim="area", compact=False, capture=False)


@dataclass(frozen=True)
class Run:
    """A load on a zone; warm_s: seconds of its own time before anything is asked for."""

    way: Way
    mib: int
    warm_s: int
    backend: str = "sim"
    test: str = "highalloc"


def highalloc(context: Context, runs: Mapping[object, Run]) -> dict[object, dict]:
    """All of them, as many at a time as there are CPUs: nothing that they tell depends on how long they take."""

    def start(run: Run) -> dict:
        return context.run("contiguity_highalloc", run.backend, run.mib, run.test, *run.way.arguments(), run.warm_s, timeout_s=LONG_RUN_S)

    with ThreadPoolExecutor(context.cpus) as pool:
        return dict(zip(runs, pool.map(start, runs.values()), strict=True))


def percent(run: dict, what: str) -> float:
    return 100 * run[what] / run["superpages"]
