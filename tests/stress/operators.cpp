/*
 * operators.cpp - every form of C++ operator new and delete: what they return, which belong together, new_handler, bad_alloc.
 *
 * operators GROUP: forms | handler | room (under a limit of memory) | failure | where. `where` proves that the operators are strata's, by the library
 * that the address of each lies in; the suite leaves it out under other mallocs.
 */
#include "stress/support.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <vector>

namespace {

bool aligned(const void *p, size_t alignment) { return (reinterpret_cast<uintptr_t>(p) & (alignment - 1)) == 0; }

struct alignas(128) wide {
    char text[200];
    wide() { memset(text, 'w', sizeof text); }
};

struct tracked {
    static inline int alive = 0;
    int value = 5;
    tracked() { alive++; }
    ~tracked() { alive--; }
};

struct thrower {
    char text[300];
    thrower() { throw 5; }
};

// What operator new returns has to be freed by the operator delete of each form that may meet it.
void group_forms() {
    for (size_t bytes = 0; bytes < 5 * MIB; bytes = bytes < 200 ? bytes + 1 : bytes * 3 / 2) {
        void *blocks[8];
        const std::align_val_t wide_alignment{256};
        blocks[0] = ::operator new(bytes);
        blocks[1] = ::operator new[](bytes);
        blocks[2] = ::operator new(bytes, std::nothrow);
        blocks[3] = ::operator new[](bytes, std::nothrow);
        blocks[4] = ::operator new(bytes, wide_alignment);
        blocks[5] = ::operator new[](bytes, wide_alignment);
        blocks[6] = ::operator new(bytes, wide_alignment, std::nothrow);
        blocks[7] = ::operator new[](bytes, wide_alignment, std::nothrow);
        for (int i = 0; i < 8; i++) {
            REQUIRE(blocks[i] != nullptr && aligned(blocks[i], i < 4 ? 16 : 256));
            for (int j = 0; j < i; j++) REQUIRE(blocks[i] != blocks[j]);
            pattern_fill(blocks[i], bytes, 4);
        }
        for (void *block : blocks) pattern_check(block, bytes, 4, "forms");
        switch (bytes % 3) {
        case 0:
            ::operator delete(blocks[0]);
            ::operator delete[](blocks[1]);
            ::operator delete(blocks[2], std::nothrow);
            ::operator delete[](blocks[3], std::nothrow);
            ::operator delete(blocks[4], wide_alignment);
            ::operator delete[](blocks[5], wide_alignment);
            ::operator delete(blocks[6], wide_alignment, std::nothrow);
            ::operator delete[](blocks[7], wide_alignment, std::nothrow);
            break;
        case 1:
            ::operator delete(blocks[0], bytes);
            ::operator delete[](blocks[1], bytes);
            ::operator delete(blocks[2], bytes);
            ::operator delete[](blocks[3], bytes);
            ::operator delete(blocks[4], bytes, wide_alignment);
            ::operator delete[](blocks[5], bytes, wide_alignment);
            ::operator delete(blocks[6], bytes, wide_alignment);
            ::operator delete[](blocks[7], bytes, wide_alignment);
            break;
        default: // much C code frees what operator new returned, and the other way round
            for (int i = 0; i < 8; i++) free(blocks[i]);
        }
    }
    ::operator delete(nullptr);
    ::operator delete[](nullptr);
    ::operator delete(nullptr, 8);
    ::operator delete(nullptr, std::align_val_t{64});
    ::operator delete(nullptr, 8, std::align_val_t{64});

    std::vector<std::unique_ptr<wide>> widths;
    for (int i = 0; i < 100; i++) {
        widths.push_back(std::make_unique<wide>());
        REQUIRE(aligned(widths.back().get(), 128));
    }
    auto *many = new wide[17];
    REQUIRE(aligned(many, 128));
    delete[] many;
    auto *tracks = new tracked[1000];
    REQUIRE(tracked::alive == 1000 && tracks[999].value == 5);
    delete[] tracks;
    REQUIRE(tracked::alive == 0);
    // A constructor that throws gives the memory back through the matching delete.
    for (int i = 0; i < 1000; i++) {
        bool caught = false;
        try {
            auto *never = new thrower[3];
            delete[] never;
        } catch (int number) {
            caught = number == 5;
        }
        REQUIRE(caught);
    }
    std::map<std::string, std::vector<int>> library;
    for (int i = 0; i < 20000; i++) library[std::to_string(i * 7919 % 10007) + std::string(static_cast<size_t>(i % 60), '.')].push_back(i);
    size_t total = 0;
    for (const auto &[name, numbers] : library) total += numbers.size();
    REQUIRE(total == 20000);
}

// A size that no machine has, hidden from the compiler.
size_t impossible(size_t bytes = static_cast<size_t>(PTRDIFF_MAX) - 4096) {
    volatile size_t copy = bytes;
    return copy;
}

int handler_calls;

// Each form has to call the handler again and again until it throws, or is gone.
void handler_then_none() {
    if (++handler_calls == 3) std::set_new_handler(nullptr);
}

void handler_throws() {
    handler_calls++;
    throw std::bad_alloc();
}

struct own_error : std::bad_alloc {};

void handler_throws_own() {
    handler_calls++;
    throw own_error();
}

template <class Call> bool throws_bad_alloc(Call call) {
    try {
        call();
    } catch (const std::bad_alloc &) {
        return true;
    }
    return false;
}

void group_handler() {
    const std::align_val_t wide_alignment{64};
    auto each_throwing = [&](auto check) {
        check([&] { return ::operator new(impossible()); });
        check([&] { return ::operator new[](impossible()); });
        check([&] { return ::operator new(impossible(), wide_alignment); });
        check([&] { return ::operator new[](impossible(), wide_alignment); });
    };
    auto each_nothrow = [&](auto check) {
        check([&] { return ::operator new(impossible(), std::nothrow); });
        check([&] { return ::operator new[](impossible(), std::nothrow); });
        check([&] { return ::operator new(impossible(), wide_alignment, std::nothrow); });
        check([&] { return ::operator new[](impossible(), wide_alignment, std::nothrow); });
    };
    each_throwing([](auto call) {
        std::set_new_handler(handler_then_none);
        handler_calls = 0;
        REQUIRE(throws_bad_alloc(call) && handler_calls == 3);
        std::set_new_handler(handler_throws);
        handler_calls = 0;
        REQUIRE(throws_bad_alloc(call) && handler_calls == 1);
        std::set_new_handler(handler_throws_own);
        handler_calls = 0;
        bool own = false;
        try {
            call();
        } catch (const own_error &) {
            own = true;
        }
        REQUIRE(own && handler_calls == 1);
    });
    each_nothrow([](auto call) {
        std::set_new_handler(handler_then_none);
        handler_calls = 0;
        REQUIRE(call() == nullptr && handler_calls == 3);
        std::set_new_handler(handler_throws);
        handler_calls = 0;
        REQUIRE(call() == nullptr && handler_calls == 1); // the exception of the handler stays inside
    });
    std::set_new_handler(nullptr);
}

// A handler that makes room: run under a limit of memory. Everything is taken, and the handler gives a part back.
void *ballast;

void handler_gives() {
    handler_calls++;
    if (ballast == nullptr) throw std::bad_alloc();
    free(ballast);
    ballast = nullptr;
}

void group_room() {
    ballast = malloc(16 * MIB);
    REQUIRE(ballast != nullptr);
    std::vector<void *> taken;
    taken.reserve(10000);
    while (void *block = malloc(MIB)) taken.push_back(block);
    std::set_new_handler(handler_gives);
    handler_calls = 0;
    void *late = ::operator new(4 * MIB);
    REQUIRE(handler_calls == 1 && late != nullptr && ballast == nullptr);
    ::operator delete(late);
    std::set_new_handler(nullptr);
    for (void *block : taken) free(block);
}

void group_failure() {
    REQUIRE(throws_bad_alloc([] { return ::operator new(impossible()); }));
    REQUIRE(throws_bad_alloc([] { return ::operator new(impossible(SIZE_MAX)); }));
    REQUIRE(throws_bad_alloc([] { return ::operator new[](impossible(SIZE_MAX - 100)); }));
    REQUIRE(throws_bad_alloc([] { return ::operator new(impossible(), std::align_val_t{4096}); }));
    REQUIRE(::operator new(impossible(), std::nothrow) == nullptr);
    REQUIRE(::operator new[](impossible(), std::align_val_t{64}, std::nothrow) == nullptr);
    if (strata_expected()) { // libstdc++ rounds this size up to 0
        REQUIRE(throws_bad_alloc([] { return ::operator new(impossible(SIZE_MAX), std::align_val_t{4096}); }));
        REQUIRE(::operator new[](impossible(SIZE_MAX), std::align_val_t{64}, std::nothrow) == nullptr);
    }
    // What is no alignment. No handler is asked, as none could make room for it.
    std::set_new_handler(handler_throws_own);
    handler_calls = 0;
    for (const size_t bad : {size_t{0}, size_t{3}, size_t{48}, size_t{4097}, SIZE_MAX / 2 + 2, SIZE_MAX}) {
        const auto alignment = static_cast<std::align_val_t>(impossible(bad));
        REQUIRE(throws_bad_alloc([=] { return ::operator new(100, alignment); }));
        REQUIRE(throws_bad_alloc([=] { return ::operator new[](100, alignment); }));
        REQUIRE(::operator new(100, alignment, std::nothrow) == nullptr);
        REQUIRE(::operator new[](100, alignment, std::nothrow) == nullptr);
    }
    REQUIRE(handler_calls == 0);
    std::set_new_handler(nullptr);
    REQUIRE(throws_bad_alloc([] { return ::operator new(100, std::align_val_t{impossible(SIZE_MAX / 2 + 1)}); }));
    REQUIRE(throws_bad_alloc([] { std::vector<char> never(impossible(static_cast<size_t>(PTRDIFF_MAX) - 1)); }));
    // From many frames deep, with destructors on the way.
    struct unwinder {
        static void dive(int depth) {
            std::string text(static_cast<size_t>(depth), 'd');
            auto guard = std::make_unique<tracked>();
            if (depth > 0)
                dive(depth - 1);
            else
                ::operator delete(::operator new(impossible()));
        }
    };
    for (int i = 0; i < 100; i++) REQUIRE(throws_bad_alloc([] { unwinder::dive(50); }));
    REQUIRE(tracked::alive == 0);
}

void group_where() {
    static const char *const names[] = {
        "_Znwm",
        "_Znam",
        "_ZnwmRKSt9nothrow_t",
        "_ZnamRKSt9nothrow_t",
        "_ZnwmSt11align_val_t",
        "_ZnamSt11align_val_t",
        "_ZnwmSt11align_val_tRKSt9nothrow_t",
        "_ZnamSt11align_val_tRKSt9nothrow_t",
        "_ZdlPv",
        "_ZdaPv",
        "_ZdlPvm",
        "_ZdaPvm",
        "_ZdlPvRKSt9nothrow_t",
        "_ZdaPvRKSt9nothrow_t",
        "_ZdlPvSt11align_val_t",
        "_ZdaPvSt11align_val_t",
        "_ZdlPvmSt11align_val_t",
        "_ZdaPvmSt11align_val_t",
        "_ZdlPvSt11align_val_tRKSt9nothrow_t",
        "_ZdaPvSt11align_val_tRKSt9nothrow_t",
        "malloc",
        "calloc",
        "realloc",
        "reallocarray",
        "free",
        "free_sized",
        "free_aligned_sized",
        "aligned_alloc",
        "memalign",
        "posix_memalign",
        "valloc",
        "pvalloc",
        "malloc_usable_size",
        "malloc_trim",
        "mallinfo",
        "mallinfo2",
        "malloc_info",
        "malloc_stats",
        "mallopt",
        "__libc_malloc",
        "__libc_calloc",
        "__libc_realloc",
        "__libc_free",
        "__libc_memalign",
        "__libc_valloc",
        "__libc_pvalloc",
        "__posix_memalign",
    };
    for (const char *name : names) {
        void *found = dlsym(RTLD_DEFAULT, name);
        if (found == nullptr) fail("%s is not defined", name);
        Dl_info info;
        REQUIRE(dladdr(found, &info) != 0);
        if (strstr(info.dli_fname, "libstrata") == nullptr) fail("%s comes from %s", name, info.dli_fname);
    }
}

} // namespace

int main(int argc, char **argv) {
    std::string group = argc > 1 ? argv[1] : "forms";
    if (group == "forms")
        group_forms();
    else if (group == "handler")
        group_handler();
    else if (group == "room")
        group_room();
    else if (group == "failure")
        group_failure();
    else if (group == "where")
        group_where();
    else
        fail("usage: operators forms|handler|room|failure|where");
    heap_check("at the end");
    return 0;
}
