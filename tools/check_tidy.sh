#!/bin/bash
# clang-tidy over every layer, on the compile commands of a build folder: tools/check_tidy.sh BUILD_DIR [JOBS]
set -euo pipefail
cd "$(dirname "$0")/.."

build=$1
mapfile -t sources < <(python3 - "$build/compile_commands.json" <<'PYTHON'
import json, sys
print(*sorted({entry["file"] for entry in json.load(open(sys.argv[1])) if "/src/" in entry["file"]}), sep="\n")
PYTHON
)
[ ${#sources[@]} -ge 20 ] || { echo "tidy: only ${#sources[@]} source files in $build" >&2; exit 1; }
printf '%s\0' "${sources[@]}" | xargs -0 -n 1 -P "${2:-1}" clang-tidy-19 -quiet -p "$build" 2> >(grep -v 'warnings\? generated' >&2)
echo "tidy: ${#sources[@]} files, no findings"
