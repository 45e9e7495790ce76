/*
 * umem_manual_cxx.cpp - umem_manual.c, compiled as C++.
 */
#include "umem_manual.c"
