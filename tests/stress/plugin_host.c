/*
 * plugin_host.c - a program on the C library's malloc that opens and closes, again and again, a library that uses strata.
 *
 * plugin_host PLUGIN TIMES [LIBRARY...]. The further libraries are opened first and stay (the suite gives ones that use up thread-local
 * storage; that no more of them fit is fine). Each turn opens the plugin by dlopen(RTLD_LOCAL), works in it from this thread, from a
 * thread that ends before dlclose, and from one that ends after, forks, and closes. Mappings must not add up from turn to turn.
 */
#include "stress/support.h"

#include <pthread.h>
#include <semaphore.h>
#include <sys/wait.h>

enum { WARM_TURNS = 5, CHILD_SECONDS = 20 };

static int (*plugin_work)(unsigned);
static void *(*plugin_take)(size_t);
static void (*plugin_give)(void *);
static const char *(*plugin_check)(void);
static sem_t used, may_end;

static void *symbol(void *handle, const char *name) {
    void *found = dlsym(handle, name);
    if (found == NULL) fail("no %s in the plugin", name);
    return found;
}

static void *short_thread(void *argument) {
    (void)argument;
    REQUIRE(plugin_work(3) == 0);
    return NULL;
}

static void *long_thread(void *argument) {
    (void)argument;
    REQUIRE(plugin_work(4) == 0);
    sem_post(&used);
    while (sem_wait(&may_end) != 0) continue;
    return NULL; /* whatever strata does when a thread ends, it does after dlclose */
}

static size_t count_mappings(void) {
    char text[4096];
    size_t lines = 0;
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    REQUIRE(fd >= 0);
    for (ssize_t n; (n = read(fd, text, sizeof text)) > 0;)
        for (ssize_t i = 0; i < n; i++) lines += text[i] == '\n';
    close(fd);
    return lines;
}

static void fork_and_work(void) {
    pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
        alarm(CHILD_SECONDS);
        _exit(plugin_work(5));
    }
    int status = 0;
    REQUIRE(waitpid(pid, &status, 0) == pid);
    if (status != 0) fail("a child that works in the plugin ends with status %#x", status);
}

static void turn(const char *path) {
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) fail("dlopen: %s", dlerror());
    *(void **)&plugin_work = symbol(handle, "plugin_work");
    *(void **)&plugin_take = symbol(handle, "plugin_take");
    *(void **)&plugin_give = symbol(handle, "plugin_give");
    *(void **)&plugin_check = symbol(handle, "plugin_check");
    if (dlsym(RTLD_DEFAULT, "strata_malloc") != NULL) fail("strata is in the global scope");

    void *ours = malloc(1000);
    void *theirs = plugin_take(1000);
    REQUIRE(ours != NULL && theirs != NULL);
    REQUIRE(plugin_work(1) == 0);
    pthread_t short_id, long_id;
    REQUIRE(pthread_create(&short_id, NULL, short_thread, NULL) == 0);
    REQUIRE(pthread_join(short_id, NULL) == 0);
    REQUIRE(pthread_create(&long_id, NULL, long_thread, NULL) == 0);
    while (sem_wait(&used) != 0) continue;
    fork_and_work();
    plugin_give(theirs);
    REQUIRE(plugin_check() == NULL);
    REQUIRE(dlclose(handle) == 0);
    sem_post(&may_end);
    REQUIRE(pthread_join(long_id, NULL) == 0);
    free(ours);
    pid_t pid = fork(); /* fork handlers of a library that is gone */
    REQUIRE(pid >= 0);
    if (pid == 0) _exit(0);
    REQUIRE(waitpid(pid, NULL, 0) == pid);
}

int main(int argc, char **argv) {
    if (argc < 3) fail("usage: plugin_host PLUGIN TIMES [LIBRARY...]");
    REQUIRE(sem_init(&used, 0, 0) == 0 && sem_init(&may_end, 0, 0) == 0);
    int opened = 0;
    for (int i = 3; i < argc; i++) opened += dlopen(argv[i], RTLD_NOW | RTLD_LOCAL) != NULL;
    size_t times = argument_number(argc, argv, 2, 100), warm = 0, warm_kib = 0;
    for (size_t i = 0; i < times; i++) {
        turn(argv[1]);
        if (i == WARM_TURNS) {
            warm = count_mappings();
            warm_kib = status_kib("RssAnon:");
        }
    }
    size_t mappings = count_mappings(), kib = status_kib("RssAnon:");
    if (times > WARM_TURNS && mappings > warm + 4) fail("%zu mappings after %d turns, %zu at the end", warm, WARM_TURNS, mappings);
    if (times > WARM_TURNS && kib > warm_kib + 4096) fail("%zu KiB resident after %d turns, %zu at the end", warm_kib, WARM_TURNS, kib);
    printf("libraries=%d\n", opened);
    return 0;
}
