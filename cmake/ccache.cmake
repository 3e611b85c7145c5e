# Compiles through ccache where it is installed, unless another launcher was asked for.
find_program(TROUPE_CCACHE ccache)
mark_as_advanced(TROUPE_CCACHE)
if(TROUPE_CCACHE AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${TROUPE_CCACHE})
endif()
