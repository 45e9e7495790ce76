# strata_sim: every layer on platform/sim, for tests and for experiments on machines that are not there.

strata_layer_sources(sim_sources sim)
# The C library's malloc serves the program itself.
add_library(strata_sim STATIC ${sim_sources})
set_target_properties(strata_sim PROPERTIES POSITION_INDEPENDENT_CODE ON)
# The simulated locks also find out who would wait forever, for which they need to see every step.
target_compile_definitions(strata_sim PUBLIC STRATA_SIM=1 STRATA_NO_OVERRIDE=1 STRATA_LOCK_DEBUG=1)
target_link_libraries(strata_sim PUBLIC strata_library_flags Threads::Threads)
