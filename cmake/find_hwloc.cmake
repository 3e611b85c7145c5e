# hwloc (where CPUs, NUMA nodes and PCI devices lie) for troupe's build. The distributions' packages of it bring no CMake
# file.
#
# troupe_find_hwloc() defines the target hwloc::hwloc; or it sets TROUPE_HWLOC_PROBLEM to what is wrong and what to do.
function(troupe_find_hwloc)
  set(TROUPE_HWLOC_PROBLEM "" PARENT_SCOPE)
  find_path(TROUPE_HWLOC_INCLUDE_DIR hwloc.h)
  find_library(TROUPE_HWLOC_LIBRARY hwloc)
  mark_as_advanced(TROUPE_HWLOC_INCLUDE_DIR TROUPE_HWLOC_LIBRARY)
  if(NOT TROUPE_HWLOC_INCLUDE_DIR OR NOT TROUPE_HWLOC_LIBRARY)
    string(CONCAT problem "hwloc was not found. On Debian and Ubuntu: apt-get install libhwloc-dev. For one of your own: "
                          "let CMAKE_PREFIX_PATH name its folder")
    set(TROUPE_HWLOC_PROBLEM "${problem}" PARENT_SCOPE)
    return()
  endif()
  if(NOT TARGET hwloc::hwloc)
    add_library(hwloc::hwloc UNKNOWN IMPORTED GLOBAL)
    set_target_properties(hwloc::hwloc PROPERTIES
      IMPORTED_LOCATION ${TROUPE_HWLOC_LIBRARY}
      INTERFACE_INCLUDE_DIRECTORIES ${TROUPE_HWLOC_INCLUDE_DIR}
      INTERFACE_SYSTEM_INCLUDE_DIRECTORIES ${TROUPE_HWLOC_INCLUDE_DIR})
  endif()
endfunction()
