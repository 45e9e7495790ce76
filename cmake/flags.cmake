# Compiler flags, as interface targets: strata_warnings for all code, strata_library_flags for what ends in the library.

set(c_only $<COMPILE_LANGUAGE:C>)
add_library(strata_warnings INTERFACE)
target_compile_options(strata_warnings INTERFACE -Wall -Wextra -Wshadow -Wpointer-arith -Wconversion -Wno-sign-conversion -Wundef -Wvla
    $<${c_only}:-Wstrict-prototypes> $<${c_only}:-Wmissing-prototypes> -Wwrite-strings)
if(STRATA_WERROR)
    target_compile_options(strata_warnings INTERFACE -Werror)
endif()

# The layout (layout.ld) goes by the files that code comes from, and the archives are merged objects with local names: neither can be had of code that is
# generated when it is linked, which packagers ask for in CFLAGS.
add_compile_options(-fno-lto)

# Sanitizers go on everything, tests included, so that one report covers both sides of a call.
if(STRATA_SANITIZE)
    set(sanitize -fsanitize=${STRATA_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    add_compile_options(${sanitize})
    add_link_options(${sanitize})
endif()

# The compiler must not recognise our own malloc: it would turn the body of calloc into a call of calloc.
set(not_builtin malloc calloc realloc reallocarray free aligned_alloc memalign posix_memalign)
list(TRANSFORM not_builtin PREPEND -fno-builtin-)

add_library(strata_library_flags INTERFACE)
target_link_libraries(strata_library_flags INTERFACE strata_warnings)
target_include_directories(strata_library_flags INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
# initial-exec: a thread-local variable must never be reached through __tls_get_addr, which may call malloc.
target_compile_options(strata_library_flags INTERFACE -fvisibility=hidden -ftls-model=initial-exec -fno-semantic-interposition -fno-plt
    ${not_builtin})
# What CHECK says names the file in the tree, wherever that lies: the library is the same from every folder, but for what debuggers read of it.
target_compile_options(strata_library_flags INTERFACE -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)
foreach(define STRATA_NO_RSEQ STRATA_LOCK_DEBUG)
    if(${define})
        target_compile_definitions(strata_library_flags INTERFACE ${define}=1)
    endif()
endforeach()
# Checks of what callers promise, where the fast path of other builds takes their word (src/api/kmem.c).
target_compile_definitions(strata_library_flags INTERFACE $<$<CONFIG:Debug>:STRATA_DEBUG=1>)

# Kinds of local pools, as bits: src/cache/pool.h. What the other kind alone needs is left out (layers.cmake).
set(STRATA_POOL_KINDS_array 1)
set(STRATA_POOL_KINDS_stacks 2)
if(NOT STRATA_POOL_VARIANT MATCHES "^(array|stacks|both)$")
    message(FATAL_ERROR "STRATA_POOL_VARIANT is ${STRATA_POOL_VARIANT}; allowed: array, stacks, both")
endif()
if(NOT STRATA_POOL_VARIANT STREQUAL "both")
    target_compile_definitions(strata_library_flags INTERFACE STRATA_POOL_KINDS=${STRATA_POOL_KINDS_${STRATA_POOL_VARIANT}})
endif()
