# Defines the targets CAF::core, CAF::io and CAF::openssl. CAF 1.x brings them itself; Debian's and Ubuntu's package of
# 0.17 has no CMake file, so its parts are found one by one. Only actors and runtime may use them.
include_guard(GLOBAL)

# Without a version: CAF's own version file accepts an exact one only.
find_package(CAF CONFIG QUIET)
if(CAF_FOUND AND CAF_VERSION VERSION_GREATER_EQUAL 1)
  message(STATUS "CAF ${CAF_VERSION} found")
  return()
endif()

find_path(TROUPE_CAF_INCLUDE_DIR caf/config.hpp)
mark_as_advanced(TROUPE_CAF_INCLUDE_DIR)
set(missing "")
if(NOT TROUPE_CAF_INCLUDE_DIR)
  list(APPEND missing "header caf/config.hpp")
endif()
foreach(part core io openssl)
  find_library(TROUPE_CAF_${part}_LIBRARY caf_${part})
  mark_as_advanced(TROUPE_CAF_${part}_LIBRARY)
  if(NOT TROUPE_CAF_${part}_LIBRARY)
    list(APPEND missing "library caf_${part}")
  endif()
endforeach()
if(missing)
  list(JOIN missing ", " missing)
  message(FATAL_ERROR "CAF, the C++ Actor Framework, was not found (missing: ${missing}). On Debian and Ubuntu: "
                      "apt-get install libcaf-dev (tools/install-dependencies does it). For a CAF 1.x of your own: let "
                      "CAF_DIR name the folder of its CAFConfig.cmake")
endif()

# CAF_VERSION is 1706 for 0.17.6.
file(STRINGS ${TROUPE_CAF_INCLUDE_DIR}/caf/config.hpp version REGEX "^#define CAF_VERSION [0-9]+$")
string(REGEX REPLACE "[^0-9]" "" version "${version}")
if(NOT version MATCHES "^17[0-9][0-9]$")
  message(FATAL_ERROR "The CAF headers in ${TROUPE_CAF_INCLUDE_DIR} are neither 0.17 (CAF_VERSION is '${version}') nor a "
                      "1.x with its CAFConfig.cmake: install libcaf-dev, or let CAF_DIR name a CAF 1.x")
endif()
math(EXPR patch "${version} % 100")
message(STATUS "CAF 0.17.${patch} found (${TROUPE_CAF_core_LIBRARY})")

foreach(part core io openssl)
  add_library(CAF::${part} SHARED IMPORTED GLOBAL)
  set_target_properties(CAF::${part} PROPERTIES
    IMPORTED_LOCATION ${TROUPE_CAF_${part}_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${TROUPE_CAF_INCLUDE_DIR}
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES ${TROUPE_CAF_INCLUDE_DIR})
endforeach()
find_package(Threads REQUIRED)
target_link_libraries(CAF::core INTERFACE Threads::Threads)
target_link_libraries(CAF::io INTERFACE CAF::core)
target_link_libraries(CAF::openssl INTERFACE CAF::io)
