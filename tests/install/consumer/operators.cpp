/*
 * operators.cpp - a C++ program whose runtime may be linked into it: memory comes from strata, and when there is none every form of new asks the
 * new_handler, then throws bad_alloc or returns a null pointer, also where the handler throws.
 */
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include <strata/cache.h>
#include <strata/malloc.h>

static int calls;
static void thrice() {
    if (++calls == 3) std::set_new_handler(nullptr);
}
static void throwing() {
    calls++;
    throw std::bad_alloc();
}

[[noreturn]] static void fail(const char *form, const char *what) {
    std::printf("operators: %s: %s\n", form, what);
    std::exit(1);
}

template <class New> static void expect(const char *form, bool throws, New allocate) {
    const struct {
        std::new_handler handler;
        int calls;
    } cases[] = {{thrice, 3}, {throwing, 1}, {nullptr, 0}};
    for (const auto &one : cases) {
        bool caught = false;
        calls = 0;
        std::set_new_handler(one.handler);
        try {
            if (allocate() != nullptr) fail(form, "there is no such memory");
        } catch (const std::bad_alloc &) {
            caught = true;
        }
        if (caught != throws) fail(form, caught ? "it throws" : "it does not throw");
        if (calls != one.calls) fail(form, "the new_handler was not called as often as it should be");
    }
    std::set_new_handler(nullptr);
}

/* What is no alignment is bad_alloc at once: no handler could make room for it. */
static void expect_no_alignment() {
    calls = 0;
    std::set_new_handler(throwing);
    for (const std::size_t bad : {std::size_t{0}, std::size_t{3}, std::size_t{48}, ~std::size_t{0}}) {
        const volatile std::size_t volatile_bad = bad;
        bool caught = false;
        try {
            ::operator delete(::operator new(100, std::align_val_t{volatile_bad}));
        } catch (const std::bad_alloc &) {
            caught = true;
        }
        if (!caught || calls != 0) fail("new, aligned", "a bad alignment");
        if (::operator new[](100, std::align_val_t{volatile_bad}, std::nothrow) != nullptr) fail("new[], aligned, nothrow", "a bad alignment");
    }
    std::set_new_handler(nullptr);
}

int main() {
    const volatile std::size_t volatile_bytes = std::size_t{1} << 60;
    const std::size_t bytes = volatile_bytes;
    const std::align_val_t align{64};
    expect("new", true, [=] { return ::operator new(bytes); });
    expect("new[]", true, [=] { return ::operator new[](bytes); });
    expect("new, aligned", true, [=] { return ::operator new(bytes, align); });
    expect("new[], aligned", true, [=] { return ::operator new[](bytes, align); });
    expect("new, nothrow", false, [=] { return ::operator new(bytes, std::nothrow); });
    expect("new[], nothrow", false, [=] { return ::operator new[](bytes, std::nothrow); });
    expect("new, aligned, nothrow", false, [=] { return ::operator new(bytes, align, std::nothrow); });
    expect("new[], aligned, nothrow", false, [=] { return ::operator new[](bytes, align, std::nothrow); });
    expect_no_alignment();

    std::vector<std::string> words;
    for (int i = 0; i < 10000; i++) words.push_back("a word that is too long for the string itself " + std::to_string(i));
    for (int i = 0; i < 10000; i++)
        if (words[static_cast<std::size_t>(i)].substr(46) != std::to_string(i)) fail("contents", "lost");
    const std::size_t large = std::size_t{64} << 20, before = strata_mallinfo2().hblkhd;
    char *block = new char[large];
    if (strata_mallinfo2().hblkhd < before + large) fail("new[]", "not strata's");
    delete[] block;
    std::puts("operators: well");
    return 0;
}
