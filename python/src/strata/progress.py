"""The progress bar of `strata compare`, on stderr, and only where that is a terminal."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from strata.candidates import Candidate
from strata.compare import Plan
from strata.workload import Workload

# Drawing takes CPU time from the program on a small machine.
REFRESHES_PER_SECOND = 2


class RunProgress:
    """Counts the runs of all workloads. Use as a context manager; `step` is told of each run before it starts."""

    def __init__(self, workloads: list[Workload], plan: Plan, console: Console):
        self._plan = plan
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            refresh_per_second=REFRESHES_PER_SECOND,
            transient=True,
            disable=not console.is_terminal,
        )
        self._rounds = plan.warmup + plan.runs
        self._order = {workload.name: index for index, workload in enumerate(workloads)}
        self._task = self._bar.add_task("starting", total=len(workloads) * self._rounds * len(plan.candidates))

    def __enter__(self) -> "RunProgress":
        self._bar.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._bar.stop()

    def step(self, workload: Workload, number: int, candidate: Candidate) -> None:
        """Shows the run that is about to start; those before it count as done, left out ones too."""
        phase = "warm-up" if number < 0 else f"round {number + 1}/{self._plan.runs}"
        place = self._order[workload.name] * self._rounds + self._plan.warmup + number
        done = place * len(self._plan.candidates) + self._plan.candidates.index(candidate)
        self._bar.update(self._task, completed=done, description=f"{workload.name}: {phase}, {candidate.name}")

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """While open, the bar is off the screen, so that something else can be printed."""
        self._bar.stop()
        try:
            yield
        finally:
            self._bar.start()
