"""Blocks of 30 KB to 900 KB that grow by realloc, in turn: what they hold goes along, by moved pages or by copies, also where the system refuses to
move some: pages that a child of a fork has as well, and pages that are locked in memory."""

import pytest

PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCKS = 120, OPERATIONS = 8000 };
static struct {
    char *at;
    size_t bytes;
} blocks[BLOCKS];
static unsigned long seed = 1;

static size_t below(size_t end) {
    seed = seed * 6364136223846793005UL + 1442695040888963407UL;
    return (seed >> 33) % end;
}
static int holds(int i, size_t bytes) { /* each page, at both ends */
    for (size_t at = 0; at < bytes; at += 4096)
        if (blocks[i].at[at] != (char)i) return 0;
    return blocks[i].at[bytes - 1] == (char)i;
}
static void resize(int i, size_t bytes) {
    const size_t kept = bytes < blocks[i].bytes ? bytes : blocks[i].bytes;
    char *at = realloc(blocks[i].at, bytes);
    if (at == NULL) exit(3);
    blocks[i].at = at;
    if (kept != 0 && !holds(i, kept)) {
        fprintf(stderr, "block %d of %zu bytes lost something on its way to %zu\n", i, blocks[i].bytes, bytes);
        _exit(4);
    }
    memset(at + kept, i, bytes - kept);
    blocks[i].bytes = bytes;
}

int main(int count, char **arguments) {
    const char *(*check)(void) = NULL;
    const int forks = count > 1 && strcmp(arguments[1], "forks") == 0, locked = count > 1 && strcmp(arguments[1], "locked") == 0;
    extern const char *strata_check(void) __attribute__((weak));
    check = strata_check;
    if (locked && mlockall(MCL_CURRENT | MCL_FUTURE) != 0) return 77;
    for (int i = 0; i < BLOCKS; i++) resize(i, 30000);
    for (int n = 0; n < OPERATIONS; n++) {
        const int i = (int)below(BLOCKS);
        const size_t bytes = blocks[i].bytes * (5 + below(5)) / 4 + below(100);
        if (bytes <= (locked ? 400000 : 900000)) {
            resize(i, bytes);
        } else {
            free(blocks[i].at);
            blocks[i].at = NULL, blocks[i].bytes = 0;
            resize(i, 30000 + below(20000));
        }
        if (forks && n % 500 == 0) {
            const pid_t child = fork();
            if (child == 0) {
                for (int k = 0; k < BLOCKS; k++) resize(k, blocks[k].bytes + 50000);
                _exit(check != NULL && check() != NULL ? 5 : 0);
            }
            int status = -1;
            if (child < 0 || waitpid(child, &status, 0) != child || status != 0) return 6;
        }
        if (n % 1000 == 0 && check != NULL && check() != NULL) {
            fprintf(stderr, "%s\n", check());
            return 7;
        }
    }
    for (int i = 0; i < BLOCKS; i++)
        if (!holds(i, blocks[i].bytes)) return 8;
    return 0;
}
"""


@pytest.mark.strata_only
@pytest.mark.parametrize("strata", ["rseq", "no-rseq"], indirect=True)
@pytest.mark.parametrize("conf", ["", "page_moves:uffd", "grouping:on", "thp:always"])
@pytest.mark.parametrize("mode", ["alone", "forks", "locked"])
def test_what_a_growing_block_holds_goes_along(strata, compile_c, mode, conf):
    run = strata.run([compile_c("growing_blocks", PROGRAM), mode], conf=conf, expect=None)
    if run.returncode == 77:
        pytest.skip("no right to lock so much memory")
    assert run.returncode == 0
