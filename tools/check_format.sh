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

# One process for all of them, as starting it takes longer than a file. It names each place that it would change; should it fail otherwise, that fails too.
complaints=$(clang-format-19 --dry-run -Werror "${sources[@]}" 2>&1) || [ -n "$complaints" ] || fail "clang-format-19 failed and said nothing"
while IFS= read -r file; do
    [ -z "$file" ] || fail "$file: clang-format-19 would change it; make format does"
done < <(sed -n 's/^\([^:]*\):[0-9]*:[0-9]*: error: .*\[-Wclang-format-violations\]$/\1/p' <<<"$complaints" | sort -u)
[ -z "$complaints" ] || [ $failures != 0 ] || fail "clang-format-19: $complaints"

mapfile -t texts < <(find src include tests bench examples tools cmake docs python .ci Makefile CMakeLists.txt CMakePresets.json -type f \
    \( -name '*.[ch]' -o -name '*.[ch]pp' -o -name '*.def' -o -name '*.py' -o -name '*.sh' -o -name '*.md' -o -name '*.cmake' -o -name '*.txt' \
    -o -name '*.in' -o -name '*.json' -o -name '*.[13]' -o -name '*.toml' -o -name Makefile -o -name run \) \
    -not -path '*/.*cache/*' -not -path '*.egg-info/*' | sort)
# Each of these goes over all files at once as well: NAME:LINE of what is wrong, or NAME.
complain() { # what is wrong; the places on standard input
    local place
    while IFS= read -r place; do fail "$place: $1"; done
}
mapfile -t unmarked < <(printf '%s\n' "${texts[@]}" | grep -v '\.md$')
mapfile -t code < <(printf '%s\n' "${texts[@]}" | grep -E '\.(c|h|[ch]pp|def|py|sh|cmake)$')
mapfile -t untabbed < <(printf '%s\n' "${texts[@]}" | grep -vx Makefile)
[ ${#unmarked[@]} -ge 20 ] && [ ${#code[@]} -ge 20 ] && [ ${#untabbed[@]} -ge 20 ] || fail "hardly any text found"
complain "blanks at a line end" < <(grep -nHE '[[:blank:]]+$' "${unmarked[@]}")
complain "over 500 lines" < <(wc -l "${code[@]}" | awk '$1 > 500 && $2 != "total" { print $2 }')
complain "a tab" < <(grep -nHP '\t' "${untabbed[@]}")
# With -z a file is one line, which ends where the file does.
complain "no newline at the end" < <(find "${texts[@]}" -size +0 -print0 | xargs -0 grep -LPz '\n\z')

echo "format: ${#sources[@]} sources, ${#texts[@]} texts, $failures failures"
[ $failures = 0 ]
