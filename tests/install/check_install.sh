#!/bin/bash
# Installs a build into a prefix of its own, moves that elsewhere, and builds programs on it by pkg-config and by CMake:
# tests/install/check_install.sh BUILD_DIR
set -euo pipefail
cd "$(dirname "$0")/../.."

build=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
checks=0
fail() { echo "install: $*" >&2; exit 1; }
passed() { checks=$((checks + 1)); }

cmake --install "$build" --prefix "$work/first" >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "cmake --install failed"; }
# Nothing installed may know the place that it was installed to: packages are built in one place and used in another.
mv "$work/first" "$work/prefix"
prefix=$work/prefix
library_dir=$(dirname "$(find "$prefix" -name libstrata.so)")

# All headers and pages that there are, not those that a list here knows.
pages=(docs/man/*.[13])
headers=(include/*.h include/*/*.h include/*/*.hpp)
[ ${#pages[@]} -ge 20 ] && [ ${#headers[@]} -ge 22 ] || fail "hardly any page or header found"
pages=("${pages[@]#docs/man/}")
for file in "${headers[@]}" $(printf '%s\n' "${pages[@]}" | sed 's#.*\.\(.\)$#share/man/man\1/&#'); do
    [ -s "$prefix/$file" ] || fail "$file is missing"
    passed
done
for file in libstrata.so libstrata.so.0 libstrata.a libstrata-only.so libstrata-only.so.0 libstrata-only.a libstrata-umem.so libstrata-umem.so.0 libstrata-umem.a libstrata-cxx.a \
    pkgconfig/strata-cxx.pc pkgconfig/strata.pc pkgconfig/strata-only.pc pkgconfig/strata-umem.pc \
    cmake/strata/strataConfig.cmake cmake/strata/strataConfigVersion.cmake; do
    [ -s "$library_dir/$file" ] || fail "$file is missing"
    passed
done
! grep -rIl -e "$PWD" -e "$work/first" "$prefix" || fail "installed text names a folder of the build"
passed
# Nor does code: it is the same from whatever folder it was built, but for what debuggers read.
for file in "$library_dir"/libstrata*.so "$library_dir"/libstrata*.a; do
    objcopy --strip-debug "$file" "$work/stripped"
    ! grep -aqF "$PWD/" "$work/stripped" || fail "$file names a folder of the build"
    passed
done
for page in "${pages[@]}"; do
    text=$(cd "$prefix/share/man" && groff -mdoc -s -P-cbou -Tascii "man${page##*.}/$page" 2>&1)
    grep -q "^SYNOPSIS" <<<"$text" || fail "$page does not format where it is installed"
    passed
done
for name in libstrata libstrata-only libstrata-umem; do
    dynamic=$(readelf -dW "$library_dir/$name.so")
    grep -q "soname: \[$name\.so\.0\]" <<<"$dynamic" || fail "soname is not $name.so.0"
    grep -q 'NODELETE' <<<"$dynamic" || fail "$name.so is not NODELETE"
    ! grep -q 'NEEDED.*libstdc++' <<<"$dynamic" || fail "$name.so needs libstdc++"
    passed
done

# Each header on its own, in both languages and strict modes.
for header in "$prefix"/include/{strata,sys,.}/*.h; do
    name=${header#"$prefix"/include/}
    for compiler in gcc clang-19; do
        for language in c11 c++11 c++20; do
            echo "#include <$name>" |
                $compiler -std=$language -pedantic -Wall -Wextra -Werror -I"$prefix/include" -x "${language%%[0-9]*}" -fsyntax-only - ||
                fail "$name is not valid $language for $compiler"
            passed
        done
    done
done

# The C++ headers on their own.
for header in "$prefix"/include/strata/*.hpp; do
    for compiler in g++ clang++-19; do
        for standard in c++17 c++20; do
            echo "#include <strata/${header##*/}>" | $compiler -std=$standard -pedantic -Wall -Wextra -Wshadow -Wconversion -Werror -I"$prefix/include" -x c++ -fsyntax-only - ||
                fail "${header##*/} is not valid $standard for $compiler"
            passed
        done
    done
done

expect_well() { # program...
    local output
    output=$("$@" 2>&1) || fail "$*: $output"
    [ "$output" = "consumer: well" ] || fail "$*: $output"
    passed
}
export PKG_CONFIG_PATH=$library_dir/pkgconfig
export LD_LIBRARY_PATH=$library_dir
# Each package makes a program whose malloc is strata's, or leaves it its own.
for package in strata strata-only; do
    wanted=$([ $package = strata ] || echo foreign)
    [ "$(pkg-config --modversion $package)" = "$(sed -n 's/^set(PACKAGE_VERSION "\(.*\)")/\1/p' "$library_dir/cmake/strata/strataConfigVersion.cmake")" ] ||
        fail "pkg-config and CMake disagree on the version of $package"
    passed
    for compiler in gcc clang-19; do
        program=$work/consumer-$package-$compiler
        flags="-Wall -Wextra -Werror -fno-builtin -o $program tests/install/consumer/consumer.c"
        $compiler $flags $(pkg-config --cflags --libs $package)
        expect_well "$program" $wanted
        readelf -d "$program" | grep -q "NEEDED.*\[lib$package\.so\.0\]" || fail "$program does not need lib$package.so"
        passed
        $compiler $flags $(pkg-config --cflags $package) -L"$library_dir" -Wl,-Bstatic -l$package -Wl,-Bdynamic -pthread
        expect_well "$program" $wanted
        ! readelf -d "$program" | grep -q libstrata || fail "the static program needs lib$package.so"
        passed
    done
    # With glibc wholly static, too.
    gcc -static -fno-builtin -o "$work/consumer-whole" tests/install/consumer/consumer.c $(pkg-config --cflags $package) "$library_dir/lib$package.a" -pthread
    expect_well "$work/consumer-whole" $wanted
done

# Their tests, as a program of another project builds them: C++20 (the test suites have C++17), by either library.
for compiler in g++ clang++-19; do
    for name in vector allocators; do
        package=$([ $compiler = g++ ] && echo strata || echo strata-only)
        $compiler -std=c++20 -O1 -Wall -Wextra -Werror -o "$work/$name" -Itests tests/cxx/api_$name.cpp $(pkg-config --cflags --libs $package) -pthread
        [ "$("$work/$name")" = "api_$name: well" ] || fail "api_$name.cpp by $compiler with $package failed"
        passed
    done
done

# A program of libumem, as it is: C and C++, shared and static. Its malloc is strata's.
for compiler in gcc clang-19 g++ clang++-19; do
    source=tests/umem/umem_manual.c program=$work/umem-$compiler
    [[ $compiler != *++* ]] || source=tests/umem/umem_manual_cxx.cpp
    $compiler -Wall -Wextra -Werror -o "$program" $source $(pkg-config --cflags --libs strata-umem) -pthread
    [ "$("$program")" = "as the manual says" ] || fail "$program does not do what the manual says"
    readelf -d "$program" | grep -q "NEEDED.*\[libstrata-umem\.so\.0\]" || fail "$program does not need libstrata-umem.so"
    $compiler -Wall -Wextra -Werror -o "$program-static" $source $(pkg-config --cflags strata-umem) "$library_dir"/libstrata-umem.a "$library_dir"/libstrata.a -pthread
    [ "$("$program-static")" = "as the manual says" ] || fail "$program-static does not do what the manual says"
    passed
done

# glibc's own names are in the archive, too: a static program that calls them would else bring glibc's malloc in beside ours, and not link.
echo 'void *__libc_malloc(size_t); int main(void) { free(__libc_malloc(100)); return 0; }' |
    gcc -static -include stdlib.h -fno-builtin -o "$work/glibc-names" -x c - -x none "$library_dir/libstrata.a" -pthread || fail "a static program of __libc_malloc does not link"
"$work/glibc-names" || fail "a static program of __libc_malloc fails"
passed

# Preloaded alone, libstrata-umem.so finds libstrata.so beside it, where nothing else leads there, and brings its malloc.
echo 'int main(void) { free(malloc(100)); return 0; }' | gcc -include stdlib.h -fno-builtin -o "$work/plain" -x c -
# All of the table is read: a grep that ends early would end the program by SIGPIPE, and with it the pipeline.
said=$(env -u LD_LIBRARY_PATH LD_PRELOAD="$library_dir/libstrata-umem.so" STRATA_CONF=stats:table "$work/plain" 2>&1)
[[ $said == *malloc-112* ]] || fail "libstrata-umem.so, preloaded, does not replace malloc: $said"
passed

# C++ with the runtime as a shared library, in the program, and with everything in it.
expect_operators() { # how it is linked: the compiler and its arguments
    "$@" -Wall -Wextra -Werror -o "$work/operators" || fail "'$*' does not link"
    output=$("$work/operators" 2>&1) || fail "operators, linked by '$*': $output"
    [ "$output" = "operators: well" ] || fail "operators, linked by '$*': $output"
    passed
}
operators="tests/install/consumer/operators.cpp $(pkg-config --cflags strata)"
for kind in "" -static-libstdc++ -static; do
    expect_operators g++ $kind $operators "$library_dir/libstrata.a" -pthread
done
# A program's own operators go before those of the archive, which calls them where the runtime would.
for form in ONE ARRAY ALIGNED ALIGNED_ARRAY; do
    replaced="g++ -std=c++17 -O1 -fno-builtin -Wno-mismatched-new-delete -D$form tests/stress/replaced.cpp"
    $replaced -o "$work/replaced" && expected=$("$work/replaced") || fail "replaced operators ($form) do not work without strata"
    for kind in "" -static-libstdc++ -static; do
        $replaced $kind -o "$work/replaced" "$library_dir/libstrata.a" -pthread || fail "a program with operators of its own ($form, $kind) does not link"
        output=$("$work/replaced") && [ "$output" = "$expected" ] || fail "replaced operators ($form, $kind): $output"
    done
    passed
done
# With a runtime that can't be found the nothrow forms call the program's own.
replaced="g++ -std=c++17 -O1 -fno-builtin -Wno-mismatched-new-delete -DONE -DNEVER_FAILS tests/stress/replaced.cpp"
$replaced -o "$work/replaced" && expected=$("$work/replaced") || fail "replaced operators that never fail do not work without strata"
$replaced -static-libstdc++ -o "$work/replaced" $(pkg-config --libs strata)
output=$("$work/replaced") && [ "$output" = "$expected" ] || fail "replaced operators with a runtime of their own: $output"
passed
# Beside the shared library a runtime in the program takes libstrata-cxx.a, which does no harm beside one that is shared, and exports nothing.
for compiler in g++ clang++-19; do
    for kind in "" -static-libstdc++ "-static-libstdc++ -static-libgcc -Wl,--gc-sections -s"; do
        expect_operators $compiler $kind $operators $(pkg-config --libs strata-cxx)
        exported=$(nm -D --defined-only "$work/operators" | grep -cE "_Zn[wa]m|__cxa_throw" || true)
        [ "$kind" = "" ] || [ "$exported" = 0 ] || fail "a program of strata-cxx exports its operators or its runtime"
    done
done
# It leaves a program the forms that are its own, which its libraries go on to find.
for form in ONE ARRAY ALIGNED ALIGNED_ARRAY; do
    replaced="g++ -std=c++17 -O1 -fno-builtin -Wno-mismatched-new-delete -D$form tests/stress/replaced.cpp"
    $replaced -o "$work/replaced" && expected=$("$work/replaced") || fail "replaced operators ($form) do not work without strata"
    for kind in "" -static-libstdc++; do
        $replaced $kind -o "$work/replaced" $(pkg-config --libs strata-cxx) || fail "a program with operators of its own ($form, $kind) does not link with strata-cxx"
        output=$("$work/replaced") && [ "$output" = "$expected" ] || fail "replaced operators with strata-cxx ($form, $kind): $output"
        exported=$(nm -D --defined-only "$work/replaced" | grep -cE " _Zn[wa]m" || true)
        [ "$exported" = 1 ] || fail "replaced operators with strata-cxx ($form, $kind): $exported forms are exported"
    done
    passed
done
expect_operators g++ $operators $(pkg-config --libs strata)
# Without it the process ends with a line that says what is missing.
g++ -static-libstdc++ -o "$work/operators" $operators $(pkg-config --libs strata)
output=$("$work/operators" 2>&1) && fail "operators passed without strata-cxx"
[[ $output == *"no C++ runtime to throw bad_alloc (one that is linked in needs -lstrata-cxx in front of -lstrata)"* ]] || fail "operators without strata-cxx: $output"
passed

{ cmake -S tests/install/consumer -B "$work/consumer" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release && cmake --build "$work/consumer"; } \
    >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "the CMake consumer does not build"; }
for program in c_strata c_static cxx_strata cxx_static; do
    expect_well "$work/consumer/$program"
done
[ "$("$work/consumer/cxx_static_runtime")" = "operators: well" ] || fail "cxx_static_runtime failed"
passed
for program in c_umem c_umem_static; do
    [ "$("$work/consumer/$program")" = "as the manual says" ] || fail "$program does not do what the manual says"
    passed
done
for program in c_only c_only_static cxx_only cxx_only_static; do
    expect_well "$work/consumer/$program" foreign
done
# Under strata after all, such a program has one heap for both families where its strata_* come from a shared library.
LD_PRELOAD=$library_dir/libstrata.so expect_well "$work/consumer/c_only"
# And the consumer can say no: loaded beside the C library's malloc, which comes first, strata is not malloc.
libc=$(ldd "$work/consumer/c_strata" | awk '/libc\.so/ { print $3 }')
LD_PRELOAD=$libc expect_well "$work/consumer/c_strata" foreign
output=$(LD_PRELOAD=$libc "$work/consumer/c_strata") && fail "the consumer passed without strata's malloc"
[ "$output" = "consumer: malloc is not strata's" ] || fail "the consumer failed in another way: $output"
output=$("$work/consumer/c_strata" foreign) && fail "the consumer passed with strata's malloc where it wanted another"
[ "$output" = "consumer: malloc is strata's" ] || fail "the consumer failed in another way: $output"
passed

# Folders that are named whole, as some distributions do, are told as they are.
cmake -S . -B "$work/apart" -G Ninja -DCMAKE_INSTALL_LIBDIR=/elsewhere/lib -DCMAKE_INSTALL_INCLUDEDIR=/elsewhere/headers >"$work/log" 2>&1 ||
    { cat "$work/log" >&2; fail "no configuration with folders of its own"; }
told=$(export PKG_CONFIG_PATH=$work/apart && pkg-config --variable=libdir strata && pkg-config --variable=includedir strata)
[ "$told" = "/elsewhere/lib
/elsewhere/headers" ] || fail "pkg-config tells other folders: $told"
passed

# The command, installed with that prefix, finds the library there.
pip="build/venv/bin/pip -q --disable-pip-version-check"
cp -r python "$work/python"
STRATA_PREFIX=$prefix $pip wheel --no-deps --no-build-isolation -w "$work/wheel" "$work/python" >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "no wheel"; }
$pip install --no-deps --target "$work/site" "$work"/wheel/*.whl
unset LD_LIBRARY_PATH STRATA_LIB
strata="env PYTHONPATH=$work/site PYTHONDONTWRITEBYTECODE=1 build/venv/bin/python -m strata"
[ "$($strata where)" = "$library_dir/libstrata.so" ] || fail "the installed command uses $($strata where)"
[ "$($strata run --verify -- sh -c 'echo $LD_PRELOAD')" = "$library_dir/libstrata.so" ] || fail "strata run does not preload the installed library"
passed

echo "install: $checks checks passed"
