"""The loads: which program, with which arguments, and what each stands for.

The work of a load is fixed in its source; `--scale` makes it longer or shorter. A load of one thread is pinned to one CPU,
others may use all of them. Start-ups are programs of the system that end at once, run many times over.
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
    # Stands for a server: the tail of its malloc and free counts.
    server: bool = False

    def command(self, folder: str, work_percent: int) -> list[str]:
        scale = max(1, self.scale_percent * work_percent // 100)
        return [f"{folder}/{self.program}", *self.args, "--scale", str(scale)]


@dataclass(frozen=True)
class StartUp:
    """A program of the system, run `repeat` times one after the other; what it writes has to be the same each time."""

    name: str
    command: tuple[str, ...]
    about: str
    repeat: int = 1
    # So small that nothing but its start counts: the bar for tiny programs is about these.
    tiny: bool = False

    def repeated(self, work_percent: int) -> int:
        return max(1, self.repeat * work_percent // 100)


EXECS = 1000
# The real programs that QUICK=1 runs.
QUICK_PROGRAMS = ("sqlite", "postgres", "pybench", "node", "ruby", "lua", "perl", "java", "z3", "ghostscript", "ripgrep")

STARTUPS = (
    StartUp("start-true", ("/bin/true",), "true, which does nothing, 400 times", 400, tiny=True),
    StartUp("start-ls", ("/bin/ls", "-l", "/usr"), "ls -l of a small folder, 300 times", 300, tiny=True),
    StartUp(
        "execs",
        ("/bin/sh", "-c", f"i=0; while [ $i -lt {EXECS} ]; do /bin/true || exit 1; i=$((i + 1)); done; echo $i"),
        f"a shell script that forks and executes {EXECS:,} programs",
    ),
)

LOADS = (
    Load("ring", "load_ring", "free-malloc ring of mixed sizes, 64 to 16,384 blocks"),
    Load("burst", "load_burst", "bursts of mixed sizes, freed newest first, oldest first, scattered"),
    Load("pair", "load_pair", "one malloc and its free in a loop"),
    Load("handoff", "load_handoff", "two threads handing batches of blocks to each other", threads=2),
    Load("pipeline", "load_handoff", "one thread allocates, another frees", ("--mode", "pipeline"), threads=2),
    Load("pairs-4", "load_handoff", "four producers and their consumers", ("--mode", "pipeline", "--threads", "8"), threads=8, scale_percent=250),
    Load("asymmetric", "load_asymmetric", "threads that allocate, threads that free, batches of random size", threads=4, scale_percent=150, server=True),
    Load("server", "load_server", "random lifetimes, server-like sizes", server=True),
    Load("server-32", "load_server", "the same in 32 threads", ("--threads", "32"), threads=32, scale_percent=200, server=True),
    Load("churn", "load_churn", "threads that die and pass their blocks on", threads=2, scale_percent=200, server=True),
    Load("sleepers", "load_sleepers", "1,000 threads, mostly asleep", threads=1000, server=True),
    Load("lifetimes", "load_lifetimes", "sizes and lifetimes of six recorded programs", server=True),
    Load("waves", "load_waves", "bursts in waves, exponential sizes"),
    Load("sharing-active", "load_sharing", "false sharing: who is given one line", ("--mode", "active"), threads=2, scale_percent=200),
    Load("sharing-passive", "load_sharing", "false sharing: who inherits one line", ("--mode", "passive"), threads=2, scale_percent=200),
    Load("grow-vectors", "load_grow", "realloc: vectors from 16 B to 64 MiB", ("--mode", "vectors")),
    Load("grow-strings", "load_grow", "realloc: strings that grow by a few bytes", ("--mode", "strings"), scale_percent=200),
    Load("tree", "load_tree", "trees built and torn down, in order and scattered"),
    Load("phases", "load_phases", "phases whose mix of sizes shifts"),
    Load("large", "load_large", "blocks of 32 KiB to 32 MiB"),
    Load("buffers", "load_large", "blocks of 16 KiB to 512 KiB", ("--mode", "buffers")),
    Load("reserves", "load_large", "blocks of 256 KiB to 32 MiB of which little is used", ("--mode", "reserves")),
    Load("strings", "load_strings", "a program that works on text"),
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
