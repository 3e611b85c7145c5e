# The installed package: cmake --install, then find_package(troupe) or pkg-config; docs/packaging.md. Nothing in it may
# name the source or the build folder, and it may be moved as a whole.
#
# Its parts, which are packages of their own where they are packed (cmake/packages.cmake): "runtime" is libtroupe.so, if
# it is shared; "c" is libtroupe_c.so; "development" is what is needed to build with them; "program" is the program troupe.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/troupe)

# A set of targets for each layer: who asks for lower ones only need not have what the higher ones link.
function(troupe_export set)
  foreach(part ${ARGN})
    set_target_properties(troupe_${part} PROPERTIES EXPORT_NAME ${part})
    install(TARGETS troupe_${part} EXPORT troupe-${set}
            LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT development
            ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development
            INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  endforeach()
  install(EXPORT troupe-${set} NAMESPACE troupe:: DESTINATION ${package_dir} COMPONENT development)
endfunction()
if(BUILD_SHARED_LIBS)
  troupe_export(runtime troupe core)
else()
  foreach(layer device completion collectives actors)
    troupe_export(${layer} ${layer})
  endforeach()
  if(TROUPE_CORE_ALONE)
    troupe_export(runtime runtime core troupe)
  else()
    troupe_export(runtime runtime core)
    troupe_export(backends backends)
    troupe_export(processes processes)
    troupe_export(testing testing troupe)
  endif()
endif()

# The public headers. Each can be included without CUDA, NCCL and Gloo.
include(public_headers)
foreach(header ${TROUPE_PUBLIC_HEADERS})
  if(TROUPE_CORE_ALONE AND header MATCHES "^(processes|backends|testing)/")
    continue()
  endif()
  string(REGEX REPLACE "^runtime/(troupe.hpp|actors.hpp)" "\\1" name ${header}) # ALSO_AT_ROOT of the runtime
  cmake_path(GET name PARENT_PATH folder)
  install(FILES ${PROJECT_SOURCE_DIR}/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/troupe/${folder}
          COMPONENT development)
endforeach()

# The C interface. Its target needs nothing else of the package, so it has no set of exported targets: troupeConfig.cmake
# makes it.
if(TARGET troupe_c)
  if(BUILD_SHARED_LIBS)
    set_target_properties(troupe_c PROPERTIES INSTALL_RPATH "$ORIGIN") # where libtroupe.so is
  endif()
  install(TARGETS troupe_c LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT c NAMELINK_COMPONENT development)
  install(FILES ${PROJECT_SOURCE_DIR}/c/troupe.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/troupe COMPONENT development)
endif()

if(TARGET troupe)
  # It finds libtroupe.so beside itself wherever both are moved to, and a CAF outside the system's folders where the
  # built one found it.
  cmake_path(SET to_libraries NORMALIZE "/${CMAKE_INSTALL_LIBDIR}")
  cmake_path(RELATIVE_PATH to_libraries BASE_DIRECTORY "/${CMAKE_INSTALL_BINDIR}")
  set(tools ${TROUPE_TOOLS})
  list(TRANSFORM tools PREPEND troupe-)
  set_target_properties(troupe PROPERTIES EXPORT_NAME program)
  set_target_properties(troupe ${tools} PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
  if(BUILD_SHARED_LIBS)
    set_target_properties(troupe ${tools} PROPERTIES INSTALL_RPATH "$ORIGIN/${to_libraries}")
  endif()
  install(TARGETS ${tools} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
  # The tools in Python: links beside the others, to ../share/troupe.
  cmake_path(SET share NORMALIZE "${CMAKE_INSTALL_BINDIR}/../share/troupe")
  file(GLOB python_files ${PROJECT_SOURCE_DIR}/program/report/*.py)
  install(PROGRAMS ${python_files} DESTINATION ${share} COMPONENT program)
  set(links ${TROUPE_PYTHON_TOOLS})
  list(TRANSFORM links PREPEND ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/troupe-)
  install(FILES ${links} DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
  install(TARGETS troupe EXPORT troupe-program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
  install(EXPORT troupe-program NAMESPACE troupe:: DESTINATION ${package_dir} COMPONENT program)
endif()
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT development)

set(TROUPE_SHARED OFF)
set(TROUPE_HAS_C OFF)
if(TARGET troupe_c)
  set(TROUPE_HAS_C ON)
endif()
set(TROUPE_DEFAULT_COMPONENT troupe)
if(TROUPE_CORE_ALONE)
  set(TROUPE_DEFAULT_COMPONENT core)
endif()
if(BUILD_SHARED_LIBS)
  set(TROUPE_SHARED ON)
endif()
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/troupeConfig.cmake.in
  ${PROJECT_BINARY_DIR}/package/troupeConfig.cmake
  INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/package/troupeConfigVersion.cmake
  VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/package/troupeConfig.cmake
              ${PROJECT_BINARY_DIR}/package/troupeConfigVersion.cmake ${PROJECT_SOURCE_DIR}/cmake/find_caf.cmake
              ${PROJECT_SOURCE_DIR}/cmake/find_hwloc.cmake ${PROJECT_SOURCE_DIR}/cmake/find_gloo.cmake
              ${PROJECT_SOURCE_DIR}/cmake/find_prometheus.cmake
        DESTINATION ${package_dir} COMPONENT development)

include(pkg_config)
set(pc_files ${PROJECT_BINARY_DIR}/package/troupe.pc)
if(TARGET troupe_c)
  list(APPEND pc_files ${PROJECT_BINARY_DIR}/package/troupe_c.pc)
endif()
install(FILES ${pc_files} DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
if(PROJECT_IS_TOP_LEVEL)
  include(packages)
endif()
