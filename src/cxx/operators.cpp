/*
 * operators.cpp - operator new of a program that has its C++ runtime linked in (-static-libstdc++) beside the shared libstrata.so.
 *
 * libstrata.so looks the runtime up that shall throw bad_alloc and knows the new_handler; one that is inside the program can't be found. In
 * libstrata-cxx.a, in front of -lstrata, the operators are part of the program, and its runtime is at hand. They are hidden, so that the program
 * exports none: libraries go on to have libstrata.so's, which find the runtime that those have (docs/decisions.md, 149). operator delete needs no
 * runtime and stays libstrata.so's.
 *
 * A program may have some of the forms itself, and relies on the others to come to these (ISO C++, [new.delete]). So this file is compiled once for
 * each form, STRATA_FORM, and each is a member of the archive by itself: the linker takes those that the program lacks. (Weak ones in one member
 * wouldn't do: being hidden, they would hide the program's own from its libraries.)
 *
 * The names are the Itanium C++ ABI's, for size_t = unsigned long; <new> declares the operators as visible, so they have others here.
 */
#include <cstddef>
#include <new>

#include <strata/malloc.h>

#define OPERATOR(mangled, ...)                                                                \
    extern "C" [[gnu::visibility("hidden")]] void *strata_form(__VA_ARGS__) __asm__(mangled); \
    extern "C" void *strata_form(__VA_ARGS__)

#define NEW 0
#define NEW_ALIGNED 1
#define NEW_ARRAY 2
#define NEW_ARRAY_ALIGNED 3
#define NEW_NOTHROW 4
#define NEW_ALIGNED_NOTHROW 5
#define NEW_ARRAY_NOTHROW 6
#define NEW_ARRAY_ALIGNED_NOTHROW 7 /* the last one that cmake/library.cmake knows of */

#if STRATA_FORM == NEW || STRATA_FORM == NEW_ALIGNED

namespace {

/* The least alignment of every block of strata's. */
[[maybe_unused]] constexpr std::size_t least_align = 16;

inline void *take(std::size_t size, std::size_t align) { return align == least_align ? strata_malloc(size) : strata_aligned_alloc(align, size); }

/* C++17, 21.6.2.1: handlers are asked until there is memory, or none of them. What is no alignment, no handler could make room for. */
[[gnu::noinline, gnu::cold]] void *ask_handler(std::size_t size, std::size_t align) {
    for (;;) {
        const std::new_handler handler = std::get_new_handler();
        if (handler == nullptr || align == 0 || (align & (align - 1)) != 0) throw std::bad_alloc();
        handler();
        if (void *object = take(size, align)) return object;
    }
}

inline void *allocate(std::size_t size, std::size_t align) {
    void *object = take(size, align);
    return __builtin_expect(object != nullptr, 1) ? object : ask_handler(size, align);
}

} // namespace

#endif

/* The one that a form goes on to; where that throws, those of nothrow return a null pointer. */
#define OR_NULL(call)   \
    try {               \
        return call;    \
    } catch (...) {     \
        return nullptr; \
    }

#if STRATA_FORM == NEW
OPERATOR("_Znwm", std::size_t size) { return allocate(size, least_align); }
#elif STRATA_FORM == NEW_ALIGNED
OPERATOR("_ZnwmSt11align_val_t", std::size_t size, std::size_t align) { return allocate(size, align); }
#elif STRATA_FORM == NEW_ARRAY
OPERATOR("_Znam", std::size_t size) { return ::operator new(size); }
#elif STRATA_FORM == NEW_ARRAY_ALIGNED
OPERATOR("_ZnamSt11align_val_t", std::size_t size, std::align_val_t align) { return ::operator new(size, align); }
#elif STRATA_FORM == NEW_NOTHROW
OPERATOR("_ZnwmRKSt9nothrow_t", std::size_t size, const void *){OR_NULL(::operator new(size))}
#elif STRATA_FORM == NEW_ALIGNED_NOTHROW
OPERATOR("_ZnwmSt11align_val_tRKSt9nothrow_t", std::size_t size, std::align_val_t align, const void *){OR_NULL(::operator new(size, align))}
#elif STRATA_FORM == NEW_ARRAY_NOTHROW
OPERATOR("_ZnamRKSt9nothrow_t", std::size_t size, const void *){OR_NULL(::operator new[](size))}
#elif STRATA_FORM == NEW_ARRAY_ALIGNED_NOTHROW
OPERATOR("_ZnamSt11align_val_tRKSt9nothrow_t", std::size_t size, std::align_val_t align, const void *) { OR_NULL(::operator new[](size, align)) }
#else
#error "STRATA_FORM is one of those above"
#endif
