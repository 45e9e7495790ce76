# The layers and their sources, top first. strata_layer_sources(VARIABLE SYSTEM [LAYER...]) collects those of the named layers (of all,
# if none is named) on one platform.

set(STRATA_LAYERS api cache slab page arena platform base)

function(strata_layer_sources variable system)
    set(all "")
    set(layers ${ARGN})
    if(NOT layers)
        set(layers ${STRATA_LAYERS})
    endif()
    foreach(layer IN LISTS layers)
        set(folder src/${layer})
        if(layer STREQUAL "platform")
            set(folder src/platform/${system})
        endif()
        file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.c)
        if(NOT sources)
            message(FATAL_ERROR "${folder} has no sources")
        endif()
        if(STRATA_POOL_VARIANT STREQUAL "array")
            list(FILTER sources EXCLUDE REGEX "/pool_stacks\\.c$")
        elseif(STRATA_POOL_VARIANT STREQUAL "stacks")
            list(FILTER sources EXCLUDE REGEX "/pool_rounds\\.c$")
        endif()
        list(APPEND all ${sources})
    endforeach()
    set(${variable} ${all} PARENT_SCOPE)
endfunction()

# operator new throws through frames of api/, which therefore need to be unwindable on every architecture.
file(GLOB api_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/api/*.c)
set_source_files_properties(${api_sources} PROPERTIES COMPILE_OPTIONS -fexceptions)
