/*
 * cxx_runtime.c - finds the C++ runtime of the process, throws std::bad_alloc by it and catches what a new_handler throws.
 *
 * A runtime that is a shared library is found by the loader. One that is linked into the program (-static-libstdc++) is found only if the
 * program exports it: linkers export what a shared library on their command line refers to. Hence the weak references below. They bring no part of
 * the runtime into a program; so what is called here is what every program has that catches anything, and nothing else: the exception's
 * object is made here where the runtime's own helper that throws bad_alloc is not in the program.
 *
 * Layouts and names are the Itanium C++ ABI's (2.9.5 type_info, 2.5 virtual tables; its second part for exceptions).
 */
#ifndef STRATA_NO_OVERRIDE

#define _GNU_SOURCE
#include "api/cxx_runtime.h"

#include <dlfcn.h>

#include "base/check.h"

/* Weak, so that a wholly static program doesn't get a dlopen that it can't use, and the linker's warning of it. */
#pragma weak dlopen
#pragma weak dlclose

/* The references stand in a section that is not loaded: no relocation, so nothing to look up when a program starts. */
#define EXPORTED_BY_PROGRAMS(name) ".weak " name "\n.dc.a " name "\n"
__asm__(".pushsection .strata.weak_references,\"\",@progbits\n" //
        EXPORTED_BY_PROGRAMS("_ZSt17__throw_bad_allocv")        //
        EXPORTED_BY_PROGRAMS("_ZSt15get_new_handlerv")          //
        EXPORTED_BY_PROGRAMS("__cxa_allocate_exception")        //
        EXPORTED_BY_PROGRAMS("__cxa_throw")                     //
        EXPORTED_BY_PROGRAMS("__cxa_begin_catch")               //
        EXPORTED_BY_PROGRAMS("__cxa_end_catch")                 //
        EXPORTED_BY_PROGRAMS("__gxx_personality_v0")            //
        EXPORTED_BY_PROGRAMS("_ZTISt9bad_alloc")                //
        EXPORTED_BY_PROGRAMS("_ZTISt9exception")                //
        EXPORTED_BY_PROGRAMS("_ZTVN10__cxxabiv120__si_class_type_infoE") ".popsection");

/* The address of `mangled`, searched from `where` (RTLD_DEFAULT or RTLD_NEXT) and in runtimes that keep their names to themselves. */
static STRATA_COLD uintptr_t runtime_symbol(void *where, const char *mangled) {
    static const char *const runtimes[] = {"libstdc++.so.6", "libc++.so.1", "libc++abi.so.1"};
    uintptr_t found = (uintptr_t)dlsym(where, mangled);
    if (dlopen == NULL || dlclose == NULL) return found;
    for (unsigned i = 0; found == 0 && i < ARRAY_LENGTH(runtimes); i++) {
        void *runtime = dlopen(runtimes[i], RTLD_LAZY | RTLD_NOLOAD);
        if (runtime == NULL) continue;
        found = (uintptr_t)dlsym(runtime, mangled);
        dlclose(runtime); /* only the count that this dlopen added */
    }
    return found;
}
static STRATA_COLD uintptr_t symbol(const char *mangled) { return runtime_symbol(RTLD_DEFAULT, mangled); }

STRATA_COLD uintptr_t cxx_function_behind(const char *mangled) { return runtime_symbol(RTLD_NEXT, mangled); }

typedef cxx_new_handler get_new_handler_function(void);
STRATA_COLD cxx_new_handler cxx_current_new_handler(void) {
    get_new_handler_function *get = (get_new_handler_function *)symbol("_ZSt15get_new_handlerv");
    return get != NULL ? get() : NULL;
}

/* A type_info of a class with one public base at offset 0. */
struct class_type {
    uintptr_t vptr;
    const char *name; /* types are the same where their names are */
    uintptr_t base;   /* the base's type_info */
};
/* The virtual table of std::exception and the classes that add nothing to it. */
struct exception_table {
    ptrdiff_t to_top;
    uintptr_t type;
    void (*destroy)(void *exception);
    void (*destroy_and_delete)(void *exception);
    const char *(*what)(const void *exception);
};
static void destroy_nothing(void *exception) { (void)exception; }
static const char *what_bad_alloc(const void *exception) {
    (void)exception;
    return "std::bad_alloc";
}

typedef void throw_bad_alloc_function(void);
typedef void *allocate_exception_function(size_t size);
typedef void throw_function(void *exception, void *type, void (*destroy)(void *));

/* What a bad_alloc of our own is made of. Every thread that writes it writes the same. */
static struct class_type own_type = {.name = "St9bad_alloc"};
static struct exception_table own_table = {
    .destroy = destroy_nothing,
    .destroy_and_delete = destroy_nothing,
    .what = what_bad_alloc,
};

/* Throws an object of our own as std::bad_alloc; returns where the process has nothing to throw by. */
static STRATA_COLD void throw_own_bad_alloc(void) {
    allocate_exception_function *allocate = (allocate_exception_function *)symbol("__cxa_allocate_exception");
    throw_function *throw_it = (throw_function *)symbol("__cxa_throw");
    if (allocate == NULL || throw_it == NULL) return;
    uintptr_t type = symbol("_ZTISt9bad_alloc");
    if (type == 0) {
        /* Nobody in the program names the type; but there may be a catch of std::exception, or of all. */
        uintptr_t class_table = symbol("_ZTVN10__cxxabiv120__si_class_type_infoE"), base = symbol("_ZTISt9exception");
        if (class_table == 0 || base == 0) return;
        __atomic_store_n(&own_type.vptr, class_table + 2 * sizeof(void *), __ATOMIC_RELAXED);
        __atomic_store_n(&own_type.base, base, __ATOMIC_RELAXED);
        type = (uintptr_t)&own_type;
    }
    __atomic_store_n(&own_table.type, type, __ATOMIC_RELAXED);
    void **object = allocate(sizeof *object);
    *object = &own_table.destroy;
    throw_it(object, (void *)type, destroy_nothing);
}

STRATA_COLD void cxx_throw_bad_alloc(size_t size) {
    throw_bad_alloc_function *throw_it = (throw_bad_alloc_function *)symbol("_ZSt17__throw_bad_allocv");
    if (throw_it != NULL) throw_it();
    throw_own_bad_alloc();
    fatal("operator new: no memory for %zu bytes, and no C++ runtime to throw bad_alloc", size);
}

/*
 * catch (...) in C: a frame with the tables that a C++ compiler would write. Its personality is the runtime's, found before the frame is
 * entered; the tables refer to it through cxx_personality.
 */
#if defined(__x86_64__) || defined(__aarch64__)

typedef void *begin_catch_function(void *exception);
typedef void end_catch_function(void);

/* Every thread that writes these writes the same. */
__attribute__((visibility("hidden"))) uintptr_t cxx_personality;
static begin_catch_function *begin_catch;
static end_catch_function *end_catch;

static STRATA_COLD bool can_catch(void) {
    uintptr_t personality = symbol("__gxx_personality_v0"), begin = symbol("__cxa_begin_catch"), end = symbol("__cxa_end_catch");
    if (personality == 0 || begin == 0 || end == 0) return false;
    __atomic_store_n(&begin_catch, (begin_catch_function *)begin, __ATOMIC_RELAXED);
    __atomic_store_n(&end_catch, (end_catch_function *)end, __ATOMIC_RELAXED);
    __atomic_store_n(&cxx_personality, personality, __ATOMIC_RELAXED);
    return true;
}

/* 1: the handler returned; else the result of cxx_end_exception. */
__attribute__((visibility("hidden"))) int cxx_call_and_catch(cxx_new_handler handler);

__attribute__((visibility("hidden"))) int cxx_end_exception(void *exception);
int cxx_end_exception(void *exception) {
    __atomic_load_n(&begin_catch, __ATOMIC_RELAXED)(exception);
    __atomic_load_n(&end_catch, __ATOMIC_RELAXED)();
    return 0;
}

/* Encodings: 0x9b, the address of an address, relative, in 4 bytes; 0x1b, an address, so; 0xff, left out; 1, uleb128; 0, an address. */
#define CATCHING_FRAME(code)                                                                                                                     \
    ".pushsection .text.unlikely,\"ax\",@progbits\n"                                                                                             \
    ".type cxx_call_and_catch, @function\n.balign 16\ncxx_call_and_catch:\n"                                                                     \
    ".cfi_startproc\n.cfi_personality 0x9b, cxx_personality\n.cfi_lsda 0x1b, .Lcatch_table\n" code /* the call between .Lcall and .Lcalled, what \
                                                                                                      catches from .Lcaught on */                \
    ".cfi_endproc\n.size cxx_call_and_catch, .-cxx_call_and_catch\n.popsection\n"                                                                \
    ".pushsection .gcc_except_table,\"a\",@progbits\n.balign 8\n.Lcatch_table:\n"                                                                \
    ".byte 0xff, 0\n.uleb128 .Ltypes_end-.Ltypes\n"                                                                                              \
    ".Ltypes: .byte 1\n.uleb128 .Lcalls_end-.Lcalls\n"                                                                                           \
    ".Lcalls: .uleb128 .Lcall-cxx_call_and_catch\n.uleb128 .Lcalled-.Lcall\n"                                                                    \
    ".uleb128 .Lcaught-cxx_call_and_catch\n.uleb128 1\n"                                                                                         \
    ".Lcalls_end: .byte 1, 0\n"                                                                                                                  \
    ".balign 8\n.dc.a 0\n.Ltypes_end:\n.popsection"

#ifdef __x86_64__
__asm__(CATCHING_FRAME("sub $8, %rsp\n.cfi_adjust_cfa_offset 8\n"
                       ".Lcall: call *%rdi\n.Lcalled: mov $1, %eax\n"
                       "1: add $8, %rsp\n.cfi_remember_state\n.cfi_adjust_cfa_offset -8\nret\n.cfi_restore_state\n"
                       ".Lcaught: mov %rax, %rdi\ncall cxx_end_exception\njmp 1b\n"));
#else
__asm__(CATCHING_FRAME("stp x29, x30, [sp, -16]!\n.cfi_adjust_cfa_offset 16\n.cfi_rel_offset x29, 0\n.cfi_rel_offset x30, 8\nmov x29, sp\n"
                       ".Lcall: blr x0\n.Lcalled: mov w0, 1\n"
                       "1: ldp x29, x30, [sp], 16\n.cfi_remember_state\n.cfi_adjust_cfa_offset -16\n.cfi_restore x29\n.cfi_restore x30\nret\n"
                       ".cfi_restore_state\n.Lcaught: bl cxx_end_exception\nb 1b\n"));
#endif

STRATA_COLD bool cxx_handler_returns(cxx_new_handler handler) {
    if (can_catch()) return cxx_call_and_catch(handler) != 0;
    handler();
    return true;
}

#else

STRATA_COLD bool cxx_handler_returns(cxx_new_handler handler) {
    handler();
    return true;
}

#endif

#else
typedef int cxx_runtime_is_not_used; /* ISO C wants a declaration in every file */
#endif
