# cpack: troupe-VERSION-SYSTEM-PROCESSOR.tar.gz of everything, and Debian packages, here named as of 0.2:
#   libtroupe0.3    libtroupe.so, of a shared build only
#   libtroupe-c1    libtroupe_c.so, the C interface
#   libtroupe-dev   headers, the linker's libraries, find_package(troupe), pkg-config; depends on what consumers link
#   troupe          the program
# A .deb belongs to the release of the distribution that it was built on: its libraries are those found here. For the
# distribution's folders, configure with CMAKE_INSTALL_PREFIX=/usr: tools/package does.
set(CPACK_PACKAGE_NAME troupe)
set(CPACK_PACKAGE_VENDOR "The troupe authors")
set(CPACK_PACKAGE_CONTACT "The troupe authors <authors@troupe.invalid>" CACHE STRING
    "Who is named as the maintainer of packages made by cpack")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "asynchronous GPU collectives for actors, in C++20")
set(CPACK_PACKAGE_DESCRIPTION
"A world of actors, one for each GPU, answers requests for collective operations
exactly once, when the GPUs are done or with an error that says what to do. Without
a GPU the same actors, messages and failures run on a mock that does real arithmetic.")
set(CPACK_SYSTEM_NAME ${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGE_CHECKSUM SHA256)
set(CPACK_GENERATOR "TGZ;DEB")
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_COMPONENTS_ALL development)
if(BUILD_SHARED_LIBS)
  list(PREPEND CPACK_COMPONENTS_ALL runtime)
endif()
if(TARGET troupe_c)
  list(APPEND CPACK_COMPONENTS_ALL c)
endif()
if(TARGET troupe)
  list(APPEND CPACK_COMPONENTS_ALL program)
endif()

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(soname_version ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set(same_version "(= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})")
if(TROUPE_HAS_CUDA)
  set(opened_at_run_time libnccl2) # by name; where it is not there, there is the mock
endif()

set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME libtroupe${soname_version})
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SUGGESTS ${opened_at_run_time})

set(CPACK_DEBIAN_C_PACKAGE_NAME libtroupe-c1) # of the soname, which is not troupe's version
set(CPACK_DEBIAN_C_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_C_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_C_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_C_PACKAGE_SUGGESTS ${opened_at_run_time})

set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME troupe)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_RECOMMENDS "python3 (>= 3.9)") # plot, report, suite, top, trace, tune
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SUGGESTS python3-matplotlib python3-rich ${opened_at_run_time})
list(JOIN CPACK_DEBIAN_PROGRAM_PACKAGE_SUGGESTS ", " CPACK_DEBIAN_PROGRAM_PACKAGE_SUGGESTS)
# libtroupe.so, for dpkg-shlibdeps to look into; CPack lets each list end for itself.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR})

# What a consumer of the package links or includes. Only what came from the distribution is one of its packages.
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libtroupe-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(needs "")
get_target_property(caf CAF::core LOCATION)
if(caf MATCHES "^/usr/lib/" AND TROUPE_CAF_VERSION MATCHES "^0\\.([0-9]+)\\.")
  math(EXPR next "${CMAKE_MATCH_1} + 1")
  list(APPEND needs "libcaf-dev (>= 0.${CMAKE_MATCH_1})" "libcaf-dev (<< 0.${next})")
endif()
if(BUILD_SHARED_LIBS)
  list(PREPEND needs "libtroupe${soname_version} ${same_version}")
  set(CPACK_DEBIAN_PROGRAM_PACKAGE_DEPENDS "libtroupe${soname_version} ${same_version}")
  set(CPACK_DEBIAN_C_PACKAGE_DEPENDS "libtroupe${soname_version} ${same_version}")
else()
  list(APPEND needs libspdlog-dev "libssl-dev (>= 3)" libhwloc-dev)
  if(TROUPE_HAS_GLOO)
    list(APPEND needs libgloo-dev)
  endif()
  if(TROUPE_HAS_METRICS)
    list(APPEND needs prometheus-cpp-dev)
  endif()
endif()
if(TARGET troupe_c)
  list(APPEND needs "libtroupe-c1 ${same_version}")
endif()
list(JOIN needs ", " CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS "troupe ${same_version}, pkg-config, cmake (>= 3.25)")
set(CPACK_DEBIAN_RUNTIME_DESCRIPTION "${CPACK_PACKAGE_DESCRIPTION}\nThis is the shared library.")
set(CPACK_DEBIAN_C_DESCRIPTION "${CPACK_PACKAGE_DESCRIPTION}\nThis is the shared library of its C interface.")
set(CPACK_DEBIAN_PROGRAM_DESCRIPTION
    "${CPACK_PACKAGE_DESCRIPTION}\nThis is the program: demonstrations, a doctor, benches, and a launcher of processes.")
set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION "${CPACK_PACKAGE_DESCRIPTION}\nThis is what programs are built with.")
if(TROUPE_HAS_CUDA AND NOT BUILD_SHARED_LIBS)
  string(APPEND CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION " They are linked with the static runtime of\n"
    "CUDA ${CUDAToolkit_VERSION_MAJOR}.${CUDAToolkit_VERSION_MINOR} or a later ${CUDAToolkit_VERSION_MAJOR}.x, which is "
    "NVIDIA's to install.")
endif()

# Where Debian's policy wants the licence of each package.
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/package_copyright.cmake)
include(CPack)
