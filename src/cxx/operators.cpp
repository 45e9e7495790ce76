/*
 * operators.cpp - operator new of a program that has its C++ runtime linked in (-static-libstdc++) beside the shared libstrata.so.
 *
 * libstrata.so looks the runtime up that shall throw bad_alloc and knows the new_handler; one that is inside the program can't be found. In
 * libstrata-cxx.a, in front of -lstrata, the operators are part of the program, and its runtime is at hand. They are hidden, so that the program
 * exports none: libraries go on to have libstrata.so's, which find the runtime that those have (docs/decisions.md, 149). operator delete needs no
 * runtime and stays libstrata.so's.
 *
 * The names are the Itanium C++ ABI's, for size_t = unsigned long; <new> declares the operators as visible, so they have others here.
 */
#include <cstddef>
#include <new>

#include <strata/malloc.h>

namespace {

/* The least alignment of every block of strata's. */
constexpr std::size_t least_align = 16;

void *take(std::size_t size, std::size_t align) { return align <= least_align ? strata_malloc(size) : strata_memalign(align, size); }

/* C++17, 21.6.2.1: handlers are asked until there is memory, or none of them. */
[[gnu::noinline, gnu::cold]] void *ask_handler(std::size_t size, std::size_t align) {
    for (;;) {
        const std::new_handler handler = std::get_new_handler();
        if (handler == nullptr) throw std::bad_alloc();
        handler();
        if (void *object = take(size, align)) return object;
    }
}

inline void *allocate(std::size_t size, std::size_t align) {
    void *object = take(size, align);
    return __builtin_expect(object != nullptr, 1) ? object : ask_handler(size, align);
}

inline void *allocate_or_null(std::size_t size, std::size_t align) noexcept {
    try {
        return allocate(size, align);
    } catch (...) {
        return nullptr;
    }
}

} // namespace

#define OPERATOR(name, mangled, ...)                                                   \
    extern "C" [[gnu::visibility("hidden")]] void *name(__VA_ARGS__) __asm__(mangled); \
    extern "C" void *name(__VA_ARGS__)

OPERATOR(new_one, "_Znwm", std::size_t size) { return allocate(size, least_align); }
OPERATOR(new_array, "_Znam", std::size_t size) { return allocate(size, least_align); }
OPERATOR(new_one_aligned, "_ZnwmSt11align_val_t", std::size_t size, std::size_t align) { return allocate(size, align); }
OPERATOR(new_array_aligned, "_ZnamSt11align_val_t", std::size_t size, std::size_t align) { return allocate(size, align); }
OPERATOR(new_one_nothrow, "_ZnwmRKSt9nothrow_t", std::size_t size, const void *) { return allocate_or_null(size, least_align); }
OPERATOR(new_array_nothrow, "_ZnamRKSt9nothrow_t", std::size_t size, const void *) { return allocate_or_null(size, least_align); }
OPERATOR(new_one_aligned_nothrow, "_ZnwmSt11align_val_tRKSt9nothrow_t", std::size_t size, std::size_t align, const void *) {
    return allocate_or_null(size, align);
}
OPERATOR(new_array_aligned_nothrow, "_ZnamSt11align_val_tRKSt9nothrow_t", std::size_t size, std::size_t align, const void *) {
    return allocate_or_null(size, align);
}
