/*
 * strata/memory_resource.hpp - strata's heap as a std::pmr::memory_resource.
 *
 *     std::pmr::vector<std::pmr::string> words(strata::heap());
 *     std::pmr::monotonic_buffer_resource request(strata::heap());        // or below the library's own resources
 *     std::pmr::set_default_resource(strata::heap());
 *
 * C++17, and exceptions. Blocks are those of strata_malloc, whichever malloc the program has: link libstrata or libstrata-only. Any thread may
 * allocate, and free what another allocated; fork: as strata_malloc. signals: not async-signal-safe.
 */
#ifndef STRATA_MEMORY_RESOURCE_HPP
#define STRATA_MEMORY_RESOURCE_HPP

#include <cstddef>
#include <memory_resource>
#include <new>
#include <typeinfo>

#include <strata/allocator.hpp>

namespace strata {

/*
 * strata::heap_resource - allocate, deallocate and is_equal as std::pmr::memory_resource has them. All are equal: a block may be freed by any.
 * (Without RTTI, -fno-rtti, none can tell what another resource is: there one is equal to itself alone, and heap() gives the same in all of a
 * library.)
 *
 * allocate(bytes, alignment): alignment is a power of two. Throws std::bad_alloc, after the new_handler was asked; always for more than PTRDIFF_MAX
 * bytes. deallocate(block, bytes, alignment): those of the allocation. Cost: that of strata_malloc and strata_free, and a virtual call.
 */
class heap_resource final : public std::pmr::memory_resource {
  private:
    void *do_allocate(std::size_t bytes, std::size_t alignment) override { return detail::allocate(bytes, alignment); }
    void do_deallocate(void *block, std::size_t bytes, std::size_t alignment) override { detail::deallocate(block, bytes, alignment); }
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override {
#if defined(__cpp_rtti)
        /* Of a class that is final, a dynamic_cast may be a look at the vtable, of which libraries that don't see each other have one each. */
        return typeid(other) == typeid(heap_resource);
#else
        return this == &other; /* those of strata::heap() are one */
#endif
    }
};

/*
 * strata::heap - the resource. One in the process, or in each library whose names others don't see (dlopen with RTLD_LOCAL, hidden visibility): all
 * are equal. Never ends, so that static objects may use it to their end. Doesn't fail. Cost: a load.
 */
inline heap_resource *heap() noexcept {
    alignas(heap_resource) static unsigned char place[sizeof(heap_resource)];
    static heap_resource *const resource = ::new (static_cast<void *>(place)) heap_resource;
    return resource;
}

} // namespace strata

#endif
