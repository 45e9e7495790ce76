/*
 * libc_malloc.h - the C library's own malloc and free, whatever malloc the process has. For C and C++.
 *
 * They are looked up in that library itself, as strata answers to every name of theirs, __libc_malloc among them.
 */
#ifndef STRATA_BENCH_PAPERS_LIBC_MALLOC_H
#define STRATA_BENCH_PAPERS_LIBC_MALLOC_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct libc_malloc {
    void *(*allocate)(size_t bytes);
    void (*release)(void *block);
};

static inline struct libc_malloc libc_malloc_find(void) {
    struct libc_malloc found;
    void *library = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    void *allocate = library ? dlsym(library, "malloc") : NULL, *release = library ? dlsym(library, "free") : NULL;
    if (!allocate || !release) {
        fputs("the C library's malloc was not found\n", stderr);
        exit(EXIT_FAILURE);
    }
    memcpy(&found.allocate, &allocate, sizeof allocate);
    memcpy(&found.release, &release, sizeof release);
    return found;
}

#endif
