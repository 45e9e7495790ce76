"""Blocks of pages: what strata's cost beside the kernel's mappings and beside copies, by bench/papers/umpa_pages.c, which checks every block.

No allocator takes part but strata, so these figures are in no mean. The ways take turns within each repetition; of the growth by doubling the first round of
a process is told apart from later ones, as it makes present what later ones meet. Growth and exchange are also measured in a heap with a history, of other blocks
that were exchanged and freed: what that leaves behind must not make them dearer. All of it runs as ordinary processes do, without the right to lock memory; growth
is measured once more with it, as strata then commits no address space ahead.
"""

import json
import statistics
from collections.abc import Sequence
from pathlib import Path

from .allocators import STRATA, Allocator
from .launching import Launcher, RunFailed
from .measuring import Collected, Progress

NAME = "pages"
PROGRAM = Path("papers/umpa_pages")
KIB, MIB = 1 << 10, 1 << 20
PAIR_SIZES = (4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB)
DOUBLING_BYTES, SWAP_BYTES = 1 << 30, 64 * MIB
# Rounds of one run: where pages are touched, until these are so many bytes, within bounds.
PAIR_BYTES, PAIR_ROUNDS = 256 * MIB, (5, 2000)
DOUBLING_ROUNDS = {STRATA: 4, "copy": 2}
SWAP_ROUNDS = {STRATA: 21, "copy": 5}
AGED_DOUBLING_ROUNDS = 1
PRIVILEGED_DOUBLING_ROUNDS = 1
# Two blocks that grow in turn have the memory of one that grows to twice their size.
TURNS_BYTES = 512 * MIB
TURNS_ROUNDS = 4


def jobs(work_percent: int) -> dict[tuple[str, int], list[str]]:
    """The arguments of the program for each figure, in the order in which they run. Less work means fewer rounds, not smaller blocks."""

    def share(rounds: int, least: int) -> str:
        return str(max(least, rounds * min(work_percent, 100) // 100))

    found: dict[tuple[str, int], list[str]] = {}
    for size in PAIR_SIZES:
        rounds = max(PAIR_ROUNDS[0], min(PAIR_ROUNDS[1], PAIR_BYTES // size))
        found["pair strata", size] = ["pair", "strata", str(size), share(PAIR_ROUNDS[1], PAIR_ROUNDS[0])]
        found["touched strata", size] = ["fault", "strata", str(size), share(rounds, PAIR_ROUNDS[0])]
        found["touched kernel", size] = ["fault", "kernel", str(size), share(rounds, PAIR_ROUNDS[0])]
    for way, rounds in DOUBLING_ROUNDS.items():
        found[f"double {way}", DOUBLING_BYTES] = ["double", way, str(DOUBLING_BYTES), share(rounds, 2)]
    for way, rounds in SWAP_ROUNDS.items():
        found[f"swap {way}", SWAP_BYTES] = ["swap", way, str(SWAP_BYTES), share(rounds, 3)]
    found["double aged", DOUBLING_BYTES] = ["aged-double", STRATA, str(DOUBLING_BYTES), str(AGED_DOUBLING_ROUNDS)]
    found["double privileged", DOUBLING_BYTES] = ["privileged-double", STRATA, str(DOUBLING_BYTES), str(PRIVILEGED_DOUBLING_ROUNDS)]
    found["double turns", TURNS_BYTES] = ["turns", STRATA, str(TURNS_BYTES), share(TURNS_ROUNDS, 2)]
    found["swap aged", SWAP_BYTES] = ["aged-swap", STRATA, str(SWAP_BYTES), share(SWAP_ROUNDS[STRATA], 3)]
    return found


def run_pages(
    strata: Allocator, launcher: Launcher, folder: Path, repetitions: int, work_percent: int, cpu: int | None, collected: Collected, progress: Progress
) -> None:
    """Adds to collected.pages one document a repetition; none at all where one run failed."""
    wanted = jobs(work_percent)
    documents = []
    for turn in range(repetitions):
        progress(f"{NAME} {turn + 1}/{repetitions}")
        document = {}
        for key, arguments in wanted.items():
            try:
                sample = launcher.run([str(folder / PROGRAM), *arguments], strata.preload, strata.env, cpu)
                document[key] = json.loads(sample.output)
            except (RunFailed, ValueError) as failure:
                collected.problems.append(f"{NAME} under {strata.name}: {' '.join(arguments)}: {failure}")
                return
        documents.append(document)
    collected.pages = documents


def build(documents: Sequence[dict]) -> dict | None:
    """Medians over the repetitions, in ns; None where nothing was measured. Its shape is that of summary.schema.json."""
    if not documents:
        return None

    def median(key: tuple[str, int], metric: str) -> float:
        return statistics.median(document[key][metric] for document in documents)

    def step(way: str, index: int, metric: str) -> float:
        return statistics.median(document[f"double {way}", DOUBLING_BYTES]["steps"][index][metric] for document in documents)

    def turn(index: int) -> dict:
        found = [document["double turns", TURNS_BYTES]["steps"][index] for document in documents]
        return {"bytes": found[0]["bytes"], **{metric: statistics.median(step[metric] for step in found) for metric in ("first_ns", "later_ns")}}

    steps = documents[0]["double strata", DOUBLING_BYTES]["steps"]
    return {
        "pairs": [
            {
                "bytes": size,
                "strata_ns": median(("pair strata", size), "alloc_free_ns"),
                "touched_ns": median(("touched strata", size), "alloc_free_ns"),
                "kernel_ns": median(("touched kernel", size), "total_ns"),
            }
            for size in PAIR_SIZES
        ],
        "doubling": [
            {
                "bytes": steps[i]["bytes"],
                "first_ns": step("strata", i, "first_ns"),
                "aged_ns": step("aged", i, "first_ns"),
                "privileged_ns": step("privileged", i, "first_ns"),
                "later_ns": step("strata", i, "later_ns"),
                "copy_ns": step("copy", i, "later_ns"),
            }
            for i in range(len(steps))
        ],
        "turns": [turn(i) for i in range(len(documents[0]["double turns", TURNS_BYTES]["steps"]))],
        "swap": {
            "bytes": SWAP_BYTES,
            "strata_ns": median(("swap strata", SWAP_BYTES), "ns"),
            "aged_ns": median(("swap aged", SWAP_BYTES), "ns"),
            "copy_ns": median(("swap copy", SWAP_BYTES), "ns"),
        },
    }
