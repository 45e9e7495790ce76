/*
 * sys/vmem.h - <vmem.h> under the name that illumos's programs include it by.
 */
#ifndef STRATA_SYS_VMEM_H
#define STRATA_SYS_VMEM_H

#include <vmem.h>

#endif
