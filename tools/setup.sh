#!/bin/bash
# Installs what a purpose needs, quietly, and only what is missing: tools/setup.sh build|run|test|bench|papers...
# As root or through sudo; nothing is asked for where nothing is missing. Every purpose but `build` also makes
# build/venv with the Python packages and the `strata` command.
set -euo pipefail
cd "$(dirname "$0")/.."

# One line a need: purpose, Debian package, and a shell test for what it brings (none: the package itself). The test
# comes first so that a tool that is on PATH from elsewhere counts.
needs() {
    cat <<'NEEDS'
build gcc                     command -v gcc
build libc6-dev               dpkg_has libc6-dev
build cmake                   cmake_is_recent
build ninja-build             command -v ninja
build binutils                command -v objcopy
build liburing-dev            have_header liburing.h
run   python3                 command -v python3
run   python3-venv            python3 -c 'import venv, ensurepip'
run   g++                     command -v g++
run   redis-server            command -v redis-server
run   redis-tools             command -v redis-benchmark
run   sqlite3                 command -v sqlite3
run   libmimalloc2.0
run   libjemalloc2
run   libtcmalloc-minimal4
run   libgoogle-perftools4
test  clang-19                command -v clang-19
test  clang-format-19         command -v clang-format-19
test  clang-tidy-19           command -v clang-tidy-19
test  lld-19                  ls /usr/lib/llvm-19/bin/ld.lld
test  ccache                  command -v ccache
test  libclang-rt-19-dev
test  libc6-dev-arm64-cross
test  libcmocka-dev           have_header cmocka.h
test  pkg-config              command -v pkg-config
test  musl-tools              command -v musl-gcc
test  valgrind                command -v valgrind
test  gdb                     command -v gdb
test  git                     command -v git
test  perl                    command -v perl
test  php-cli                 command -v php
test  nodejs                  command -v node
test  default-jdk-headless    command -v javac
test  xz-utils                command -v xz
test  libsqlite3-dev          have_header sqlite3.h
test  stress-ng               command -v stress-ng
test  groff-base              command -v groff
test  libpython@PYTHON@-testsuite /usr/bin/python3 -c 'import test.test_json'
bench libbenchmark-dev        have_header benchmark/benchmark.h
bench linux-perf              command -v perf
bench clang-19                command -v clang-19
bench git                     command -v git
bench perl                    command -v perl
bench nodejs                  command -v node
bench default-jdk-headless    command -v javac
bench postgresql              ls /usr/lib/postgresql/*/bin/pgbench
bench python3-numpy           /usr/bin/python3 -c 'import numpy'
bench lua5.4                  command -v lua5.4
bench ruby                    command -v ruby
bench z3                      command -v z3
bench ghostscript             command -v gs
bench ripgrep                 command -v rg
bench imagemagick             ls /usr/bin/convert-im6*
bench rocksdb-tools
papers python3                command -v python3
papers python3-venv           python3 -c 'import venv, ensurepip'
NEEDS
}

# The version of Debian's own Python, as packages are named by it.
debian_python() {
    local version
    version=$(/usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) ||
        version=$(apt-cache depends python3 2>/dev/null | sed -n 's/.*Depends: python\(3\.[0-9]*\)$/\1/p' | head -n 1)
    echo "${version:-3.11}"
}
dpkg_has() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }
have_header() { echo "#include <$1>" | gcc -x c++ -fsyntax-only - 2>/dev/null || [ -e "/usr/include/$1" ]; }
cmake_is_recent() { cmake --version 2>/dev/null | awk 'NR == 1 { split($3, v, "."); exit !(v[1] > 3 || (v[1] == 3 && v[2] >= 25)) }'; }

missing_for() { # purpose
    local purpose package probe
    while read -r purpose package probe; do
        [ "$purpose" = "$1" ] || continue
        case $package in *@PYTHON@*) package=${package/@PYTHON@/$(debian_python)} ;; esac
        eval "${probe:-dpkg_has $package}" >/dev/null 2>&1 || echo "$package"
    done < <(needs)
}

install_packages() { # package...
    local sudo=""
    [ "$(id -u)" = 0 ] || sudo="sudo -n"
    command -v apt-get >/dev/null || { echo "setup: missing: $*; install them by hand, apt-get is not here" >&2; exit 1; }
    echo "setup: installing $*"
    local apt="$sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300"
    local log
    log=$(mktemp)
    # Package lists may be absent or out of date: fetch them only when the installation fails without.
    $apt install --no-install-recommends "$@" >"$log" 2>&1 || { $apt update >>"$log" 2>&1 && $apt install --no-install-recommends "$@" >>"$log" 2>&1; } ||
        { cat "$log" >&2; rm -f "$log"; echo "setup: apt-get could not install: $*" >&2; exit 1; }
    rm -f "$log"
}

make_venv() {
    local venv=build/venv stamp wanted
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "setup: Python 3.11 or newer is needed" >&2; exit 1; }
    stamp=$venv/strata.stamp
    wanted=$(python3 -c 'import sys; print(sys.version, sys.prefix)'; cat python/pyproject.toml; cat "$0")
    [ -e "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && return
    echo "setup: making $venv"
    rm -rf "$venv"
    mkdir -p build
    python3 -m venv "$venv"
    "$venv/bin/pip" -q --disable-pip-version-check install pytest hypothesis typer rich 'setuptools>=68' wheel
    # Editable: the command runs the sources of this tree, and finds the library of build/release.
    "$venv/bin/pip" -q --disable-pip-version-check install --no-build-isolation -e python
    echo "$wanted" >"$stamp"
}

# Only the benchmarks, the papers' experiments and their tests draw and check documents: it is several times as much to fetch as all the rest.
add_papers_packages() {
    local stamp=build/venv/papers.stamp
    [ ! -e "$stamp" ] || return 0
    echo "setup: adding what draws plots to build/venv"
    build/venv/bin/pip -q --disable-pip-version-check install matplotlib jsonschema
    touch "$stamp"
}

# Benchmarks that are not ours: pyperformance carries them as files, and its dependencies would only start them.
add_bench_packages() {
    local stamp=build/venv/bench.stamp
    [ ! -e "$stamp" ] || return 0
    echo "setup: adding pyperformance to build/venv"
    build/venv/bin/pip -q --disable-pip-version-check install --no-deps pyperformance
    touch "$stamp"
}

# SQLite's own speed test. No package of Debian's has it, but the source of its sqlite3 does: fetched and verified by apt, with lists of its own, as most systems
# name no sources of source packages.
add_speedtest() {
    local file=$PWD/build/speedtest1/speedtest1.c key=/usr/share/keyrings/debian-archive-keyring.gpg codename work
    [ ! -e "$file" ] || return 0
    echo "setup: fetching SQLite's speedtest1.c"
    work=$(mktemp -d)
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    mkdir -p "$work/parts" "$work/state/lists/partial" "$work/cache/archives/partial" "${file%/*}"
    echo "deb-src [signed-by=$key] http://deb.debian.org/debian $codename main" >"$work/sources.list"
    # Without it one test fails and says why; all others can run.
    (
        cd "$work"
        apt="apt-get -qq -o Dir::Etc::sourcelist=$work/sources.list -o Dir::Etc::sourceparts=$work/parts -o Dir::State=$work/state -o Dir::Cache=$work/cache
            -o Dir::State::status=/var/lib/dpkg/status -o APT::Sandbox::User=$(id -un) -o Acquire::Retries=2 -o Acquire::http::Timeout=20"
        $apt update && $apt source --download-only sqlite3 && tar -xJf sqlite3_*.orig.tar.xz --wildcards --strip-components=2 -O '*/test/speedtest1.c' >"$file.part" &&
            [ -s "$file.part" ] && mv "$file.part" "$file"
    ) >"$work/log" 2>&1 || { cat "$work/log" >&2; echo "setup: SQLite's speedtest1.c could not be fetched" >&2; }
    rm -rf "$work"
}

[ $# -gt 0 ] || { echo "usage: $0 build|run|test|bench|papers..." >&2; exit 2; }
missing=()
venv=no
draws=no
measures=no
tests=no
for purpose in "$@"; do
    grep -q "^$purpose " <(needs) || { echo "setup: unknown purpose $purpose" >&2; exit 2; }
    mapfile -t -O "${#missing[@]}" missing < <(missing_for "$purpose")
    [ "$purpose" = build ] || venv=yes
    case $purpose in test | bench | papers) draws=yes ;; esac
    [ "$purpose" != bench ] || measures=yes
    [ "$purpose" != test ] || tests=yes
done
[ ${#missing[@]} = 0 ] || install_packages "${missing[@]}"
for purpose in "$@"; do
    still=$(missing_for "$purpose" | tr '\n' ' ')
    [ -z "$still" ] || { echo "setup: still missing after installation: $still" >&2; exit 1; }
done
[ $venv = no ] || make_venv
[ $draws = no ] || add_papers_packages
[ $measures = no ] || add_bench_packages
[ $tests = no ] || add_speedtest
