/*
 * consumer.c - a program as others write it, on an installed strata: C11 here, and built as C++ by its CMake project.
 *
 * `consumer` wants malloc, and operator new, to be strata's (it was linked or preloaded); `consumer foreign` wants another's.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <strata/malloc.h>
#include <strata/pool.h>

#define LARGE ((size_t)64 << 20)

/* The names of strata_pool_* are there, and the header is good in both languages. */
static int pool_works(void) {
    struct strata_pool_config config;
    struct strata_pool *pool;
    struct strata_pool_local *local;
    memset(&config, 0, sizeof config);
    config.name = "consumer";
    config.object_bytes = 40;
    config.m = 8;
    if (strata_pool_create(&config, &pool) != STRATA_POOL_OK || strata_pool_local_create(pool, &local) != STRATA_POOL_OK) return 0;
    void *object = strata_pool_alloc(local);
    if (object == NULL || strata_pool_free(local, object) != STRATA_POOL_OK || strata_pool_check(pool) != NULL) return 0;
    strata_pool_local_destroy(local);
    return strata_pool_destroy(pool, NULL) == STRATA_POOL_OK;
}

int main(int argc, char **argv) {
    int foreign = argc > 1 && strcmp(argv[1], "foreign") == 0;
    char *block = (char *)strata_malloc(100);
    if (block == NULL || strata_malloc_usable_size(block) < 100) {
        puts("consumer: strata_malloc failed");
        return 1;
    }
    strcpy(block, "text");
    block = (char *)strata_realloc(block, 100000);
    if (block == NULL || strcmp(block, "text") != 0) {
        puts("consumer: strata_realloc lost the contents");
        return 1;
    }
    strata_free(block);
    if (!pool_works()) {
        puts("consumer: a fixed pool doesn't work");
        return 1;
    }

    /* Bytes in use move with malloc only where malloc is strata's, and with strata_malloc always. */
    size_t before = strata_mallinfo2().hblkhd;
    void *volatile large = malloc(LARGE);
    int ours = strata_mallinfo2().hblkhd >= before + LARGE;
    free(large);
    if (ours == foreign) {
        printf("consumer: malloc is %s\n", ours ? "strata's" : "not strata's");
        return 1;
    }
#ifdef __cplusplus
    before = strata_mallinfo2().hblkhd;
    large = operator new(LARGE);
    ours = strata_mallinfo2().hblkhd >= before + LARGE;
    operator delete(large);
    if (ours == foreign) {
        printf("consumer: operator new is %s\n", ours ? "strata's" : "not strata's");
        return 1;
    }
#endif
    before = strata_mallinfo2().hblkhd;
    large = strata_malloc(LARGE);
    ours = strata_mallinfo2().hblkhd >= before + LARGE;
    strata_free(large);
    if (!ours || strata_mallinfo2().hblkhd != before) {
        puts("consumer: strata_malloc and strata_free did not use strata's heap");
        return 1;
    }
    puts("consumer: well");
    return 0;
}
