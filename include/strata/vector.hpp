/*
 * strata/vector.hpp - strata::vector<T>: std::vector that grows by strata's means: in place first, else by moving pages, not elements.
 *
 *     strata::vector<double> samples;
 *     for (double sample : source) samples.push_back(sample);       // 1 GiB grows to 2 GiB in some 20 us; nothing is copied
 *
 * The interface is std::vector's of C++17, without an allocator (get_allocator, constructors with one), and with bool as any other type. What
 * differs:
 *   - types that may be moved as bytes (is_trivially_relocatable) are never moved one by one: growth is strata_realloc, insert and erase are memmove;
 *     vector(n) of numbers and pointers is strata_calloc, which leaves pages alone that are zeros already;
 *   - other types: from 32 KiB on growth tries strata_try_realloc, after which all elements are where they were. Else they are moved one by
 *     one, or copied where a move may throw and a copy is possible.
 *
 * What is promised, for T whose destructor doesn't throw:
 *   - std::length_error for more than max_size() elements; std::out_of_range by at(); std::bad_alloc where memory has ended, after the
 *     new_handler was asked (detail::insist of strata/allocator.hpp); and what T throws;
 *   - strong guarantee, that is, after an exception all is as it was (there may be more capacity): push_back, emplace_back, reserve, shrink_to_fit;
 * also resize, and insert and emplace at any place, but for the address of the elements, for types that are moved as bytes. It does not hold where a
 * throwing move is all that T has. And arguments of emplace_back other than one T, and those of insert and emplace, may have been moved from when
 * memory ends. Others have the basic one: nothing is lost, each element is valid;
 *   - iterators and references stay valid where std::vector's do;
 *   - arguments may be elements of the vector itself; ranges may not.
 *
 * C++17, and exceptions. Link libstrata or libstrata-only. Threads: as for std::vector, one vector belongs to one thread at a time, or to readers;
 * vectors may end on any thread. fork: the child has a copy. signals: not async-signal-safe. Cost: push_back constant on average; a growth as
 * strata_realloc (small: a copy; from 64 KiB on constant, and 0.3 us for each 2 MiB). reserve, resize, insert, erase: as std::vector, in bytes moved
 * rather than elements.
 *
 * The idea of containers that grow by remapping is from Douglas, "User Mode Memory Page Allocation" (2011), sections 2 and 4; growth in place first
 * from his N1527 (2010), 7.22.3.11 (try_realloc).
 */
#ifndef STRATA_VECTOR_HPP
#define STRATA_VECTOR_HPP

#include <algorithm>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <utility>

#include <strata/allocator.hpp>

namespace strata {

template <class T> class vector;

/*
 * strata::is_trivially_relocatable<T> - whether an object may be moved by copying its bytes to another address, after which the old place is no
 * object any more.
 *
 * True for trivially copyable types, for vectors, and for standard smart pointers and pairs of such types. A program says so for types of its own:
 *
 *     template <> struct strata::is_trivially_relocatable<Session> : std::true_type {};
 *
 * which is right where no object holds an address inside itself, and nobody else keeps that of the object: most handles and containers, but not
 * libstdc++'s std::string, nor its std::list and std::map.
 */
template <class T> struct is_trivially_relocatable : std::is_trivially_copyable<T> {};
template <class T> struct is_trivially_relocatable<std::unique_ptr<T>> : std::true_type {};
template <class T> struct is_trivially_relocatable<std::shared_ptr<T>> : std::true_type {};
template <class T> struct is_trivially_relocatable<std::weak_ptr<T>> : std::true_type {};
template <class T> struct is_trivially_relocatable<vector<T>> : std::true_type {};
template <class A, class B>
struct is_trivially_relocatable<std::pair<A, B>> : std::bool_constant<is_trivially_relocatable<A>::value && is_trivially_relocatable<B>::value> {};
template <class T> inline constexpr bool is_trivially_relocatable_v = is_trivially_relocatable<T>::value;

template <class T> class vector {
    static_assert(std::is_object_v<T> && std::is_same_v<T, std::remove_cv_t<T>> && !std::is_array_v<T>,
                  "strata::vector is for objects, not const or volatile");

  public:
    using value_type = T;
    using size_type = std::size_t;
    using difference_type = std::ptrdiff_t;
    using reference = T &;
    using const_reference = const T &;
    using pointer = T *;
    using const_pointer = const T *;
    using iterator = T *;
    using const_iterator = const T *;
    using reverse_iterator = std::reverse_iterator<iterator>;
    using const_reverse_iterator = std::reverse_iterator<const_iterator>;

    vector() noexcept = default;
    explicit vector(size_type count) {
        hold(count, zero_is_value);
        if constexpr (!zero_is_value) fill([=](T *at) { std::uninitialized_value_construct_n(at, count); });
        size_ = count;
    }
    vector(size_type count, const T &value) {
        hold(count, false);
        fill([&](T *at) { std::uninitialized_fill_n(at, count, value); });
        size_ = count;
    }
    template <class I, class = typename std::iterator_traits<I>::iterator_category> vector(I from, I to) {
        if constexpr (is_forward<I>) {
            size_type count = static_cast<size_type>(std::distance(from, to));
            hold(count, false);
            fill([&](T *at) { std::uninitialized_copy(from, to, at); });
            size_ = count;
        } else {
            vector read; /* its destructor runs where ours wouldn't */
            for (; from != to; ++from) read.emplace_back(*from);
            swap(read);
        }
    }
    vector(std::initializer_list<T> values) : vector(values.begin(), values.end()) {}
    vector(const vector &other) : vector(other.begin(), other.end()) {}
    vector(vector &&other) noexcept
        : first_(std::exchange(other.first_, nullptr)), size_(std::exchange(other.size_, 0)), capacity_(std::exchange(other.capacity_, 0)) {}
    ~vector() {
        std::destroy_n(first_, size_);
        strata_free(first_);
    }

    vector &operator=(const vector &other) {
        if (this != &other) assign(other.begin(), other.end());
        return *this;
    }
    vector &operator=(vector &&other) noexcept {
        vector(std::move(other)).swap(*this);
        return *this;
    }
    vector &operator=(std::initializer_list<T> values) {
        assign(values.begin(), values.end());
        return *this;
    }
    void assign(size_type count, const T &value) {
        if (count > capacity_ || inside(std::addressof(value))) return vector(count, value).swap(*this);
        std::fill_n(first_, std::min(count, size_), value);
        if (count > size_) std::uninitialized_fill_n(first_ + size_, count - size_, value);
        trim(count);
    }
    template <class I, class = typename std::iterator_traits<I>::iterator_category> void assign(I from, I to) {
        if constexpr (is_forward<I>) {
            size_type count = static_cast<size_type>(std::distance(from, to));
            if (count > capacity_) return vector(from, to).swap(*this);
            I middle = std::next(from, static_cast<typename std::iterator_traits<I>::difference_type>(std::min(count, size_)));
            std::copy(from, middle, first_);
            std::uninitialized_copy(middle, to, first_ + std::min(count, size_));
            trim(count);
        } else {
            vector(from, to).swap(*this);
        }
    }
    void assign(std::initializer_list<T> values) { assign(values.begin(), values.end()); }

    reference operator[](size_type at) noexcept { return first_[at]; }
    const_reference operator[](size_type at) const noexcept { return first_[at]; }
    reference at(size_type at) {
        if (at >= size_) throw std::out_of_range("strata::vector::at");
        return first_[at];
    }
    const_reference at(size_type at) const { return const_cast<vector *>(this)->at(at); }
    reference front() noexcept { return first_[0]; }
    const_reference front() const noexcept { return first_[0]; }
    reference back() noexcept { return first_[size_ - 1]; }
    const_reference back() const noexcept { return first_[size_ - 1]; }
    T *data() noexcept { return first_; }
    const T *data() const noexcept { return first_; }

    iterator begin() noexcept { return first_; }
    const_iterator begin() const noexcept { return first_; }
    const_iterator cbegin() const noexcept { return first_; }
    iterator end() noexcept { return first_ + size_; }
    const_iterator end() const noexcept { return first_ + size_; }
    const_iterator cend() const noexcept { return first_ + size_; }
    reverse_iterator rbegin() noexcept { return reverse_iterator(end()); }
    const_reverse_iterator rbegin() const noexcept { return const_reverse_iterator(end()); }
    const_reverse_iterator crbegin() const noexcept { return const_reverse_iterator(end()); }
    reverse_iterator rend() noexcept { return reverse_iterator(begin()); }
    const_reverse_iterator rend() const noexcept { return const_reverse_iterator(begin()); }
    const_reverse_iterator crend() const noexcept { return const_reverse_iterator(begin()); }

    [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
    size_type size() const noexcept { return size_; }
    size_type capacity() const noexcept { return capacity_; }
    size_type max_size() const noexcept { return detail::count_max<T>; }
    void reserve(size_type count) {
        if (count > capacity_) grow(checked(count));
    }
    /* A request: where memory for a smaller block can't be had, the larger one stays. */
    void shrink_to_fit() {
        if (size_ == capacity_) return;
        if (size_ == 0) {
            strata_free(std::exchange(first_, nullptr));
            capacity_ = 0;
        } else if constexpr (by_bytes) {
            void *shrunk = resized(size_);
            if (shrunk != nullptr) hold_at(shrunk, size_);
        } else if (!in_place(size_)) {
            if constexpr (std::is_nothrow_move_constructible_v<T> || std::is_copy_constructible_v<T>) {
                try {
                    move_to(detail::allocate_array<T>(size_), size_, 0, [](T *) {});
                } catch (...) {}
            }
        }
    }

    void clear() noexcept { trim(0); }
    void push_back(const T &value) { append(value); }
    void push_back(T &&value) { append(std::move(value)); }
    template <class... A> reference emplace_back(A &&...arguments) {
        if constexpr (sizeof...(A) == 1 && (std::is_same_v<std::decay_t<A>, T> && ...))
            append(std::forward<A>(arguments)...);
        else
            append_made(std::forward<A>(arguments)...);
        return back();
    }
    void pop_back() noexcept { trim(size_ - 1); }
    void resize(size_type count) {
        if (count <= size_) return trim(count);
        extend(count - size_, [fresh = count - size_](T *at) { std::uninitialized_value_construct_n(at, fresh); });
    }
    void resize(size_type count, const T &value) {
        if (count <= size_) return trim(count);
        if (count > capacity_ && inside(std::addressof(value))) return resize(count, T(value)); /* it would move */
        extend(count - size_, [&, fresh = count - size_](T *at) { std::uninitialized_fill_n(at, fresh, value); });
    }

    iterator insert(const_iterator before, const T &value) { return emplace(before, value); }
    iterator insert(const_iterator before, T &&value) { return emplace(before, std::move(value)); }
    iterator insert(const_iterator before, size_type count, const T &value) {
        T copy(value); /* value may move */
        return gap(index_of(before), count, [&](T *at) { std::uninitialized_fill_n(at, count, copy); });
    }
    template <class I, class = typename std::iterator_traits<I>::iterator_category> iterator insert(const_iterator before, I from, I to) {
        if constexpr (is_forward<I>) {
            return gap(index_of(before), static_cast<size_type>(std::distance(from, to)), [&](T *at) { std::uninitialized_copy(from, to, at); });
        } else {
            vector read(from, to);
            return insert(before, std::make_move_iterator(read.begin()), std::make_move_iterator(read.end()));
        }
    }
    iterator insert(const_iterator before, std::initializer_list<T> values) { return insert(before, values.begin(), values.end()); }
    template <class... A> iterator emplace(const_iterator before, A &&...arguments) {
        size_type index = index_of(before);
        if constexpr (by_bytes) {
            if (index != size_) {
                slot made(std::forward<A>(arguments)...); /* arguments may be elements */
                return gap(index, 1, [&](T *at) { made.relocate(at); });
            }
            emplace_back(std::forward<A>(arguments)...);
        } else {
            emplace_back(std::forward<A>(arguments)...);
            std::rotate(first_ + index, first_ + size_ - 1, first_ + size_);
        }
        return first_ + index;
    }
    iterator erase(const_iterator at) { return erase(at, at + 1); }
    iterator erase(const_iterator from, const_iterator to) {
        T *hole = first_ + (from - first_), *rest = first_ + (to - first_), *last = first_ + size_;
        if (hole == rest) return hole;
        if constexpr (by_bytes) {
            std::destroy(hole, rest);
            move_bytes(hole, rest, static_cast<size_type>(last - rest));
            size_ -= static_cast<size_type>(rest - hole);
        } else {
            trim(static_cast<size_type>(std::move(rest, last, hole) - first_));
        }
        return hole;
    }

    void swap(vector &other) noexcept {
        std::swap(first_, other.first_);
        std::swap(size_, other.size_);
        std::swap(capacity_, other.capacity_);
    }

  private:
    static constexpr bool by_bytes = is_trivially_relocatable_v<T>;
    /* What value initialization makes is all zero bytes. */
    static constexpr bool zero_is_value =
        (std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_pointer_v<T>) && alignof(T) <= detail::natural_alignment;
    template <class I>
    static constexpr bool is_forward = std::is_base_of_v<std::forward_iterator_tag, typename std::iterator_traits<I>::iterator_category>;
    /* Below this a block is an object of a size class, which can't grow. */
    static constexpr size_type in_place_bytes = 32768;
    /* The first block of a vector that grows by itself. */
    static constexpr size_type first_bytes = 64;

    /* An element that was made before there is a place for it, and goes there as bytes. */
    class slot {
      public:
        template <class... A> explicit slot(A &&...arguments) { ::new (static_cast<void *>(place_)) T(std::forward<A>(arguments)...); }
        slot(const slot &) = delete;
        slot &operator=(const slot &) = delete;
        ~slot() {
            if (!gone_) std::launder(reinterpret_cast<T *>(place_))->~T();
        }
        void relocate(T *to) noexcept {
            std::memcpy(static_cast<void *>(to), place_, sizeof(T));
            gone_ = true;
        }

      private:
        alignas(T) unsigned char place_[sizeof(T)];
        bool gone_ = false;
    };

    static size_type checked(size_type count) {
        if (count > detail::count_max<T>) throw std::length_error("strata::vector");
        return count;
    }
    static void move_bytes(T *to, const T *from, size_type count) noexcept {
        if (count != 0) std::memmove(static_cast<void *>(to), static_cast<const void *>(from), count * sizeof(T));
    }
    bool inside(const T *value) const noexcept { return !std::less<>()(value, first_) && std::less<>()(value, first_ + size_); }
    void hold_at(void *block, size_type capacity) noexcept {
        first_ = static_cast<T *>(block);
        capacity_ = capacity;
    }
    size_type index_of(const_iterator at) const noexcept { return static_cast<size_type>(at - first_); }
    /* For constructors: a block for `count`. */
    void hold(size_type count, bool zeroed) {
        if (checked(count) == 0) return;
        hold_at(zeroed ? detail::insist([=] { return strata_calloc(count, sizeof(T)); }) : detail::allocate_array<T>(count), count);
    }
    /* For constructors, whose exceptions run no destructor of ours. */
    template <class Make> void fill(Make make) {
        try {
            make(first_);
        } catch (...) {
            strata_free(first_);
            throw;
        }
    }
    /* The first `count` stay: what assign made behind size_ counts then. */
    void trim(size_type count) noexcept {
        if (count < size_) std::destroy(first_ + count, first_ + size_);
        size_ = count;
    }

    /* The capacity for `count` elements: twice what there is, at least. */
    size_type roomy(size_type count) const {
        size_type twice = capacity_ > detail::count_max<T> / 2 ? detail::count_max<T> : 2 * capacity_;
        return std::max({checked(count), twice, first_bytes / sizeof(T)});
    }
    /* Another size by strata_realloc, which looks for room in place first and moves pages then. NULL: all is as it was. */
    void *resized(size_type capacity) noexcept {
        if constexpr (alignof(T) <= detail::natural_alignment)
            return strata_realloc(static_cast<void *>(first_), capacity * sizeof(T));
        else
            return strata_aligned_realloc(static_cast<void *>(first_), alignof(T), capacity * sizeof(T));
    }
    /* Another size where the block is. */
    bool in_place(size_type capacity) noexcept {
        if (capacity_ * sizeof(T) <= in_place_bytes || strata_try_realloc(static_cast<void *>(first_), capacity * sizeof(T)) == nullptr) return false;
        capacity_ = capacity;
        return true;
    }
    /*
     * Elements go to a block that becomes the vector's; `make` is called first, for `fresh` elements behind them. On an exception the block is freed,
     * and all is as it was, unless a move threw.
     */
    template <class Make> void move_to(T *block, size_type capacity, size_type fresh, Make make) {
        T *made = block + size_;
        try {
            make(made);
            try {
                if constexpr (std::is_nothrow_move_constructible_v<T> || !std::is_copy_constructible_v<T>)
                    std::uninitialized_move_n(first_, size_, block);
                else
                    std::uninitialized_copy_n(first_, size_, block);
            } catch (...) {
                std::destroy_n(made, fresh);
                throw;
            }
        } catch (...) {
            strata_free(static_cast<void *>(block));
            throw;
        }
        std::destroy_n(first_, size_);
        strata_free(static_cast<void *>(first_));
        hold_at(block, capacity);
    }
    /* Room for `fresh` elements more at the end, which `make` makes. On an exception all elements are as they were. */
    template <class Make> void extend(size_type fresh, Make make) {
        if (fresh > capacity_ - size_) {
            size_type capacity = roomy(fresh > detail::count_max<T> - size_ ? detail::count_max<T> + 1 : size_ + fresh);
            if constexpr (by_bytes) {
                grow(capacity);
            } else if (!in_place(capacity)) {
                move_to(detail::allocate_array<T>(capacity), capacity, fresh, make);
                size_ += fresh;
                return;
            }
        }
        make(first_ + size_);
        size_ += fresh;
    }
    void grow(size_type capacity) {
        if constexpr (by_bytes)
            hold_at(detail::insist([this, capacity] { return resized(capacity); }), capacity);
        else if (!in_place(capacity))
            move_to(detail::allocate_array<T>(capacity), capacity, 0, [](T *) {});
    }
    /* One T. Where its copy or move can't fail, room comes first, so that nothing is moved from when there is none. */
    template <class U> void append(U &&value) {
        if constexpr (by_bytes && std::is_nothrow_constructible_v<T, U &&>) {
            bool own = size_ == capacity_ && inside(std::addressof(value)); /* it moves along */
            size_type index = own ? static_cast<size_type>(std::addressof(value) - first_) : 0;
            extend(1, [&](T *at) { ::new (static_cast<void *>(at)) T(static_cast<U &&>(own ? first_[index] : value)); });
        } else {
            append_made(std::forward<U>(value));
        }
    }
    /* The element is made before anything moves: an argument may be in the vector, and its constructor may throw. */
    template <class... A> void append_made(A &&...arguments) {
        if constexpr (by_bytes) {
            if (size_ == capacity_) {
                slot made(std::forward<A>(arguments)...);
                return extend(1, [&](T *at) { made.relocate(at); });
            }
        }
        extend(1, [&](T *at) { ::new (static_cast<void *>(at)) T(std::forward<A>(arguments)...); });
    }
    /* `fresh` elements at an index, which `make` makes. */
    template <class Make> iterator gap(size_type index, size_type fresh, Make make) {
        size_type rest = size_ - index;
        if (fresh == 0) return first_ + index;
        if constexpr (by_bytes) {
            extend(fresh, [&](T *) {
                T *at = first_ + index;
                move_bytes(at + fresh, at, rest);
                try {
                    make(at);
                } catch (...) {
                    move_bytes(at, at + fresh, rest);
                    throw;
                }
            });
        } else {
            extend(fresh, make);
            std::rotate(first_ + index, first_ + index + rest, first_ + size_);
        }
        return first_ + index;
    }

    T *first_ = nullptr;
    size_type size_ = 0, capacity_ = 0;
};

template <class I> vector(I, I) -> vector<typename std::iterator_traits<I>::value_type>;

template <class T> void swap(vector<T> &a, vector<T> &b) noexcept { a.swap(b); }
template <class T> bool operator==(const vector<T> &a, const vector<T> &b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }
template <class T> bool operator!=(const vector<T> &a, const vector<T> &b) { return !(a == b); }
template <class T> bool operator<(const vector<T> &a, const vector<T> &b) {
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
}
template <class T> bool operator>(const vector<T> &a, const vector<T> &b) { return b < a; }
template <class T> bool operator<=(const vector<T> &a, const vector<T> &b) { return !(b < a); }
template <class T> bool operator>=(const vector<T> &a, const vector<T> &b) { return !(a < b); }

} // namespace strata

#endif
