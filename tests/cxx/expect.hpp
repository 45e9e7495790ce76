/*
 * expect.hpp - what the C++ tests share: an expectation that ends the process, numbers that look random, and elements that are counted and may throw.
 */
#ifndef TESTS_CXX_EXPECT_HPP
#define TESTS_CXX_EXPECT_HPP

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>

/* Named where an expectation fails, so that the run can be repeated: PROGRAM SEED. */
inline std::uint64_t test_seed = 20260101;

#define EXPECT(condition) ((condition) ? (void)0 : expectation_failed(__FILE__, __LINE__, #condition))
[[noreturn]] inline void expectation_failed(const char *file, int line, const char *text) {
    std::fprintf(stderr, "%s:%d: %s (seed %llu)\n", file, line, text, static_cast<unsigned long long>(test_seed));
    std::abort();
}

/* Whether `call` throws exactly that. */
template <class Exception, class Call> bool throws(Call call) {
    try {
        call();
    } catch (const Exception &) {
        return true;
    }
    return false;
}

/* xorshift64*. */
class Random {
  public:
    explicit Random(std::uint64_t seed) : state_(seed * 2 + 1) {}
    std::size_t below(std::size_t end) {
        state_ ^= state_ >> 12;
        state_ ^= state_ << 25;
        state_ ^= state_ >> 27;
        return static_cast<std::size_t>((state_ * 0x2545F4914F6CDD1DU) >> 33) % end;
    }

  private:
    std::uint64_t state_;
};

struct Thrown : std::runtime_error {
    Thrown() : std::runtime_error("as the test wanted") {}
};

/* Of all elements of the test. */
inline long live_elements, copied_elements, moved_elements;
/* The constructor or assignment after so many throws; 0: none does. */
inline long throw_after;
inline void may_throw() {
    if (throw_after != 0 && --throw_after == 0) throw Thrown();
}

enum class Kind {
    PINNED,   /* knows its own address, so that moving its bytes is found out; its move never throws */
    THROWING, /* the same, with a move that may throw */
    MOVED,    /* the same, can't be copied */
    BYTES,    /* may be moved as bytes, by a specialization; copy and move may throw */
};

/* A number in a block of its own: a copy too many or too few is a leak or a second free. */
template <Kind kind> class Element {
  public:
    static constexpr bool pinned = kind != Kind::BYTES, quiet = kind == Kind::PINNED || kind == Kind::MOVED;

    Element(int value = 0) {
        may_throw();
        value_ = std::make_unique<int>(value);
        live_elements++;
    }
    Element(const Element &other) {
        static_assert(kind != Kind::MOVED, "it can't be copied");
        may_throw();
        value_ = std::make_unique<int>(other.value());
        live_elements++;
        copied_elements++;
    }
    Element(Element &&other) noexcept(quiet) {
        if constexpr (!quiet) may_throw();
        other.look();
        value_ = std::move(other.value_);
        live_elements++;
        moved_elements++;
    }
    Element &operator=(const Element &other) {
        may_throw();
        look();
        value_ = std::make_unique<int>(other.value());
        copied_elements++;
        return *this;
    }
    Element &operator=(Element &&other) noexcept(quiet) {
        if constexpr (!quiet) may_throw();
        look();
        value_ = std::move(other.value_);
        moved_elements++;
        return *this;
    }
    ~Element() {
        look();
        live_elements--;
    }
    int value() const {
        look();
        return value_ ? *value_ : -1;
    }
    friend bool operator==(const Element &a, const Element &b) { return a.value() == b.value(); }

  private:
    void look() const { EXPECT(!pinned || self_ == this); }

    std::unique_ptr<int> value_;
    const Element *self_ = this;
};

/* The traits ask whether a copy could be called, not whether it compiles. */
template <> inline Element<Kind::MOVED>::Element(const Element &) = delete;
template <> inline Element<Kind::MOVED> &Element<Kind::MOVED>::operator=(const Element &) = delete;

#endif
