/*
 * cgroup.c - finds the process's memory control groups (version 1 and 2) in /proc, and reads their limits.
 *
 * The path of a group is known relative to the root of its hierarchy (/proc/self/cgroup); where that root is mounted, and
 * whether only a part of the hierarchy is (containers), is in /proc/self/mountinfo. What a search takes is mapped for so long, as it may be a thread
 * with the smallest stack whose malloc wants to know; files are read with system calls only. No state, no locks.
 */
#define _GNU_SOURCE 1
#include "platform/linux/cgroup.h"
#include "platform/linux/linux.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"

#define LINE_BYTES 4096
#define MOUNT_FIELDS_BEFORE_OPTIONAL 6

/* ------------------------------------------------------------------ reading files */

/* A file being read by lines. */
struct lines {
    int file;
    size_t next;
    size_t end;
    char buffer[512];
};

/* What a search for a group works in: the line read last, and the group's path relative to the root of its hierarchy. */
struct search {
    struct lines lines;
    char line[LINE_BYTES], path[CGROUP_PATH_BYTES];
};

/* Uses the line for the file's path. */
static bool open_lines(struct search *search, const char *directory, const char *name) {
    if (format_text(search->line, sizeof search->line, "%s/%s", directory, name) >= sizeof search->line) return false;
    search->lines.next = search->lines.end = 0;
    search->lines.file = linux_open(search->line, O_RDONLY | O_CLOEXEC, 0);
    return search->lines.file >= 0;
}

static bool next_char(struct lines *lines, char *c) {
    if (lines->next == lines->end) {
        ssize_t count;
        do count = linux_read(lines->file, lines->buffer, sizeof lines->buffer);
        while (count < 0 && errno == EINTR);
        if (count <= 0) return false;
        lines->next = 0;
        lines->end = (size_t)count;
    }
    *c = lines->buffer[lines->next++];
    return true;
}

/* The next line without its end; a longer one is cut. False at the end of the file. */
static bool next_line(struct search *search) {
    size_t length = 0;
    char c;
    if (!next_char(&search->lines, &c)) return false;
    do {
        if (c == '\n') break;
        if (length + 1 < sizeof search->line) search->line[length++] = c;
    } while (next_char(&search->lines, &c));
    search->line[length] = 0;
    return true;
}

/* ------------------------------------------------------------------ /proc/self/cgroup */

/* Whether `word` is one of the comma-separated `list`. */
static bool list_has(const char *list, const char *word) {
    size_t length = strlen(word);
    for (const char *at = list; at != NULL; at = strchr(at, ',')) {
        if (*at == ',') at++;
        if (strncmp(at, word, length) == 0 && (at[length] == ',' || at[length] == 0)) return true;
    }
    return false;
}

/* Cuts the line at the first `separator` and returns what is behind it, NULL where there is none. */
static char *split(char *line, char separator) {
    char *at = strchr(line, separator);
    if (at == NULL) return NULL;
    *at = 0;
    return at + 1;
}

/* Lines are "number:controllers:path"; version 2 is number 0 without controllers. */
static bool find_path(struct search *search, unsigned version, const char *process) {
    bool found = false;
    if (!open_lines(search, process, "cgroup")) return false;
    while (!found && next_line(search)) {
        char *controllers = split(search->line, ':');
        char *own = controllers == NULL ? NULL : split(controllers, ':');
        if (own == NULL) continue;
        bool match = version == 2 ? strcmp(search->line, "0") == 0 && *controllers == 0 : list_has(controllers, "memory");
        found = match && format_text(search->path, sizeof search->path, "%s", own) < sizeof search->path;
    }
    linux_close(search->lines.file);
    return found;
}

/* ------------------------------------------------------------------ /proc/self/mountinfo */

/* Spaces and the like are octal there, as "\040". */
static void decode_octal(char *text) {
    char *out = text;
    for (; *text != 0; text++, out++) {
        *out = *text;
        if (text[0] != '\\' || text[1] < '0' || text[1] > '3' || text[2] < '0' || text[2] > '7' || text[3] < '0' || text[3] > '7') continue;
        *out = (char)((text[1] - '0') * 64 + (text[2] - '0') * 8 + (text[3] - '0'));
        text += 3;
    }
    *out = 0;
}

/* The root and the mount point of a mountinfo line, when it is one of our hierarchy. */
static bool parse_mount(char *line, unsigned version, char **root, char **point) {
    char *fields[MOUNT_FIELDS_BEFORE_OPTIONAL + 1] = {line};
    for (unsigned i = 1; i <= MOUNT_FIELDS_BEFORE_OPTIONAL; i++) {
        fields[i] = split(fields[i - 1], ' ');
        if (fields[i] == NULL) return false;
    }
    char *type = fields[MOUNT_FIELDS_BEFORE_OPTIONAL];
    while (strncmp(type, "- ", 2) != 0) {
        type = strchr(type, ' ');
        if (type == NULL) return false;
        type++;
    }
    type += 2;
    char *source = split(type, ' ');
    char *options = source == NULL ? NULL : split(source, ' ');
    if (options == NULL) return false;
    *root = fields[3];
    *point = fields[4];
    decode_octal(*root);
    decode_octal(*point);
    return version == 2 ? strcmp(type, "cgroup2") == 0 : strcmp(type, "cgroup") == 0 && list_has(options, "memory");
}

/* What of `path` is below `root`. A path that isn't below it belongs to a group that we can't see: the root stands for it. */
static const char *below_root(const char *path, const char *root) {
    size_t length = strlen(root);
    if (strncmp(path, "/..", 3) == 0) return "";
    if (strcmp(root, "/") == 0) return strcmp(path, "/") == 0 ? "" : path;
    if (strncmp(path, root, length) != 0 || (path[length] != '/' && path[length] != 0)) return "";
    return path + length;
}

static bool find(struct cgroup *cgroup, struct search *search, unsigned version, const char *process) {
    bool found = false;
    if (!find_path(search, version, process) || !open_lines(search, process, "mountinfo")) return false;
    while (!found && next_line(search)) {
        char *root, *point;
        if (!parse_mount(search->line, version, &root, &point)) continue;
        size_t length = format_text(cgroup->path, sizeof cgroup->path, "%s%s", point, below_root(search->path, root));
        found = length < sizeof cgroup->path && access(cgroup->path, X_OK) == 0;
        cgroup->mount_length = strlen(point);
        cgroup->version = version;
    }
    linux_close(search->lines.file);
    return found;
}

bool cgroup_find(struct cgroup *cgroup, unsigned version, const char *process) {
    int saved = errno;
    struct search *search = linux_map(NULL, sizeof *search, PROT_READ | PROT_WRITE, 0);
    bool found = search != NULL && find(cgroup, search, version, process);
    if (search != NULL) munmap(search, sizeof *search);
    errno = saved;
    return found;
}

bool cgroup_parent(struct cgroup *cgroup) {
    char *slash = strrchr(cgroup->path, '/');
    if (slash == NULL || (size_t)(slash - cgroup->path) < cgroup->mount_length) return false;
    *slash = 0;
    return true;
}

/* ------------------------------------------------------------------ limits */

int cgroup_open(const struct cgroup *cgroup, const char *name, int flags) {
    char path[CGROUP_PATH_BYTES + 64];
    if (format_text(path, sizeof path, "%s/%s", cgroup->path, name) >= sizeof path) return -1;
    return linux_open(path, flags | O_CLOEXEC, 0);
}

/* Version 1 says "none" by the largest number of whole pages that it can count, version 2 by "max". */
static uint64_t read_limit(const struct cgroup *cgroup, const char *name) {
    char text[32];
    int file = cgroup_open(cgroup, name, O_RDONLY);
    if (file < 0) return UINT64_MAX;
    ssize_t length = linux_read(file, text, sizeof text - 1);
    linux_close(file);
    if (length <= 0 || text[0] < '0' || text[0] > '9') return UINT64_MAX;
    text[length] = 0;
    uint64_t bytes = linux_number(text);
    return bytes >= (uint64_t)1 << 60 ? UINT64_MAX : bytes;
}

uint64_t cgroup_limit_bytes(const struct cgroup *cgroup) {
    int saved = errno;
    uint64_t bytes = cgroup->version == 2 ? min_u64(read_limit(cgroup, "memory.max"), read_limit(cgroup, "memory.high"))
                                          : read_limit(cgroup, "memory.limit_in_bytes");
    errno = saved;
    return bytes;
}

uint64_t cgroup_tightest_bytes(const char *process) {
    uint64_t tightest = UINT64_MAX;
    struct cgroup cgroup;
    /* A controller is in one hierarchy: where memory's is of version 1, that of version 2 has no limits, and is not looked for. */
    if (!cgroup_find(&cgroup, 1, process) && !cgroup_find(&cgroup, 2, process)) return tightest;
    unsigned level = 0;
    do tightest = min_u64(tightest, cgroup_limit_bytes(&cgroup));
    while (++level < CGROUP_LEVELS_MAX && cgroup_parent(&cgroup));
    return tightest;
}

/* ------------------------------------------------------------------ events */

/* Lines "name count"; others than ours are skipped, as kernels add some. */
void cgroup_parse_events(const char *text, uint64_t *high, uint64_t *urgent) {
    *high = *urgent = 0;
    for (const char *line = text; *line != 0;) {
        size_t name = strcspn(line, " \n");
        uint64_t count = linux_number(line + name);
        if (name == 4 && strncmp(line, "high", name) == 0) *high = count;
        if (name == 3 && (strncmp(line, "max", name) == 0 || strncmp(line, "oom", name) == 0)) *urgent += count;
        line += strcspn(line, "\n");
        if (*line == '\n') line++;
    }
}
