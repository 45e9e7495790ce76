"""`strata run --stats` and `--json`, with the library itself: what a person gets at the program's end."""

import json
import os

import pytest

MIB = 1 << 20
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# The sections of the table, and the lists of the JSON document.
SECTIONS = ("caches", "arenas", "groups")


def test_json_to_a_file_of_each_process(tool, tmp_path):
    done = tool("run", "--json", "-o", tmp_path / "%p.json", "--", "bash", "-c", "ls / >/dev/null; echo $$")
    assert done.returncode == 0, done.stderr
    files = {path.stem: json.loads(path.read_text()) for path in tmp_path.glob("*.json")}
    # bash, because dash ends by _exit(2), which no library sees.
    assert len(files) == 2, "one of the shell and one of ls"
    shell = files[done.stdout.strip()]
    assert shell["pid"] == int(done.stdout)
    assert all(shell[section] for section in SECTIONS)
    assert all("object_bytes" in cache for cache in shell["caches"])


def test_json_on_stderr(tool):
    done = tool("run", "--json", "--", "true")
    assert done.stdout == ""
    assert json.loads(done.stderr)["caches"]


def test_table_on_stderr(tool):
    done = tool("run", "--stats", "--", "cat", "/proc/self/status")
    assert done.stdout.startswith("Name:\tcat")
    assert "malloc" in done.stderr and "total" in done.stderr.lower()
    assert not done.stderr.lstrip().startswith("{")


def test_an_option_that_the_library_refuses_is_told(tool):
    done = tool("run", "-O", "decay_ms:never", "--", "true")
    assert done.returncode == 0
    assert "decay_ms" in done.stderr


# A program of which the pages are known: it moves a block of 64 MiB, hands 96 MiB back, and at its end has three blocks of 8 MiB, and 4 MiB idle.
KNOWN_PAGES = """
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
static void *written(size_t mib) { return memset(malloc(mib << 20), 1, mib << 20); }
int main(void) {
    for (int i = 0; i < 3; i++) written(8);
    void *grows = written(64), *in_the_way = written(4);
    void *moved = realloc(grows, 96l << 20);
    if (moved == NULL || moved == grows) return 1;
    memset(moved, 2, 96l << 20);
    free(moved);
    malloc_trim(0);
    if (malloc(500l << 20) != NULL) return 2;
    free(in_the_way);
    return 0;
}
"""


def test_figures_of_pages_in_the_json(tool, compile_c):
    """Each has a test of its own on the simulated platform (tests/unit/api/test_statistics.c): here they come from the real one."""
    options = "thp:never,background:off,decay_ms:3600000,reserve:512M"
    done = tool("run", "--json", *[word for option in options.split(",") for word in ("-O", option)], "--", compile_c("known-pages", KNOWN_PAGES))
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stderr)
    heap, (arena,) = figures["heap"], figures["arenas"]
    (movable,) = [group for group in figures["groups"] if group["name"] == "movable"]
    assert (heap["large_blocks"], heap["large_bytes"]) == (3, 24 * MIB)
    assert heap["moves"] == 1
    assert heap["released_bytes_total"] >= 96 * MIB
    assert heap["populated_bytes_total"] >= (24 + 96 + 4) * MIB
    assert heap["lookaside_bytes"] >= 4 * MIB
    assert 28 * MIB <= heap["populated_bytes"] <= heap["populated_bytes_total"] - heap["released_bytes_total"]
    assert heap["resident_bytes"] >= 24 * MIB
    assert heap["mappings"] < heap["mappings_limit"]
    assert movable["superpages"] >= 12 and movable["populated_pages"] >= movable["allocated_pages"] >= 24 * MIB // PAGE_BYTES
    # The three, the one that grew, its new place, the one in its way; and the request that was refused.
    assert arena["in_use_bytes"] >= 24 * MIB and arena["allocs"] >= 6 and arena["frees"] >= 3 and arena["failures"] >= 1


# A program of which the counts are known: 6,000 of 10,000 blocks of a class that nothing else in it uses are live at its end.
KNOWN_COUNTS = """
#include <stdlib.h>
int main(void) {
    static void *block[10000];
    for (int i = 0; i < 10000; i++)
        if ((block[i] = malloc(3000)) == NULL) return 1;
    for (int i = 0; i < 4000; i++) free(block[i]);
    return 0;
}
"""
OBJECT_BYTES = 3072
OBJECTS_IN_USE = 6000


@pytest.fixture
def known_counts(compile_c):
    return compile_c("known-counts", KNOWN_COUNTS)


def test_counts_of_a_cache_in_the_json(tool, known_counts):
    done = tool("run", "--json", "--", known_counts)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stderr)
    (row,) = [cache for cache in figures["caches"] if cache["name"] == f"malloc-{OBJECT_BYTES}"]
    assert row["object_bytes"] == OBJECT_BYTES
    assert row["in_use"] == OBJECTS_IN_USE
    assert row["slab_allocs"] - row["slab_frees"] == row["in_use"] + row["cached"]
    assert row["slab_allocs"] >= 10000, "each block came from a slab once"
    assert 0 < row["cached"] <= 4000, "of what was freed last, some waits in the caches"
    assert row["total"] == row["slabs"] * (row["slab_bytes"] // OBJECT_BYTES) >= row["in_use"] + row["cached"]
    assert row["memory_bytes"] == row["slabs"] * row["slab_bytes"]
    assert row["depot_allocs"] <= row["depot_frees"] <= 4000
    assert 2 <= row["magazine_rounds"] <= 256
    assert row["contention"] == 0, "there is one thread"
    others = sum(cache["in_use"] * cache["object_bytes"] for cache in figures["caches"] if cache["name"].startswith("malloc-") and cache is not row)
    assert figures["heap"]["in_use_bytes"] == OBJECTS_IN_USE * OBJECT_BYTES + others + figures["heap"]["large_bytes"]


def test_counts_of_a_cache_in_the_table(tool, known_counts):
    done = tool("run", "--stats", "--", known_counts)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith(f"malloc-{OBJECT_BYTES} ")]
    name, size, in_use, cached, total, memory, depot_allocs, slab_allocs, slabs, rounds, contention = line.split()
    assert (int(size), int(in_use), int(contention)) == (OBJECT_BYTES, OBJECTS_IN_USE, 0)
    slab_bytes = 4 * OBJECT_BYTES
    assert int(total) == int(slabs) * (slab_bytes // OBJECT_BYTES) >= int(in_use) + int(cached)
    assert memory.endswith("M") and abs(float(memory[:-1]) - int(slabs) * slab_bytes / 2**20) <= 0.1
    assert int(slab_allocs) >= 10000 and int(depot_allocs) <= 4000
    assert 2 <= int(rounds) <= 256
    heads = done.stderr.splitlines()[2:4]
    assert [" ".join(words.split()) for words in heads] == [
        "cache object objects objects objects allocs allocs magazine depot",
        "name size in use cached total memory from depot from slabs slabs size contention",
    ]
