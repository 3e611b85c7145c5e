# Gloo (collectives between CPU processes) for troupe's build. Optional: without it the backend `gloo` says how to get it.
# Debian's and Ubuntu's package is looked for by its files, as those built by hand are: what its CMake file tells depends
# on its version.
#
# troupe_find_gloo() defines the target gloo::gloo and TROUPE_GLOO_VERSION; or it sets TROUPE_GLOO_PROBLEM to what is
# wrong and what to do.
function(troupe_find_gloo)
  set(TROUPE_GLOO_PROBLEM "" PARENT_SCOPE)
  find_path(TROUPE_GLOO_INCLUDE_DIR gloo/transport/tcp/device.h)
  find_library(TROUPE_GLOO_LIBRARY gloo)
  mark_as_advanced(TROUPE_GLOO_INCLUDE_DIR TROUPE_GLOO_LIBRARY)
  if(NOT TROUPE_GLOO_INCLUDE_DIR OR NOT TROUPE_GLOO_LIBRARY)
    string(CONCAT problem "Gloo was not found. On Debian and Ubuntu: apt-get install libgloo-dev. For one of your own: "
                          "let CMAKE_PREFIX_PATH name its folder")
    set(TROUPE_GLOO_PROBLEM "${problem}" PARENT_SCOPE)
    return()
  endif()
  file(STRINGS ${TROUPE_GLOO_INCLUDE_DIR}/gloo/config.h lines REGEX "define GLOO_VERSION_(MAJOR|MINOR|PATCH) ")
  list(TRANSFORM lines REPLACE ".* ([0-9]+)$" "\\1")
  list(JOIN lines "." version)
  set(TROUPE_GLOO_VERSION ${version} PARENT_SCOPE)
  if(NOT TARGET gloo::gloo)
    add_library(gloo::gloo UNKNOWN IMPORTED GLOBAL)
    set_target_properties(gloo::gloo PROPERTIES
      IMPORTED_LOCATION ${TROUPE_GLOO_LIBRARY}
      INTERFACE_INCLUDE_DIRECTORIES ${TROUPE_GLOO_INCLUDE_DIR}
      INTERFACE_SYSTEM_INCLUDE_DIRECTORIES ${TROUPE_GLOO_INCLUDE_DIR})
  endif()
endfunction()
