/*
 * cgroup.h - where the process's memory control groups are, and what they allow. Private to this folder.
 */
#ifndef STRATA_PLATFORM_LINUX_CGROUP_H
#define STRATA_PLATFORM_LINUX_CGROUP_H

#include "base/base.h"

#define CGROUP_PATH_BYTES 1024
#define CGROUP_LEVELS_MAX 16 /* that are looked at, from the process's own group upwards */

/* A control group that sees the process's memory: a directory. */
struct cgroup {
    unsigned version; /* 1 or 2 */
    char path[CGROUP_PATH_BYTES];
    size_t mount_length; /* of the part of path that is the mount point */
};

/* The process's own group in the hierarchy of that version; `process` is "/proc/thread-self". False where there is none. */
bool cgroup_find(struct cgroup *cgroup, unsigned version, const char *process);
/* Goes one level up; false at the mount point. */
bool cgroup_parent(struct cgroup *cgroup);
/* The limits that are set at this level, UINT64_MAX where there is none. */
uint64_t cgroup_limit_bytes(const struct cgroup *cgroup);
/* The tightest limit of all levels of the hierarchy that memory is in. */
uint64_t cgroup_tightest_bytes(const char *process);

/* The contents of memory.events: how often memory.high was exceeded, and how often memory.max was hit or nothing could be reclaimed there. */
void cgroup_parse_events(const char *text, uint64_t *high, uint64_t *urgent);

/* Opens the file `name` of the group; -1 on failure. */
int cgroup_open(const struct cgroup *cgroup, const char *name, int flags);

#endif
