#!/bin/bash
# Every file of the library compiles for aarch64, too, with warnings as errors. Nothing is linked or run: clang and the
# headers of Debian's cross C library are all that this takes.
set -euo pipefail
cd "$(dirname "$0")/.."

mapfile -t sources < <(ls src/{api,cache,slab,page,arena,base,umem,platform/linux}/*.c)
[ ${#sources[@]} -ge 20 ] || { echo "aarch64: only ${#sources[@]} source files found" >&2; exit 1; }
failures=0
for source in "${sources[@]}"; do
    clang-19 --target=aarch64-linux-gnu -isystem /usr/aarch64-linux-gnu/include -std=gnu11 -O2 -fPIC -fvisibility=hidden -Isrc -Iinclude \
        -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wundef -Wmissing-prototypes -Werror -c "$source" -o /dev/null ||
        failures=$((failures + 1))
done
# A compiler for another machine would have passed vacuously.
clang-19 --target=aarch64-linux-gnu -dM -E -x c /dev/null | grep -q '__aarch64__ 1' || { echo "aarch64: clang-19 compiled for another machine" >&2; exit 1; }
echo "aarch64: ${#sources[@]} files, $failures failures"
[ $failures = 0 ]
