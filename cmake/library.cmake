# The libraries: strata (libstrata.so) and strata_static (libstrata.a), and the variant for programs that keep their malloc,
# strata_only (libstrata-only.so) and strata_only_static (libstrata-only.a). Each pair is made from one set of objects.

strata_layer_sources(linux_sources linux)

# What hardly an allocation waits for is built for size and linked last: the kernel maps a library's pages in windows of 64 KiB round those
# that are used, and a small program pays for all of them.
set(cold_sources "")
foreach(source IN LISTS linux_sources)
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${PROJECT_SOURCE_DIR}/src OUTPUT_VARIABLE name)
    if(name MATCHES "^(api/(debug|deepbind|report|introspect|options|fork|vfork|emergency)|arena/|base/check|cache/object_debug|page/zone_check|slab/(debug|slab_check)|platform/linux/(calls|cgroup|libc_names|pressure|output|stack|store_ring|thread|event))")
        list(APPEND cold_sources ${source})
    endif()
endforeach()
list(REMOVE_ITEM linux_sources ${cold_sources})
list(APPEND linux_sources ${cold_sources})
set_property(SOURCE ${cold_sources} APPEND PROPERTY COMPILE_OPTIONS $<$<CONFIG:Release,RelWithDebInfo>:-Os>)

# Rings for paging, by a library that is loaded when the first one is wanted: only its header is needed here (2.2 or later).
include(CheckStructHasMember)
check_struct_has_member("struct io_uring" enter_ring_fd liburing.h STRATA_HAS_LIBURING LANGUAGE C)
if(STRATA_HAS_LIBURING)
    set_property(SOURCE ${PROJECT_SOURCE_DIR}/src/platform/linux/store_ring.c APPEND PROPERTY COMPILE_DEFINITIONS STRATA_LIBURING=1)
endif()

set(version_script ${PROJECT_SOURCE_DIR}/src/api/strata.map)
set(bound_list ${PROJECT_SOURCE_DIR}/src/api/bound.list)
set(layout_script ${PROJECT_SOURCE_DIR}/cmake/layout.ld)

# Only sources that know whether malloc is overridden are compiled for each variant; the others once.
set(variant_sources "")
foreach(source IN LISTS linux_sources)
    file(STRINGS ${source} found REGEX "STRATA_NO_OVERRIDE|api/also_as[.]h" LIMIT_COUNT 1)
    if(found)
        list(APPEND variant_sources ${source})
    endif()
endforeach()
list(REMOVE_ITEM linux_sources ${variant_sources})
add_library(strata_common_objects OBJECT ${linux_sources})
set_target_properties(strata_common_objects PROPERTIES POSITION_INDEPENDENT_CODE ON)
target_link_libraries(strata_common_objects PRIVATE strata_library_flags Threads::Threads)
target_compile_definitions(strata_common_objects PRIVATE STRATA_ALL_VARIANTS=1) # also_as.h refuses it: where sources have changed since

# strata_add_library(TARGET FILE EXPORT STATIC_EXPORT [DEFINITION...]): targets TARGET and TARGET_static, files libFILE.so and
# libFILE.a, known to users as strata::EXPORT and strata::STATIC_EXPORT.
function(strata_add_library target file export static_export)
    set(objects ${target}_objects)
    add_library(${objects} OBJECT ${variant_sources})
    set_target_properties(${objects} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    target_link_libraries(${objects} PRIVATE strata_library_flags Threads::Threads)
    target_compile_definitions(${objects} PRIVATE ${ARGN})

    set(all_objects $<TARGET_OBJECTS:${objects}> $<TARGET_OBJECTS:strata_common_objects>)
    add_library(${target} SHARED ${all_objects})
    set_target_properties(${target} PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR} LINKER_LANGUAGE C
        LINK_DEPENDS "${version_script};${bound_list};${layout_script}" OUTPUT_NAME ${file} EXPORT_NAME ${export})
    target_link_libraries(${target} PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
    # initfirst: handlers of fork that others register in their constructors shall run while ours hold no lock yet (src/api/fork.c).
    # Bsymbolic-functions: our own calls of public functions need not be looked up as the library is loaded, but for those
    # that a program may replace (dynamic-list).
    # nodelete: blocks and thread-exit callbacks outlive a dlclose. now: no lazy binding inside malloc.
    target_link_options(${target} PRIVATE LINKER:-z,nodelete LINKER:-z,now LINKER:-z,initfirst LINKER:-z,relro LINKER:-Bsymbolic-functions LINKER:--dynamic-list=${bound_list} LINKER:--version-script=${version_script})
    if(NOT STRATA_SANITIZE)
        target_link_options(${target} PRIVATE LINKER:--no-undefined LINKER:-z,separate-code LINKER:-z,max-page-size=65536 LINKER:-T,${layout_script})
    endif()

    # One relocatable object, its hidden names made local: linking the archive brings all of it or nothing, and no name of
    # ours but the public ones can clash with a program's. (Sanitizers keep their own bookkeeping per object.) The C++ operators are a second
    # one, which only a C++ program brings in, as they refer to its runtime; dlopen (src/api/deepbind.c) stays the program's.
    if(STRATA_SANITIZE)
        add_library(${target}_static STATIC ${all_objects})
    else()
        set(merged ${CMAKE_CURRENT_BINARY_DIR}/${target}_merged.o)
        add_custom_command(OUTPUT ${merged}
            COMMAND ${CMAKE_C_COMPILER} -r -nostdlib -o ${merged} $<FILTER:$<FILTER:$<TARGET_OBJECTS:${objects}>,EXCLUDE,/api/operators[.]c[.]>,EXCLUDE,/api/deepbind[.]c[.]>
                $<TARGET_OBJECTS:strata_common_objects>
            COMMAND ${CMAKE_OBJCOPY} --localize-hidden ${merged}
            DEPENDS ${objects} strata_common_objects ${all_objects}
            COMMAND_EXPAND_LISTS VERBATIM)
        add_library(${target}_static STATIC ${merged})
        if(NOT "STRATA_NO_OVERRIDE=1" IN_LIST ARGN)
            add_library(${target}_operators OBJECT ${PROJECT_SOURCE_DIR}/src/api/operators.c)
            set_target_properties(${target}_operators PROPERTIES POSITION_INDEPENDENT_CODE ON)
            target_link_libraries(${target}_operators PRIVATE strata_library_flags)
            target_compile_definitions(${target}_operators PRIVATE STRATA_OPERATORS_OF_ARCHIVE=1)
            target_sources(${target}_static PRIVATE $<TARGET_OBJECTS:${target}_operators>)
        endif()
        set_source_files_properties(${merged} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
    endif()
    set_target_properties(${target}_static PROPERTIES LINKER_LANGUAGE C OUTPUT_NAME ${file} EXPORT_NAME ${static_export})
    target_link_libraries(${target}_static INTERFACE Threads::Threads ${CMAKE_DL_LIBS})
    target_link_options(${target}_static INTERFACE LINKER:-z,nodelete) # of a shared library with the archive in it, as of ours; nothing to a program

    foreach(library ${target} ${target}_static)
        target_include_directories(${library} INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
            $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    endforeach()
    add_library(strata::${export} ALIAS ${target})
    add_library(strata::${static_export} ALIAS ${target}_static)
endfunction()

# In a build whose malloc is a sanitizer's, both are the same.
set(not_overriding STRATA_NO_OVERRIDE=1)
set(overriding "")
if(STRATA_NO_OVERRIDE)
    set(overriding ${not_overriding})
endif()
strata_add_library(strata strata strata static ${overriding})
strata_add_library(strata_only strata-only only only_static ${not_overriding})

# Operator new for programs that have their C++ runtime linked in beside libstrata.so (src/cxx/operators.cpp): libstrata-cxx.a, where there is a
# C++ compiler. Nothing else of the library needs one.
include(CheckLanguage)
check_language(CXX)
if(CMAKE_CXX_COMPILER AND NOT STRATA_NO_OVERRIDE)
    enable_language(CXX)
    add_library(strata_cxx STATIC)
    set_target_properties(strata_cxx PROPERTIES OUTPUT_NAME strata-cxx EXPORT_NAME cxx LINKER_LANGUAGE CXX)
    target_link_libraries(strata_cxx PUBLIC strata)
    foreach(form RANGE 7) # each a member of its own: a program may have any of them itself
        add_library(strata_cxx_${form} OBJECT ${PROJECT_SOURCE_DIR}/src/cxx/operators.cpp)
        set_target_properties(strata_cxx_${form} PROPERTIES POSITION_INDEPENDENT_CODE ON)
        target_compile_definitions(strata_cxx_${form} PRIVATE STRATA_FORM=${form})
        target_include_directories(strata_cxx_${form} PRIVATE ${PROJECT_SOURCE_DIR}/include)
        target_link_libraries(strata_cxx_${form} PRIVATE strata_warnings)
        target_sources(strata_cxx PRIVATE $<TARGET_OBJECTS:strata_cxx_${form}>)
    endforeach()
    add_library(strata::cxx ALIAS strata_cxx)
endif()

# libumem's names (include/umem.h, vmem.h) on libstrata: a library of its own, which uses nothing of strata but what programs use.
file(GLOB umem_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/umem/*.c)
set(umem_version_script ${PROJECT_SOURCE_DIR}/src/umem/umem.map)
add_library(strata_umem_objects OBJECT ${umem_sources})
set_target_properties(strata_umem_objects PROPERTIES POSITION_INDEPENDENT_CODE ON)
target_include_directories(strata_umem_objects PRIVATE ${PROJECT_SOURCE_DIR}/include)
# Callbacks may end their thread, or throw, through frames of ours.
target_compile_options(strata_umem_objects PRIVATE -fvisibility=hidden -ftls-model=initial-exec -fexceptions)
target_link_libraries(strata_umem_objects PRIVATE strata_warnings Threads::Threads)
add_library(strata_umem SHARED $<TARGET_OBJECTS:strata_umem_objects>)
set_target_properties(strata_umem PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR} LINKER_LANGUAGE C
    LINK_DEPENDS ${umem_version_script} OUTPUT_NAME strata-umem EXPORT_NAME umem INSTALL_RPATH "$ORIGIN" BUILD_RPATH_USE_ORIGIN ON)
target_link_libraries(strata_umem PUBLIC strata PRIVATE Threads::Threads)
target_link_options(strata_umem PRIVATE LINKER:-z,nodelete LINKER:-z,now LINKER:-z,relro LINKER:--version-script=${umem_version_script})
if(STRATA_SANITIZE)
    add_library(strata_umem_static STATIC $<TARGET_OBJECTS:strata_umem_objects>)
else()
    # auxiliary: glibc's loader searches libstrata.so in front of this library, wherever that stands. A program that was linked with it alone, or that
    # has it alone preloaded, would else find the C library's malloc first, as what a library needs comes behind all that the program names.
    target_link_options(strata_umem PRIVATE LINKER:--no-undefined LINKER:--auxiliary=libstrata.so.${PROJECT_VERSION_MAJOR})
    set(merged ${CMAKE_CURRENT_BINARY_DIR}/strata_umem_merged.o)
    add_custom_command(OUTPUT ${merged}
        COMMAND ${CMAKE_C_COMPILER} -r -nostdlib -o ${merged} $<TARGET_OBJECTS:strata_umem_objects>
        COMMAND ${CMAKE_OBJCOPY} --localize-hidden ${merged}
        DEPENDS strata_umem_objects $<TARGET_OBJECTS:strata_umem_objects>
        COMMAND_EXPAND_LISTS VERBATIM)
    add_library(strata_umem_static STATIC ${merged})
    set_source_files_properties(${merged} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
endif()
set_target_properties(strata_umem_static PROPERTIES LINKER_LANGUAGE C OUTPUT_NAME strata-umem EXPORT_NAME umem_static)
target_link_libraries(strata_umem_static INTERFACE strata_static)
foreach(kind umem umem_static)
    target_include_directories(strata_${kind} INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
        $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    add_library(strata::${kind} ALIAS strata_${kind})
endforeach()
