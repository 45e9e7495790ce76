"""Libraries that are opened with RTLD_DEEPBIND, and see the C library's names before the process's: blocks go to and fro all the same."""

import platform
import shutil

import pytest

BOTH = pytest.mark.parametrize("strata", ["rseq", "no-rseq"], indirect=True)
pytestmark = pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="dlopen is ours on two architectures")

# Its constructor frees what the C library itself allocated, through the process's malloc.
PLUGIN = r"""
#define _GNU_SOURCE
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static void *(*volatile in_data)(size_t) = malloc;
__attribute__((constructor)) static void begin(void) {
    char *text = NULL;
    size_t room = 0;
    FILE *file = fopen("/proc/self/status", "r");
    if (file == NULL || getline(&text, &room, file) <= 0) abort();
    fclose(file);
    free(realloc(text, 5000));
}
void plugin_free(void *p) { free(p); }
void *plugin_grow(void *p, size_t bytes) { return realloc(p, bytes); }
void *plugin_text(const char *text) { return strdup(text); }
size_t plugin_usable(void *p) { return malloc_usable_size(p); }
void *plugin_aligned(void) { void *p = NULL; return posix_memalign(&p, 256, 1000) == 0 ? p : NULL; }
void *plugin_from_data(void) { return in_data(70); }
uintptr_t plugin_malloc(void) { return (uintptr_t)malloc; }
"""

HOST = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static pthread_barrier_t together;
static void *need(void *library, const char *name) {
    void *found = dlsym(library, name);
    if (found == NULL) { fprintf(stderr, "%s: %s\n", name, dlerror()); exit(2); }
    return found;
}
#define CALL(type, name) ((type)(uintptr_t)need(library, name))
static void *open_and_use(void *path) {
    pthread_barrier_wait(&together);
    void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL | RTLD_DEEPBIND);
    if (library == NULL) { fprintf(stderr, "%s\n", dlerror()); exit(3); }
    for (int i = 0; i < 200; i++) {
        CALL(void (*)(void *), "plugin_free")(malloc(100 + i * 37));
        char *text = CALL(char *(*)(const char *), "plugin_text")("a text of the plugin's");
        if (strcmp(text, "a text of the plugin's") != 0) exit(4);
        free(CALL(void *(*)(void *, size_t), "plugin_grow")(text, 100000));
        void *p = calloc(1, 60);
        if (CALL(size_t (*)(void *), "plugin_usable")(p) != malloc_usable_size(p)) exit(5);
        p = CALL(void *(*)(void *, size_t), "plugin_grow")(p, 700);
        free(p);
        p = CALL(void *(*)(void), "plugin_aligned")();
        if (p == NULL || (uintptr_t)p % 256 != 0) exit(6);
        free(p);
        free(CALL(void *(*)(void), "plugin_from_data")());
    }
    void *(*volatile mine)(size_t) = malloc; /* by an address that code has in it */
    CALL(void (*)(void *), "plugin_free")(mine(33));
    return NULL;
}
int main(int argc, char **argv) {
    pthread_t threads[16];
    pthread_barrier_init(&together, NULL, argc - 1);
    for (int i = 1; i < argc; i++) pthread_create(&threads[i], NULL, open_and_use, argv[i]);
    for (int i = 1; i < argc; i++) pthread_join(threads[i], NULL);
    return puts("done") < 0;
}
"""


@pytest.mark.strata_only
@BOTH
@pytest.mark.parametrize("code", ["-pie", "-no-pie"])
def test_blocks_of_both(strata, compile_c, tmp_path, code):
    """Eight threads open a library each at the same moment, and free, resize and measure blocks that come from the other side; also in a
    program at fixed addresses, of whose malloc the address is that of a jump to it."""
    host = compile_c("host", HOST, "-pthread", code, "-fno-pie" if code == "-no-pie" else "-fPIE")
    plugin = compile_c("plugin0.so", PLUGIN, "-shared", "-fPIC")
    plugins = [plugin] + [shutil.copy(plugin, tmp_path / f"plugin{i}.so") for i in range(1, 8)]
    for _ in range(8):
        assert strata.run([host, *plugins]).text == "done\n"


@pytest.mark.strata_only
def test_what_is_bound_at_once(strata, compile_c):
    """The same of a library that the loader binds as a whole, whose table of addresses nobody may write to."""
    host = compile_c("host", HOST, "-pthread")
    assert strata.run([host, compile_c("now.so", PLUGIN, "-shared", "-fPIC", "-Wl,-z,now,-z,relro")]).text == "done\n"


@pytest.mark.strata_only
def test_move_that_unmaps_and_fails(strata, compile_c):
    """The kernel takes the target of a move away before it looks at all that may fail: the C library's table of symbols is there again."""
    failing = compile_c("failing.so", r"""
        #define _GNU_SOURCE
        #include <errno.h>
        #include <stdarg.h>
        #include <sys/mman.h>
        #include <sys/syscall.h>
        #include <unistd.h>
        void *mremap(void *from, size_t old_bytes, size_t bytes, int flags, ...) {
            va_list rest;
            va_start(rest, flags);
            void *to = va_arg(rest, void *);
            va_end(rest);
            if (flags != (MREMAP_MAYMOVE | MREMAP_FIXED)) return (void *)syscall(SYS_mremap, from, old_bytes, bytes, flags, to);
            if (munmap(to, bytes) != 0 || write(2, "failed\n", 7) != 7) _exit(77);
            errno = ENOMEM;
            return MAP_FAILED;
        }
        """, "-shared", "-fPIC", "-Wl,-z,now")
    host = compile_c("host", HOST, "-pthread")
    result = strata.run([host, compile_c("plugin.so", PLUGIN, "-shared", "-fPIC")], env={"LD_PRELOAD": f"{failing} {strata.library}"})
    assert result.text == "done\n" and result.errors == "failed\n"


def test_malloc_of_the_library_itself(strata, compile_c):
    """The flag keeps what it is there for: a library's own names, also a malloc, are not taken from it."""
    plugin = compile_c("own.so", r"""
        #include <stddef.h>
        static char room[4096];
        int shared_name(void) { return 2; }
        void *malloc(size_t bytes) { (void)bytes; return room; }
        int plugin_works(void) { return malloc(5) == room && shared_name() == 2; }
        """, "-shared", "-fPIC")
    host = compile_c("host", r"""
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <stdio.h>
        #include <stdlib.h>
        int shared_name(void) { return 1; }
        int main(int argc, char **argv) {
            void *plugin = dlopen(argv[argc - 1], RTLD_NOW | RTLD_DEEPBIND);
            int (*works)(void) = plugin ? (int (*)(void))dlsym(plugin, "plugin_works") : 0;
            free(malloc(10));
            return works ? printf("%d\n", works()) != 2 : 99;
        }
        """, "-rdynamic")
    assert strata.run([host, plugin]).text == "1\n"


@pytest.mark.parametrize("flag", ["0", "RTLD_DEEPBIND"])
def test_paths_of_who_calls(strata, compile_c, tmp_path, flag):
    """dlopen searches the paths of the library that calls it, and says why it fails."""
    (tmp_path / "beside").mkdir()
    compile_c("beside/libbeside.so", "int beside(void) { return 7; }", "-shared", "-fPIC")
    caller = compile_c("libcaller.so", r"""
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <string.h>
        int call(void) {
            void *missing = dlopen("libmissing.so", RTLD_NOW | %s);
            const char *why = dlerror();
            void *library = dlopen("libbeside.so", RTLD_NOW | %s);
            int (*beside)(void) = library ? (int (*)(void))dlsym(library, "beside") : 0;
            return missing == NULL && why != NULL && strstr(why, "libmissing.so") != NULL && beside ? beside() : 0;
        }
        """ % (flag, flag), "-shared", "-fPIC", "-Wl,--enable-new-dtags,-rpath,$ORIGIN/beside")
    host = compile_c("host", '#include <stdio.h>\nint call(void);\nint main(void) { return printf("%d\\n", call()) < 0; }', f"-Wl,{caller}",
                     f"-Wl,-rpath,{tmp_path}")
    assert strata.run([host]).text == "7\n"


@pytest.mark.strata_only
@pytest.mark.parametrize("flags", ["RTLD_NOW | RTLD_LOCAL", "RTLD_NOW | RTLD_DEEPBIND"])
def test_process_with_another_malloc(strata, compile_c, flags):
    """A plugin that has strata for itself opens such a library: the process's malloc stays what it is, for that library and for others."""
    plugin = compile_c("plugin.so", PLUGIN, "-shared", "-fPIC")
    plain = compile_c("plain.so", "#include <stdlib.h>\n#include <string.h>\nvoid plain(void) { free(strdup(\"text\")); }", "-shared", "-fPIC")
    middle = compile_c("middle.so", r"""
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <stdint.h>
        void *strata_malloc(unsigned long);
        void strata_free(void *);
        uintptr_t middle_open(const char *path) {
            strata_free(strata_malloc(10));
            /* Strata's own dlopen, also where the C library's is found before it. */
            void *ours = dlsym(dlopen("libstrata.so.0", RTLD_NOW | RTLD_NOLOAD), "dlopen");
            void *plugin = ours ? ((void *(*)(const char *, int))ours)(path, RTLD_NOW | RTLD_DEEPBIND) : (void *)0;
            return plugin ? ((uintptr_t(*)(void))dlsym(plugin, "plugin_malloc"))() : 0;
        }
        """, "-shared", "-fPIC", f"-Wl,{strata.library}", f"-Wl,-rpath,{strata.library.parent}")
    host = compile_c("host", r"""
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <stdint.h>
        #include <stdio.h>
        #include <stdlib.h>
        int main(int argc, char **argv) {
            void *middle = argc == 4 ? dlopen(argv[1], %s) : NULL;
            if (middle == NULL) return fprintf(stderr, "%%s\n", dlerror()), 99;
            uintptr_t found = ((uintptr_t(*)(const char *))dlsym(middle, "middle_open"))(argv[2]);
            void *plain = dlopen(argv[3], RTLD_NOW);
            if (plain == NULL) return fprintf(stderr, "%%s\n", dlerror()), 98;
            ((void (*)(void))dlsym(plain, "plain"))();
            return printf("%%d\n", found == (uintptr_t)malloc) < 0;
        }
        """ % flags)
    env = {"LD_LIBRARY_PATH": str(strata.library.parent)}
    assert strata.run([host, middle, plugin, plain], env=env, preload=False, prove=False).text == "1\n"


# malloc by cutting pieces off, with a header that tells the size; free forgets. As the program's own, or in front of what it goes on to.
OWN_MALLOC = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>
static char room[1 << 24] __attribute__((aligned(16)));
static size_t used;
void *malloc(size_t bytes) { size_t *p = (size_t *)(room + __atomic_fetch_add(&used, (bytes + 47) & ~(size_t)15, __ATOMIC_RELAXED)); *p = bytes; return p + 2; }
void *calloc(size_t n, size_t bytes) { return malloc(n * bytes); }
void free(void *p) { if (p != NULL && ((char *)p < room || (char *)p >= room + sizeof room)) __builtin_trap(); }
void *realloc(void *p, size_t bytes) { void *q = malloc(bytes); if (p != NULL) memcpy(q, p, ((size_t *)p)[-2] < bytes ? ((size_t *)p)[-2] : bytes); return q; }
"""
# Blocks of who is behind it, 16 bytes further on.
WRAPPER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#define NEXT(type, name) ((type)(uintptr_t)dlsym(RTLD_NEXT, name))
static char *mark(char *p) { if (p != NULL) memset(p, 0x5a, 16); return p != NULL ? p + 16 : NULL; }
static char *base(void *p) { for (int i = 1; p != NULL && i <= 16; i++) if (((char *)p)[-i] != 0x5a) __builtin_trap(); return p != NULL ? (char *)p - 16 : NULL; }
void *malloc(size_t bytes) { return mark(NEXT(void *(*)(size_t), "malloc")(bytes + 16)); }
void *calloc(size_t n, size_t bytes) { return mark(NEXT(void *(*)(size_t, size_t), "calloc")(1, n * bytes + 16)); }
void *realloc(void *p, size_t bytes) { return mark(NEXT(void *(*)(void *, size_t), "realloc")(base(p), bytes + 16)); }
void free(void *p) { NEXT(void (*)(void *), "free")(base(p)); }
"""
OPENER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(int argc, char **argv) {
    void *plugin = dlopen(argv[argc - 1], RTLD_NOW | RTLD_DEEPBIND);
    if (plugin == NULL) return fprintf(stderr, "%s\n", dlerror()), 99;
    free(strdup("text"));
    ((void (*)(void *))dlsym(plugin, "take"))(malloc(100));
    return puts("done") < 0;
}
"""


@pytest.mark.strata_only
def test_program_with_a_malloc_of_its_own(strata, compile_c):
    """Strata is there, but not the process's malloc: who opens a library of which it frees nothing finds no difference."""
    host = compile_c("host", OWN_MALLOC + OPENER, "-rdynamic")
    plugin = compile_c("plugin.so", "void take(void *p) { (void)p; }", "-shared", "-fPIC")
    assert strata.run([host, plugin], conf="verify:off", prove=False).text == "done\n"


@pytest.mark.strata_only
def test_wrapper_in_front(strata, compile_c):
    """A wrapper whose blocks are pieces of ours: the library frees by it, as all others do."""
    wrapper = compile_c("wrapper.so", WRAPPER, "-shared", "-fPIC")
    plugin = compile_c("plugin.so", "#include <stdlib.h>\n#include <string.h>\nvoid take(void *p) { free(p); free(strdup(\"text\")); }", "-shared", "-fPIC")
    host = compile_c("host", OPENER)
    assert strata.run([host, plugin], conf="verify:off", env={"LD_PRELOAD": f"{wrapper} {strata.library}"}, prove=False).text == "done\n"
