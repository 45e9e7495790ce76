/*
 * cxx_runtime.h - what operator new of libstrata.so needs of the C++ runtime that is in the process, without a link to it.
 *
 * The runtime is looked up when memory is short, not bound at load: C programs have none, and may bring one later, by dlopen, and keep its
 * names to themselves. All here may take the loader's lock, and is for the moment in which an allocation has failed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef void (*cxx_new_handler)(void);

/* The new_handler of the program; NULL: there is none, or no runtime. */
cxx_new_handler cxx_current_new_handler(void);

/* Throws std::bad_alloc. Where no runtime can, no catch can wait for it either: the process ends with a line that names `size`. */
_Noreturn void cxx_throw_bad_alloc(size_t size);

/* Calls `handler`; false: it threw, and what it threw is caught here. Where no runtime can catch, what it throws goes on to the caller. */
bool cxx_handler_returns(cxx_new_handler handler);

/* The function `mangled` that comes behind this library in the order of lookup, 0: there is none. */
uintptr_t cxx_function_behind(const char *mangled);
