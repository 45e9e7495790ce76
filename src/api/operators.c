/*
 * operators.c - every replaceable form of C++ operator new and delete, in C: no link to libstdc++ for programs without it.
 *
 * The names are the Itanium C++ ABI's, for size_t = unsigned long. A failing `new` calls the new_handler until memory comes
 * or there is none, then throws std::bad_alloc. In libstrata.so the C++ runtime is looked up when memory is short (cxx_runtime.h).
 *
 * In libstrata.a (STRATA_OPERATORS_OF_ARCHIVE) this file is a member of its own, that only a C++ program brings in. It refers to the
 * runtime's functions by name, as a static runtime's can't be looked up; and it leaves the nothrow forms of new to the runtime, whose own call
 * the throwing forms here and catch.
 */
#ifndef STRATA_NO_OVERRIDE

#include <stddef.h>

#include "api/cxx_runtime.h"
#include "api/heap.h"
#include "strata/malloc.h"

#ifdef STRATA_OPERATORS_OF_ARCHIVE

extern cxx_new_handler current_handler(void) __asm__("_ZSt15get_new_handlerv");
extern _Noreturn void throw_bad_alloc_of_runtime(void) __asm__("_ZSt17__throw_bad_allocv");
static _Noreturn STRATA_COLD void throw_bad_alloc(size_t size) {
    (void)size;
    throw_bad_alloc_of_runtime();
}

#else

#define current_handler cxx_current_new_handler
#define throw_bad_alloc cxx_throw_bad_alloc

#endif

/* A handler that throws leaves through this frame: it must be compiled with unwind tables (-fexceptions). */
static STRATA_COLD void *new_failed(size_t size, size_t align) {
    for (;;) {
        cxx_new_handler handler = current_handler();
        if (handler == NULL) throw_bad_alloc(size);
        handler();
        void *p = strata_memalign(align, size);
        if (p != NULL) return p;
    }
}

STRATA_INLINE void *new_object(size_t size) {
    void *p = strata_malloc(size);
    return STRATA_LIKELY(p != NULL) ? p : new_failed(size, 16);
}
STRATA_INLINE void *new_aligned(size_t size, size_t align) {
    void *p = strata_memalign(align, size);
    return STRATA_LIKELY(p != NULL) ? p : new_failed(size, align);
}

#define OPERATOR(result, name, mangled, ...)                 \
    STRATA_EXPORT result name(__VA_ARGS__) __asm__(mangled); \
    STRATA_EXPORT result name(__VA_ARGS__)

OPERATOR(void *, new_one, "_Znwm", size_t size) { return new_object(size); }
OPERATOR(void *, new_array, "_Znam", size_t size) { return new_object(size); }
OPERATOR(void *, new_one_aligned, "_ZnwmSt11align_val_t", size_t size, size_t align) { return new_aligned(size, align); }
OPERATOR(void *, new_array_aligned, "_ZnamSt11align_val_t", size_t size, size_t align) { return new_aligned(size, align); }

#ifndef STRATA_OPERATORS_OF_ARCHIVE
/*
 * The nothrow forms return NULL also where a new_handler throws. When memory is short they go to the runtime's own version of the same
 * operator, which calls the throwing form above and catches. A program that has its runtime linked in took the operator from here, so that its
 * runtime's is nowhere: then the handler is asked here.
 */
typedef void *nothrow_operator(size_t size, const void *tag);
typedef void *nothrow_aligned_operator(size_t size, size_t align, const void *tag);

static STRATA_COLD void *nothrow_without_runtime(size_t size, size_t align) {
    for (;;) {
        cxx_new_handler handler = current_handler();
        if (handler == NULL || !cxx_handler_returns(handler)) return NULL;
        void *p = strata_memalign(align, size);
        if (p != NULL) return p;
    }
}
static STRATA_COLD void *nothrow_failed(const char *mangled, size_t size, const void *tag) {
    nothrow_operator *next = (nothrow_operator *)cxx_function_behind(mangled);
    return next != NULL ? next(size, tag) : nothrow_without_runtime(size, 16);
}
static STRATA_COLD void *nothrow_aligned_failed(const char *mangled, size_t size, size_t align, const void *tag) {
    nothrow_aligned_operator *next = (nothrow_aligned_operator *)cxx_function_behind(mangled);
    return next != NULL ? next(size, align, tag) : nothrow_without_runtime(size, align);
}

#define NEW_NOTHROW(name, mangled)                                                \
    OPERATOR(void *, name, mangled, size_t size, const void *tag) {               \
        void *p = strata_malloc(size);                                            \
        return STRATA_LIKELY(p != NULL) ? p : nothrow_failed(mangled, size, tag); \
    }
#define NEW_ALIGNED_NOTHROW(name, mangled)                                                       \
    OPERATOR(void *, name, mangled, size_t size, size_t align, const void *tag) {                \
        void *p = strata_memalign(align, size);                                                  \
        return STRATA_LIKELY(p != NULL) ? p : nothrow_aligned_failed(mangled, size, align, tag); \
    }
NEW_NOTHROW(new_one_nothrow, "_ZnwmRKSt9nothrow_t")
NEW_NOTHROW(new_array_nothrow, "_ZnamRKSt9nothrow_t")
NEW_ALIGNED_NOTHROW(new_one_aligned_nothrow, "_ZnwmSt11align_val_tRKSt9nothrow_t")
NEW_ALIGNED_NOTHROW(new_array_aligned_nothrow, "_ZnamSt11align_val_tRKSt9nothrow_t")
#endif

OPERATOR(void, delete_one, "_ZdlPv", void *p) { strata_free(p); }
OPERATOR(void, delete_array, "_ZdaPv", void *p) { strata_free(p); }
OPERATOR(void, delete_one_sized, "_ZdlPvm", void *p, size_t size) { strata_free_sized(p, size); }
OPERATOR(void, delete_array_sized, "_ZdaPvm", void *p, size_t size) { strata_free_sized(p, size); }
OPERATOR(void, delete_one_aligned, "_ZdlPvSt11align_val_t", void *p, size_t align) { strata_free_aligned_sized(p, align, 0); }
OPERATOR(void, delete_array_aligned, "_ZdaPvSt11align_val_t", void *p, size_t align) { strata_free_aligned_sized(p, align, 0); }
OPERATOR(void, delete_one_sized_aligned, "_ZdlPvmSt11align_val_t", void *p, size_t size, size_t align) { strata_free_aligned_sized(p, align, size); }
OPERATOR(void, delete_array_sized_aligned, "_ZdaPvmSt11align_val_t", void *p, size_t size, size_t align) {
    strata_free_aligned_sized(p, align, size);
}

#define DELETE_NOTHROW(name, mangled)                         \
    OPERATOR(void, name, mangled, void *p, const void *tag) { \
        (void)tag;                                            \
        strata_free(p);                                       \
    }
#define DELETE_ALIGNED_NOTHROW(name, mangled)                               \
    OPERATOR(void, name, mangled, void *p, size_t align, const void *tag) { \
        (void)tag;                                                          \
        strata_free_aligned_sized(p, align, 0);                             \
    }
DELETE_NOTHROW(delete_one_nothrow, "_ZdlPvRKSt9nothrow_t")
DELETE_NOTHROW(delete_array_nothrow, "_ZdaPvRKSt9nothrow_t")
DELETE_ALIGNED_NOTHROW(delete_one_aligned_nothrow, "_ZdlPvSt11align_val_tRKSt9nothrow_t")
DELETE_ALIGNED_NOTHROW(delete_array_aligned_nothrow, "_ZdaPvSt11align_val_tRKSt9nothrow_t")

#else
typedef int operators_are_not_overridden; /* ISO C wants a declaration in every file */
#endif
