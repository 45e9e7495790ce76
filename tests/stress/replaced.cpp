/*
 * replaced.cpp - a program that replaces some forms of operator new and delete (ONE, ARRAY, ALIGNED, ALIGNED_ARRAY) and calls all of them: how often
 * its own were called after each group; NEVER_FAILS: no group in which its new throws. With strata the numbers are those of the C++ runtime alone.
 */
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>
/* Each replaced form marks its blocks in front of them, so that none can be freed by another's delete, and is counted. */
static int taken[4], given[4];
[[maybe_unused]] static void *take(int kind, std::size_t size) {
    char *p = static_cast<char *>(std::aligned_alloc(128, (size + 255) / 128 * 128));
    *reinterpret_cast<int *>(p) = 1000 + kind;
    taken[kind]++;
    return p + 128;
}
[[maybe_unused]] static void give(int kind, void *p) {
    if (p == nullptr) return;
    char *start = static_cast<char *>(p) - 128;
    if (*reinterpret_cast<int *>(start) != 1000 + kind) {
        std::puts("another form's block");
        std::abort();
    }
    given[kind]++;
    std::free(start);
}
#ifdef ONE
static bool fails;
void *operator new(std::size_t size) {
    if (fails) throw std::bad_alloc();
    return take(0, size);
}
void operator delete(void *p) noexcept { give(0, p); }
#endif
#ifdef ARRAY
void *operator new[](std::size_t size) { return take(1, size); }
void operator delete[](void *p) noexcept { give(1, p); }
#endif
#ifdef ALIGNED
void *operator new(std::size_t size, std::align_val_t) { return take(2, size); }
void operator delete(void *p, std::align_val_t) noexcept { give(2, p); }
#endif
#ifdef ALIGNED_ARRAY
void *operator new[](std::size_t size, std::align_val_t) { return take(3, size); }
void operator delete[](void *p, std::align_val_t) noexcept { give(3, p); }
#endif
static void show(const char *form) {
    std::printf("%s:", form);
    for (int i = 0; i < 4; i++) std::printf(" %d/%d", taken[i], given[i]);
    std::puts("");
}
static void *volatile sink;
template <typename T> static T *keep(T *p) {
    sink = p;
    return static_cast<T *>(sink);
}
struct alignas(64) wide {
    char text[64];
    ~wide() {}
};
int main() {
    /* Where the program isn't position-independent, these are places of its own, and the loader gives them to all who ask for an address. */
    void *(*volatile place_of_new)(std::size_t) = ::operator new;
    void (*volatile place_of_delete)(void *) = ::operator delete;
    if (place_of_new == nullptr || place_of_delete == nullptr) return 1;
    const std::align_val_t at{64};
    ::operator delete(keep(::operator new(20)));
    ::operator delete(keep(::operator new(20)), std::size_t(20));
    ::operator delete(keep(::operator new(20)), std::nothrow);
    ::operator delete(keep(::operator new(20, std::nothrow)), std::size_t(20));
    show("one");
    ::operator delete[](keep(::operator new[](50)));
    ::operator delete[](keep(::operator new[](50)), std::size_t(50));
    ::operator delete[](keep(::operator new[](50)), std::nothrow);
    ::operator delete[](keep(::operator new[](50, std::nothrow)), std::size_t(50));
    show("array");
    ::operator delete(keep(::operator new(20, at)), at);
    ::operator delete(keep(::operator new(20, at)), std::size_t(20), at);
    ::operator delete(keep(::operator new(20, at)), at, std::nothrow);
    ::operator delete(keep(::operator new(20, at, std::nothrow)), std::size_t(20), at);
    show("aligned");
    ::operator delete[](keep(::operator new[](50, at)), at);
    ::operator delete[](keep(::operator new[](50, at)), std::size_t(50), at);
    ::operator delete[](keep(::operator new[](50, at)), at, std::nothrow);
    ::operator delete[](keep(::operator new[](50, at, std::nothrow)), std::size_t(50), at);
    show("aligned array");
    delete keep(new std::string(100, 'x'));
    delete[] keep(new std::string[7]);
    delete keep(new wide);
    delete[] keep(new wide[5]);
    {
        std::vector<std::string> words;
        for (int i = 0; i < 300; i++) words.emplace_back(i, 'y');
    }
    show("usual");
#if defined(ONE) && !defined(NEVER_FAILS)
    fails = true;
    std::printf("none: %d %d\n", ::operator new(20, std::nothrow) == nullptr, ::operator new[](20, std::nothrow) == nullptr);
    fails = false;
#endif
    return 0;
}
