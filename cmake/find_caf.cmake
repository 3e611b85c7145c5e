# CAF for troupe's build and, installed beside its package, for those who use it. CAF 1.x brings its targets itself;
# Debian's and Ubuntu's package of 0.17 has no CMake file, so its parts are found one by one.
#
# troupe_find_caf(PART...), with a beginning of "core io openssl", defines the targets CAF::PART and sets
# TROUPE_CAF_VERSION, e.g. 0.17.6; or it sets TROUPE_CAF_PROBLEM to what is wrong and what to do.
function(troupe_find_caf)
  set(TROUPE_CAF_VERSION "" PARENT_SCOPE)
  set(TROUPE_CAF_PROBLEM "" PARENT_SCOPE)

  # Without a version: CAF's own version file accepts an exact one only.
  find_package(CAF CONFIG QUIET)
  if(CAF_FOUND AND CAF_VERSION VERSION_GREATER_EQUAL 1)
    foreach(part ${ARGN})
      if(NOT TARGET CAF::${part})
        string(CONCAT problem "CAF ${CAF_VERSION} in ${CAF_DIR} was built without its module ${part}: build CAF with "
                              "it, or let CAF_DIR name the folder of another CAFConfig.cmake")
        set(TROUPE_CAF_PROBLEM "${problem}" PARENT_SCOPE)
        return()
      endif()
    endforeach()
    set(TROUPE_CAF_VERSION ${CAF_VERSION} PARENT_SCOPE)
    return()
  endif()

  find_path(TROUPE_CAF_INCLUDE_DIR caf/config.hpp)
  mark_as_advanced(TROUPE_CAF_INCLUDE_DIR)
  set(missing "")
  if(NOT TROUPE_CAF_INCLUDE_DIR)
    list(APPEND missing "header caf/config.hpp")
  endif()
  foreach(part ${ARGN})
    find_library(TROUPE_CAF_${part}_LIBRARY caf_${part})
    mark_as_advanced(TROUPE_CAF_${part}_LIBRARY)
    if(NOT TROUPE_CAF_${part}_LIBRARY)
      list(APPEND missing "library caf_${part}")
    endif()
  endforeach()
  if(missing)
    list(JOIN missing ", " missing)
    string(CONCAT problem "CAF, the C++ Actor Framework, was not found (missing: ${missing}). On Debian and Ubuntu: "
                          "apt-get install libcaf-dev. For a CAF 1.x of your own: let CAF_DIR name the folder of its "
                          "CAFConfig.cmake")
    set(TROUPE_CAF_PROBLEM "${problem}" PARENT_SCOPE)
    return()
  endif()

  # CAF_VERSION is 1706 for 0.17.6.
  file(STRINGS ${TROUPE_CAF_INCLUDE_DIR}/caf/config.hpp version REGEX "^#define CAF_VERSION [0-9]+$")
  string(REGEX REPLACE "[^0-9]" "" version "${version}")
  if(NOT version MATCHES "^17[0-9][0-9]$")
    string(CONCAT problem "The CAF headers in ${TROUPE_CAF_INCLUDE_DIR} are neither 0.17 (CAF_VERSION is '${version}') "
                          "nor a 1.x with its CAFConfig.cmake: install libcaf-dev, or let CAF_DIR name a CAF 1.x")
    set(TROUPE_CAF_PROBLEM "${problem}" PARENT_SCOPE)
    return()
  endif()
  math(EXPR patch "${version} % 100")

  find_package(Threads REQUIRED)
  set(below Threads::Threads) # Each part stands on the one before.
  foreach(part ${ARGN})
    if(NOT TARGET CAF::${part})
      add_library(CAF::${part} SHARED IMPORTED GLOBAL)
      set_target_properties(CAF::${part} PROPERTIES
        IMPORTED_LOCATION ${TROUPE_CAF_${part}_LIBRARY}
        INTERFACE_INCLUDE_DIRECTORIES ${TROUPE_CAF_INCLUDE_DIR}
        INTERFACE_SYSTEM_INCLUDE_DIRECTORIES ${TROUPE_CAF_INCLUDE_DIR}
        INTERFACE_LINK_LIBRARIES ${below})
    endif()
    set(below CAF::${part})
  endforeach()
  set(TROUPE_CAF_VERSION 0.17.${patch} PARENT_SCOPE)
endfunction()
