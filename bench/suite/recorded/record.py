#!/usr/bin/env python3
"""Records what real programs allocate, and distils it into bench/suite/loads/lifetimes_data.h.

    record.py --recorder BUILD/bench/papers/trace_recorder.so

Each program of PROGRAMS runs once on the C library's malloc under the recorder of the papers' experiments (build the preset
`experiments`). Of the trace of its main process there stays a table: how frequent each size is, and for each size how many
allocations later its blocks are freed, by powers of two. Sizes beyond the most frequent ones are put together by quarters of a
doubling, under the mean of each. A realloc counts as a free and a new block.

The table is committed, so this runs only when the programs of the table change.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

SUITE = Path(__file__).resolve().parent.parent
HEADER = SUITE / "loads/lifetimes_data.h"
HEAD_BYTES = 40
ALLOC, FREE, RESIZE, TIME = range(4)
# As LIFETIMES_BUCKETS has it: lifetimes of 1, 2-3, 4-7 ... allocations, and in the last the blocks that were never freed.
BUCKETS = 22
NEVER = BUCKETS - 1
EXACT_SIZES = 20
SIZES_MAX = 40
LARGEST_BYTES = 1 << 20
TIMEOUT_S = 120

PERL = """
my (%h, @a); srand 1;
for my $i (1 .. 120000) { my $w = join '-', map { int rand 900 } 1 .. 4; $h{$w} .= "x$i"; push @a, [$i, $w]; @a = splice @a, 500 if @a > 2000 }
for my $k (sort keys %h) { (my $t = $k) =~ s/(\\d+)/<$1>/g; $h{$k} = uc $t }
"""
PYTHON = """
import ast, glob, os, json
for path in sorted(glob.glob(os.path.join(os.path.dirname(ast.__file__), '*.py')))[:60]:
    tree = ast.parse(open(path, encoding='utf-8', errors='replace').read())
    json.dumps([type(node).__name__ for node in ast.walk(tree)])
"""
REDIS = """
redis-server --port 0 --unixsocket s --save '' --appendonly no --maxmemory 40mb --maxmemory-policy allkeys-lru --daemonize no >log & pid=$!
unset LD_PRELOAD
for i in 1 2 3 4 5 6 7 8 9; do redis-cli -s s ping >ping 2>&1 && break; sleep 0.5; done
redis-benchmark -s s -q -n 60000 -r 60000 -d 200 -P 16 -t set,get,incr,lpush,rpop,sadd,hset,zadd >log
redis-cli -s s shutdown nosave; wait $pid
"""
Z3 = """
from itertools import combinations
n = 9
names = [[f'p{i}_{j}' for j in range(n)] for i in range(n + 1)]
print('\\n'.join(f'(declare-const {x} Bool)' for row in names for x in row))
for row in names: print('(assert (or ' + ' '.join(row) + '))')
for j in range(n):
    for a, b in combinations(range(n + 1), 2): print(f'(assert (not (and {names[a][j]} {names[b][j]})))')
print('(check-sat)')
"""


@dataclass(frozen=True)
class Program:
    """What to run, by a shell, in a scratch folder; the process of the name `process` is the one that counts."""

    name: str
    process: str
    command: str
    prepare: str = ""
    script: str = ""  # the contents of the file `script`


PROGRAMS = (
    Program("cc1plus", "cc1plus", f"g++ -std=c++20 -O1 -c {SUITE}/programs/gxx_source.cpp -o out.o"),
    Program("redis", "redis-server", "sh script", script=REDIS),
    Program("sqlite", "sqlite3", f"sqlite3 -init /dev/null -batch :memory: '.read {SUITE}/programs/sqlite_load.sql' >out",
            f"/usr/bin/python3 {SUITE}/programs/sqlite_prepare.py"),
    Program("perl", "perl", "perl script", script=PERL),
    Program("python", "python3", "PYTHONMALLOC=malloc PYTHONHASHSEED=0 /usr/bin/python3 script", script=PYTHON),
    Program("z3", "z3", "z3 -T:60 in.smt2 >out", "/usr/bin/python3 script >in.smt2", Z3),
)  # fmt: skip


def numbers(data: bytes, at: int):
    """The numbers of a trace, one after the other."""
    value = shift = 0
    for byte in data[at:]:
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            yield value
            value = shift = 0
        else:
            shift += 7


def lifetimes_of(data: bytes) -> dict[int, Counter]:
    """For each size asked for: how many blocks lived for how many allocations, by bucket."""
    stream = numbers(data, HEAD_BYTES)
    unit = allocations = 0
    born: dict[int, tuple[int, int]] = {}
    found: dict[int, Counter] = defaultdict(Counter)

    def address() -> int:
        nonlocal unit
        folded = next(stream)
        unit = (unit + ((folded >> 1) ^ -(folded & 1))) & (2**64 - 1)
        return unit

    def die(block: int) -> None:
        if block in born:  # those from before the recorder began are not counted
            size, when = born.pop(block)
            found[size][min(NEVER - 1, max(1, allocations - when).bit_length() - 1)] += 1

    for word in stream:
        kind, value = word & 3, word >> 2
        if kind == TIME:
            continue
        block = address()
        if kind in (FREE, RESIZE):
            die(block)
        if kind in (ALLOC, RESIZE):
            born[block if kind == ALLOC else address()] = (max(8, value), allocations)
            allocations += 1
    for size, _ in born.values():
        found[size][NEVER] += 1
    return found


def distilled(found: dict[int, Counter]) -> list[tuple[int, int, list[int]]]:
    """(bytes, blocks, blocks by lifetime) of at most SIZES_MAX sizes, most frequent first."""
    by_count = sorted((size for size in found if size <= LARGEST_BYTES), key=lambda size: (-found[size].total(), size))
    groups: dict[object, list[int]] = defaultdict(list)
    for place, size in enumerate(by_count):
        shift = max(0, size.bit_length() - 3)
        groups[size if place < EXACT_SIZES else ("about", size >> shift, shift)].append(size)
    rows = []
    for sizes in groups.values():
        counts = sum((found[size] for size in sizes), Counter())
        mean = sum(size * found[size].total() for size in sizes) // counts.total()
        rows.append((mean, counts.total(), [counts[bucket] for bucket in range(BUCKETS)]))
    return sorted(rows, key=lambda row: -row[1])[:SIZES_MAX]


def in_shares(counts: list[int], whole: int) -> list[int]:
    """The counts as upper ends of shares of `whole`, rising to it."""
    total, seen, ends = sum(counts), 0, []
    for count in counts:
        seen += count
        ends.append(round(seen * whole / total))
    return ends


def table(program: Program, rows: list[tuple[int, int, list[int]]], allocations: int) -> str:
    ends = in_shares([count for _, count, _ in rows], 65536)
    lines = [f"    {{.name = \"{program.name}\", .allocations = {allocations}, .sizes = {len(rows)}, .size = {{"]
    for (size, _, lifetimes), end in zip(rows, ends, strict=True):
        shares = ", ".join(map(str, in_shares(lifetimes, 255)))
        lines.append(f"        {{{size}, {end}, {{{shares}}}}},")
    return "\n".join([*lines, "    }},"])


def record(program: Program, recorder: Path, work: Path) -> bytes:
    traces = work / "traces"
    traces.mkdir(parents=True)
    (work / "script").write_text(program.script)
    if program.prepare:
        subprocess.run(["sh", "-c", program.prepare], cwd=work, check=True)
    # The C library second: a program that is linked with an allocator gets the rest of malloc's family from where its blocks are.
    env = {**os.environ, "LD_PRELOAD": f"{recorder}:libc.so.6", "TRACE_DIR": str(traces)}
    subprocess.run(["sh", "-c", program.command], cwd=work, env=env, check=True, stdout=subprocess.DEVNULL, timeout=TIMEOUT_S)
    mine = [data for data in (path.read_bytes() for path in traces.iterdir()) if data[16:40].rstrip(b"\0").decode() == program.process]
    if not mine:
        sys.exit(f"record: {program.name}: no process named {program.process} was recorded")
    return max(mine, key=len)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recorder", type=Path, required=True)
    options = parser.parse_args()
    tables = []
    for program in PROGRAMS:
        with tempfile.TemporaryDirectory(prefix="strata-record-") as name:
            found = lifetimes_of(record(program, options.recorder.resolve(), Path(name)))
        allocations = sum(counts.total() for counts in found.values())
        rows = distilled(found)
        covered = sum(row[1] for row in rows) / allocations
        print(f"{program.name}: {allocations:,} allocations of {len(found):,} sizes; {len(rows)} rows stand for {covered:.1%}")
        tables.append(table(program, rows, allocations))
    HEADER.write_text(PREAMBLE + "\n".join(tables) + "\n};\n\n// clang-format on\n\n#endif\n")


PREAMBLE = f"""\
/*
 * lifetimes_data.h - what real programs allocated, and for how long: made by bench/suite/recorded/record.py; do not edit it by hand.
 *
 * A row is a size in bytes, the upper end of its share of all allocations in 65,536, and the upper ends of the shares of its lifetimes in 255: blocks
 * freed after 1, 2 to 3, 4 to 7 ... further allocations, and last those never freed.
 */
#ifndef STRATA_BENCH_LIFETIMES_DATA_H
#define STRATA_BENCH_LIFETIMES_DATA_H

#include <stdint.h>

#define LIFETIMES_BUCKETS {BUCKETS}
#define LIFETIMES_SIZES_MAX {SIZES_MAX}

struct lifetimes_size {{
    uint32_t bytes, end;
    unsigned char lifetime_ends[LIFETIMES_BUCKETS];
}};

struct lifetimes_program {{
    const char *name;
    uint64_t allocations;
    unsigned sizes;
    struct lifetimes_size size[LIFETIMES_SIZES_MAX];
}};

// clang-format off
static const struct lifetimes_program lifetimes_programs[] = {{
"""

if __name__ == "__main__":
    main()
