"""Every paper and every experiment: the one place where an experiment is entered.

A further experiment is a line here and a program in bench/papers/; a C program that it needs is found by its name
(bench/papers/CMakeLists.txt). A further paper is a line in PAPERS.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Paper:
    """A paper, under the short name that ONLY= takes."""

    name: str
    authors: str
    title: str


@dataclass(frozen=True)
class Experiment:
    """A program in bench/papers/ that repeats one figure, table or statement of a paper."""

    paper: str
    figure: str
    program: str
    timeout_s: int = 900

    @property
    def id(self) -> str:
        return f"{self.paper}/{self.figure}"


PAPERS = (
    Paper("vh", "Vee, Hsu", "A Scalable and Efficient Storage Allocator on Shared-Memory Multiprocessors"),
    Paper("magazines", "Bonwick, Adams", "Magazines and Vmem: Extending the Slab Allocator to Many CPUs and Arbitrary Resources"),
    Paper("kmem", "McKenney, Slingwine, Krueger", "Experience With an Efficient Parallel Kernel Memory Allocator"),
    Paper("umpa", "Douglas", "User Mode Memory Page Allocation"),
    Paper("contiguity", "Gorman, Whitcroft", "Supporting the Allocation of Large Contiguous Regions of Memory"),
)

EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment("vh", "figure-3", "vh_figure3.py"),
    Experiment("vh", "theorem-2-5", "vh_bound.py"),
    Experiment("magazines", "section-3-1-thrash", "magazines_thrash.py"),
    Experiment("magazines", "section-3-2", "magazines_bursts.py"),
    Experiment("magazines", "section-3-4", "magazines_resizing.py"),
    Experiment("magazines", "section-3-7", "magazines_working_set.py"),
    Experiment("magazines", "section-3-8", "magazines_scaling.py"),
    Experiment("magazines", "section-3-8-many-cpus", "magazines_many_cpus.py"),
    Experiment("magazines", "section-4-4-4", "magazines_quantum.py"),
    Experiment("magazines", "section-4-4-4-pairs", "magazines_pairs.py"),
    Experiment("magazines", "section-4-4-5", "magazines_fragmentation.py"),
    Experiment("magazines", "section-4-5-1", "magazines_vmem.py"),
    Experiment("kmem", "figure-7-8", "kmem_figure7.py"),
    Experiment("kmem", "figure-9", "kmem_figure9.py"),
    Experiment("kmem", "section-4-4", "kmem_lock_manager.py"),
    Experiment("kmem", "tables-2-6", "kmem_tables.py"),
    Experiment("kmem", "equations-5-6", "kmem_purity.py"),
    Experiment("umpa", "figures-5-6", "umpa_faults.py"),
    Experiment("umpa", "figures-7-8", "umpa_ring.py"),
    Experiment("umpa", "figures-9-10", "umpa_malloc.py"),
    Experiment("umpa", "figure-11", "umpa_resize.py"),
    Experiment("umpa", "table-2", "umpa_programs.py"),
    Experiment("umpa", "section-2-vector", "umpa_vector.py"),
    Experiment("umpa", "section-4-1", "umpa_list.py"),
    Experiment("contiguity", "section-1", "contiguity_tlb.py"),
    Experiment("contiguity", "section-2", "contiguity_pairs.py"),
    Experiment("contiguity", "figure-1", "contiguity_map.py"),
    Experiment("contiguity", "figure-5", "contiguity_compile.py", timeout_s=1800),
    Experiment("contiguity", "figures-6-7", "contiguity_effectiveness.py", timeout_s=2 * 3600),
    Experiment("contiguity", "figures-6-7-large", "contiguity_terabyte.py", timeout_s=2 * 3600),
    Experiment("contiguity", "figures-4-8-9", "contiguity_latency.py"),
    Experiment("contiguity", "section-7", "contiguity_contents.py"),
    Experiment("contiguity", "section-7-large", "contiguity_large.py"),
    Experiment("contiguity", "figure-11", "contiguity_races.py"),
)
