/*
 * operators.c - every replaceable form of C++ operator new and delete, in C: no link to libstdc++ for programs without it.
 *
 * The names are the Itanium C++ ABI's, for size_t = unsigned long. A failing `new` calls the new_handler until memory comes
 * or there is none, then throws std::bad_alloc by the runtime's own helper. In libstrata.so both are looked up when memory is short, not bound
 * at load: a C program may bring the C++ runtime later, by dlopen, and keep its names to itself.
 *
 * A program may replace some forms and rely on the others to come to these (ISO C++, [new.delete]): delete with a size to delete without one, arrays
 * to single objects, nothrow to throwing ones. So each form goes to the next by the name that the whole process has for it (`bound_`), which is ours
 * where nobody replaces it: the linker leaves these names to the loader (bound.list), and in the archive they are weak.
 *
 * In libstrata.a (STRATA_OPERATORS_OF_ARCHIVE) this file is a member of its own, that only a C++ program brings in. It refers to the
 * runtime's functions by name, as a static runtime's can't be looked up; and it leaves the nothrow forms of new to the runtime, whose own call
 * the throwing forms here and catch.
 */
#ifndef STRATA_NO_OVERRIDE

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

#include "api/also_as.h"
#include "api/heap.h"
#include "base/check.h"
#include "strata/malloc.h"

typedef void (*new_handler)(void);
typedef new_handler get_new_handler_function(void);
typedef void throw_bad_alloc_function(void);

#ifdef STRATA_OPERATORS_OF_ARCHIVE

extern get_new_handler_function current_handler_function __asm__("_ZSt15get_new_handlerv");
extern throw_bad_alloc_function throw_bad_alloc_function_of_runtime __asm__("_ZSt17__throw_bad_allocv") __attribute__((noreturn));
static new_handler current_handler(void) { return current_handler_function(); }
static _Noreturn STRATA_COLD void throw_bad_alloc(size_t size) {
    (void)size;
    throw_bad_alloc_function_of_runtime();
}

#else

/* Weak, so that a wholly static program doesn't get a dlopen that it can't use, and the linker's warning of it. */
#pragma weak dlopen
#pragma weak dlclose

/* A function of the C++ runtime that is in the process, wherever it is; NULL: there is none. */
static STRATA_COLD uintptr_t runtime_function(const char *mangled) {
    static const char *const runtimes[] = {"libstdc++.so.6", "libc++.so.1", "libc++abi.so.1"};
    uintptr_t found = (uintptr_t)dlsym(RTLD_NEXT, mangled);
    if (dlopen == NULL || dlclose == NULL) return found;
    for (unsigned i = 0; found == 0 && i < ARRAY_LENGTH(runtimes); i++) {
        void *runtime = dlopen(runtimes[i], RTLD_LAZY | RTLD_NOLOAD);
        if (runtime == NULL) continue;
        found = (uintptr_t)dlsym(runtime, mangled);
        dlclose(runtime); /* only the count that this dlopen added */
    }
    return found;
}

static STRATA_COLD new_handler current_handler(void) {
    get_new_handler_function *get = (get_new_handler_function *)runtime_function("_ZSt15get_new_handlerv");
    return get != NULL ? get() : NULL;
}

static STRATA_COLD void throw_bad_alloc(size_t size) {
    throw_bad_alloc_function *throw_it = (throw_bad_alloc_function *)runtime_function("_ZSt17__throw_bad_allocv");
    if (throw_it != NULL) throw_it();
    fatal("operator new: no memory for %zu bytes, and no C++ runtime to throw bad_alloc (one that is linked in needs -lstrata-cxx in front of "
          "-lstrata)",
          size);
}

#endif

/*
 * What is no alignment is bad_alloc at once, as in the C++ libraries: no handler could make room for it. A handler that throws leaves through this
 * frame: it must be compiled with unwind tables (-fexceptions).
 */
static STRATA_COLD void *new_failed(size_t size, size_t align) {
    for (;;) {
        new_handler handler = current_handler();
        if (handler == NULL || !is_power_of_two(align)) throw_bad_alloc(size);
        handler();
        void *p = strata_aligned_alloc(align, size);
        if (p != NULL) return p;
    }
}

/* Static, under a name for all that a program's own goes before, in an archive too: the address of the former is that of ours. */
#define OPERATOR_WITH(place, heat, result, name, mangled, ...)                                                                    \
    static place result name(__VA_ARGS__);                                                                                        \
    extern result exported_##name(__VA_ARGS__) __asm__(mangled) __attribute__((alias(#name), weak, visibility("default"), heat)); \
    static result name(__VA_ARGS__)
#define OPERATOR(result, name, mangled, ...) OPERATOR_WITH(, , result, name, mangled, __VA_ARGS__)
/* Of one that few programs call, away from what all do. */
#define RARE_OPERATOR(result, name, mangled, ...) OPERATOR_WITH(STRATA_SELDOM, cold, result, name, mangled, __VA_ARGS__)

/* What the process has under these names, whosever it is. */
#define BOUND(result, name, mangled, ...) extern result bound_##name(__VA_ARGS__) __asm__(mangled)
BOUND(void *, new_one, "_Znwm", size_t size);
BOUND(void *, new_one_aligned, "_ZnwmSt11align_val_t", size_t size, size_t align);
BOUND(void, delete_one, "_ZdlPv", void *p);
BOUND(void, delete_array, "_ZdaPv", void *p);
BOUND(void, delete_one_aligned, "_ZdlPvSt11align_val_t", void *p, size_t align);
BOUND(void, delete_array_aligned, "_ZdaPvSt11align_val_t", void *p, size_t align);

#define IS_OURS(name) bound_is((uintptr_t)bound_##name, (uintptr_t)name)

/* ------------------------------------------------------------------ new */

OPERATOR(void *, new_one, "_Znwm", size_t size) {
    void *p = strata_malloc(size);
    return STRATA_LIKELY(p != NULL) ? p : new_failed(size, 16);
}
OPERATOR(void *, new_one_aligned, "_ZnwmSt11align_val_t", size_t size, size_t align) {
    void *p = strata_aligned_alloc(align, size);
    return STRATA_LIKELY(p != NULL) ? p : new_failed(size, align);
}
OPERATOR(void *, new_array, "_Znam", size_t size) { return IS_OURS(new_one) ? new_one(size) : bound_new_one(size); }
OPERATOR(void *, new_array_aligned, "_ZnamSt11align_val_t", size_t size, size_t align) { return bound_new_one_aligned(size, align); }

#ifndef STRATA_OPERATORS_OF_ARCHIVE
/*
 * The nothrow forms return NULL also where a new_handler throws, and catching takes a C++ frame. So when memory is short, or the throwing form is
 * the program's, they go to the runtime's own version of the same operator, which calls the throwing form and catches. Where none is to be found, a
 * program's throwing form is called by itself, and ends the process by what it throws.
 */
BOUND(void *, new_array, "_Znam", size_t size);
BOUND(void *, new_array_aligned, "_ZnamSt11align_val_t", size_t size, size_t align);
typedef void *nothrow_operator(size_t size, const void *tag);
typedef void *nothrow_aligned_operator(size_t size, size_t align, const void *tag);

/* Kept where it is in front of all who may leave (a benign race, as all find the same): a plugin's runtime goes with the plugin. */
static STRATA_COLD uintptr_t runtime_operator(uintptr_t *known, const char *mangled) {
    uintptr_t found = __atomic_load_n(known, __ATOMIC_RELAXED);
    if (found == 0) found = (uintptr_t)dlsym(RTLD_NEXT, mangled);
    if (found == 0) return runtime_function(mangled);
    __atomic_store_n(known, found, __ATOMIC_RELAXED);
    return found;
}
/* bound: the program's throwing form; NULL: it is ours, and has no memory. */
static STRATA_COLD void *nothrow_of_runtime(uintptr_t *known, const char *mangled, void *(*bound)(size_t), size_t size, const void *tag) {
    nothrow_operator *next = (nothrow_operator *)runtime_operator(known, mangled);
    if (next != NULL) return next(size, tag);
    return bound != NULL ? bound(size) : NULL;
}
static STRATA_COLD void *nothrow_aligned_of_runtime(uintptr_t *known, const char *mangled, void *(*bound)(size_t, size_t), size_t size, size_t align,
                                                    const void *tag) {
    nothrow_aligned_operator *next = (nothrow_aligned_operator *)runtime_operator(known, mangled);
    if (next != NULL) return next(size, align, tag);
    return bound != NULL ? bound(size, align) : NULL;
}

#define NEW_NOTHROW(operator, name, mangled, throwing, ours)                                        \
    operator(void *, name, mangled, size_t size, const void *tag) {                                 \
        static uintptr_t known;                                                                     \
        if (!(ours)) return nothrow_of_runtime(&known, mangled, bound_##throwing, size, tag);       \
        void *p = strata_malloc(size);                                                              \
        return STRATA_LIKELY(p != NULL) ? p : nothrow_of_runtime(&known, mangled, NULL, size, tag); \
    }
#define NEW_ALIGNED_NOTHROW(name, mangled, throwing, ours)                                                         \
    RARE_OPERATOR(void *, name, mangled, size_t size, size_t align, const void *tag) {                             \
        static uintptr_t known;                                                                                    \
        if (!(ours)) return nothrow_aligned_of_runtime(&known, mangled, bound_##throwing, size, align, tag);       \
        void *p = strata_aligned_alloc(align, size);                                                               \
        return STRATA_LIKELY(p != NULL) ? p : nothrow_aligned_of_runtime(&known, mangled, NULL, size, align, tag); \
    }
NEW_NOTHROW(OPERATOR, new_one_nothrow, "_ZnwmRKSt9nothrow_t", new_one, IS_OURS(new_one))
NEW_NOTHROW(RARE_OPERATOR, new_array_nothrow, "_ZnamRKSt9nothrow_t", new_array, IS_OURS(new_array) && IS_OURS(new_one))
NEW_ALIGNED_NOTHROW(new_one_aligned_nothrow, "_ZnwmSt11align_val_tRKSt9nothrow_t", new_one_aligned, IS_OURS(new_one_aligned))
NEW_ALIGNED_NOTHROW(new_array_aligned_nothrow, "_ZnamSt11align_val_tRKSt9nothrow_t", new_array_aligned,
                    IS_OURS(new_array_aligned) && IS_OURS(new_one_aligned))
#endif

/* ------------------------------------------------------------------ delete */

OPERATOR(void, delete_one, "_ZdlPv", void *p) { strata_free(p); }
OPERATOR(void, delete_array, "_ZdaPv", void *p) {
    if (IS_OURS(delete_one))
        strata_free(p);
    else
        bound_delete_one(p);
}
OPERATOR(void, delete_one_aligned, "_ZdlPvSt11align_val_t", void *p, size_t align) {
    (void)align;
    strata_free(p);
}
OPERATOR(void, delete_array_aligned, "_ZdaPvSt11align_val_t", void *p, size_t align) { bound_delete_one_aligned(p, align); }

/* Only a free that is ours has a use for the size: debugged buffers. */
OPERATOR(void, delete_one_sized, "_ZdlPvm", void *p, size_t size) {
    if (IS_OURS(delete_one)) {
        strata_free_sized(p, size);
        return;
    }
    bound_delete_one(p);
}
OPERATOR(void, delete_array_sized, "_ZdaPvm", void *p, size_t size) {
    if (IS_OURS(delete_array)) {
        delete_one_sized(p, size);
        return;
    }
    bound_delete_array(p);
}
OPERATOR(void, delete_one_sized_aligned, "_ZdlPvmSt11align_val_t", void *p, size_t size, size_t align) {
    if (IS_OURS(delete_one_aligned)) {
        strata_free_aligned_sized(p, align, size);
        return;
    }
    bound_delete_one_aligned(p, align);
}
RARE_OPERATOR(void, delete_array_sized_aligned, "_ZdaPvmSt11align_val_t", void *p, size_t size, size_t align) {
    if (IS_OURS(delete_array_aligned)) {
        delete_one_sized_aligned(p, size, align);
        return;
    }
    bound_delete_array_aligned(p, align);
}

RARE_OPERATOR(void, delete_one_nothrow, "_ZdlPvRKSt9nothrow_t", void *p, const void *tag) {
    (void)tag;
    bound_delete_one(p);
}
RARE_OPERATOR(void, delete_array_nothrow, "_ZdaPvRKSt9nothrow_t", void *p, const void *tag) {
    (void)tag;
    bound_delete_array(p);
}
RARE_OPERATOR(void, delete_one_aligned_nothrow, "_ZdlPvSt11align_val_tRKSt9nothrow_t", void *p, size_t align, const void *tag) {
    (void)tag;
    bound_delete_one_aligned(p, align);
}
RARE_OPERATOR(void, delete_array_aligned_nothrow, "_ZdaPvSt11align_val_tRKSt9nothrow_t", void *p, size_t align, const void *tag) {
    (void)tag;
    bound_delete_array_aligned(p, align);
}

#else
typedef int operators_are_not_overridden; /* ISO C wants a declaration in every file */
#endif
