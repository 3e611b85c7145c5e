# Compiles through ccache where it is installed, unless another launcher was asked for.
find_program(TROUPE_CCACHE ccache)
mark_as_advanced(TROUPE_CCACHE)
if(TROUPE_CCACHE AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  # Precompiled headers hold the time of the headers that they were made of, which ccache has compared already. They also
  # hold a checksum of each header, by which the compiler knows which ones not to include again. Outside of its depend
  # mode ccache compares preprocessed text, without comments: after a change of a comment it would return a precompiled
  # header whose checksums are wrong, and what is in it would be defined twice.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_DEPEND=1
    ${TROUPE_CCACHE})
endif()
