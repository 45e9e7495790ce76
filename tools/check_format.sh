#!/bin/bash
# clang-format over every C and C++ file of ours: complains, or rewrites with --fix. Also: no file over 500 lines, no tabs
# or blanks at line ends, a newline at the end, in text files of any kind.
set -euo pipefail
cd "${STRATA_ROOT:-$(dirname "$0")/..}"

mapfile -t sources < <(find src include tests bench examples \( -name '*.c' -o -name '*.h' -o -name '*.[ch]pp' \) | sort)
[ ${#sources[@]} -ge 20 ] || { echo "format: only ${#sources[@]} source files found" >&2; exit 1; }

if [ "${1:-}" = --fix ]; then
    clang-format-19 -i "${sources[@]}"
    exit
fi

failures=0
fail() { echo "format: $*" >&2; failures=$((failures + 1)); }

for file in "${sources[@]}"; do
    clang-format-19 "$file" | cmp -s - "$file" || fail "$file: clang-format-19 would change it; make format does"
done

mapfile -t texts < <(find src include tests bench examples tools cmake docs python .ci Makefile CMakeLists.txt CMakePresets.json -type f \
    \( -name '*.[ch]' -o -name '*.[ch]pp' -o -name '*.def' -o -name '*.py' -o -name '*.sh' -o -name '*.md' -o -name '*.cmake' -o -name '*.txt' \
    -o -name '*.in' -o -name '*.json' -o -name '*.[13]' -o -name '*.toml' -o -name Makefile -o -name run \) \
    -not -path '*/.*cache/*' -not -path '*.egg-info/*' | sort)
for file in "${texts[@]}"; do
    case $file in
    *.md) ;;
    *) ! grep -nE '[[:blank:]]+$' "$file" || fail "$file: blanks at a line end" ;;
    esac
    case $file in
    *.c | *.h | *.[ch]pp | *.def | *.py | *.sh | *.cmake) [ "$(wc -l <"$file")" -le 500 ] || fail "$file: over 500 lines" ;;
    esac
    case $file in
    Makefile) ;;
    *) ! grep -nP '\t' "$file" || fail "$file: a tab" ;;
    esac
    [ ! -s "$file" ] || [ -z "$(tail -c 1 "$file")" ] || fail "$file: no newline at the end"
done

echo "format: ${#sources[@]} sources, ${#texts[@]} texts, $failures failures"
[ $failures = 0 ]
