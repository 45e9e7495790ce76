/*
 * sanitizers.h - which sanitizer this program is built with, by GCC or by clang: 0 or 1, for the preprocessor and for conditions.
 */
#ifndef STRATA_TESTS_SANITIZERS_H
#define STRATA_TESTS_SANITIZERS_H

/* Older GCC says so by macros of its own, clang by features. */
#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define UNDER_ADDRESS_SANITIZER 1
#endif
#if __has_feature(thread_sanitizer)
#define UNDER_THREAD_SANITIZER 1
#endif
#else
#ifdef __SANITIZE_ADDRESS__
#define UNDER_ADDRESS_SANITIZER 1
#endif
#ifdef __SANITIZE_THREAD__
#define UNDER_THREAD_SANITIZER 1
#endif
#endif

#ifndef UNDER_ADDRESS_SANITIZER
#define UNDER_ADDRESS_SANITIZER 0
#endif
#ifndef UNDER_THREAD_SANITIZER
#define UNDER_THREAD_SANITIZER 0
#endif

#endif
