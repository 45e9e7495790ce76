"""Machines of many CPUs, simulated: how often their CPUs come to a depot, where its lock is never found taken and where it is.

bench/papers/scaling_visits counts on the library's own code; figures are counts of a fixed load and the same on any machine. A CPU has m/2 operations at least between
two visits, so that it visits at most once more than its operations divided by m/2 (VH, theorem 2.5).
"""

import json
from collections.abc import Sequence
from pathlib import Path

from .allocators import STRATA
from .launching import Launcher, RunFailed
from .measuring import Collected, Progress

NAME = "depot-visits"
PROGRAM = "papers/scaling_visits"
KINDS = {"bursts": "bursts beyond the arrays", "passed": "all blocks passed to a neighbour"}
CPUS, QUICK_CPUS = (1, 16, 256, 4096), (1, 64, 4096)
# Operations in all, so that the few CPUs of a small machine make enough; and of each CPU, which has to come to the depot several times.
OPERATIONS, LEAST_OPERATIONS = 400_000, 512
# How long a visit keeps the lock, in operations that the array serves: the order of what is measured (scaling_constants: some 100 ns for some 5).
HELD_OPERATIONS = 12


def count(launcher: Launcher, folder: Path, cpus: Sequence[int], collected: Collected, progress: Progress) -> list[dict]:
    """A row for each load, number of CPUs, and state of the locks; what could not be counted is a problem, and no row."""
    rows = []
    for kind in KINDS:
        for number in cpus:
            for contended in (False, True):
                progress(f"{NAME} {kind} {number}")
                operations = max(LEAST_OPERATIONS, OPERATIONS // number)
                command = [str(folder / PROGRAM), kind, str(number), str(operations), "magazines", *([str(HELD_OPERATIONS)] if contended else [])]
                try:
                    rows.append(_row(kind, number, contended, json.loads(launcher.run(command).output)))
                except (RunFailed, ValueError, KeyError, ZeroDivisionError) as failure:
                    collected.problems.append(f"{NAME} under {STRATA}: {kind} on {number} CPUs: {failure}")
    return rows


def runs(cpus: Sequence[int]) -> int:
    return 2 * len(KINDS) * len(cpus)


def _row(kind: str, cpus: int, contended: bool, counted: dict) -> dict:
    operations, visits, transfer = counted["operations"], counted["depot_visits"], counted["transfer"]
    return {
        "load": kind,
        "cpus": cpus,
        "contended": contended,
        "m": 2 * transfer,
        "visits_per_operation": visits / operations,
        "found_taken_per_visit": counted["contention"] / visits if visits else 0.0,
        # Of what the theorem allows.
        "of_bound": max(0, visits - cpus) * transfer / operations,
    }


def falls(rows: Sequence[dict]) -> dict[tuple[str, int], float]:
    """For each load and number of CPUs: visits of an operation where the lock is found taken, against where it never is; several CPUs only."""
    calm = {(row["load"], row["cpus"]): row["visits_per_operation"] for row in rows if not row["contended"]}
    busy = {(row["load"], row["cpus"]): row["visits_per_operation"] for row in rows if row["contended"]}
    return {key: busy[key] / calm[key] for key in busy if key[1] > 1 and calm.get(key)}
