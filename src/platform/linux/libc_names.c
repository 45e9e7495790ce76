/*
 * libc_names.c - where the C library's names lead, for whoever looks them up in it: entries of its symbol table are changed in a copy of the pages
 * that these are in, which takes their place at once. No lock: who reads the table meets one or the other; and of two threads each takes all entries
 * into its copy, whatever the other has done, so that both copies are the same.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "platform/linux/linux.h"

#if PLATFORM_HAS_LIBC_NAMES

#include <elf.h>
#include <gnu/lib-names.h>
#include <link.h>

/* Weak, so that a wholly static program, which has no such table, doesn't get the dynamic linker in it. */
#pragma weak _r_debug
/* Of the library that this file is in. */
extern ElfW(Dyn) _DYNAMIC[] __attribute__((weak, visibility("hidden")));

/* What the dynamic section of a loaded library tells. */
struct library {
    uintptr_t base;
    const ElfW(Sym) * symbols;
    const char *strings, *name; /* name: NULL where it has none */
    const uint32_t *hash;
};

/* Some architectures leave these addresses as the file has them. */
static const void *address_of(uintptr_t base, uintptr_t value) { return (const void *)(value < base ? value + base : value); }

static STRATA_SELDOM struct library read_library(const struct link_map *map) {
    struct library library = {.base = map->l_addr};
    uintptr_t name = UINTPTR_MAX;
    for (const ElfW(Dyn) *entry = map->l_ld; entry != NULL && entry->d_tag != DT_NULL; entry++) {
        switch (entry->d_tag) {
        case DT_SYMTAB: library.symbols = address_of(library.base, entry->d_un.d_ptr); break;
        case DT_STRTAB: library.strings = address_of(library.base, entry->d_un.d_ptr); break;
        case DT_GNU_HASH: library.hash = address_of(library.base, entry->d_un.d_ptr); break;
        case DT_SONAME: name = entry->d_un.d_val; break;
        default: break;
        }
    }
    if (library.strings != NULL && name != UINTPTR_MAX) library.name = library.strings + name;
    return library;
}

/*
 * Behind us in the list: else names are found in it before they are in us, or it is another namespace's. Both are among the first, which stay; who
 * comes and goes is at the end.
 */
static STRATA_SELDOM bool find_libc(struct library *libc) {
    const struct link_map *map = &_r_debug != NULL ? _r_debug.r_map : NULL;
    while (map != NULL && map->l_ld != _DYNAMIC) map = map->l_next;
    for (; map != NULL; map = map->l_next) {
        *libc = read_library(map);
        if (libc->name != NULL && strcmp(libc->name, LIBC_SO) == 0) return libc->symbols != NULL && libc->hash != NULL;
    }
    return false;
}

/* How the memory from first to end is mapped, by the library's own header, which lies at its base; 0: not as one, or for writing. */
static STRATA_SELDOM int protection_of(const struct library *libc, uintptr_t first, uintptr_t end) {
    const ElfW(Ehdr) *header = (const ElfW(Ehdr) *)libc->base; /* 0: loaded where its file says */
    if (header == NULL || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return 0;
    const ElfW(Phdr) *segment = (const ElfW(Phdr) *)(libc->base + header->e_phoff);
    for (unsigned i = 0; i < header->e_phnum; i++, segment++) {
        if (segment->p_type != PT_LOAD || first < libc->base + segment->p_vaddr || end > libc->base + segment->p_vaddr + segment->p_filesz) continue;
        return (segment->p_flags & PF_W) != 0 ? 0 : (segment->p_flags & PF_X) != 0 ? PROT_READ | PROT_EXEC : PROT_READ;
    }
    return 0;
}

static uint32_t hash_of(const char *name) {
    uint32_t hash = 5381;
    for (; *name != 0; name++) hash = hash * 33 + (unsigned char)*name;
    return hash;
}

/* What the entries of some names are in, and whether one of them leads elsewhere yet. */
struct entries {
    uintptr_t first, end;
    bool differ;
};

/*
 * The defined functions of this name, one for each version of it: they are added to what is found; or, with NULL for that, set in the copy, which
 * begins `away` bytes further on. GNU's hash section: four numbers, a Bloom filter, buckets, and for each symbol from first_hashed on its hash, of
 * which the lowest bit tells the last one of a bucket.
 */
static STRATA_SELDOM void lead(const struct library *libc, struct platform_name name, struct entries *found, ptrdiff_t away) {
    const uint32_t buckets = libc->hash[0], first_hashed = libc->hash[1], hash = hash_of(name.name);
    const uint32_t *bucket = libc->hash + 4 + libc->hash[2] * (sizeof(ElfW(Addr)) / sizeof(uint32_t)), *chain = bucket + buckets;
    uint32_t n = bucket[hash % buckets];
    if (n < first_hashed) return; /* empty */
    do {
        const ElfW(Sym) *symbol = &libc->symbols[n];
        const uintptr_t at = (uintptr_t)symbol;
        if ((chain[n - first_hashed] | 1) != (hash | 1) || strcmp(libc->strings + symbol->st_name, name.name) != 0) continue;
        if (symbol->st_shndx == SHN_UNDEF || (symbol->st_info & 0xf) != STT_FUNC) continue;
        if (found == NULL) {
            ((ElfW(Sym) *)(at + (uintptr_t)away))->st_value = name.function - libc->base;
        } else {
            found->first = min_u64(found->first, at);
            found->end = max_u64(found->end, at + sizeof *symbol);
            found->differ |= libc->base + symbol->st_value != name.function;
        }
    } while ((chain[n++ - first_hashed] & 1) == 0);
}

STRATA_SELDOM bool platform_libc_lead(const struct platform_name *names, unsigned count) {
    struct library libc;
    struct entries entries = {UINTPTR_MAX, 0, false};
    if (!find_libc(&libc)) return false;
    for (unsigned i = 0; i < count; i++) lead(&libc, names[i], &entries, 0);
    if (!entries.differ) return true;
    const size_t page = platform_info()->page_bytes;
    const uintptr_t first = align_down(entries.first, page), bytes = align_up(entries.end, page) - first;
    const int protection = protection_of(&libc, entries.first, entries.end), saved = errno;
    char *copy = protection != 0 ? linux_map(NULL, bytes, PROT_READ | PROT_WRITE, 0) : NULL;
    if (copy == NULL) return false;
    memcpy(copy, (const void *)first, bytes);
    for (unsigned i = 0; i < count; i++) lead(&libc, names[i], NULL, (ptrdiff_t)((uintptr_t)copy - first));
    bool ok = mprotect(copy, bytes, protection) == 0;
    const bool moved = ok && mremap(copy, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)first) != MAP_FAILED;
    if (ok && !moved && (ok = linux_restore((void *)first, bytes))) {
        memcpy((void *)first, copy, bytes);
        mprotect((void *)first, bytes, protection);
    }
    if (!moved) munmap(copy, bytes);
    errno = saved;
    return ok;
}

#else

STRATA_SELDOM bool platform_libc_lead(const struct platform_name *names, unsigned count) {
    (void)names, (void)count;
    return false;
}

#endif
