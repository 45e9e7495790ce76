#!/bin/bash
# The manual pages must format without a complaint, and name every public function and option.
set -euo pipefail
cd "$(dirname "$0")/.."

pages=(docs/man/*.[13])
[ ${#pages[@]} -ge 4 ] || { echo "man: only ${#pages[@]} pages" >&2; exit 1; }
failures=0
for page in "${pages[@]}"; do
    # A page that only sources another one needs the folder in front of man3/.
    complaints=$(sed "s#^\.so man3/#.so docs/man/#" "$page" | groff -mdoc -ww -z -Tutf8 -s 2>&1) || true
    [ -z "$complaints" ] || { echo "man: $page: $complaints" >&2; failures=$((failures + 1)); }
done
names=$(grep -ohE '\bstrata_[a-z_0-9]+ *\(' include/strata/*.h | tr -d ' (' | sort -u)
[ "$(wc -w <<<"$names")" -ge 10 ] || { echo "man: hardly any public function found in include/strata" >&2; exit 1; }
names+=" $(grep -ohE '^extern [^(]*\b[uv]mem_[a-z_]+\(' include/umem.h include/vmem.h | grep -oE '[uv]mem_[a-z_]+\($' | tr -d '(')"
for name in $names; do
    grep -q "\b$name\b" docs/man/*.3 || { echo "man: $name is in no page of section 3" >&2; failures=$((failures + 1)); }
done
# What headers and pages name in passing, there is: a function, a page, or the word that stands for any of them.
unknown=$(python3 - <<'PYTHON'
import re
from pathlib import Path

headers = [path.read_text() for path in Path("include").rglob("*.h*")]
there = {name for text in headers for name in re.findall(r"\bstrata_\w+", re.sub(r"/\*.*?\*/", "", text, flags=re.S))}
there |= {page.stem for page in Path("docs/man").glob("*.3")} | {"strata_NAME"}
told = {name for text in [*headers, *(page.read_text() for page in Path("docs/man").glob("*"))] for name in re.findall(r"\bstrata_\w*\w\b", text)}
print(*sorted(name for name in told - there if not name.endswith("_")))
PYTHON
)
for name in $unknown; do
    echo "man: $name is named, and is no function or page" >&2
    failures=$((failures + 1))
done
keys=$(sed -n 's/^OPTION_[A-Z]*(\([a-z_]*\),.*/\1/p' src/api/options.def)
[ "$(wc -w <<<"$keys")" -ge 10 ] || { echo "man: hardly any option found in src/api/options.def" >&2; exit 1; }
for key in $keys; do
    grep -q "^\.It Cm $key$" docs/man/libstrata.3 || { echo "man: option $key is not in libstrata.3" >&2; failures=$((failures + 1)); }
done
flags=$(grep -ohE '"--[a-z-]+"' python/src/strata/cli.py | tr -d '"' | sort -u)
[ "$(wc -w <<<"$flags")" -ge 10 ] || { echo "man: hardly any option found in python/src/strata/cli.py" >&2; exit 1; }
for flag in $flags; do
    # Two hyphens are written as one after Fl.
    grep -qE "Fl ${flag#-}( |$)" docs/man/strata.1 || { echo "man: $flag is not in strata.1" >&2; failures=$((failures + 1)); }
done
tools/gen_options.py --check || failures=$((failures + 1))
echo "man: ${#pages[@]} pages, $(wc -w <<<"$names") functions, $failures failures"
[ $failures = 0 ]
