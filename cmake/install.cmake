# What `cmake --install` lays down: the libraries, headers, strata.pc, strata-only.pc and strata-umem.pc, the CMake package, man pages.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/strata)
install(TARGETS strata strata_static strata_only strata_only_static strata_umem strata_umem_static EXPORT strata_targets)
if(TARGET strata_cxx)
    install(TARGETS strata_cxx EXPORT strata_targets)
endif()
install(DIRECTORY include/strata DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(FILES include/umem.h include/vmem.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES include/sys/vmem.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/sys)
install(EXPORT strata_targets NAMESPACE strata:: FILE strataTargets.cmake DESTINATION ${package_dir})
configure_package_config_file(cmake/strataConfig.cmake.in strataConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(strataConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/strataConfig.cmake ${PROJECT_BINARY_DIR}/strataConfigVersion.cmake DESTINATION ${package_dir})

# Relative to the file itself where the layout allows, so that an installed tree can be moved.
set(pc_prefix ${CMAKE_INSTALL_PREFIX})
if(NOT IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
    file(RELATIVE_PATH pc_up "/p/${CMAKE_INSTALL_LIBDIR}/pkgconfig" /p)
    set(pc_prefix "\${pcfiledir}/${pc_up}")
    string(REGEX REPLACE "/$" "" pc_prefix "${pc_prefix}")
endif()
foreach(pc_dir LIBDIR INCLUDEDIR)
    set(pc_${pc_dir} "${CMAKE_INSTALL_${pc_dir}}")
    if(NOT IS_ABSOLUTE "${pc_${pc_dir}}")
        string(PREPEND pc_${pc_dir} "\${prefix}/")
    endif()
endforeach()
set(pc_description_strata "${PROJECT_DESCRIPTION}")
set(pc_description_strata-only "${PROJECT_DESCRIPTION}, beside the program's malloc")
set(pc_description_strata-umem "libumem's names on strata")
set(pc_requires_strata-umem "Requires: strata\n")
set(pc_names strata strata-only strata-umem)
if(TARGET strata_cxx)
    set(pc_description_strata-cxx "${PROJECT_DESCRIPTION}, for C++ programs with a runtime of their own")
    set(pc_requires_strata-cxx "Requires: strata\n")
    list(APPEND pc_names strata-cxx)
endif()
foreach(pc_name IN LISTS pc_names)
    set(pc_requires "${pc_requires_${pc_name}}")
    set(pc_description "${pc_description_${pc_name}}")
    configure_file(cmake/strata.pc.in ${pc_name}.pc @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/${pc_name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()

install(FILES docs/man/strata.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES docs/man/libstrata.3 docs/man/strata_malloc.3 docs/man/strata_arena.3 docs/man/strata_batch.3 docs/man/strata_cache.3 docs/man/strata_cxx.3 docs/man/strata_debug.3
    docs/man/strata_page.3 docs/man/strata_page_watch.3 docs/man/strata_paging.3 docs/man/strata_pool.3 docs/man/strata_pressure.3
    docs/man/strata_handle.3 docs/man/strata_zone.3 docs/man/strata_zone_backing.3 docs/man/strata_zone_compact.3
    docs/man/strata_zone_reclaim.3
    docs/man/strata_kmem.3 docs/man/libstrata-umem.3
    DESTINATION ${CMAKE_INSTALL_MANDIR}/man3)
