/*
 * consumer.c - a program as others write it, on an installed strata: C11 here, and built as C++ by its CMake project.
 *
 * `consumer` wants malloc to be strata's (it was linked or preloaded); `consumer foreign` wants it to be the C library's.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <strata/malloc.h>

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

    /* Bytes in use move with malloc only where malloc is strata's. */
    size_t before = strata_mallinfo2().hblkhd;
    void *volatile large = malloc(64 << 20);
    int ours = strata_mallinfo2().hblkhd >= before + (64 << 20);
    free(large);
    if (ours == foreign) {
        printf("consumer: malloc is %s\n", ours ? "strata's" : "not strata's");
        return 1;
    }
    puts("consumer: well");
    return 0;
}
