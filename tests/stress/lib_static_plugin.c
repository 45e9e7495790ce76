/*
 * lib_static_plugin.c - the same plugin with strata in itself: linked to libstrata-only.a.
 */
#include "stress/lib_plugin.c"
