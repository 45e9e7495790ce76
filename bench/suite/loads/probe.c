/*
 * probe.c - says which object answers malloc in this process, which version it claims to be, and whether it is strata.
 *
 * The dynamic linker goes on with the system's malloc where it cannot load an LD_PRELOAD object; the harness runs this once for each allocator, so
 * that such a run ends in an error instead of in figures of the wrong allocator. Prints one line of JSON. No locks.
 */
#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void version(char *text, size_t size_bytes) {
    int (*mi_version)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "mi_version");
    const char *(*tc_version)(int *, int *, const char **) = (const char *(*)(int *, int *, const char **))dlsym(RTLD_DEFAULT, "tc_version");
    int (*mallctl)(const char *, void *, size_t *, void *, size_t) =
        (int (*)(const char *, void *, size_t *, void *, size_t))dlsym(RTLD_DEFAULT, "mallctl");
    const char *name = NULL;
    size_t name_size_bytes = sizeof name;

    if (mi_version && mi_version() >= 10000) /* newer ones have two digits for each part */
        snprintf(text, size_bytes, "%d.%d.%d", mi_version() / 10000, mi_version() / 100 % 100, mi_version() % 100);
    else if (mi_version)
        snprintf(text, size_bytes, "%d.%d.%d", mi_version() / 100, mi_version() / 10 % 10, mi_version() % 10);
    else if (mallctl && !mallctl("version", &name, &name_size_bytes, NULL, 0))
        snprintf(text, size_bytes, "%.*s", (int)strcspn(name, "-"), name);
    else if (tc_version)
        snprintf(text, size_bytes, "%s", strrchr(tc_version(NULL, NULL, NULL), ' ') ? strrchr(tc_version(NULL, NULL, NULL), ' ') + 1 : "");
    else
        snprintf(text, size_bytes, "%s", "");
}

int main(void) {
    Dl_info malloc_info, free_info;
    char text[128];
    void *malloc_address = dlsym(RTLD_DEFAULT, "malloc"), *free_address = dlsym(RTLD_DEFAULT, "free");

    if (!malloc_address || !free_address || !dladdr(malloc_address, &malloc_info) || !dladdr(free_address, &free_info)) return 2;
    version(text, sizeof text);
    printf("{\"malloc\": \"%s\", \"free\": \"%s\", \"version\": \"%s\", \"libc\": \"%s\", \"strata\": %s}\n", malloc_info.dli_fname,
           free_info.dli_fname, text, gnu_get_libc_version(), dlsym(RTLD_DEFAULT, "strata_malloc") ? "true" : "false");
    return 0;
}
