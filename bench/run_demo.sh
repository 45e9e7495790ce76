#!/bin/bash
# The end of `make run`: real programs under strata, the system's malloc and the installed peers, compared. Arguments go to
# `strata compare`, for example `bench/run_demo.sh -n 9 --only redis --json figures.json`; later ones win.
set -euo pipefail
cd "$(dirname "$0")/.."

# The command of this tree's environment, which finds the library of build/release; or one that is installed.
strata=build/venv/bin/strata
[ -x "$strata" ] || strata=$(command -v strata) || {
    echo "run_demo: no strata command: run 'make run', or 'pip install ./python'" >&2
    exit 1
}

echo "strata: $("$strata" where)"
"$strata" run --verify -- /bin/true
exec "$strata" compare --suite bench/suite/programs/demo.toml --runs 3 --warmup 1 "$@"
