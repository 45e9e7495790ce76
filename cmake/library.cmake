# strata (libstrata.so) and strata_static (libstrata.a), from one set of objects.

strata_layer_sources(linux_sources linux)
add_library(strata_objects OBJECT ${linux_sources})
set_target_properties(strata_objects PROPERTIES POSITION_INDEPENDENT_CODE ON)
target_link_libraries(strata_objects PRIVATE strata_library_flags Threads::Threads)
if(STRATA_NO_OVERRIDE)
    target_compile_definitions(strata_objects PRIVATE STRATA_NO_OVERRIDE=1)
endif()

set(version_script ${PROJECT_SOURCE_DIR}/src/api/strata.map)
add_library(strata SHARED $<TARGET_OBJECTS:strata_objects>)
set_target_properties(strata PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR} LINKER_LANGUAGE C
    LINK_DEPENDS ${version_script})
target_link_libraries(strata PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
# nodelete: blocks and thread-exit callbacks outlive a dlclose. now: no lazy binding inside malloc.
target_link_options(strata PRIVATE LINKER:-z,nodelete LINKER:-z,now LINKER:-z,relro LINKER:--version-script=${version_script})
if(NOT STRATA_SANITIZE)
    target_link_options(strata PRIVATE LINKER:--no-undefined)
endif()

# One relocatable object, its hidden names made local: linking libstrata.a brings all of it or nothing, and no name of
# ours but the public ones can clash with a program's. (Sanitizers keep their own bookkeeping per object.)
if(STRATA_SANITIZE)
    add_library(strata_static STATIC $<TARGET_OBJECTS:strata_objects>)
else()
    set(merged ${CMAKE_CURRENT_BINARY_DIR}/strata_merged.o)
    add_custom_command(OUTPUT ${merged}
        COMMAND ${CMAKE_C_COMPILER} -r -nostdlib -o ${merged} $<TARGET_OBJECTS:strata_objects>
        COMMAND ${CMAKE_OBJCOPY} --localize-hidden ${merged}
        DEPENDS strata_objects $<TARGET_OBJECTS:strata_objects>
        COMMAND_EXPAND_LISTS VERBATIM)
    add_library(strata_static STATIC ${merged})
    set_source_files_properties(${merged} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
endif()
set_target_properties(strata_static PROPERTIES LINKER_LANGUAGE C OUTPUT_NAME strata EXPORT_NAME static)
target_link_libraries(strata_static INTERFACE Threads::Threads ${CMAKE_DL_LIBS})

foreach(target strata strata_static)
    target_include_directories(${target} INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
        $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endforeach()
add_library(strata::strata ALIAS strata)
add_library(strata::static ALIAS strata_static)
