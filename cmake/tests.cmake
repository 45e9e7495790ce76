# Tests and helper programs, found by name under tests/ (any depth, label = first folder):
#
#   test_*.c          cmocka test on platform/sim, run by ctest
#   test_linux_*.c    cmocka test of platform/linux itself, run by ctest
#   model/model_*.c   model runner, part of libstrata_model.so (with every other .c of tests/model but test_*)
#   api_*.c  .cpp     program that uses strata_* only, linked to libstrata.a, run by ctest; the sanitizer builds run these too
#   only_*.c  .cpp    the same, but linked to libstrata-only.a
#   umem_*.c  .cpp    the same, but linked to libstrata-umem.a and libstrata.a
#   linked_*.c .cpp   helper linked to libstrata.so
#   needs_umem_*.c .cpp  helper linked to libstrata-umem.so
#   static_*.c .cpp   helper linked to libstrata.a
#   lib_*.c           helper that is a shared object linked to libstrata.so, for dlopen; lib_static_*.c: to libstrata-only.a
#   other .c .cpp     helper not linked to strata, to be run under LD_PRELOAD
#
# Helpers end in BUILD/tests/FOLDER/NAME and are run by pytest. tests/install is a project of its own, and pytest builds tests/umem/notes.

set(tests_dir ${PROJECT_SOURCE_DIR}/tests)

# A test that hangs is a failure with a name, not a stuck run.
set(ctest_timeout_s 240)

# Hundreds of programs that carry the same archive are a tenth of such a build, with the linker that a compiler takes by itself; lld takes two fifths of that.
# Programs that tell how the libraries link, and these, stay with the other. (Not mold, which is hardly faster: that of Debian 12 begins what becomes
# read-only at the thread-local section before it, so that a program where that ends just below a page, as its sizes and its path decide, doesn't load,
# rui314/mold issue 1151; with -z norelro it links some for ever.)
include(CheckLinkerFlag)
find_program(STRATA_LLD ld.lld PATHS /usr/lib/llvm-19/bin)
if(STRATA_LLD)
    cmake_path(GET STRATA_LLD PARENT_PATH lld_folder)
    set(lld_options -B${lld_folder} -fuse-ld=lld) # found by this name, which Debian's versions have in a folder of their own
    check_linker_flag(C "${lld_options}" STRATA_HAS_LLD)
endif()
function(strata_link_fast target)
    if(STRATA_HAS_LLD)
        target_link_options(${target} PRIVATE ${lld_options})
    endif()
endfunction()

function(strata_add_program source)
    cmake_path(GET source STEM name)
    cmake_path(GET source PARENT_PATH folder)
    cmake_path(RELATIVE_PATH folder BASE_DIRECTORY ${tests_dir})
    string(REPLACE / _ target "${folder}_${name}")
    if(name MATCHES "^lib_")
        add_library(${target} MODULE ${source})
        set_target_properties(${target} PROPERTIES PREFIX "")
    else()
        add_executable(${target} ${source})
    endif()
    set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name}
        RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/${folder} LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/${folder})
    # The compiler must keep every pair of malloc and free that a test makes.
    target_compile_options(${target} PRIVATE -fno-builtin)
    if(STRATA_SANITIZE)
        # A third of an instrumented build is the optimiser's work on test code, which runs once.
        target_compile_options(${target} PRIVATE -O0)
        strata_link_fast(${target})
    endif()
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/include ${tests_dir})
    target_link_libraries(${target} PRIVATE strata_warnings Threads::Threads ${CMAKE_DL_LIBS})
    set(program_target ${target} PARENT_SCOPE)
    string(REPLACE / . test_name "${folder}/${name}")
    set(program_test ${test_name} PARENT_SCOPE)
    string(REGEX REPLACE "/.*" "" label "${folder}")
    set(program_label ${label} PARENT_SCOPE)
endfunction()

file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${tests_dir}/*.c ${tests_dir}/*.cpp)
list(FILTER sources EXCLUDE REGEX "/tests/(install|umem/notes)/")
set(model_sources ${sources})
list(FILTER model_sources INCLUDE REGEX "/tests/model/")
list(FILTER model_sources EXCLUDE REGEX "/test_[^/]*$")
list(REMOVE_ITEM sources ${model_sources})
set(cmocka_tests ${sources})
list(FILTER cmocka_tests INCLUDE REGEX "/test_[^/]*\\.c$")
set(api_tests ${sources})
list(FILTER api_tests INCLUDE REGEX "/api_[^/]*$")
set(only_tests ${sources})
list(FILTER only_tests INCLUDE REGEX "/only_[^/]*$")
set(umem_tests ${sources})
list(FILTER umem_tests INCLUDE REGEX "/umem_[^/]*$")
set(helpers ${sources})
list(FILTER helpers EXCLUDE REGEX "/(test|api|only|umem)_[^/]*$")
if(sources MATCHES "\\.cpp(;|$)")
    enable_language(CXX)
endif()

if(STRATA_TESTS)
    foreach(kind model_sources cmocka_tests)
        if(NOT ${kind})
            message(FATAL_ERROR "no ${kind} under tests/")
        endif()
    endforeach()
    strata_layer_sources(linux_platform_sources linux platform base)
    add_library(strata_linux STATIC ${linux_platform_sources})
    target_link_libraries(strata_linux PUBLIC strata_library_flags Threads::Threads)

    foreach(source IN LISTS cmocka_tests)
        strata_add_program(${source})
        if(source MATCHES "/test_linux_[^/]*$")
            target_link_libraries(${program_target} PRIVATE strata_linux cmocka)
        else()
            target_link_libraries(${program_target} PRIVATE strata_sim cmocka)
        endif()
        target_compile_definitions(${program_target} PRIVATE STRATA_TEST_STRIDE=${STRATA_TEST_STRIDE})
        strata_link_fast(${program_target})
        if(NOT STRATA_SANITIZE)
            # Half of what it took to build these was the optimiser's work on them. -O1 keeps the warnings that follow values; preset debug has all for debuggers.
            target_compile_options(${program_target} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O1> $<$<CONFIG:RelWithDebInfo>:-g1>)
        endif()
        add_test(NAME ${program_test} COMMAND ${program_target})
        # cmocka ends with 0 when a test was skipped; here a test that checks nothing has failed.
        set_tests_properties(${program_test} PROPERTIES LABELS ${program_label} TIMEOUT ${ctest_timeout_s}
            FAIL_REGULAR_EXPRESSION "\\[  SKIPPED \\]")
    endforeach()
    # The mechanism of fixed pools once more, as each single STRATA_POOL_VARIANT makes it; all other tests of pools want both kinds.
    if(NOT STRATA_POOL_VARIANT STREQUAL "both")
        message(FATAL_ERROR "STRATA_TESTS needs STRATA_POOL_VARIANT=both")
    endif()
    foreach(kind rounds stacks)
        set(program_target unit_cache_test_pool_bound_${kind})
        add_executable(${program_target} tests/unit/cache/test_pool_bound.c src/cache/pool.c src/cache/pool_check.c src/cache/pool_${kind}.c)
        target_include_directories(${program_target} PRIVATE ${tests_dir})
        target_compile_definitions(${program_target} PRIVATE STRATA_POOL_KINDS=POOL_KIND_$<UPPER_CASE:${kind}> STRATA_TEST_STRIDE=${STRATA_TEST_STRIDE})
        target_link_libraries(${program_target} PRIVATE strata_sim cmocka)
        add_test(NAME unit.cache.test_pool_bound_${kind} COMMAND ${program_target})
        set_tests_properties(unit.cache.test_pool_bound_${kind} PROPERTIES LABELS unit TIMEOUT ${ctest_timeout_s} FAIL_REGULAR_EXPRESSION "\\[  SKIPPED \\]")
    endforeach()
    if(model_sources)
        add_library(strata_model SHARED ${model_sources})
        target_link_libraries(strata_model PRIVATE strata_sim)
        if(NOT STRATA_SANITIZE)
            target_link_options(strata_model PRIVATE LINKER:--no-undefined)
        endif()
    endif()
endif()

if(STRATA_API_TESTS)
    foreach(kind api only umem)
        set(library strata_static)
        if(kind STREQUAL "only")
            set(library strata_only_static)
        elseif(kind STREQUAL "umem")
            set(library strata_umem_static)
        endif()
        if(NOT ${kind}_tests)
            message(FATAL_ERROR "no ${kind}_tests under tests/")
        endif()
        foreach(source IN LISTS ${kind}_tests)
            if(source MATCHES "\\.cpp$" AND CMAKE_C_COMPILER MATCHES "musl-gcc$")
                continue() # musl-gcc has no C++ library: such a program would be one of glibc
            endif()
            strata_add_program(${source})
            target_link_libraries(${program_target} PRIVATE ${library})
            # What such builds check is asked of them; the headers know nothing of it.
            target_compile_definitions(${program_target} PRIVATE $<$<BOOL:${STRATA_LOCK_DEBUG}>:STRATA_LOCK_DEBUG=1>)
            add_test(NAME ${program_test} COMMAND ${program_target})
            set_tests_properties(${program_test} PROPERTIES LABELS api TIMEOUT ${ctest_timeout_s})
        endforeach()
    endforeach()
endif()

if(STRATA_HELPERS)
    foreach(source IN LISTS helpers)
        strata_add_program(${source})
        if(source MATCHES "/lib_static_[^/]*$")
            target_link_libraries(${program_target} PRIVATE strata_only_static)
        elseif(source MATCHES "/(linked|lib)_[^/]*$")
            target_link_libraries(${program_target} PRIVATE strata)
        elseif(source MATCHES "/needs_umem_[^/]*$")
            target_link_libraries(${program_target} PRIVATE strata_umem)
        elseif(source MATCHES "/static_[^/]*$")
            target_link_libraries(${program_target} PRIVATE strata_static)
        endif()
    endforeach()

    # Where lock ranks are checked, a process that forks while its threads allocate goes through every lock; a violation ends it.
    if(STRATA_LOCK_DEBUG AND NOT STRATA_NO_OVERRIDE AND NOT STRATA_SANITIZE)
        foreach(conf "rseq:auto" "rseq:off" "background:on,decay_ms:1")
            string(REGEX REPLACE "[:,].*" "" name ${conf})
            string(REGEX MATCH "(off|auto|on)" value ${conf})
            set(name stress.fork_storm.${name}_${value})
            add_test(NAME ${name} COMMAND stress_fork_storm 500 3)
            set_tests_properties(${name} PROPERTIES LABELS locks TIMEOUT ${ctest_timeout_s}
                ENVIRONMENT "LD_PRELOAD=$<TARGET_FILE:strata>;STRATA_CONF=verify:on,${conf}")
        endforeach()
    endif()
endif()
