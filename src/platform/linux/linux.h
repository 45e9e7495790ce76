/*
 * linux.h - what the files of platform/linux share. Private to this folder.
 */
#ifndef STRATA_PLATFORM_LINUX_H
#define STRATA_PLATFORM_LINUX_H

#include "platform/platform.h"

/* Finds out how CPU caches are addressed: fills platform_cpu (cpu_ops.h) and the mode. Called once by platform_init. */
void linux_cpu_init(void);

#endif
