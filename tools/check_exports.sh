#!/bin/bash
# The names that libstrata.so exports are the public ones, all of them; libstrata.a defines no other either. libstrata-only.so and
# libstrata-only.a have those of them that begin with strata_, and none else; libstrata-umem has those of umem.h and vmem.h, and none else:
# tools/check_exports.sh BUILD_DIR
set -euo pipefail
shopt -s extglob
cd "$(dirname "$0")/.."

build=$1
public='^(malloc|calloc|realloc|reallocarray|free|free_sized|free_aligned_sized|cfree|aligned_alloc|memalign|posix_memalign|valloc|pvalloc'
public+='|malloc_usable_size|malloc_trim|mallinfo|mallinfo2|malloc_info|malloc_stats|mallopt|__libc_(malloc|calloc|realloc|free|memalign|valloc|pvalloc|mallopt|mallinfo)|__posix_memalign|_Z(nw|na|dl|da)[A-Za-z0-9_]*|dlopen|vfork|strata_[a-z0-9_]+)$'
# The whole family: a C function that is missing here would mix two heaps in one program.
required="malloc calloc realloc reallocarray free free_sized free_aligned_sized aligned_alloc memalign posix_memalign valloc pvalloc
    malloc_usable_size malloc_trim mallinfo mallinfo2 malloc_info malloc_stats mallopt
    __libc_malloc __libc_calloc __libc_realloc __libc_free __libc_memalign __libc_valloc __libc_pvalloc __libc_mallopt __libc_mallinfo __posix_memalign
    _Znwm _Znam _ZnwmRKSt9nothrow_t _ZnamRKSt9nothrow_t _ZnwmSt11align_val_t _ZnamSt11align_val_t
    _ZnwmSt11align_val_tRKSt9nothrow_t _ZnamSt11align_val_tRKSt9nothrow_t
    _ZdlPv _ZdaPv _ZdlPvm _ZdaPvm _ZdlPvRKSt9nothrow_t _ZdaPvRKSt9nothrow_t _ZdlPvSt11align_val_t _ZdaPvSt11align_val_t
    _ZdlPvmSt11align_val_t _ZdaPvmSt11align_val_t _ZdlPvSt11align_val_tRKSt9nothrow_t _ZdaPvSt11align_val_tRKSt9nothrow_t"
# With it libraries that are opened with RTLD_DEEPBIND get our malloc, on these.
[[ $(uname -m) != @(x86_64|aarch64) ]] || required+=" dlopen"
# Of children of vfork we have to hear, where sequences are restartable.
[[ $(uname -m) != x86_64 ]] || required+=" vfork"
failures=0
fail() { echo "exports: $*" >&2; failures=$((failures + 1)); }

# Each function of the public headers is in every library.
declared=$(cat include/strata/*.h | grep -oE '^STRATA_API [^(]*\bstrata_[a-z0-9_]+\(' | grep -oE 'strata_[a-z0-9_]+\($' | tr -d '(')
[ "$(wc -w <<<"$declared")" -ge 10 ] || fail "hardly any STRATA_API function found in include/strata"

count=0
check() { # file, pattern of the names that it may have, names that it must have
    local names name
    names=$(nm "$([[ $1 = *.so ]] && echo -DP || echo -gP)" --defined-only "$build/$1" | grep -v '^$' | grep -v ':$' | cut -d' ' -f1 | sed 's/@.*//')
    for name in $names; do
        [[ $name =~ $2 ]] || fail "$1 has the global name $name"
    done
    for name in $3; do
        grep -qx "$name" <<<"$names" || fail "$1 does not have $name"
    done
    count=$((count + $(wc -w <<<"$names")))
}
# In a program that has libstrata.a the nothrow forms of new are the C++ runtime's, which call the others.
for kind in so a; do
    [ $kind = so ] || public=${public/|dlopen/} required=${required/ dlopen/}
    [ $kind = so ] || required=${required//_Zn[wa]m*([A-Za-z0-9_])RKSt9nothrow_t/}
    check libstrata.$kind "$public" "$required $declared"
    check libstrata-only.$kind '^strata_[a-z0-9_]+$' "$declared"
done
# malloc and free are no cancellation points, so the library doesn't use the C library's functions that are (src/platform/linux/linux.h), but for what
# threads of its own do; nor does libstrata-umem, but for one that waits for the end of its process.
cancel=" accept close connect creat fallocate fsync lockf msync nanosleep clock_nanosleep open open64 openat openat64 pause pselect read readv
    recvfrom recvmsg select send sendmsg sendto sigsuspend sigtimedwait sigwait sigwaitinfo sleep splice system tcdrain usleep wait waitpid write writev "
imports() { # file, a function that it does import, those of the above that it may
    local imported name
    imported=$(nm -D --undefined-only "$build/$1" | sed 's/.* U //; s/@.*//')
    grep -qx "$2" <<<"$imported" || fail "$1 imports no $2: is this how imports are listed?"
    for name in ${cancel/ $3 / }; do
        ! grep -qx "$name" <<<"$imported" || fail "$1 imports $name, a cancellation point"
    done
}
imports libstrata.so pwrite clock_nanosleep
imports libstrata-umem.so pthread_sigmask pause
# What umem.h and vmem.h declare begins a line with extern.
declared=$(cat include/umem.h include/vmem.h | grep -oE '^extern [^(]*\b[uv]mem_[a-z_]+\(' | grep -oE '[uv]mem_[a-z_]+\($' | tr -d '(')
[ "$(wc -w <<<"$declared")" -ge 20 ] || fail "hardly any function found in include/umem.h and include/vmem.h"
for kind in so a; do
    check libstrata-umem.$kind '^[uv]mem_[a-z_]+$' "$declared"
done
echo "exports: $count symbols, $failures failures"
[ $failures = 0 ]
