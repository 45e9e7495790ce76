"""The loads: which program, with which arguments, and what each stands for.

The work of a load is fixed in its source; `--scale` makes it longer or shorter. A load of one thread is pinned to one CPU,
others may use all of them.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Load:
    """One load program with its arguments."""

    name: str
    program: str
    about: str
    args: tuple[str, ...] = ()
    threads: int = 1
    scale_percent: int = 100
    # A control measures the machine and not the allocator: it is left out of all means.
    control: bool = False
    # Loads of one group do the same work in each thread: their ratio is the scaling, see figures.scaling.
    scaling_group: str = ""

    def command(self, folder: str, work_percent: int) -> list[str]:
        scale = max(1, self.scale_percent * work_percent // 100)
        return [f"{folder}/{self.program}", *self.args, "--scale", str(scale)]


LOADS = (
    Load("ring", "load_ring", "free-malloc ring of mixed sizes, 64 to 16,384 blocks"),
    Load("burst", "load_burst", "bursts of mixed sizes, freed newest first, oldest first, scattered"),
    Load("pair", "load_pair", "one malloc and its free in a loop"),
    Load("handoff", "load_handoff", "two threads handing batches of blocks to each other", threads=2),
    Load("pipeline", "load_handoff", "one thread allocates, another frees", ("--mode", "pipeline"), threads=2),
    Load("server", "load_server", "random lifetimes, server-like sizes"),
    Load("server-32", "load_server", "the same in 32 threads", ("--threads", "32"), threads=32, scale_percent=200),
    Load("churn", "load_churn", "threads that die and pass their blocks on", threads=2),
    Load("grow-vectors", "load_grow", "realloc: vectors from 16 B to 64 MiB", ("--mode", "vectors")),
    Load("grow-strings", "load_grow", "realloc: strings that grow by a few bytes", ("--mode", "strings"), scale_percent=200),
    Load("tree", "load_tree", "trees built and torn down, in order and scattered"),
    Load("phases", "load_phases", "phases whose mix of sizes shifts"),
    Load("large", "load_large", "blocks of 32 KiB to 32 MiB"),
    Load("containers", "load_containers", "C++ containers through new and delete"),
    Load("scale-1", "load_scale", "independent work, one thread", ("--threads", "1"), scaling_group="work"),
    Load("scale-2", "load_scale", "independent work, two threads", ("--threads", "2"), threads=2, scaling_group="work"),
    Load(
        "control-1",
        "load_scale",
        "the accesses of scale-1 without the allocator",
        ("--mode", "control", "--threads", "1"),
        scale_percent=200,
        control=True,
        scaling_group="control",
    ),
    Load(
        "control-2",
        "load_scale",
        "the accesses of scale-2 without the allocator",
        ("--mode", "control", "--threads", "2"),
        threads=2,
        scale_percent=200,
        control=True,
        scaling_group="control",
    ),
)
