/*
 * also_as.h - one function under two names: strata_X, and the X that programs call; and whose the process's X is. Private to api/.
 *
 * With STRATA_NO_OVERRIDE only strata_X exists: libstrata-only, for programs whose malloc must stay another.
 */
#ifndef STRATA_API_ALSO_AS_H
#define STRATA_API_ALSO_AS_H

#include "platform/platform.h"

#if defined(STRATA_ALL_VARIANTS)
#error "compiled once for all variants of the library, which differ here: run cmake again (cmake/library.cmake)"
#elif defined(STRATA_NO_OVERRIDE)
#define ALSO_AS(name, function)
#elif defined(__clang__)
#define ALSO_AS(name, function) extern __typeof__(function) name __attribute__((alias(#function), visibility("default")));
#else
#define ALSO_AS(name, function) extern __typeof__(function) name __attribute__((alias(#function), copy(function), visibility("default")));
#endif

/* Likewise for a name that only some C libraries have for programs, glibc's __libc_X: who wraps malloc calls it. */
#if PLATFORM_HAS_LIBC_NAMES
#define ALSO_AS_LIBC(name, function) ALSO_AS(name, function)
#else
#define ALSO_AS_LIBC(name, function)
#endif

#ifndef STRATA_NO_OVERRIDE
/* What the process has under this name, whosever it is (bound.list). */
extern void bound_free(void *p) __asm__("free");

/* Whether that is ours. The compiler may take two names for two functions: so it is kept from knowing the one. */
STRATA_INLINE bool bound_is(uintptr_t bound, uintptr_t own) {
    __asm__("" : "+r"(bound));
    return STRATA_LIKELY(bound == own);
}
#endif

#endif
