#!/bin/bash
# Programs on musl, where there is no rseq and no glibc: preloaded, linked, and wholly static: tests/install/check_musl.sh BUILD_DIR
set -euo pipefail
cd "$(dirname "$0")/../.."

build=$PWD/$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
checks=0
fail() { echo "musl: $*" >&2; exit 1; }
expect_well() { # program...
    local output
    output=$("$@" 2>&1) || fail "$*: $output"
    [ "$output" = "consumer: well" ] || fail "$*: $output"
    checks=$((checks + 1))
}

flags="-Wall -Wextra -Werror -fno-builtin -Iinclude tests/install/consumer/consumer.c"
musl-gcc $flags -o "$work/linked" -L"$build" -lstrata
readelf -d "$work/linked" | grep -q 'NEEDED.*libc\.so\]' || fail "the program is not one of musl"
expect_well env LD_LIBRARY_PATH="$build" "$work/linked"
musl-gcc $flags -o "$work/static-library" "$build/libstrata.a"
expect_well "$work/static-library"
musl-gcc -static $flags -o "$work/whole" "$build/libstrata.a"
expect_well "$work/whole"
# Beside musl's malloc.
musl-gcc $flags -o "$work/only" -L"$build" -lstrata-only
expect_well env LD_LIBRARY_PATH="$build" "$work/only" foreign
musl-gcc -static $flags -o "$work/only-whole" "$build/libstrata-only.a"
expect_well "$work/only-whole" foreign

# A program that knows nothing of strata; the statistics say which malloc it had, and in which mode.
musl-gcc -fno-builtin -o "$work/plain" -x c - <<'PROGRAM'
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
static void *body(void *argument) {
    void *blocks[1000];
    for (int round = 0; round < 100; round++) {
        for (int i = 0; i < 1000; i++) memset(blocks[i] = malloc(1 + i * 7), round, 1 + i * 7);
        for (int i = 0; i < 1000; i++) free(blocks[i]);
    }
    return argument;
}
int main(void) {
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) pthread_create(&threads[i], NULL, body, NULL);
    for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
    return 0;
}
PROGRAM
LD_PRELOAD=$build/libstrata.so STRATA_CONF=stats:json,stats_file:$work/stats.json "$work/plain"
grep -q '"mode" *: *"thread"' "$work/stats.json" || fail "no statistics of a program in thread mode"
checks=$((checks + 1))
echo "musl: $checks checks passed"
