#!/bin/bash
# Configures and builds presets, quietly: tools/build.sh PRESET... A failure prints the log; success one line a preset.
set -euo pipefail
cd "$(dirname "$0")/.."

mkdir -p build/logs
for preset in "$@"; do
    log=build/logs/build-$preset.log
    start_s=$SECONDS
    if ! { cmake --no-warn-unused-cli --preset "$preset" && cmake --build --preset "$preset"; } >"$log" 2>&1; then
        cat "$log" >&2
        echo "build: $preset failed" >&2
        exit 1
    fi
    # Warnings are errors in the compiler; this catches those of CMake itself.
    if grep -n "warning:\|CMake .*Warning" "$log" >&2; then
        echo "build: $preset has warnings, see $log" >&2
        exit 1
    fi
    echo "build: $preset done in $((SECONDS - start_s)) s"
done
