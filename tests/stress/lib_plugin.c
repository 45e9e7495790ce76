/*
 * lib_plugin.c - a library linked to libstrata.so, which brings strata into a process that started without it.
 *
 * With RTLD_LOCAL the process's malloc stays the C library's; the plugin's calls of strata_* go to strata's own heap. Both heaps
 * are in use at once.
 */
#include <pthread.h>
#include <strata/malloc.h>
#include <strata/strata.h>
#include <string.h>

enum { BLOCKS = 200 };

struct plugin_parcel {
    void *block;
    size_t bytes;
};

/* Allocates, checks and frees blocks of many sizes in strata's heap. 0, or what went wrong. */
__attribute__((visibility("default"))) int plugin_work(unsigned seed);
/* A block that outlives the call, and its way back. */
__attribute__((visibility("default"))) void *plugin_take(size_t bytes);
__attribute__((visibility("default"))) void plugin_give(void *block);
/* strata_check: NULL, or what is broken. */
__attribute__((visibility("default"))) const char *plugin_check(void);

int plugin_work(unsigned seed) {
    struct plugin_parcel parcels[BLOCKS];
    for (unsigned i = 0; i < BLOCKS; i++) {
        parcels[i].bytes = (i * 37 + seed * 11) % (i % 50 == 0 ? 300000u : 3000u) + 1;
        parcels[i].block = strata_malloc(parcels[i].bytes);
        if (parcels[i].block == NULL) return 1;
        memset(parcels[i].block, (int)(i ^ seed) & 0xff, parcels[i].bytes);
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        const unsigned char *bytes = parcels[i].block;
        if (bytes[0] != ((i ^ seed) & 0xff) || bytes[parcels[i].bytes - 1] != ((i ^ seed) & 0xff)) return 2;
        strata_free(parcels[i].block);
    }
    return 0;
}

void *plugin_take(size_t bytes) {
    void *block = strata_malloc(bytes);
    if (block != NULL) memset(block, 0x5a, bytes);
    return block;
}

void plugin_give(void *block) { strata_free(block); }

const char *plugin_check(void) { return strata_check(); }
